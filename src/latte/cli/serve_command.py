"""``latte serve``: the server of a federation."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .arguments import Folder, InputFile
from .options import PLUGINS, load_plugins
from .output import line

if TYPE_CHECKING:
    from ..serve.running import ServerOptions, Tls


@click.command()
@click.argument("task", type=InputFile())
@click.option("--data", type=Folder(), required=True, help="Folder of the store, the tokens and the audit log.")
@click.option("--store", help="postgresql://USER@HOST/DATABASE, for several servers; default: SQLite in --data.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65_535), default=8420, show_default=True, help="0: any free one.")
@click.option("--tls-cert", type=InputFile(), help="The server's certificate chain in PEM.")
@click.option("--tls-key", type=InputFile(), help="The key of the certificate in PEM.")
@click.option("--client-ca", type=InputFile(), help="Accept only clients with a certificate of this authority.")
@click.option(
    "--auth/--no-auth",
    default=None,
    help="Ask for tokens. Default: where others can reach the address, or one was made.",
)
@click.option("--insecure", is_flag=True, help="Allow a public address without TLS or without tokens.")
@click.option(
    "--rate", type=click.FloatRange(0), default=50.0, show_default=True, help="Requests per second of a client; 0: any."
)
@click.option(
    "--max-clients", type=click.IntRange(1), default=100_000, show_default=True, help="Clients of the federation."
)
@PLUGINS
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
def serve(
    task: Path,
    data: Path,
    store: str | None,
    host: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    client_ca: Path | None,
    auth: bool | None,
    insecure: bool,
    rate: float,
    max_clients: int,
    plugins: tuple[Path, ...],
    log_level: str,
) -> None:
    """Serve the federation of the TASK file.

    Devices upload what they learnt and get back what similar ones did. An upload is on disk before it is acknowledged.
    SIGTERM or Ctrl-C ends the server when everything that it accepted is answered. The log on stderr is lines of JSON.
    """
    _one_thread()
    from ..core.extras import need

    for module in ("starlette", "uvicorn", "msgspec", "prometheus_client"):
        need(module, "serve")
    load_plugins(plugins)
    from ..coordination.hub import Limits
    from ..errors import InputError, MissingExtra
    from ..serve import running
    from ..serve.rates import RequestRate
    from ..serve.service import Access, is_loopback
    from ..wire.task_file import read_task

    required = not is_loopback(host) if auth is None else auth
    options = running.ServerOptions(
        data=data,
        store=store,
        host=host,
        port=port,
        tls=_tls(tls_cert, tls_key, client_ca),
        insecure=insecure,
        access=Access(required, auth is not False, RequestRate.of(rate)),
        limits=Limits(max_clients),
    )
    running.log_to_stderr(log_level)
    try:
        running.serve(read_task(task), options, _announce(options))
    except (InputError, MissingExtra, OSError, MemoryError):
        raise
    except Exception:  # the log has lines of JSON only
        logging.getLogger("latte.serve").exception("the server failed; this is a bug, please report it")
        sys.exit(70)


def _one_thread() -> None:
    """Let the linear algebra of numpy use one thread: small operands are faster so, and cores are for processes."""
    import os

    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def _tls(certificate: Path | None, key: Path | None, authority: Path | None) -> Tls | None:
    from ..serve.running import Tls

    if certificate is None and key is None and authority is None:
        return None
    if certificate is None or key is None:
        raise click.UsageError("--tls-cert and --tls-key go together (and --client-ca needs both)")
    return Tls(certificate, key, authority)


def _announce(options: ServerOptions) -> Callable[[str], None]:
    def announce(address: str) -> None:
        line(f"latte serves {address}")
        if options.insecure:
            warning = "--insecure: anybody who reaches the address may read or change what is sent"
            logging.getLogger("latte.serve").warning(warning)

    return announce
