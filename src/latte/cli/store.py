"""``latte store``, ``token`` and ``client``: what a server stores, who may talk to it, and the clients it has."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from . import options
from .answer_text import counted
from .output import line, print_rows, problem

if TYPE_CHECKING:
    from ..edge.clients.calls import Calls
    from ..server.store.tokens import TokenStore


@click.group()
def store() -> None:
    """Back up, restore and check the store of a server: uploads and tokens, in SQLite or PostgreSQL."""


@store.command("backup")
@click.argument("out", type=click.Path(dir_okay=False, path_type=Path))
@options.store_options
def backup(out: Path, folder: Path, store: str | None) -> None:
    """Write everything in a store to the file OUT, while servers run.

    The backup is the store as it was at one moment. It is an SQLite database, whatever the store is. A damaged store is
    refused.
    """
    from ..server.store.backup import StorePlace, back_up

    clients, tokens = back_up(StorePlace(store or folder, folder), out)
    line(f"{out}: {counted(clients, 'client')}, {counted(tokens, 'token')}")


@store.command("restore")
@click.argument("source", metavar="IN", type=options.InputFile())
@options.store_options
@click.option("--replace", is_flag=True, help="Replace what the store holds.")
@click.option("--keep-tokens", is_flag=True, help="Leave the tokens that are there as they are.")
def restore(source: Path, folder: Path, store: str | None, replace: bool, keep_tokens: bool) -> None:
    """Fill a store from the backup IN. No server may run on the store.

    A backup of SQLite can fill PostgreSQL, and the other way. Nothing is changed unless the whole backup is sound. A
    token that is revoked in the store or in the backup is revoked, and a server for which tokens were made asks for
    tokens.
    """
    from ..server.store.backup import Restoration, StorePlace
    from ..server.store.backup import restore as fill

    restored, unknown = fill(source, StorePlace(store or folder, folder), Restoration(replace, keep_tokens))
    when = datetime.fromtimestamp(restored.created, UTC).isoformat(timespec="seconds")
    tokens = "tokens as before" if keep_tokens else counted(len(restored.tokens), "token")
    line(f"restored {counted(restored.clients, 'client')}, {tokens}, as of {when}")
    if unknown:
        problem(f"which tokens were revoked since {when} is not known here: revoke them again (latte token revoke)")


@store.command("check")
@options.store_options
@click.option("--task", type=options.InputFile(), help="Check that each upload fits this task, too.")
@options.PLUGINS
@click.option("--forget-damaged", is_flag=True, help="Remove what is damaged: its clients upload again.")
@options.JSON
def check(
    folder: Path, store: str | None, task: Path | None, plugins: tuple[Path, ...], forget_damaged: bool, as_json: bool
) -> None:
    """List the uploads in a store that are damaged; exit code 1 if any."""
    from ..server.hub import check as store_check
    from ..server.store.backup import StorePlace
    from ..server.store.base import DamagedStoreError
    from ..wire.task import read_task

    options.load_plugins(plugins)
    place = StorePlace(store or folder, folder)
    try:
        report = store_check.check_store(place, None if task is None else read_task(task))
    except DamagedStoreError as error:
        problem(error)
        sys.exit(1)
    rows = [{"client": damage.client, "fault": damage.fault} for damage in report.damages]
    if as_json:
        line(json.dumps({"clients": report.clients, "damaged": rows}))
    else:
        print_rows([{**row, "client": row["client"] or "(the file)"} for row in rows], False)
        line(f"{counted(report.clients, 'client')}, {len(rows) or 'none'} damaged")
    forgotten = store_check.forget_damaged(place, report) if forget_damaged else 0
    if forgotten:
        line(f"{forgotten} forgotten: they upload again at their next sync", err=True)
    if len(report.damages) > forgotten:
        sys.exit(1)


_OUT = click.option("--out", type=options.OutputFile(), help="Write it to a file that only you can read.")


def _whose(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say whose token, and where; the command gets a ``name``, None for an admin."""

    def call_with_name(client: str | None, admin: bool, **values: Any) -> None:
        if (client is None) != admin:
            raise click.UsageError("name a CLIENT, or give --admin")
        command(name=client, **values)

    call_with_name.__doc__ = command.__doc__
    admin = click.option("--admin", is_flag=True, help="A token for the owner of the fleet instead of a client.")
    return click.argument("client", required=False)(admin(options.store_options(call_with_name)))


@click.group()
def token() -> None:
    """Create, rotate, revoke and list the tokens of a server. It need not be stopped."""


