"""Versions of the protocol: which ones this program speaks, how each side says so, and what to do if they differ.

A version is a whole number. It changes only when messages change in a way that the other side has to know of; a new
optional field does not change it. A client states the version in every message (``protocol``); a server lists all
versions that it speaks in a header of its answers.
"""

from __future__ import annotations

from collections.abc import Sequence

PROTOCOL = 1  # what this program prefers
SPOKEN = (PROTOCOL,)  # what it understands
HEADER = "Latte-Protocol"  # of answers, such as "1" or "1, 2"
UNSUPPORTED = "unsupported_protocol"  # the code of the problem
_MOST = 100  # characters of a header that are read


def spoken_header() -> str:
    """Return the value of the header.

    >>> spoken_header()
    '1'
    """
    return ", ".join(map(str, SPOKEN))


def read_header(value: str | None) -> tuple[int, ...]:
    """Return the versions that a server names in its header; a server without the header speaks version 1.

    >>> read_header("1, 2"), read_header(None), read_header("nonsense")
    ((1, 2), (1,), (1,))
    """
    words = [word.strip() for word in (value or "")[:_MOST].split(",")]
    return tuple(int(word) for word in words if word.isdecimal() and len(word) < 7) or (1,)


def choose_version(theirs: Sequence[int]) -> int | None:
    """Return the highest version that both sides speak; None if there is none.

    >>> choose_version([1, 2]), choose_version([2, 3])
    (1, None)
    """
    return max(set(SPOKEN).intersection(theirs), default=None)


def upgrade_advice(theirs: Sequence[int]) -> str:
    """Return the advice to the owner of a client whose server speaks other versions only.

    >>> upgrade_advice([2])
    'the server speaks protocol 2, this program 1: upgrade latte on this device'
    """
    older = max(theirs) < min(SPOKEN)
    names = " and ".join(map(str, theirs))
    where = "on the server" if older else "on this device"
    return f"the server speaks protocol {names}, this program {spoken_header()}: upgrade latte {where}"
