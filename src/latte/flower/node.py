"""What a node does with a query: store the answer, wait a little for an offer of its device, reply.

The device is another process (``latte edge --server folder:DIR``). The two share only the folder, because Flower
handles each query in a process of its own, which ends with the reply.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from ..core.privacy import Privacy
from ..edge.exchange_folder import ExchangeFolder, FolderAnswer, Offer, look_for
from ..edge.joining import new_member
from ..errors import InputError
from ..methods import describe
from ..wire.messages import NO_VERSION, DeviceReport
from ..wire.task_file import Task, describe_difference, parse_task
from .settings import LONGEST_PARK
from .sync_records import NodeQuery, NodeReply

log = logging.getLogger("flwr.latte")
_OTHER_TASK = "other_task"


def attend(query: NodeQuery, folder: ExchangeFolder, privacy: Privacy | None = None) -> NodeReply:
    """Handle one query and return the reply; the reply also reports what is wrong on this node.

    With ``privacy``, an offer that hides less is not sent.
    """
    try:
        task = _task(query, folder.make())
        if task is None:
            return NodeReply("")
        if query.answer is not None:
            folder.put_answer(query.answer)
        return _reply(query, folder, task, privacy or Privacy())
    except (OSError, InputError) as error:
        log.error("%s", error)
        return NodeReply(query.task, problem=str(error)[:500])


def _task(query: NodeQuery, folder: ExchangeFolder) -> Task | None:
    """Return the task of this node, which may have come with this query; None if there is none yet."""
    task = folder.task()
    if task is None and query.task_file:
        task = parse_task(query.task_file, "the server's task")
        folder.put_task(task)
    return task


def _reply(query: NodeQuery, folder: ExchangeFolder, task: Task, privacy: Privacy) -> NodeReply:
    """Wait for an offer that the server does not have, and return it as a reply; without one, an empty reply."""
    answer = _last_answer(folder)
    reply = NodeReply(task.fingerprint, received=answer.version if answer else NO_VERSION)
    if task.fingerprint != query.task:
        _tell_device(query, folder, task)
        return reply
    new_member(task, privacy)  # refuses what no device could do with this task
    offer = look_for(lambda: _new_offer(folder, query.stored, answer), min(query.park, LONGEST_PARK))
    if offer is None:
        return reply
    _check_privacy(offer, privacy)
    return replace(
        reply,
        task=offer.task,  # the device may have begun with another task than this folder
        version=offer.version,
        key=offer.key,
        upload=offer.upload,
        vectors=tuple(getattr(describe(task.method).kind.Upload, "vector_fields", ())),
        precision=offer.precision,
        report=offer.report or DeviceReport(),
    )


def _last_answer(folder: ExchangeFolder) -> FolderAnswer | None:
    """Return the last answer; a damaged file counts as no answer, so that the server sends it again."""
    try:
        return folder.answer()
    except InputError as error:
        log.error("%s", error)
        return None


def _new_offer(folder: ExchangeFolder, stored: int, answer: FolderAnswer | None) -> Offer | None:
    """Return the offer if the server neither has it nor has refused it."""
    offer = folder.offer()
    if offer is None or offer.version <= stored:
        return None
    refused = answer is not None and answer.version == offer.version and bool(answer.code)
    return None if refused else offer


def _check_privacy(offer: Offer, privacy: Privacy) -> None:
    if offer.hidden.least_images < privacy.least_images or offer.hidden.noise < privacy.noise:
        got = f"--least-images {offer.hidden.least_images} --noise {offer.hidden.noise:g}"
        want = f"--least-images {privacy.least_images} --noise {privacy.noise:g}"
        raise InputError(f"an upload that hides too little is not sent: got {got}, want {want}: start latte edge so")


def _tell_device(query: NodeQuery, folder: ExchangeFolder, task: Task) -> None:
    """Let the device know that it works on another task than the server."""
    offer = folder.offer()
    detail = f"another task than the server's: {describe_difference(query.task, task.fingerprint)} differ"
    if offer is not None:
        folder.put_answer(FolderAnswer(task.fingerprint, offer.version, None, _OTHER_TASK, detail))
