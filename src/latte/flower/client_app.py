"""The ClientApp of Latte: a node of a fleet, or of a benchmark.

An app of your own is two lines, with the mods that it needs::

    from latte.flower.client_app import make_client_app
    app = make_client_app(mods=[precision_mod("int8")])
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flwr.app import ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from ..core.privacy import Privacy
from ..edge.exchange_folder import ExchangeFolder
from ..errors import InputError, refuse
from .mods import CallNext, plugin_mod
from .node import attend
from .sync_records import PRIVACY, read_query, reply_content
from .walk import walk

SYNC, WALK = "sync", "walk"  # the actions: messages have the types query.sync and query.walk
STATE_DIR = "state-dir"  # of the node's configuration
_RAISED = 2  # Flower's code for an exception of a ClientApp


def make_client_app(mods: Sequence[Any] = (), plugins: Sequence[str] = ()) -> ClientApp:
    """Return a ClientApp; ``mods`` are Flower's, such as those of :mod:`latte.flower.mods`.

    ``plugins`` are modules that register methods of your own. Every process imports them, because the processes of a
    simulation get the app and not the module that made it.
    """
    app, mods = ClientApp(), [_refusal_mod, plugin_mod(plugins), *mods]
    app.query(SYNC, mods=mods)(_sync)
    app.query(WALK, mods=mods)(_walk)
    return app


def _refusal_mod(message: Message, context: Context, call_next: CallNext) -> Message:
    """Reply with the text of a refusal: an exception would be a traceback of every process between here and there."""
    try:
        return call_next(message, context)
    except InputError as error:
        return Message(Error(_RAISED, str(error)), reply_to=message)


def _sync(message: Message, context: Context) -> Message:
    """A node of a fleet: its device offers what it learnt in the folder ``state-dir``."""
    reply = attend(read_query(message.content), node_folder(context), _privacy(message.content))
    return Message(reply_content(reply), reply_to=message)


def _walk(message: Message, context: Context) -> Message:
    """A node of a benchmark."""
    return Message(walk(message.content, context, _privacy(message.content)), reply_to=message)


def node_folder(context: Context) -> ExchangeFolder:
    """Return the folder in which a node meets its device: ``state-dir`` of ``--node-config``."""
    place = context.node_config.get(STATE_DIR)
    if not isinstance(place, str) or not place:
        want = f"a folder: flower-supernode --node-config '{STATE_DIR}=\"/var/lib/latte/node\"'"
        raise refuse(f"node-config: {STATE_DIR}", place, want)
    return ExchangeFolder(Path(place).absolute())


def _privacy(content: RecordDict) -> Privacy | None:
    """Return the privacy that a mod of this node demands of uploads."""
    demanded = content.get(PRIVACY)
    if not isinstance(demanded, ConfigRecord):
        return None
    return Privacy(int(demanded["least-images"]), float(demanded["noise"]))


app = make_client_app()
