"""The names of clients and the fingerprints of tasks: which names are valid, and how they are stored as numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import refuse
from .stored import exactly
from .types import State
from .validate import same_task

LONGEST = 1024  # bytes in UTF-8: room for any path or address, and too little to fill a server with names


def client_name(value: object) -> str:
    """Return ``value`` as the name of a client: any text of 1 to 1024 bytes in UTF-8. Two texts are two names."""
    if not isinstance(value, str) or not len(value):
        raise refuse("client", repr(value), "a name: a non-empty string")
    name = str.__str__(value)  # the text itself, whatever a subclass (an Enum, say) shows instead
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise refuse("client", f"{name[:80]!r}", "a name that UTF-8 can write, without lone surrogates") from None
    if size > LONGEST:
        raise refuse("client", f"a name of {size} bytes", f"at most {LONGEST} bytes in UTF-8")
    return name


def pack_names(names: list[str]) -> State:
    """Return names as two arrays: their bytes in UTF-8, one after the other, and the length of each (N,)."""
    encoded = [name.encode() for name in names]
    return {
        "names": np.frombuffer(b"".join(encoded), np.uint8).copy(),
        "name_lengths": np.array([len(name) for name in encoded], np.int64),
    }


def unpack_names(packed: Any, lengths: Any) -> list[str]:
    """Return the names that :func:`pack_names` packed; refuse what it cannot have returned."""
    sizes = exactly("name_lengths", lengths, np.int64, (np.size(lengths),))
    if ((sizes < 1) | (sizes > LONGEST)).any():
        raise refuse("name_lengths", "a length out of range", f"1 to {LONGEST} bytes")
    raw = exactly("names", packed, np.uint8, (int(sizes.sum()),)).tobytes()
    ends = sizes.cumsum().tolist()
    try:
        names = [raw[start:end].decode() for start, end in zip([0, *ends], ends, strict=False)]
    except UnicodeDecodeError:
        raise refuse("names", "bytes that are no UTF-8", "what state() returns") from None
    if len(set(names)) < len(names):
        raise refuse("names", f"{len(names) - len(set(names))} names twice", "every client once")
    return names


def pack_task(fingerprint: str) -> Any:
    """Return a fingerprint as numbers (32,), for a state."""
    return np.frombuffer(bytes.fromhex(fingerprint), np.uint8).copy()


def check_task(packed: Any, fingerprint: str) -> None:
    """Refuse a state whose task does not have this fingerprint."""
    stored = exactly("task", packed, np.uint8, (len(fingerprint) // 2,)).tobytes().hex()
    same_task("task", stored, fingerprint)