@token.command("create")
@click.option("--teach", is_flag=True, help="The labels of this client count in full; those of others are capped.")
@_OUT
@_whose
def create(name: str | None, out: Path | None, folder: Path, store: str | None, teach: bool) -> None:
    """Create a token for CLIENT and print it. It is not stored, and cannot be shown again."""
    from ..server.store.tokens import CLIENT, TEACHER

    if teach and name is None:
        raise click.UsageError("--teach is for the token of a client")
    with _open_tokens(folder, store) as tokens:
        _create(tokens, folder, name, out, TEACHER if teach else CLIENT)


@token.command("rotate")
@_OUT
@_whose
def rotate(name: str | None, out: Path | None, folder: Path, store: str | None) -> None:
    """Replace the tokens of CLIENT by a new one.

    It has the same rights, and all earlier ones are revoked.
    """
    from ..server.store.tokens import CLIENT, TEACHER, valid_tokens

    with _open_tokens(folder, store, made=True) as tokens:
        earlier = valid_tokens(tokens.tokens(), name)
        teaches = any(entry.role == TEACHER for entry in earlier)
        _create(tokens, folder, name, out, TEACHER if teaches else CLIENT)
        _revoke(tokens, folder, name, [entry.id for entry in earlier])


@token.command("revoke")
@_whose
def revoke(name: str | None, folder: Path, store: str | None) -> None:
    """Revoke all tokens of CLIENT."""
    from ..server.store.tokens import valid_tokens

    with _open_tokens(folder, store, made=True) as tokens:
        _revoke(tokens, folder, name, [entry.id for entry in valid_tokens(tokens.tokens(), name)])


@token.command("list")
@options.JSON
@options.store_options
def list_tokens(as_json: bool, folder: Path, store: str | None) -> None:
    """List whose tokens there are, and which are valid.

    The tokens themselves are not stored. The role is admin, client, or teacher: a client whose labels count in full.
    """
    from ..server.store.tokens import MUTED

    with _open_tokens(folder, store, made=True) as tokens:
        known = [entry for entry in tokens.tokens().values() if entry.role != MUTED]
    rows = sorted(known, key=lambda entry: (entry.role, entry.client, entry.created))
    dates = [{"created": _date(entry.created), "revoked": _date(entry.revoked)} for entry in rows]
    whose = [{"id": entry.id, "role": entry.role, "client": entry.client} for entry in rows]
    print_rows([{**one, **two} for one, two in zip(whose, dates, strict=True)], as_json)


@contextmanager
def _open_tokens(folder: Path, store: str | None, made: bool = False) -> Iterator[TokenStore]:
    """Open the tokens; say so if no server has used the place. With ``made``, one that never had tokens is refused."""
    from ..errors import refuse
    from ..server.store.base import has_store, open_tokens

    want = "the folder given to latte serve --folder, or to latte token create"
    if made and not has_store(store or folder):
        raise refuse("--folder", f"{folder}, which no server has used, and where no token was made", want)
    with closing(open_tokens(store or folder)) as tokens:
        if made and not tokens.made():
            raise refuse("--store" if store else "--folder", "a store without tokens", f"a first token, or {want}")
        yield tokens
        if not tokens.served():
            problem(
                f"no server has used {'this --store' if store else folder} yet: is it the one given to latte serve?"
            )


def _create(tokens: TokenStore, folder: Path, name: str | None, out: Path | None, role: str) -> None:
    from ..files.atomic import writing
    from ..server.store.audit import Audit
    from ..server.store.tokens import new_token, require_tokens

    if not tokens.made():
        problem("this is the first token: from now on the server asks every device for one")
    text, stored = new_token(name, role)
    folder.mkdir(parents=True, exist_ok=True)  # with --store there may be none yet
    if out is None:
        tokens.add(stored)
    else:
        with writing(out, private=True) as file:  # a token that cannot be handed over is not valid
            file.write(f"{text}\n".encode())
            file.flush()
            tokens.add(stored)
    require_tokens(folder)
    Audit(folder).note("token created", name or "", f"{stored.id}, {stored.role}", always=True)
    if out is None:
        line(text)


def _revoke(tokens: TokenStore, folder: Path, name: str | None, ids: list[str]) -> None:
    from ..server.store.audit import Audit

    tokens.revoke(ids)
    for token_id in ids:
        Audit(folder).note("token revoked", name or "", token_id, always=True)


def _date(seconds: Any) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


_PAGE = 1000  # clients of one answer


