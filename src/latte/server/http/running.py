"""A server process: the address, TLS, signals, and a clean end."""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import socket
import ssl
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import uvicorn

from ...errors import refuse
from ...wire.task import Task
from ..hub.classes import open_followed
from ..hub.hub import Hub, Limits
from ..store.audit import Audit
from ..store.base import open_tokens
from .app import create_app
from .limits import BoundedHttp
from .service import Access, Service, is_loopback

GRACE = 25  # seconds after which a stopping server ends what it still does; systemd waits for 90, Kubernetes for 30
_WORD_EVERY = 60.0  # seconds between two lines about the same error
_WORDS = 1000  # errors whose last line is remembered
_UNSENT = 1 << 18  # bytes of an answer that the system keeps; it would keep megabytes, which nobody counts
_COLLECT = (50_000, 20, 20)  # objects between two collections of the youngest, and so on
log = logging.getLogger("latte.server")


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM: the server's certificate and key, and the certificate of the authority that signs the clients'."""

    certificate: Path
    key: Path
    client_authority: Path | None = None


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """How a server runs. ``data`` is the folder of tokens and audit log; the store is there, too, unless ``store``."""

    data: Path
    store: str | None = None
    host: str = "127.0.0.1"
    port: int = 8420
    tls: Tls | None = None
    insecure: bool = False
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)


def open_service(task: Task, options: ServerOptions) -> Service:
    """Open the store and the tokens, and load what is stored.

    A public address without TLS or without tokens is refused, unless ``insecure`` allows it.
    """
    local = is_loopback(options.host)
    if not local and not options.insecure:
        if options.tls is None:
            want = "--cert and --key (or --insecure, if something in front of the server does that)"
            raise refuse("host", f"{options.host}, which others can reach, without TLS", want)
        if not options.access.required:
            raise refuse("host", f"{options.host}, which others can reach, without tokens", "tokens, or --insecure")
    options.data.mkdir(parents=True, exist_ok=True)
    place = options.store or str(options.data)
    store = open_followed(place, task)
    try:
        hub = Hub(task, store, options.limits)
        return Service(hub, open_tokens(place), replace(options.access, local=local), Audit(options.data), options.data)
    except BaseException:
        store.close()
        raise


def serve(task: Task, options: ServerOptions, started: Callable[[str], None]) -> None:
    """Run a server until SIGINT or SIGTERM; ``started`` gets its address as soon as it listens."""
    service = open_service(task, options)
    try:
        server = _Server(loaded_config(service, options), service)
        listener = listen(options.host, options.port)
    except BaseException:
        service.close_stores()
        raise
    scheme = "https" if options.tls else "http"
    host, port = listener.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    gc.collect()
    gc.freeze()  # the collector passes over what is loaded, and runs seldom: requests leave no cycles behind
    gc.set_threshold(*_COLLECT)
    try:
        with server.capture_signals():  # before anybody knows that there is a server to stop
            started(f"{scheme}://{shown}:{port}")
            log.info("started", extra={"fields": {"host": host, "port": port, "clients": len(service.hub)}})
            server.run([listener])  # on uvloop if it is installed
    finally:
        listener.close()


def listen(host: str, port: int) -> socket.socket:
    """Listen before anything is announced: two servers on one port are refused here."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _UNSENT)  # of its connections, too
    try:
        listener.bind((host, port))
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise refuse(
            "address", f"{host}:{port} ({error.strerror or error})", "one that is free on this machine"
        ) from None
    return listener


def loaded_config(service: Service, options: ServerOptions) -> uvicorn.Config:
    """Return the settings of uvicorn; files of TLS that cannot be used are refused."""
    files: dict[str, Any] = {}
    if options.tls:
        files = {"ssl_certfile": options.tls.certificate, "ssl_keyfile": options.tls.key}
    if options.tls and options.tls.client_authority:
        files |= {"ssl_ca_certs": str(options.tls.client_authority), "ssl_cert_reqs": ssl.CERT_REQUIRED}
    config = uvicorn.Config(
        create_app(service),
        http=partial(BoundedHttp, held=service.held),  # type: ignore[arg-type]  # it is called like a class
        log_config=None,
        access_log=False,
        proxy_headers=False,  # nothing here depends on a client's address
        server_header=False,
        timeout_graceful_shutdown=GRACE,
        timeout_keep_alive=75,
        ws="none",  # there are no websockets, and older versions warn when they load their packages
        **files,
    )
    try:
        config.load()
    except OSError as error:  # those of ssl are some, too
        if (tls := options.tls) is None:
            raise
        reason = getattr(error, "reason", None) or error.strerror or error
        if tls.client_authority is not None:
            try:
                ssl.create_default_context(cafile=tls.client_authority)
            except OSError:
                got = f"{tls.client_authority} ({reason})"
                raise refuse("--client-ca", got, "certificates in PEM") from None
        got = f"{tls.certificate} and {tls.key} ({reason})"
        raise refuse("--cert and --key", got, "a certificate chain and its key, in PEM") from None
    return config


class _Server(uvicorn.Server):
    """Ends on a signal without raising it again: stopping on a signal is no failure."""

    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def on_tick(self, counter: int) -> bool:
        """Look once a second whether a file can be opened: no library says so when connections are not accepted."""
        if counter % 10 == 0:
            try:
                os.close(os.open(os.devnull, os.O_RDONLY))
            except OSError as error:
                fields = {"connections": len(self.server_state.connections)}
                log.error("connections are not accepted: %s", error, extra={"fields": fields})
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: object) -> None:
        log.info("stopping", extra={"fields": {"signal": signal.Signals(number).name}})
        self._service.ready = False  # streams of events end
        self.handle_exit(number, None)


class JsonLines(logging.Formatter):
    """A log record as a line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


class Seldom(logging.Filter):
    """Lets an error through once a minute: a store that is gone is one at every request of anybody."""

    def __init__(self) -> None:
        super().__init__()
        self._last: dict[str, float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written."""
        if record.levelno < logging.ERROR:
            return True
        what = record.getMessage() + "".join(traceback.format_exception(record.exc_info[1]) if record.exc_info else "")
        if record.created - self._last.get(what, 0.0) < _WORD_EVERY:
            return False
        if len(self._last) >= _WORDS:
            self._last.clear()
        self._last[what] = record.created
        return True


def log_to_stderr(level: str) -> None:
    """Write log records as JSON lines to stderr: ours, those of every library, warnings, and what nobody caught."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    handler.addFilter(Seldom())
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(max(logging.WARNING, logging.getLevelName(level.upper())))  # libraries: what is wrong
    logger = logging.getLogger("latte.server")
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(level.upper())
    logging.captureWarnings(True)
    threading.excepthook = lambda about: _log_crash(about.exc_value)
    sys.unraisablehook = lambda about: _log_crash(about.exc_value)


def _log_crash(error: BaseException | None) -> None:
    if not isinstance(error, SystemExit):  # a thread may end itself
        log.error("an error that nobody caught", exc_info=error)
