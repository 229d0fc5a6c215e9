"""Calls of the server's routes: over httpx2, with a limit of size and of time, and with retries.

A request runs in an event loop in a thread of its own, because only there it has one deadline for everything: finding
the server, TLS, sending, and an answer that comes byte by byte.
"""

from __future__ import annotations

import asyncio
import json
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

from ..core.extras import need
from ..errors import InputError, refuse
from ..files.documents import parse_json
from ..version import __version__
from ..wire.messages import MEDIA_TYPE, NO_VERSION
from ..wire.versions import HEADER, PROTOCOL, UNSUPPORTED, choose_version, read_header, upgrade_advice

MOST_ANSWER = 256 << 20  # bytes of an answer of unknown size: a task of 20,000 classes has 200 MB
_AGAIN = (408, 429, 500, 502, 503, 504, 507)  # statuses after which a repetition may succeed
_CLOSED = 3  # connections in a row that the server may have closed
_MOST, _IDLE, _IDLE_SECONDS = 100, 20, 5.0  # connections at once, unused ones that stay open, and for how long
_LONGEST_PROBLEM = 65_536  # bytes of a refusal that are read
_PROBE = 3.0  # seconds to find out whether a port speaks TLS
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

    def __init__(self, code: str, status: int, detail: str, stored_version: int = NO_VERSION) -> None:
        super().__init__(f"server: {code}: {detail}")
        self.code, self.status, self.detail, self.stored_version = code, status, detail, stored_version


class UnreachableError(OSError):
    """The server does not answer, or not now; ``pause`` is the number of seconds that it asked to wait, if any."""

    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


class HttpRequest(NamedTuple):
    """A request; its answer may have ``most`` bytes."""

    verb: str
    address: str
    headers: Mapping[str, str]
    content: bytes | None
    most: int


