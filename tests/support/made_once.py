"""What takes long to make and several processes of pytest-xdist need: made by the first, awaited by the others."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable
from pathlib import Path

import pytest

_MARK = "made"


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], object]) -> Path:
    """Return the folder ``name`` of this run of the tests, which ``make`` has filled in one of its processes.

    A module's fixture alone does not do that: work stealing may split the tests of a module.
    """
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    with folder.with_name(f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            folder.mkdir()
            make(folder)
            (folder / _MARK).touch()
    if not (folder / _MARK).exists():
        pytest.fail(f"{name}: another process of this run has failed to make it, and shows why")
    return folder
