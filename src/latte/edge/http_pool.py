"""Connections to one server that are used again, and the little that a request needs besides them.

They are the connections of httpx2 without its request and response objects, which cost as much as all the rest of a
request: half a millisecond of a device's time.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import getproxies, proxy_bypass

from ..core.extras import need
from ..version import __version__

_MOST, _IDLE, _IDLE_SECONDS = 100, 20, 5.0  # connections at once, unused ones that stay open, and for how long


class HttpAnswer(NamedTuple):
    """What a server answered; the names of ``headers`` are in small letters."""

    status_code: int
    headers: Mapping[str, str]
    content: bytes


class HttpPool:
    """The connections of a program to ``server``, by way of the proxy that the environment names, if any.

    ``failures`` are the errors of a request that got no answer; ``dropped`` are those of a connection that the other
    side had closed. Any number of threads may use it.
    """

    def __init__(self, server: str, timeout: float, tls: ssl.SSLContext | None = None) -> None:
        core = need("httpcore2", "http")
        self.dropped: tuple[type[Exception], ...] = (core.RemoteProtocolError, core.ReadError, core.WriteError)
        self.failures: tuple[type[Exception], ...] = (
            core.NetworkError, core.TimeoutException, core.ProtocolError, core.ProxyError, core.UnsupportedProtocol
        )  # fmt: skip
        self._options = {"timeout": dict.fromkeys(("connect", "read", "write", "pool"), timeout)}
        self._pool = _open_pool(core, proxy_of(server), tls)

    def get(self, address: str, headers: Mapping[str, str]) -> HttpAnswer:
        """Send a GET request to an address."""
        return self._request("GET", address, headers, None)

    def delete(self, address: str, headers: Mapping[str, str]) -> HttpAnswer:
        """Send a DELETE request to an address."""
        return self._request("DELETE", address, headers, None)

    def post(self, address: str, content: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        """Send a POST request with ``content`` to an address."""
        return self._request("POST", address, headers, content)

    def _request(self, verb: str, address: str, headers: Mapping[str, str], content: bytes | None) -> HttpAnswer:
        named = {"User-Agent": f"latte/{__version__}", **headers}
        response = self._pool.request(verb, address, headers=named, content=content, extensions=self._options)
        received = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        return HttpAnswer(response.status, received, response.content)

    def close(self) -> None:
        """Close the connections."""
        self._pool.close()


class Proxy(NamedTuple):
    """A proxy, and the user and password that it asks for, if any."""

    address: str
    login: tuple[str, str] | None


def proxy_of(server: str) -> Proxy | None:
    """Return the proxy that the environment (HTTPS_PROXY, HTTP_PROXY, ALL_PROXY, NO_PROXY) names for a server."""
    parts, proxies = urlsplit(server), getproxies()
    address = proxies.get(parts.scheme) or proxies.get("all")
    if not address or proxy_bypass(parts.hostname or ""):
        return None
    proxy = urlsplit(address if "://" in address else f"http://{address}")
    login = (unquote(proxy.username), unquote(proxy.password or "")) if proxy.username else None
    return Proxy(urlunsplit((proxy.scheme, proxy.netloc.rpartition("@")[2], "/", "", "")), login)


def _open_pool(core: Any, proxy: Proxy | None, tls: ssl.SSLContext | None) -> Any:
    common = {
        "ssl_context": tls or core.default_ssl_context(),
        "max_connections": _MOST,
        "max_keepalive_connections": _IDLE,
        "keepalive_expiry": _IDLE_SECONDS,
    }
    if proxy is None:
        return core.ConnectionPool(**common)
    kind = core.SOCKSProxy if proxy.address.startswith("socks") else core.HTTPProxy
    return kind(proxy_url=proxy.address, proxy_auth=proxy.login, **common)
