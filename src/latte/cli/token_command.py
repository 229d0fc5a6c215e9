"""``latte token``: who may talk to a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .arguments import OutputFile
from .options import store_options
from .output import line, print_rows, problem

if TYPE_CHECKING:
    from ..serve.tokens import TokenStore


_NAME = click.argument("client", required=False)
_ADMIN = click.option("--admin", is_flag=True, help="A token for the owner of the fleet instead of a client.")
_OUT = click.option("--out", type=OutputFile(), help="Write it to a file that only you can read.")


@click.group()
def token() -> None:
    """Create, rotate, revoke and list the tokens of a server. It need not be stopped."""


@token.command("create")
@_NAME
@_ADMIN
@_OUT
@store_options
def create(client: str | None, admin: bool, out: Path | None, data: Path, store: str | None) -> None:
    """Create a token for CLIENT and print it: it is not stored, and cannot be shown again."""
    name = _name(client, admin)
    with _open_tokens(data, store) as tokens:
        _create(tokens, data, name, out)


@token.command("rotate")
@_NAME
@_ADMIN
@_OUT
@store_options
def rotate(client: str | None, admin: bool, out: Path | None, data: Path, store: str | None) -> None:
    """Create a new token for CLIENT and revoke all earlier ones."""
    from ..serve.tokens import valid_tokens

    name = _name(client, admin)
    with _open_tokens(data, store, made=True) as tokens:
        earlier = [entry.id for entry in valid_tokens(tokens.tokens(), name)]
        _create(tokens, data, name, out)
        _revoke(tokens, data, name, earlier)


@token.command("revoke")
@_NAME
@_ADMIN
@store_options
def revoke(client: str | None, admin: bool, data: Path, store: str | None) -> None:
    """Revoke all tokens of CLIENT."""
    from ..serve.tokens import valid_tokens

    name = _name(client, admin)
    with _open_tokens(data, store, made=True) as tokens:
        _revoke(tokens, data, name, [entry.id for entry in valid_tokens(tokens.tokens(), name)])


@token.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@store_options
def list_tokens(as_json: bool, data: Path, store: str | None) -> None:
    """List tokens: whose they are, since when, and whether they are valid. The tokens themselves are not stored."""
    with _open_tokens(data, store, made=True) as tokens:
        rows = sorted(tokens.tokens().values(), key=lambda entry: (entry.role, entry.client, entry.created))
    print_rows(
        [
            {
                "id": entry.id,
                "role": entry.role,
                "client": entry.client,
                "created": _date(entry.created),
                "revoked": _date(entry.revoked),
            }
            for entry in rows
        ],
        as_json,
    )


def _name(client: str | None, admin: bool) -> str | None:
    if (client is None) != admin:
        raise click.UsageError("name a CLIENT, or give --admin")
    return client


@contextmanager
def _open_tokens(data: Path, store: str | None, made: bool = False) -> Iterator[TokenStore]:
    """Open the tokens; say so if no server has used the place. With ``made``, one that never had tokens is refused."""
    from ..errors import refuse
    from ..serve.upload_store import has_store, open_tokens

    want = "the folder given to latte serve --data, or to latte token create"
    if made and not has_store(store or data):
        raise refuse("--data", f"{data}, which no server has used, and where no token was made", want)
    with closing(open_tokens(store or data)) as tokens:
        if made and not tokens.made():
            raise refuse("--store" if store else "--data", "a store for which no token was made", want)
        yield tokens
        if not tokens.served():
            problem(f"no server has used {'this --store' if store else data} yet: is it the one given to latte serve?")


def _create(tokens: TokenStore, data: Path, name: str | None, out: Path | None) -> None:
    from ..serve.audit import Audit
    from ..serve.tokens import new_token, require_tokens

    text, stored = new_token(name)
    data.mkdir(parents=True, exist_ok=True)  # with --store there may be none yet
    with _written(text, out):  # a token that cannot be handed over is not valid
        tokens.add(stored)
    require_tokens(data)
    Audit(data).note("token created", name or "", stored.id, always=True)
    if out is None:
        line(text)


@contextmanager
def _written(text: str, out: Path | None) -> Iterator[None]:
    """Write a token to the file ``out``, if there is one; the file gets its name when the block ends."""
    if out is None:
        yield
        return
    from ..files.atomic import writing_private

    with writing_private(out) as file:
        file.write(f"{text}\n".encode())
        file.flush()
        yield


def _revoke(tokens: TokenStore, data: Path, name: str | None, ids: list[str]) -> None:
    from ..serve.audit import Audit

    tokens.revoke(ids)
    for token_id in ids:
        Audit(data).note("token revoked", name or "", token_id, always=True)


def _date(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
