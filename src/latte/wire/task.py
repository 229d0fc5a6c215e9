"""A task: everything that the clients of a federation must agree on, in one safetensors file.

The server passes it on, so that a device needs no text encoder and no configuration of its own.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from ..core.sync import SYNC_TIMES
from ..core.validate import at_least, choice
from ..core.zero_shot import ZeroShot
from ..errors import InputError, refuse
from ..files.atomic import write_bytes
from ..files.documents import parse_json, refuse_inside, shorten, structure
from ..files.tensors import Tensors, parse_safetensors, read_safetensors, safetensors_bytes

TASK_FORMAT = "latte-task/1"
_PARTS = ("class names", "text embeddings", "logit scale", "encoder", "method", "parameters of the method")
_DIGITS = 16  # of a part of a fingerprint: 64 bits, because parts differ by accident, not by design


@dataclass(frozen=True, slots=True)
class EncoderIdentity:
    """The encoder that a task was made with; ``fingerprint`` covers weights, tokenizer and preprocessing."""

    name: str
    fingerprint: str
    preprocess: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EarlierTask:
    """A version of a task before classes joined or left it."""

    fingerprint: str
    classnames: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TaskDescription:
    """The metadata of a task file."""

    classnames: tuple[str, ...]
    scale: float
    method: str
    params: dict[str, Any]
    sync: str = "every"
    period: int = 1
    templates: tuple[str, ...] = ()
    encoder: EncoderIdentity | None = None
    descriptions: dict[str, tuple[str, ...]] = field(default_factory=dict)
    history: tuple[EarlierTask, ...] = ()
    joined: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Task:
    """What all clients share. ``params`` are all parameters of the method; ``sync`` and ``period`` say when to sync.

    ``templates`` and ``descriptions`` are a note of how the text embeddings were made. ``history`` are the versions
    before classes joined or left, the oldest first; ``joined`` are classes that were not in the first.
    """

    zero_shot: ZeroShot
    method: str
    params: Mapping[str, Any]
    sync: str = "every"
    period: int = 1
    templates: tuple[str, ...] = ()
    encoder: EncoderIdentity | None = None
    descriptions: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    history: tuple[EarlierTask, ...] = ()
    joined: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return f"Task({self.method}, {self.zero_shot!r})"

    @cached_property
    def fingerprint(self) -> str:
        """Six hashes: of class names, text, scale, encoder, method, parameters. Two fingerprints tell what differs."""
        zero_shot, encoder = self.zero_shot, self.encoder.fingerprint if self.encoder else "none"
        values = (list(zero_shot.classnames), zero_shot.scale, encoder, self.method, dict(self.params))
        parts = [json.dumps(value, sort_keys=True, separators=(",", ":")).encode() for value in values]
        parts.insert(1, zero_shot.text.astype("<f4").tobytes())
        return "-".join(hashlib.sha256(part).hexdigest()[:_DIGITS] for part in parts)

    def classes_of(self, fingerprint: str) -> tuple[str, ...] | None:
        """Return the classes of an earlier version; None if it is none of this task."""
        found = [each.classnames for each in self.history if each.fingerprint == fingerprint]
        return found[-1] if found else None

    def to_bytes(self) -> bytes:
        """Return the file; the same task always gives the same bytes."""
        about = TaskDescription(
            self.zero_shot.classnames, self.zero_shot.scale, self.method, dict(self.params),
            self.sync, self.period, self.templates, self.encoder, dict(self.descriptions), self.history, self.joined,
        )  # fmt: skip
        later = ("descriptions", "history", "joined")
        written = {name: value for name, value in asdict(about).items() if name not in later or value}
        metadata = {"format": TASK_FORMAT, "fingerprint": self.fingerprint, "task": json.dumps(written)}
        return safetensors_bytes({"text": self.zero_shot.text}, metadata)


def describe_difference(first: str, second: str) -> str:
    """Return which parts of two fingerprints differ, in words.

    >>> describe_difference("a-b-c-d-e-f", "a-b-x-d-e-y")
    'logit scale, parameters of the method'
    """
    hashes, others = first.split("-"), second.split("-")
    if not len(hashes) == len(others) == len(_PARTS):
        return "the form of the fingerprint"
    return ", ".join(name for name, a, b in zip(_PARTS, hashes, others, strict=True) if a != b) or "nothing"


def write_task(path: Path, task: Task) -> None:
    """Write a task file."""
    write_bytes(path, task.to_bytes())


def read_task(path: Path) -> Task:
    """Read a task file; a file that is damaged, or that another version wrote, is refused."""
    return _task(read_safetensors(path, "task"), str(path))


def parse_task(content: bytes, name: str = "task") -> Task:
    """Return the task in the bytes of a task file."""
    return _task(parse_safetensors(content, name), name)


def _task(tensors: Tensors, name: str) -> Task:
    metadata = tensors.metadata
    if metadata.get("format") != TASK_FORMAT:
        newer = str(metadata.get("format")).startswith(TASK_FORMAT.rpartition("/")[0] + "/")
        hint = "a newer latte wrote it, upgrade this one" if newer else "a file that `latte task create` wrote"
        raise refuse(name, f"format {shorten(repr(metadata.get('format')))}", f"{TASK_FORMAT!r}: {hint}")
    described = parse_json(metadata.get("task", ""), f"{name}: task")
    about = structure(described, TaskDescription, f"{name}: task", extra=True)  # a later version may say more
    if set(tensors.arrays) != {"text"}:
        raise refuse(name, f"the arrays {shorten(sorted(tensors.arrays))}", "text, and no other")
    try:
        choice("sync", about.sync, SYNC_TIMES)
        at_least("period", about.period, 1)
        zero_shot = ZeroShot(tensors.arrays["text"], about.classnames, about.scale)
    except InputError as error:
        raise refuse_inside(name, error) from None
    task = Task(
        zero_shot, about.method, about.params, about.sync, about.period, about.templates, about.encoder,
        about.descriptions, about.history, about.joined,
    )  # fmt: skip
    if metadata.get("fingerprint") != task.fingerprint:
        raise refuse(
            name, "contents that are not those of its fingerprint", "the file as it was written: create it again"
        )
    return task
