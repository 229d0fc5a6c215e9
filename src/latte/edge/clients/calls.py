"""Calls of the server's routes: over httpx2, with a limit of size and of time, and with retries.

A request runs in an event loop in a thread of its own, because only there it has one deadline for everything: finding
the server, TLS, sending, and an answer that comes byte by byte.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ...errors import InputError, need, refuse
from ...files.documents import parse_json
from ...version import __version__
from ...wire import messages

MOST_ANSWER = 256 << 20  # bytes of an answer of unknown size: a task of 20,000 classes has 200 MB
_AGAIN = (408, 429, 500, 502, 503, 504, 507)  # statuses after which a repetition may succeed
_LONGEST_PAUSE = 10.0  # seconds between two attempts, unless the server asks for more
_CLOSED = 3  # connections in a row that the server may have closed
_MOST, _IDLE, _IDLE_SECONDS = 100, 20, 5.0  # connections at once, unused ones that stay open, and for how long
_LONGEST_PROBLEM = 65_536  # bytes of a refusal that are read
_PROBE = 3.0  # seconds to find out whether a port speaks TLS
_THREAD = "latte-http"
_TLS_ALERT = r"\x15\x03"  # how h11 shows the first bytes of a TLS alert where it expected HTTP


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a server.

    ``timeout`` in seconds for each step of a request, ``deadline`` for all of it. A request that fails on the way is
    repeated ``attempts`` times at most, and for at most ``patience`` seconds, after pauses that double and vary at
    random, or that the server asks for; a pause that is longer than the rest of the patience is not waited for.
    ``authority`` is the certificate of the authority that signed the server's; ``certificate`` and ``key`` are the
    client's own.
    """

    timeout: float = 10.0
    attempts: int = 6
    patience: float = 60.0
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None
    deadline: float = 60.0

    def tls(self) -> ssl.SSLContext | None:
        """Return the settings of TLS; None for those of the machine."""
        if self.key is not None and self.certificate is None:
            raise refuse("--key", f"{self.key} without a certificate", "--cert and --key, or neither")
        if self.authority is None and self.certificate is None:
            return None
        try:
            context = ssl.create_default_context(cafile=self.authority)
        except OSError as error:  # those of ssl are some, too
            raise refuse("--server-ca", f"{self.authority} ({_reason(error)})", "certificates in PEM") from None
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key)
            except OSError as error:
                shown = f"{self.certificate} and {self.key or 'no key'} ({_reason(error)})"
                raise refuse("--cert and --key", shown, "a certificate and its key, in PEM") from None
        return context


class RefusedError(InputError):
    """The server refused a request: ``code`` is that of docs/protocol.md."""

    def __init__(self, code: str, status: int, detail: str, stored_version: int = messages.NO_VERSION) -> None:
        super().__init__(f"server: {code}: {detail}")
        self.code, self.status, self.detail, self.stored_version = code, status, detail, stored_version


class UnreachableError(OSError):
    """The server does not answer, or not now; ``pause`` is the number of seconds that it asked to wait, if any."""

    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