class HttpAnswer(NamedTuple):
    """What a server answered; the names of ``headers`` may be written in any case."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class HttpClient:
    """The connections of a program to one server, by way of the proxy that the environment names, if any.

    Any number of threads may use it.
    """

    def __init__(self, connection: Connection) -> None:
        self._httpx = need("httpx2", "http")
        self._deadline, self._certified = connection.deadline, connection.certificate is not None
        self._dropped = (  # errors of a connection that the other side has closed; httpx2 lets those of TLS through
            self._httpx.RemoteProtocolError, self._httpx.ReadError, self._httpx.WriteError, ssl.SSLError
        )  # fmt: skip
        self._client = self._httpx.AsyncClient(
            verify=connection.tls() or True,
            timeout=connection.timeout,
            limits=self._httpx.Limits(
                max_connections=_MOST, max_keepalive_connections=_IDLE, keepalive_expiry=_IDLE_SECONDS
            ),
            headers={"User-Agent": f"latte/{__version__}", "Accept-Encoding": "identity"},
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="latte-http", daemon=True)
        self._thread.start()
        self._end = weakref.finalize(self, _end_loop, self._loop, self._thread)

    def send(self, request: HttpRequest) -> HttpAnswer:
        """Send a request and return the answer; a failure is an UnreachableError."""
        future = asyncio.run_coroutine_threadsafe(self._answer(request), self._loop)
        try:
            return future.result()
        except TimeoutError:  # of the whole request; one of a step is an HTTPError
            raise UnreachableError(f"does not answer: no complete answer within {self._deadline:g} s") from None
        except (self._httpx.HTTPError, OSError) as error:
            raise UnreachableError(explain_failure(request.address, error, self._certified)) from None
        except BaseException:
            future.cancel()
            raise

    async def _answer(self, request: HttpRequest) -> HttpAnswer:
        """Send a request; send it again, at once, if the server has closed a connection that was not used for long.

        Each failure removes one such connection, and there may be several. Every request may be repeated.
        """
        async with asyncio.timeout(self._deadline):
            for _ in range(_CLOSED):
                try:
                    return await self._once(request)
                except self._dropped:
                    continue
            return await self._once(request)

    async def _once(self, request: HttpRequest) -> HttpAnswer:
        verb, address, headers, content, most = request
        async with self._client.stream(verb, address, headers=headers, content=content) as response:
            parts, size = [], 0
            async for part in response.aiter_raw():
                size += len(part)
                if size > most:
                    raise refuse(address, f"an answer of more than {most:,} bytes", "no more than the task can need")
                parts.append(part)
            return HttpAnswer(response.status_code, response.headers, b"".join(parts))

    def close(self) -> None:
        """Close the connections."""
        if self._end.alive:
            with suppress(TimeoutError):  # whoever does not answer even then
                asyncio.run_coroutine_threadsafe(self._client.aclose(), self._loop).result(self._deadline)
            self._end()


def _end_loop(loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
    loop.call_soon_threadsafe(loop.stop)
    thread.join(1.0)
    if not thread.is_alive():
        loop.close()


class Calls:
    """The calls of a program to one server."""

    def __init__(self, server: str, tokens: str | Mapping[str, str] | None, connection: Connection) -> None:
        check_address(server)
        for token in [tokens] if isinstance(tokens, str) else (tokens or {}).values():
            check_token_text(token)
        self.server, self._tokens, self._connection = server.rstrip("/"), tokens, connection
        self.protocol = PROTOCOL  # the version that both sides speak
        self._stamina = need("stamina", "http")
        self._client = HttpClient(connection)

    def get(self, path: str, most: int = MOST_ANSWER) -> bytes:
        """Return what a route answers, at most so many bytes; with a mapping of tokens, any of them will do."""
        name = next(iter(self._tokens), "") if isinstance(self._tokens, Mapping) else ""
        return self._repeat("GET", path, self._headers(name), None, most)

    def delete(self, path: str) -> bytes:
        """Remove what an address names, and return the answer."""
        return self._repeat("DELETE", path, self._headers(""), None, MOST_ANSWER)

    def post(self, path: str, client: str, body: bytes, most: int = MOST_ANSWER) -> bytes:
        """Send a message as ``client`` and return the answer, at most so many bytes."""
        return self._repeat("POST", path, {**self._headers(client), "Content-Type": MEDIA_TYPE}, body, most)

    def post_json(self, path: str, client: str, value: Any) -> Any:
        """Send a small request in JSON and return the answer."""
        headers = {**self._headers(client), "Content-Type": "application/json"}
        answer = self._repeat("POST", path, headers, json.dumps(value).encode(), MOST_ANSWER)
        return parse_json(answer, f"{self.server}{path}")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _headers(self, client: str) -> dict[str, str]:
        token = self._tokens if isinstance(self._tokens, str) else (self._tokens or {}).get(client)
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _repeat(self, verb: str, path: str, headers: Mapping[str, str], body: bytes | None, most: int) -> bytes:
        """Call, and call again after failures that may pass."""
        request = HttpRequest(verb, f"{self.server}{path}", headers, body, most)

        def call() -> bytes:
            return self._read(self._client.send(request), headers)

        connection = self._connection
        end = time.monotonic() + connection.patience
        attempts = self._stamina.retry_context(
            on=lambda error: _pause_of(error, end - time.monotonic()),
            attempts=connection.attempts,
            timeout=connection.patience,
            wait_initial=0.1,
            wait_max=10.0,
        )
        try:
            if connection.attempts == 1:
                return call()
            for attempt in attempts:
                with attempt:
                    return call()
        except UnreachableError as error:
            raise UnreachableError(f"{self.server} {error}", error.pause) from None
        raise AssertionError("the last attempt raises")

    def _read(self, answer: HttpAnswer, sent: Mapping[str, str]) -> bytes:
        """Return the content of a good answer; raise what another one says."""
        self._agree(answer.headers.get(HEADER))
        if answer.status == 200:
            return answer.content
        if answer.status in _AGAIN:
            pause = _seconds(answer.headers.get("retry-after"))
            raise UnreachableError(f"does not answer: {_refusal(answer, sent).detail}", pause)
        raise _refusal(answer, sent)

    def _agree(self, header: str | None) -> None:
        """Choose a version of the protocol that the server speaks; refuse a server that speaks none of ours.

        An answer without versions, such as that of a proxy or of an early server, changes nothing.
        """
        if header is None:
            return
        theirs = read_header(header)
        version = choose_version(theirs)
        if version is None:
            raise RefusedError(UNSUPPORTED, 400, upgrade_advice(theirs))
        self.protocol = version


def _pause_of(error: Exception, left: float) -> bool | float:
    """Return whether to repeat, or after how many seconds, as stamina asks; never after more than are ``left``."""
    if not isinstance(error, UnreachableError):
        return False
    if error.pause is None:
        return True
    return error.pause if error.pause <= left else False


def _reason(error: OSError) -> object:
    return getattr(error, "reason", None) or error.strerror or error


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() and len(text) < 6 else None


# --- what an operator can mend ---------------------------------------------------------------------------------


def check_address(server: str) -> None:
    """Refuse what is no address of a server, with a guess at what was meant."""
    try:
        parts = urlsplit(server)
        if parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and " " not in server:
            need("httpx2", "http").URL(server)
            return
        guess = "" if "://" in server else f" (did you mean {_meant(server)}?)"
    except (ValueError, need("httpx2", "http").InvalidURL):  # a port that is no number, half an IPv6 address, a blank
        guess = ""
    raise refuse("--server", repr(server), f"an address such as https://latte.example.org:8420{guess}")


def _meant(server: str) -> str:
    if server.startswith(("/", ".", "~")) or Path(server).is_dir():
        return f"folder:{server}"
    return f"http://{server}" if server.startswith(("localhost", "127.")) else f"https://{server}"


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
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"is not trusted: {_untrusted(cause)}"
        if isinstance(cause, ssl.SSLError):
            return _tls_failure(parts.netloc, str(cause.reason or cause))
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


def _untrusted(error: ssl.SSLCertVerificationError) -> str:
    reason = error.verify_message
    if "mismatch" in reason or "not valid for" in reason:
        return f"its certificate is of another name ({reason}): --server with the name in the certificate"
    if "expired" in reason or "not yet valid" in reason:
        return f"{reason}: a new certificate for the server, or the right time on this machine"
    return (
        f"its certificate is not signed by a known authority ({reason}): --server-ca with the authority's certificate"
    )


def _tls_failure(place: str, reason: str) -> str:
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
    status = answer.status
    try:
        document = parse_json(answer.content[:_LONGEST_PROBLEM], "problem")
        code, detail, stored = str(document["code"]), str(document["detail"]), document.get("stored_version")
    except (InputError, KeyError, TypeError, AttributeError):
        return RefusedError("http", status, _foreign(answer))
    if code == "unauthorized":
        detail = (
            "it does not know this token, which was removed or is of another server: --token-file"
            if "Authorization" in sent
            else "it asks for a token, and none was given: --token-file"
        )
    return RefusedError(code, status, detail, stored if isinstance(stored, int) else NO_VERSION)


def _foreign(answer: HttpAnswer) -> str:
    """Return what an answer that no Latte server gives means."""
    where = answer.headers.get("location", "")
    if 300 <= answer.status < 400 and where:
        return f"it redirects to {where[:200]}: --server with the address that it names"
    if b"HTTPS port" in answer.content[:1000]:  # of nginx
        return "this port speaks TLS: --server https://…"
    return f"HTTP status {answer.status}; no Latte server is there: --server with the address of latte serve"
