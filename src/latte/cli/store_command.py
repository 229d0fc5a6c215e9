"""``latte store``: back up, restore and check what a server stores."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .arguments import InputFile
from .options import PLUGINS, load_plugins, store_options
from .output import line, print_rows, problem

if TYPE_CHECKING:
    from ..serve.store_backup import StorePlace
    from ..serve.store_check import StoreReport


@click.group()
def store() -> None:
    """Back up, restore and check the store of a server: uploads and tokens, in SQLite or PostgreSQL."""


@store.command("backup")
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@store_options
def backup(out: Path, data: Path, store: str | None) -> None:
    """Write everything in a store to the file OUT. Servers need not be stopped: it is the store of one moment.

    The file is a database of SQLite, whatever the store is. A damaged store is refused.
    """
    place = _located(data, store)
    from ..serve.store_backup import back_up

    clients, tokens = back_up(place, out)
    line(f"{out}: {clients} clients, {tokens} tokens")


@store.command("restore")
@click.argument("source", metavar="IN", type=InputFile())
@store_options
@click.option("--replace", is_flag=True, help="Replace what the store holds.")
@click.option("--keep-tokens", is_flag=True, help="Leave the tokens that are there as they are.")
def restore(source: Path, data: Path, store: str | None, replace: bool, keep_tokens: bool) -> None:
    """Fill a store from the backup IN, of whichever kind of store. No server may run on it.

    Nothing is changed unless the whole backup is sound. A token that is revoked in the store or in the backup is
    revoked, and a server for which tokens were made asks for tokens.
    """
    place = _located(data, store)
    from ..serve.store_backup import Restoration
    from ..serve.store_backup import restore as fill

    restored, unknown = fill(source, place, Restoration(replace, keep_tokens))
    when = datetime.fromtimestamp(restored.created, UTC).isoformat(timespec="seconds")
    tokens = "tokens as before" if keep_tokens else f"{len(restored.tokens)} tokens"
    line(f"restored {restored.clients} clients, {tokens}, as of {when}")
    if unknown:
        problem(f"which tokens were revoked since {when} is not known here: revoke them again (latte token revoke)")


@store.command("check")
@store_options
@click.option("--task", type=InputFile(), help="Try each upload on the exchange of this task.")
@PLUGINS
@click.option("--forget-damaged", is_flag=True, help="Go on without what is damaged: its clients upload again.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(
    data: Path, store: str | None, task: Path | None, plugins: tuple[Path, ...], forget_damaged: bool, as_json: bool
) -> None:
    """Read every upload in a store and list those that are damaged; exit code 1 if there are any."""
    place = _located(data, store)
    from ..serve import store_check
    from ..serve.upload_store import DamagedStoreError
    from ..wire.task_file import read_task

    load_plugins(plugins)
    try:
        report = store_check.check_store(place, None if task is None else read_task(task))
    except DamagedStoreError as error:
        problem(error)
        sys.exit(1)
    _print_report(report, as_json)
    forgotten = store_check.forget_damaged(place, report) if forget_damaged else 0
    if forgotten:
        line(f"{forgotten} forgotten: they upload again at their next sync", err=True)
    if len(report.damages) > forgotten:
        sys.exit(1)


def _located(data: Path, store: str | None) -> StorePlace:
    from ..core.extras import need

    need("msgspec", "serve")
    from ..serve.store_backup import StorePlace

    return StorePlace(store or data, data)


def _print_report(report: StoreReport, as_json: bool) -> None:
    rows = [{"client": damage.client, "fault": damage.fault} for damage in report.damages]
    if as_json:
        line(json.dumps({"clients": report.clients, "damaged": rows}))
        return
    print_rows([{**row, "client": row["client"] or "(the file)"} for row in rows], False)
    line(f"{report.clients} clients, {len(rows) or 'none'} damaged")