class HttpAnswer(NamedTuple):
    """What a server answered; the names of ``headers`` may be written in any case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Calls:
    """The calls of a program to one server, by way of the proxy that the environment names, if any.

    Any number of threads may use it.
    """

    def __init__(self, server: str, tokens: str | Mapping[str, str] | None, connection: Connection) -> None:
        check_address(server)
        for token in [tokens] if isinstance(tokens, str) else (tokens or {}).values():
            check_token_text(token)
        self.server, self._tokens, self._connection = server.rstrip("/"), tokens, connection
        self.protocol = messages.PROTOCOL  # the version that both sides speak
        httpx = self._httpx = need("httpx2", "http")
        self._client = httpx.AsyncClient(
            verify=connection.tls() or True,
            timeout=connection.timeout,
            limits=httpx.Limits(max_connections=_MOST, max_keepalive_connections=_IDLE, keepalive_expiry=_IDLE_SECONDS),
            headers={"User-Agent": f"latte/{__version__}", "Accept-Encoding": "identity"},
        )
        for name in ("httpx2", "httpcore2.connection", "httpcore2.http11"):  # a line or more for every request
            logging.getLogger(name).addFilter(_not_ours)
        self._loop = asyncio.new_event_loop()
        thread = threading.Thread(target=self._loop.run_forever, name=_THREAD, daemon=True)
        thread.start()
        self._end = weakref.finalize(self, _end_loop, self._loop, thread)

    def get(self, path: str, most: int = MOST_ANSWER) -> bytes:
        """Return what a route answers, at most so many bytes; with a mapping of tokens, any of them will do."""
        name = next(iter(self._tokens), "") if isinstance(self._tokens, Mapping) else ""
        return self._repeat("GET", path, name, most=most)

    def delete(self, path: str) -> bytes:
        """Remove what an address names, and return the answer."""
        return self._repeat("DELETE", path, "")

    def post(
        self, path: str, client: str, body: bytes, most: int = MOST_ANSWER, kind: str = messages.MEDIA_TYPE
    ) -> bytes:
        """Send a message as ``client`` and return the answer, at most so many bytes."""
        return self._repeat("POST", path, client, body, most, {"Content-Type": kind})

    def post_json(self, path: str, client: str, value: Any) -> Any:
        """Send a small request in JSON and return the answer."""
        answer = self.post(path, client, json.dumps(value).encode(), kind="application/json")
        return parse_json(answer, f"{self.server}{path}")

    def close(self) -> None:
        """Close the connections."""
        if self._end.alive:
            with suppress(TimeoutError):  # whoever does not answer even then
                closing = asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop)
                closing.result(self._connection.deadline)
            self._end()

    def _repeat(
        self,
        verb: str,
        path: str,
        client: str,
        body: bytes | None = None,
        most: int = MOST_ANSWER,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Call, and call again after failures that may pass; every request may be repeated.

        A connection that was not used for long may have been closed by the server: the next attempt comes at once.
        Each failure removes one such connection, and there may be several.
        """
        token = self._tokens if isinstance(self._tokens, str) else (self._tokens or {}).get(client)
        sent = {**({"Authorization": f"Bearer {token}"} if token else {}), **(headers or {})}
        httpx, address = self._httpx, f"{self.server}{path}"
        closed = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError, ssl.SSLError)
        end, failures, dropped = time.monotonic() + self._connection.patience, 0, 0
        while True:
            try:
                return self._read(self._send(verb, address, sent, body, most), sent)
            except (httpx.HTTPError, OSError) as error:  # httpx2 lets errors of TLS through
                if isinstance(error, closed) and dropped < _CLOSED:
                    dropped += 1
                    continue
                failures += 1
                failure = self._explain(address, error)
                pause = random.uniform(0.5, 1.0) * min(0.1 * 2**failures, _LONGEST_PAUSE)
                pause = pause if failure.pause is None else failure.pause
                if failures >= self._connection.attempts or time.monotonic() + pause > end:
                    raise failure from None
            time.sleep(pause)

    def _explain(self, address: str, error: Exception) -> UnreachableError:
        if isinstance(error, UnreachableError):
            return UnreachableError(f"{self.server} {error}", error.pause)
        if isinstance(error, TimeoutError):  # of the whole request; one of a step is an HTTPError
            reason = f"does not answer: no complete answer within {self._connection.deadline:g} s"
        else:
            reason = explain_failure(address, error, self._connection.certificate is not None)
        return UnreachableError(f"{self.server} {reason}")

    def _send(
        self, verb: str, address: str, headers: Mapping[str, str], content: bytes | None, most: int
    ) -> HttpAnswer:
        """Send a request and return the answer, which may have ``most`` bytes."""

        async def answer() -> HttpAnswer:
            async with (
                asyncio.timeout(self._connection.deadline),
                self._client.stream(verb, address, headers=headers, content=content) as response,
            ):
                parts, size = [], 0
                async for part in response.aiter_raw():
                    size += len(part)
                    if size > most:
                        want = "no more than the task can need"
                        raise refuse(address, f"an answer of more than {most:,} bytes", want)
                    parts.append(part)
                return HttpAnswer(response.status_code, response.headers, b"".join(parts))

        future = asyncio.run_coroutine_threadsafe(answer(), self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def _read(self, answer: HttpAnswer, sent: Mapping[str, str]) -> bytes:
        """Return the content of a good answer; raise what another one says.

        Of the protocol, a version is chosen that the server speaks. An answer without versions, such as that of a proxy
        or of an early server, changes nothing.
        """
        if (header := answer.headers.get(messages.HEADER)) is not None:
            theirs = messages.read_header(header)
            version = messages.choose_version(theirs)
            if version is None:
                raise RefusedError(messages.UNSUPPORTED, 400, messages.upgrade_advice(theirs))
            self.protocol = version
        if answer.status == 200:
            return answer.content
        refusal = _refusal(answer, sent)
        if answer.status in _AGAIN:
            asked = answer.headers.get("retry-after", "")
            pause = float(asked) if asked.isdecimal() and len(asked) < 6 else None
            raise UnreachableError(f"does not answer: {refusal.detail}", pause)
        raise refusal


def _not_ours(record: logging.LogRecord) -> bool:
    """Return whether a line of a library's log is about a request of the program's own."""
    return record.threadName != _THREAD


def _end_loop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join(1.0)
    if not thread.is_alive():
        loop.close()


def _reason(error: OSError) -> object:
    return getattr(error, "reason", None) or error.strerror or error


def check_address(server: str) -> None:
    """Refuse what is no address of a server, with a guess at what was meant."""
    try:
        parts = urlsplit(server)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and " " not in server:
            need("httpx2", "http").URL(server)
            return
        guess = ""
        if "://" not in server:
            folder = server.startswith(("/", ".", "~")) or Path(server).is_dir()
            meant = "http://" if server.startswith(("localhost", "127.")) else "https://"
            guess = f" (did you mean {'folder:' if folder else meant}{server}?)"
    except (ValueError, need("httpx2", "http").InvalidURL):  # a port that is no number, half an IPv6 address, a blank
        guess = ""
    raise refuse("--server", repr(server), f"an address such as https://latte.example.org:8420{guess}")


def check_token_text(token: str) -> None:
    """Refuse a token that no HTTP header can have; the refusal does not show it."""
    if not token.isascii() or not token.isprintable() or " " in token:
        raise refuse("token", "a text with blanks, line breaks or letters beyond ASCII", "one token: latte_…")


def explain_failure(address: str, error: Exception, certified: bool = False) -> str:
    """Return why a server could not be reached, for the person who can mend it: the cause, and the option.

    ``certified``: the client has a certificate of its own.
    """
    causes, parts = list(_causes(error)), urlsplit(address)
    for cause in causes:
        if isinstance(cause, ssl.SSLError):
            return _explain_tls(cause, parts.netloc)
        if isinstance(cause, socket.gaierror):
            return f"does not answer: no machine of the name {parts.hostname!r} is found ({cause.strerror}): --server"
        if isinstance(cause, ConnectionRefusedError):
            return "does not answer: connection refused; no server runs at this address and port (--server)"
    text = f"{type(error).__name__} {error}".strip()
    if parts.scheme == "http" and (_TLS_ALERT in text or _speaks_tls(parts.hostname, parts.port or 80, causes)):
        return f"does not answer: this port speaks TLS; --server https://{parts.netloc}"
    closed = any(isinstance(cause, ConnectionError) for cause in causes) or "disconnected" in text
    if parts.scheme == "https" and closed and not certified:
        return "closes the connection: if it asks devices for certificates, --cert and --key"
    return f"does not answer: {text}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what led to it."""
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for one in error.exceptions:
                yield from _causes(one)
        error = error.__cause__ or error.__context__


def _explain_tls(error: ssl.SSLError, place: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = error.verify_message
        known = f"its certificate is not signed by a known authority ({reason})"
        mend = f"{known}: --server-ca with the authority's certificate"
        if "mismatch" in reason or "not valid for" in reason:
            mend = f"its certificate is of another name ({reason}): --server with the name in the certificate"
        elif "expired" in reason or "not yet valid" in reason:
            mend = f"{reason}: a new certificate for the server, or the right time on this machine"
        return f"is not trusted: {mend}"
    reason = str(error.reason or error)
    if "WRONG_VERSION" in reason or "RECORD_LAYER" in reason or "PACKET_LENGTH" in reason:
        return f"does not answer: this port speaks no TLS; --server http://{place}, or the port of https"
    if "CERTIFICATE" in reason:
        return f"refuses the connection ({reason}): it wants a certificate of this device, --cert and --key"
    return f"does not answer: TLS failed ({reason})"


def _speaks_tls(host: str | None, port: int, causes: list[BaseException]) -> bool:
    """Return whether a port that closed the connection of a plain request would have liked TLS."""
    if host is None or any(isinstance(cause, TimeoutError) for cause in causes):
        return False
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # nothing is sent
    try:
        with socket.create_connection((host, port), _PROBE) as plain, context.wrap_socket(plain):
            return True
    except (OSError, ValueError):
        return False


def _refusal(answer: HttpAnswer, sent: Mapping[str, str]) -> RefusedError:
    """Return the problem document of an answer as an error; a proxy may have answered something else."""
    status, where = answer.status, answer.headers.get("location", "")
    try:
        document = parse_json(answer.content[:_LONGEST_PROBLEM], "problem")
        code, detail, stored = str(document["code"]), str(document["detail"]), document.get("stored_version")
    except (InputError, KeyError, TypeError, AttributeError):  # what no Latte server answers
        if 300 <= status < 400 and where:
            detail = f"it redirects to {where[:200]}: --server with the address that it names"
        elif b"HTTPS port" in answer.content[:1000]:  # of nginx
            detail = "this port speaks TLS: --server https://…"
        else:
            detail = f"HTTP status {status}; no Latte server is there: --server with the address of latte serve"
        return RefusedError("http", status, detail)
    if code == "unauthorized" and "Authorization" in sent:
        detail = "it does not know this token, which was removed or is of another server: --token-file"
    elif code == "unauthorized":
        detail = "it asks for a token, and none was given (--token-file, or token= in Python)"
    return RefusedError(code, status, detail, stored if isinstance(stored, int) else messages.NO_VERSION)
