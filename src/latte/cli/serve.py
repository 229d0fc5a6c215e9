"""``latte serve``, the server of a fleet; and messages to systemd (sd_notify) of the processes that it watches."""

from __future__ import annotations

import logging
import os
import socket
import sys
import time
from contextlib import closing, suppress
from pathlib import Path

import click

from .options import PLUGINS, Folder, InputFile, load_plugins
from .output import line


@click.command()
@click.argument("task", type=InputFile())
@click.option("--folder", type=Folder(), required=True, help="Folder of the store, the tokens and the audit log.")
@click.option("--store", help="postgresql://USER@HOST/DATABASE, for several servers; default: SQLite in --folder.")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=8420,
    show_default=True,
    help="Port to listen on; 0: any free one.",
)
@click.option("--cert", type=InputFile(), help="The server's certificate chain in PEM.")
@click.option("--key", type=InputFile(), help="The key of --cert in PEM.")
@click.option("--client-ca", type=InputFile(), help="Accept only clients with a certificate of this authority.")
@click.option(
    "--auth/--no-auth",
    default=None,
    help="Ask for tokens. Default: where others can reach the address, or one was made.",
)
@click.option("--insecure", is_flag=True, help="Allow a public address without TLS or without tokens.")
@click.option(
    "--rate",
    type=click.FloatRange(0),
    default=50.0,
    show_default=True,
    help="Requests per second that a client may send; 0: any.",
)
@click.option(
    "--max-clients", type=click.IntRange(1), default=100_000, show_default=True, help="Clients that may join."
)
@click.option(
    "--flag",
    metavar="SHARE",
    type=click.FloatRange(0, 0.5),
    default=0.0,
    help="Let devices flag about this share of their images as unlike the known classes, such as 0.05.",
)
@PLUGINS
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Least important lines that are logged.",
)
def serve(
    task: Path,
    folder: Path,
    store: str | None,
    host: str,
    port: int,
    cert: Path | None,
    key: Path | None,
    client_ca: Path | None,
    auth: bool | None,
    insecure: bool,
    rate: float,
    max_clients: int,
    flag: float,
    plugins: tuple[Path, ...],
    log_level: str,
) -> None:
    """Run the server of a fleet, whose devices share the TASK file. Its address is also the dashboard.

    Devices upload what they learnt and download what similar ones did. An upload is on disk before it is acknowledged.
    SIGTERM or Ctrl-C ends the server when everything that it accepted is answered. The log on stderr is lines of JSON.
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")  # of numpy: small operands are faster so, and cores are for processes
    from ..errors import need

    for module in ("starlette", "uvicorn", "prometheus_client"):
        need(module, "serve")
    load_plugins(plugins)
    from ..errors import InputError, MissingExtra
    from ..server.http import running
    from ..server.http.service import Access, RequestRate, is_loopback
    from ..server.hub.hub import Limits
    from ..server.store.base import open_tokens
    from ..server.store.tokens import are_required
    from ..wire.task import read_task

    tls = None
    if cert is not None and key is not None:
        tls = running.Tls(cert, key, client_ca)
    elif cert or key or client_ca:
        raise click.UsageError("--cert and --key go together (and --client-ca needs both)")
    required = not is_loopback(host) if auth is None else auth
    options = running.ServerOptions(
        data=folder,
        store=store,
        host=host,
        port=port,
        tls=tls,
        insecure=insecure,
        access=Access(required, auth is not False, RequestRate.of(rate)),
        limits=Limits(max_clients, flag),
    )
    running.log_to_stderr(log_level)

    def announce(address: str) -> None:
        line(f"latte serves {address}")
        with closing(open_tokens(store or folder)) as made:
            asks = required or (auth is None and (made.made() or are_required(folder)))
        tokens = "on: latte token create makes one" if asks else "off: whoever reaches the address is let in"
        line(f"dashboard: {address}/ in a browser; tokens are {tokens}")
        if insecure:
            warning = "--insecure: anybody who reaches the address may read or change what is sent"
            logging.getLogger("latte.server").warning(warning)

    try:
        running.serve(read_task(task), options, announce)
    except (InputError, MissingExtra, OSError, MemoryError):
        raise
    except Exception:  # the log has lines of JSON only
        logging.getLogger("latte.server").exception("the server failed; this is a bug, please report it")
        sys.exit(70)


_STATUS_SECONDS = 10.0  # between two words on how it is doing


class Notifier:
    """Tells a service manager about this process; :meth:`beat` is for the thread whose work is watched."""

    def __init__(self) -> None:
        path = os.environ.get("NOTIFY_SOCKET", "")
        self._address = f"\0{path[1:]}" if path.startswith("@") else path  # @: a name in no folder
        watched = os.environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        usec = os.environ.get("WATCHDOG_USEC", "") if watched else ""
        self._every = int(usec) / 2e6 if usec.isdecimal() else 0.0  # twice as often as it has to be
        self._beat = self._said = 0.0
        self._status = ""

    def send(self, *lines: str) -> None:
        """Send a message; a service manager that does not listen is no reason to stop."""
        if self._address:
            with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
                channel.setblocking(False)
                channel.sendto("\n".join(lines).encode(errors="replace"), self._address)

    def beat(self, status: str = "") -> None:
        """Say, as often as is asked for, that the work goes on; and how, if that has changed."""
        now = time.monotonic()
        if self._every and now - self._beat >= self._every:
            self._beat = now
            self.send("WATCHDOG=1")
        if status and status != self._status and now - self._said >= _STATUS_SECONDS:
            self._said, self._status = now, status
            self.send(f"STATUS={' '.join(status.split())}")


notifier = Notifier()
