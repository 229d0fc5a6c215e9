"""Removes the machine code of the engine's loops that numba left behind: every change of the loops adds a set of files.

python tools/clear_machine_code.py
"""

from __future__ import annotations

from pathlib import Path

from latte.engine.cache import hash_loops
from latte.engine.loops.read import read_clients


def main() -> None:
    folder: Path = Path(read_clients._cache.cache_path)
    old = [file for file in folder.glob("*.nb[ci]") if f".{hash_loops()}." not in file.name]
    for file in old:
        file.unlink(missing_ok=True)
    print(f"{len(old)} files removed from {folder}")


if __name__ == "__main__":
    main()
