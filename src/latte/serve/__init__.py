"""The coordination service: a server that any number of devices can join.

================== ==================================================================================
module             contents
================== ==================================================================================
``batches``        requests that arrive while a batch runs form the next one
``app``            the routes; ``bounded_http`` limits requests before they get there
``upload_store``   opens a store: the embedded one, or ``postgres_store``
``store_backup``   backups of both kinds, as files of SQLite; ``store_check`` looks for damage
``tokens``         bearer tokens, bound to the names of clients
``board``          the parts of the dashboard; ``page`` has its files
``fleet_log``      notes syncs for it; ``report_course`` is what a client reported, over time
``demo_fleet``     the fleet demo: a server and devices as processes
================== ==================================================================================

What the server does with a batch of requests, without a network, is ``latte.coordination``.
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from ..coordination.hub import Hub
    from .app import create_app
    from .running import ServerOptions, open_service, serve
    from .service import Access, Service

_HOMES = {
    "..coordination.hub": ("Hub",),
    ".app": ("create_app",),
    ".running": ("ServerOptions", "open_service", "serve"),
    ".service": ("Access", "Service"),
}

__all__ = ["Access", "Hub", "ServerOptions", "Service", "create_app", "open_service", "serve"]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
