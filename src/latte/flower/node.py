"""A node, and what it does with a query: store the answer, wait a little for an offer of its device, reply.

The device is another process (``latte edge --server folder:DIR``). The two share only the folder, because Flower
handles each query in a process of its own, which ends with the reply.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp

from ..core.privacy import Privacy
from ..core.types import optional_fields
from ..core.validate import choice
from ..edge.clients.folder import ExchangeFolder, FolderAnswer, Offer, look_for
from ..edge.joining import new_member
from ..errors import InputError, refuse
from ..methods import describe
from ..wire.blocks import Block
from ..wire.messages import NO_VERSION, DeviceReport
from ..wire.rows import LOSSLESS, PRECISIONS, RowFormat
from ..wire.task import Task, describe_difference, parse_task
from . import records
from .benchmark import walk
from .settings import LONGEST_PARK, setting

log = logging.getLogger("flwr.latte")
SYNC, WALK = "sync", "walk"  # the actions: messages have the types query.sync and query.walk
STATE_DIR = "state-dir"  # of the node's configuration
_RAISED = 2  # Flower's code for an exception of a ClientApp

CallNext: TypeAlias = Callable[[Message, Context], Message]
Mod: TypeAlias = Callable[[Message, Context, CallNext], Message]


def attend(query: records.NodeQuery, folder: ExchangeFolder, privacy: Privacy | None = None) -> records.NodeReply:
    """Handle one query and return the reply; the reply also reports what is wrong on this node.

    With ``privacy``, an offer that hides less is not sent.
    """
    try:
        task = folder.make().task()
        if task is None and query.task_file:  # it comes with this query
            task = parse_task(query.task_file, "the server's task")
            folder.put_task(task)
        if task is None:
            return records.NodeReply("")
        if query.answer is not None:
            folder.put_answer(query.answer)
        return _reply(query, folder, task, privacy or Privacy())
    except (OSError, InputError) as error:
        log.error("%s", error)
        return records.NodeReply(query.task, problem=str(error)[:500])


def _reply(query: records.NodeQuery, folder: ExchangeFolder, task: Task, privacy: Privacy) -> records.NodeReply:
    """Wait for an offer that the server does not have, and return it as a reply; without one, an empty reply."""
    try:
        answer = folder.answer()
    except InputError as error:  # a damaged file counts as no answer, so that the server sends it again
        log.error("%s", error)
        answer = None
    reply = records.NodeReply(task.fingerprint, received=answer.version if answer else NO_VERSION)
    if task.fingerprint != query.task:  # the device is told that it works on another task than the server
        if (offer := folder.offer()) is not None:
            detail = f"another task than the server's: {describe_difference(query.task, task.fingerprint)} differ"
            folder.put_answer(FolderAnswer(task.fingerprint, offer.version, None, "other_task", detail))
        return reply
    new_member(task, privacy)  # refuses what no device could do with this task
    offer = look_for(lambda: _new_offer(folder, query.stored, answer), min(query.park, LONGEST_PARK))
    if offer is None:
        return reply
    hidden = offer.hidden
    bare = bool(privacy.noise) and hidden.labels is True and not privacy.labels  # sums of labels have no noise
    if bare or hidden.least_images < privacy.least_images or hidden.noise < privacy.noise:
        got = f"--least-images {hidden.least_images} --noise {hidden.noise:g}" + (" with labels" if bare else "")
        want = f"--least-images {privacy.least_images} --noise {privacy.noise:g}"
        raise InputError(f"an upload that hides too little is not sent: got {got}, want {want}: start latte edge so")
    return replace(
        reply,
        task=offer.task,  # the device may have begun with another task than this folder
        version=offer.version,
        key=offer.key,
        upload=offer.upload,
        vectors=vectors_of(offer.upload or (), describe(task.method).kind.Upload),
        precision=offer.precision,
        report=offer.report or DeviceReport(),
    )


def vectors_of(blocks: Sequence[Block], kind: type[Any]) -> tuple[str, ...]:
    """Return the names of the arrays of embeddings in an upload of a ``kind``, and of sums of them."""
    more = [block.name for block in blocks if block.name in optional_fields(kind) and block.coding in PRECISIONS]
    return (*getattr(kind, "vector_fields", ()), *more)


def _new_offer(folder: ExchangeFolder, stored: int, answer: FolderAnswer | None) -> Offer | None:
    """Return the offer if the server neither has it nor has refused it."""
    offer = folder.offer()
    if offer is None or offer.version <= stored:
        return None
    refused = answer is not None and answer.version == offer.version and bool(answer.code)
    return None if refused else offer


def precision_mod(precision: str | None = None) -> Mod:
    """Return a mod that sends embeddings in ``precision``, and asks for downloads in it."""
    if precision is not None:
        choice("precision", precision, PRECISIONS)

    def mod(message: Message, context: Context, call_next: CallNext) -> Message:
        reply = call_next(message, context)
        chosen = precision or setting(context.run_config, "precision", LOSSLESS)
        choice("run-config: precision", chosen, PRECISIONS)
        if chosen != LOSSLESS and reply.has_content() and records.FACTS in reply.content:
            _round(reply, chosen)
        return reply

    return mod


def _round(reply: Message, precision: str) -> None:
    facts = reply.content[records.FACTS]
    facts["precision"] = precision
    for name, upload in list(reply.content.array_records.items()):
        if str(name).startswith(records.UPLOAD):  # of a device, or of each client of a benchmark
            arrays = dict(upload.items())
            for key in facts.get("vectors", []):
                if key in arrays and arrays[key].stype == records.NUMPY:  # one that is coded already stays
                    rows = records.array_of_bytes(key, arrays[key].data)
                    form = RowFormat.of(precision, rows.shape[-1], rows.dtype)
                    data = form.encode(rows.reshape(-1, rows.shape[-1])).tobytes()
                    dtype = f"{rows.dtype.kind}{rows.dtype.itemsize}"
                    arrays[key] = Array(dtype, rows.shape, records.CODED + precision, data)
            reply.content[name] = ArrayRecord(arrays)


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
        message.content[records.PRIVACY] = ConfigRecord({"least-images": images, "noise": length})
        return call_next(message, context)

    return mod


def make_client_app(mods: Sequence[Any] = (), plugins: Sequence[str] = ()) -> ClientApp:
    """Return a ClientApp; ``mods`` are Flower's, such as those of :mod:`latte.flower.node`.

    ``plugins`` are modules that register methods of your own. Every process imports them, because the processes of a
    simulation get the app and not the module that made it.
    """

    def prepared(message: Message, context: Context, call_next: CallNext) -> Message:
        """Import plugins; reply with the text of a refusal, not with a traceback of every process in between."""
        for plugin in plugins:
            import_module(plugin)
        try:
            return call_next(message, context)
        except InputError as error:
            return Message(Error(_RAISED, str(error)), reply_to=message)

    app, mods = ClientApp(), [prepared, *mods]
    app.query(SYNC, mods=mods)(_sync)
    app.query(WALK, mods=mods)(_walk)
    return app


def _sync(message: Message, context: Context) -> Message:
    """A node of a fleet: its device offers what it learnt in the folder ``state-dir``."""
    reply = attend(records.read_query(message.content), node_folder(context), _privacy(message.content))
    return Message(records.reply_content(reply), reply_to=message)


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
    demanded = content.get(records.PRIVACY)
    if not isinstance(demanded, ConfigRecord):
        return None
    return Privacy(int(demanded["least-images"]), float(demanded["noise"]))


app = make_client_app()