def _where(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which server, and how to reach it."""
    chosen: list[options.Option] = [
        click.option("--server", envvar="LATTE_SERVER", show_envvar=True, help="Address of latte serve."),
        click.option(
            "--folder", type=options.Folder(exists=True), help="The folder of a server that is not running, instead."
        ),
        *options.connection_options("an admin's", "yours"),
        options.JSON,
    ]
    return options.add_options(command, chosen)


@click.group()
def client() -> None:
    """List and remove the clients of a server, as an admin or in its folder; mute withdraws the labels of one."""


@client.command("list")
@_where
def list_clients(server: str | None, folder: Path | None, as_json: bool, **how: Path | None) -> None:
    """List the clients, with the version and time of their last upload."""
    rows: list[dict[str, Any]] = []
    if _in_folder(server, folder):
        assert folder is not None
        from ..server.store.backup import open_contents

        with open_contents(folder) as contents:
            found = sorted((bytes(row[0]).decode(errors="replace"), row[1], row[5]) for row in contents.rows)
        rows = [{"client": name, "version": version, "updated": updated} for name, version, updated in found]
    else:
        with closing(_calls(server, **how)) as calls:
            after = ""
            while True:
                path = f"/v1/clients?limit={_PAGE}&after={quote(after, safe='')}"
                page: list[dict[str, Any]] = json.loads(calls.get(path))["clients"]
                rows += page
                if len(page) < _PAGE:
                    break
                after = page[-1]["client"]
    if not as_json:
        rows = [{**row, "updated": _date(row["updated"])} for row in rows]
    print_rows(rows, as_json)


@client.command("remove")
@click.argument("name")
@_where
def remove(name: str, server: str | None, folder: Path | None, as_json: bool, **how: Path | None) -> None:
    """Remove the client NAME and what it uploaded. Revoke its token, too, or it may come back."""
    from ..core.validate import client_name
    from ..errors import refuse
    from ..server.store.audit import Audit
    from ..server.store.base import has_store
    from ..server.store.sqlite import SqliteStore

    client_name(name)
    if _in_folder(server, folder):
        assert folder is not None
        if not has_store(folder):
            raise refuse("--folder", f"{folder}, where there is no store", "the folder given to latte serve --folder")
        with closing(SqliteStore(folder)) as store:
            if not store.remove(name):
                raise refuse("client", repr(name), "one of: latte client list")
        Audit(folder).note("forgotten", name, always=True)
    else:
        with closing(_calls(server, **how)) as calls:
            calls.delete(f"/v1/clients?client={quote(name, safe='')}")
    line(json.dumps({"client": name, "removed": True}) if as_json else f"removed {name}")


@client.command("mute")
@click.argument("name")
@click.option("--undo", is_flag=True, help="Let the labels of NAME count again, as its token allows.")
@options.store_options
def mute(name: str, undo: bool, folder: Path, store: str | None) -> None:
    """Withdraw all labels of the client NAME.

    Those that it will send are withdrawn, too. The server need not be stopped. The client goes on as a member of the
    fleet: what it learns without labels counts as before.
    """
    from ..core.validate import client_name
    from ..errors import refuse
    from ..server.store.audit import Audit
    from ..server.store.tokens import MUTED, new_token

    client_name(name)
    with _open_tokens(folder, store, made=True) as tokens:
        known = tokens.tokens().values()
        earlier = [one.id for one in known if one.role == MUTED and one.client == name and one.revoked is None]
        if bool(earlier) != undo:
            raise refuse("client", f"{name!r}, which is {'not ' if undo else ''}muted", "another one")
        if not any(one.client == name and one.role != MUTED for one in known):
            problem(f"no token was made for {name!r}: is the name right?")
        if undo:
            tokens.revoke(earlier)
        else:
            tokens.add(new_token(name, MUTED)[1])
    Audit(folder).note("labels count again" if undo else "labels withdrawn", name, always=True)
    line(f"the labels of {name} {'count again' if undo else 'do not count any more'}")


def _in_folder(server: str | None, folder: Path | None) -> bool:
    """Return whether a folder was named; an address given by the environment counts only without one."""
    source = click.get_current_context().get_parameter_source("server")
    typed = server is not None and source is click.core.ParameterSource.COMMANDLINE
    if (server is None and folder is None) or (typed and folder is not None):
        raise click.UsageError("give --server ADDRESS, or --folder DIR of a server that is not running")
    return folder is not None


def _calls(
    server: str | None, token_file: Path | None, server_ca: Path | None, cert: Path | None, key: Path | None
) -> Calls:
    from ..edge.clients.calls import Calls, Connection
    from ..edge.joining import read_token

    token = None if token_file is None else read_token(token_file)
    return Calls(str(server), token, Connection(attempts=2, authority=server_ca, certificate=cert, key=key))
