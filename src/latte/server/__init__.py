"""The coordination service: a server that any number of devices can join.

``hub`` is what it does with a batch of requests, whatever carries them; ``store`` what it keeps; ``http`` the service;
``dashboard`` what an operator sees.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from ..wire.messages import Problem
    from .http.app import create_app
    from .http.running import ServerOptions, open_service, serve
    from .http.service import Access, Service
    from .hub.check import mended_hub
    from .hub.hub import Hub, Limits
    from .store.sqlite import SqliteStore

__all__ = [
    "Access",
    "Hub",
    "Limits",
    "Problem",
    "ServerOptions",
    "Service",
    "SqliteStore",
    "create_app",
    "mended_hub",
    "open_service",
    "serve",
]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
