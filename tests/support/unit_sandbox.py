"""Run a command with the system calls of a systemd unit: python tests/support/unit_sandbox.py UNIT COMMAND...

A test has no systemd that starts units. This builds the same seccomp filter from the unit's own lines, by libseccomp:
SystemCallFilter (its groups are those of `systemd-analyze syscall-filter`), MemoryDenyWriteExecute,
RestrictAddressFamilies, RestrictNamespaces, RestrictRealtime, RestrictSUIDSGID, LockPersonality and NoNewPrivileges.
Which files and devices a unit sees (ProtectSystem and its like) is not tried.
"""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from errno import ENOSYS, EPERM
from pathlib import Path

_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_EQUAL, _MASKED = 4, 7  # comparisons of libseccomp
_NO_NEW_PRIVILEGES = 38  # of prctl
_NAMESPACES = (0x80, 0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
_WRITE, _EXECUTE, _SHARED_EXECUTE = 2, 4, 0o100000
_NORMAL, _BATCH, _IDLE = 0, 3, 5  # ways to schedule that are not real-time
_SETUID_BITS = (0o4000, 0o2000)


class Comparison(ctypes.Structure):
    _fields_ = (("argument", ctypes.c_uint), ("how", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64))


def settings(unit: Path) -> dict[str, list[str]]:
    """Return the values of every setting of a unit; a setting may come more than once."""
    found: dict[str, list[str]] = {}
    for line in unit.read_text().replace("\\\n", " ").splitlines():
        name, sign, value = line.partition("=")
        if sign and not line.startswith("#"):
            found.setdefault(name, []).append(value.strip())
    return found


def members(name: str) -> Iterator[str]:
    """Yield the system calls of a name, which may be a group of groups."""
    if not name.startswith("@"):
        yield name
        return
    listed = subprocess.run(["systemd-analyze", "syscall-filter", "--no-pager", name], capture_output=True, text=True)
    for line in listed.stdout.splitlines()[1:]:
        if (word := line.strip()) and not word.startswith("#"):
            yield from members(word)


def allowed(lines: list[str]) -> set[str]:
    """Return the system calls that the lines of SystemCallFilter allow."""
    calls = set(members("@default"))
    for line in lines:
        named = {call for word in line.lstrip("~").split() for call in members(word)}
        calls = calls - named if line.startswith("~") else calls | named
    return calls


class Filter:
    """A seccomp filter: what is not allowed is refused with EPERM."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL("libseccomp.so.2")
        self._library.seccomp_init.restype = ctypes.c_void_p
        self._filter = ctypes.c_void_p(self._library.seccomp_init(_ERROR | EPERM))

    def add(self, call: str, *comparisons: Comparison, action: int = _ALLOW) -> None:
        """Allow a call, or a call whose arguments fulfil all comparisons."""
        number = self._library.seccomp_syscall_resolve_name(call.encode())
        if number >= 0:  # negative: a call of another architecture
            array = (Comparison * len(comparisons))(*comparisons)
            code = self._library.seccomp_rule_add_array(self._filter, action, number, len(comparisons), array)
            assert code == 0, (call, code)

    def load(self) -> None:
        assert self._library.seccomp_load(self._filter) == 0


def conditions(unit: dict[str, list[str]]) -> dict[str, list[list[Comparison]]]:
    """Return the calls that are allowed with some arguments only: any of the lists, all comparisons of a list."""

    def lacks(argument: int, bits: int) -> Comparison:
        return Comparison(argument, _MASKED, bits, 0)

    def is_on(name: str) -> bool:
        return unit.get(name, ["no"])[-1] == "yes"

    rules: dict[str, list[list[Comparison]]] = {}
    if is_on("MemoryDenyWriteExecute"):
        rules["mmap"] = [[lacks(2, _WRITE)], [lacks(2, _EXECUTE)]]
        rules |= {call: [[lacks(2, _EXECUTE)]] for call in ("mprotect", "pkey_mprotect")}
        rules["shmat"] = [[lacks(2, _SHARED_EXECUTE)]]
    if is_on("RestrictNamespaces"):
        rules |= {call: [[lacks(0, sum(_NAMESPACES))]] for call in ("clone", "unshare")} | {"setns": [], "clone3": []}
    if is_on("RestrictRealtime"):
        rules["sched_setscheduler"] = [[Comparison(1, _EQUAL, policy, 0)] for policy in (_NORMAL, _BATCH, _IDLE)]
    if is_on("LockPersonality"):
        rules["personality"] = [[Comparison(0, _EQUAL, 0xFFFFFFFF, 0)]]
    if is_on("RestrictSUIDSGID"):
        places = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "mkdir": 1, "mkdirat": 2}
        rules |= {call: [[lacks(place, sum(_SETUID_BITS))]] for call, place in places.items()}
    if families := unit.get("RestrictAddressFamilies"):
        rules["socket"] = [[Comparison(0, _EQUAL, getattr(socket, name), 0)] for name in families[-1].split()]
    return rules


def enter(path: Path) -> None:
    """Give this process, and whatever it starts, what the unit allows."""
    unit, kernel = settings(path), ctypes.CDLL(None, use_errno=True)
    special, filter_ = conditions(unit), Filter()
    if "clone3" in special:
        filter_.add("clone3", action=_ERROR | ENOSYS)  # as systemd does: programs then take clone, whose flags it sees
    for call in sorted(allowed(unit["SystemCallFilter"])):
        for comparisons in special.get(call, [[]]):
            filter_.add(call, *comparisons)
    assert kernel.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
    filter_.load()


if __name__ == "__main__":
    enter(Path(sys.argv[1]))
    os.execvp(sys.argv[2], sys.argv[2:])
