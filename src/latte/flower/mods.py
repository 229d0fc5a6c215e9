"""Flower mods that change the messages of a node: lower precision, and more privacy.

>>> from latte.flower.client_app import make_client_app
>>> app = make_client_app(mods=[precision_mod("int8"), privacy_mod(least_images=4)])

Without arguments, a mod takes its values from the configuration of the run: ``precision``, ``least-images``, ``noise``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TypeAlias

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message

from ..core.privacy import Privacy
from ..core.validate import choice
from ..wire.rows import LOSSLESS, PRECISIONS, RowFormat
from .message_records import CODED, NUMPY, array_of_bytes
from .settings import setting
from .sync_records import FACTS, PRIVACY, UPLOAD

CallNext: TypeAlias = Callable[[Message, Context], Message]
Mod: TypeAlias = Callable[[Message, Context, CallNext], Message]


def plugin_mod(plugins: Sequence[str]) -> Mod:
    """Return a mod that imports modules, which register methods, before a message is read."""

    def mod(message: Message, context: Context, call_next: CallNext) -> Message:
        for plugin in plugins:
            import_module(plugin)
        return call_next(message, context)

    return mod


def precision_mod(precision: str | None = None) -> Mod:
    """Return a mod that sends embeddings in ``precision``, and asks for downloads in it."""
    if precision is not None:
        choice("precision", precision, PRECISIONS)

    def mod(message: Message, context: Context, call_next: CallNext) -> Message:
        reply = call_next(message, context)
        chosen = precision or setting(context.run_config, "precision", LOSSLESS)
        choice("run-config: precision", chosen, PRECISIONS)
        if chosen != LOSSLESS and reply.has_content() and FACTS in reply.content:
            _round(reply, chosen)
        return reply

    return mod


def _round(reply: Message, precision: str) -> None:
    facts = reply.content[FACTS]
    facts["precision"] = precision
    vectors = facts.get("vectors", [])
    for name, upload in list(reply.content.array_records.items()):
        if str(name).startswith(UPLOAD):  # of a device, or of each client of a benchmark
            reply.content[name] = ArrayRecord(
                {key: _encode_array(key, rows, precision) if key in vectors else rows for key, rows in upload.items()}
            )


def _encode_array(name: str, array: Array, precision: str) -> Array:
    """Return the rows of an array in a precision; an array that is coded already stays."""
    if array.stype != NUMPY:
        return array
    rows = array_of_bytes(name, array.data)
    form = RowFormat.of(precision, rows.shape[-1], rows.dtype)
    data = form.encode(rows.reshape(-1, rows.shape[-1])).tobytes()
    return Array(f"{rows.dtype.kind}{rows.dtype.itemsize}", rows.shape, CODED + precision, bytes(data))


def privacy_mod(least_images: int | None = None, noise: float | None = None) -> Mod:
    """Return a mod that lets only uploads leave the node that hide single images: see :class:`latte.Privacy`.

    A client of a benchmark makes its summaries with this privacy. A device of a fleet makes its own uploads (``latte
    edge --least-images --noise``), and an upload that hides less is not sent.
    """
    if least_images is not None or noise is not None:
        Privacy(least_images or 1, noise or 0.0)

    def mod(message: Message, context: Context, call_next: CallNext) -> Message:
        images = setting(context.run_config, "least-images", 1) if least_images is None else least_images
        length = setting(context.run_config, "noise", 0.0) if noise is None else noise
        message.content[PRIVACY] = ConfigRecord({"least-images": images, "noise": length})
        return call_next(message, context)

    return mod
