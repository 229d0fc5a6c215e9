"""The machine code of the loops on disk, as far as it can be seen without numba, whose import takes a while."""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

# the kernels that a run of Latte needs, in groups that are compiled at the same time; the last takes half of the time
KERNEL_GROUPS = (
    ("squares", "fill_queues", "follow_queues", "classify", "blend"),
    ("play",),
    ("read_clients",),
)
KERNEL_NAMES = tuple(name for group in KERNEL_GROUPS for name in group)


@cache
def hash_sources() -> str:
    """Return a hash of the sources of all loops, which the files are named after: a kernel contains its helpers."""
    content = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        content.update(file.read_bytes())
    return content.hexdigest()[:16]


def are_loops_on_disk() -> bool:
    """Say whether there are files of all kernels: most likely, they are for this processor and this version of numba.

    False where numba keeps its files in a folder of its own choice, because the package may not be written to.
    """
    return all(any(_files(name)) for name in KERNEL_NAMES)


def _files(kernel: str) -> list[Path]:
    pattern = f"*.{kernel}-*.{hash_sources()}.nbi"  # as compiled.py names them
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return list(Path(chosen).glob(f"*/{pattern}") if chosen else (Path(__file__).parent / "__pycache__").glob(pattern))
