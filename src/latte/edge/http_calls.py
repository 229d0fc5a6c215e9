"""Calls of the server's routes: connection reuse, time limits, and retries after the pause that the server asks for."""

from __future__ import annotations

import json
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.extras import need
from ..errors import InputError, refuse
from ..files.documents import parse_json
from ..wire.messages import MEDIA_TYPE, NO_VERSION
from ..wire.versions import HEADER, PROTOCOL, UNSUPPORTED, choose_version, read_header, upgrade_advice
from .http_pool import HttpAnswer, HttpPool

_AGAIN = (408, 429, 500, 502, 503, 504, 507)  # statuses after which a repetition may succeed
_CLOSED = 3  # connections in a row that the server may have closed
_LONGEST_PROBLEM = 65_536  # bytes of a refusal that are read


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach a server.

    ``timeout`` in seconds for each step of a request. A request that fails on the way is repeated ``attempts`` times
    at most, and for at most ``patience`` seconds, after pauses that double and vary at random, or that the server asks
    for; a pause that is longer than the rest of the patience is not waited for. ``authority`` is the certificate of the
    authority that signed the server's; ``certificate`` and ``key`` are the client's own.
    """

    timeout: float = 10.0
    attempts: int = 6
    patience: float = 60.0
    authority: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    def tls(self) -> ssl.SSLContext | None:
        """Return the settings of TLS; None for those of the machine."""
        if self.key is not None and self.certificate is None:
            raise refuse("key", f"{self.key} without a certificate", "both, or neither")
        if self.authority is None and self.certificate is None:
            return None
        context = self._trusting()
        if self.certificate is not None:
            self._show_certificate(context, self.certificate)
        return context

    def _trusting(self) -> ssl.SSLContext:
        try:
            return ssl.create_default_context(cafile=self.authority)
        except OSError as error:  # those of ssl are some, too
            raise refuse("authority", f"{self.authority} ({_reason(error)})", "certificates in PEM") from None

    def _show_certificate(self, context: ssl.SSLContext, certificate: Path) -> None:
        try:
            context.load_cert_chain(certificate, self.key)
        except OSError as error:
            shown = f"{certificate} and {self.key or 'no key'} ({_reason(error)})"
            raise refuse("certificate and key", shown, "a certificate and its key, in PEM") from None


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


class _AgainError(Exception):
    """A failure after which the request is repeated, after ``pause`` seconds if the server said so."""

    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


class Calls:
    """The connections of a program to one server."""

    def __init__(self, server: str, tokens: str | Mapping[str, str] | None, connection: Connection) -> None:
        if not server.startswith(("http://", "https://")):
            raise refuse("server", repr(server), "an address such as https://latte.example.org")
        self.server, self._tokens, self._connection = server.rstrip("/"), tokens, connection
        self.protocol = PROTOCOL  # the version that both sides speak
        self._stamina = need("stamina", "http")
        self._client = HttpPool(self.server, connection.timeout, connection.tls())
        self._dropped, self._failures = self._client.dropped, self._client.failures

    def get(self, path: str) -> bytes:
        """Return what a route answers; with a mapping of tokens, any of them will do."""
        name = next(iter(self._tokens), "") if isinstance(self._tokens, Mapping) else ""
        return self._repeat(lambda: self._client.get(f"{self.server}{path}", headers=self._headers(name)))

    def delete(self, path: str) -> bytes:
        """Remove what an address names, and return the answer."""
        return self._repeat(lambda: self._client.delete(f"{self.server}{path}", headers=self._headers("")))

    def post(self, path: str, client: str, body: bytes) -> bytes:
        """Send a message as ``client`` and return the answer."""
        headers = {**self._headers(client), "Content-Type": MEDIA_TYPE}
        return self._repeat(lambda: self._client.post(f"{self.server}{path}", content=body, headers=headers))

    def post_json(self, path: str, client: str, value: Any) -> Any:
        """Send a small request in JSON and return the answer."""
        headers = {**self._headers(client), "Content-Type": "application/json"}
        body = json.dumps(value).encode()
        answer = self._repeat(lambda: self._client.post(f"{self.server}{path}", content=body, headers=headers))
        return parse_json(answer, f"{self.server}{path}")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _headers(self, client: str) -> dict[str, str]:
        token = self._tokens if isinstance(self._tokens, str) else (self._tokens or {}).get(client)
        return {"Authorization": f"Bearer {token}"} if token else {}

    def _repeat(self, call: Callable[[], HttpAnswer]) -> bytes:
        """Call, and call again after failures that may pass."""
        try:
            return self._once(call) if self._connection.attempts == 1 else self._several(call)
        except _AgainError as error:
            raise UnreachableError(f"{self.server} does not answer: {error}", error.pause) from None

    def _several(self, call: Callable[[], HttpAnswer]) -> bytes:
        connection = self._connection
        end = time.monotonic() + connection.patience
        attempts = self._stamina.retry_context(
            on=lambda error: _pause_of(error, end - time.monotonic()),
            attempts=connection.attempts,
            timeout=connection.patience,
            wait_initial=0.1,
            wait_max=10.0,
        )
        for attempt in attempts:
            with attempt:
                return self._once(call)
        raise AssertionError("the last attempt raises")

    def _once(self, call: Callable[[], HttpAnswer]) -> bytes:
        try:
            response = self._on_an_open_connection(call)
        except self._failures as error:
            raise _AgainError(f"{type(error).__name__} {error}".strip()) from None
        self._agree(response.headers.get(HEADER.lower()))
        if response.status_code == 200:
            return response.content
        if response.status_code in _AGAIN:
            raise _AgainError(_refusal(response).detail, _seconds(response.headers.get("retry-after")))
        raise _refusal(response)

    def _on_an_open_connection(self, call: Callable[[], HttpAnswer]) -> HttpAnswer:
        """Call again, at once, if the server has closed a connection that was not used for long.

        Each failure removes one such connection, and there may be several. Every request may be repeated.
        """
        for _ in range(_CLOSED):
            try:
                return call()
            except self._dropped:
                continue
        return call()

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
    if not isinstance(error, _AgainError):
        return False
    if error.pause is None:
        return True
    return error.pause if error.pause <= left else False


def _reason(error: OSError) -> object:
    return getattr(error, "reason", None) or error.strerror or error


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdecimal() and len(text) < 6 else None


def _refusal(response: HttpAnswer) -> RefusedError:
    """Return the problem document of a response as an error; a proxy may have answered something else."""
    try:
        document = parse_json(response.content[:_LONGEST_PROBLEM], "problem")
        code, detail, stored = document["code"], document["detail"], document.get("stored_version", NO_VERSION)
        return RefusedError(
            str(code), response.status_code, str(detail), stored if isinstance(stored, int) else NO_VERSION
        )
    except (InputError, KeyError, TypeError, AttributeError):
        return RefusedError("http", response.status_code, f"HTTP status {response.status_code}")
