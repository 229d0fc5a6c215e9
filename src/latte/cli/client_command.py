"""``latte client``: list and remove the clients of a federation."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from .arguments import Folder, InputFile
from .output import line, print_rows, silence_retries

if TYPE_CHECKING:
    from ..edge.http_calls import Calls

_PAGE = 1000  # clients of one answer


def _where(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which federation, and how to reach it."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option("--key", type=InputFile(), help="The key of --cert."),
        click.option("--cert", type=InputFile(), help="Certificate of yours, for a server with --client-ca."),
        click.option("--server-ca", type=InputFile(), help="Certificate of the authority that signed the server's."),
        click.option("--token-file", type=InputFile(), help="File with an admin's token (see: latte token)."),
        click.option("--data", type=Folder(exists=True), help="The folder of a server that is not running, instead."),
        click.option("--server", envvar="LATTE_SERVER", show_envvar=True, help="Address of latte serve."),
    ):
        command = option(command)
    return command


@click.group()
def client() -> None:
    """List and remove the clients of a federation, as an admin of its server or in its folder."""


@client.command("list")
@_where
def list_clients(server: str | None, data: Path | None, as_json: bool, **how: Path | None) -> None:
    """List the clients by name, with the version of their latest upload and when it came."""
    if _in_folder(server, data):
        assert data is not None
        from ..serve.store_contents import open_contents

        with open_contents(data) as contents:
            found = sorted((bytes(row[0]).decode(errors="replace"), row[1], row[5]) for row in contents.rows)
        rows = [{"client": name, "version": version, "updated": updated} for name, version, updated in found]
    else:
        with closing(_calls(server, **how)) as calls:
            rows = list(_listed(calls))
    if not as_json:
        rows = [{**row, "updated": _date(row["updated"])} for row in rows]
    print_rows(rows, as_json)


@client.command("remove")
@click.argument("name")
@_where
def remove(name: str, server: str | None, data: Path | None, as_json: bool, **how: Path | None) -> None:
    """Remove the client NAME and what it uploaded. Revoke its token, too, or it may come back."""
    from ..core.names import client_name

    client_name(name)
    if _in_folder(server, data):
        assert data is not None
        _remove_from(data, name)
    else:
        with closing(_calls(server, **how)) as calls:
            calls.delete(f"/v1/clients?client={quote(name, safe='')}")
    line(json.dumps({"client": name, "removed": True}) if as_json else f"removed {name}")


def _in_folder(server: str | None, data: Path | None) -> bool:
    """Return whether a folder was named; an address given by the environment counts only without one."""
    source = click.get_current_context().get_parameter_source("server")
    typed = server is not None and source is click.core.ParameterSource.COMMANDLINE
    if (server is None and data is None) or (typed and data is not None):
        raise click.UsageError("give --server ADDRESS, or --data DIR of a server that is not running")
    return data is not None


def _calls(
    server: str | None, token_file: Path | None, server_ca: Path | None, cert: Path | None, key: Path | None
) -> Calls:
    from ..edge.http_calls import Calls, Connection
    from ..edge.joining import read_token

    silence_retries()
    token = None if token_file is None else read_token(token_file)
    return Calls(str(server), token, Connection(attempts=2, authority=server_ca, certificate=cert, key=key))


def _listed(calls: Calls) -> Iterator[dict[str, object]]:
    after = ""
    while True:
        answer = json.loads(calls.get(f"/v1/clients?limit={_PAGE}&after={quote(after, safe='')}"))
        yield from answer["clients"]
        if len(answer["clients"]) < _PAGE:
            return
        after = answer["clients"][-1]["client"]


def _remove_from(data: Path, name: str) -> None:
    from ..coordination.sqlite_store import SqliteStore
    from ..errors import refuse
    from ..serve.audit import Audit
    from ..serve.upload_store import has_store

    if not has_store(data):
        raise refuse("--data", f"{data}, where there is no store", "the folder given to latte serve --data")
    with closing(SqliteStore(data)) as store:
        if not store.remove(name):
            raise refuse("client", repr(name), "one of: latte client list")
    Audit(data).note("forgotten", name, always=True)


def _date(seconds: object) -> str | None:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds") if isinstance(seconds, float) else None
