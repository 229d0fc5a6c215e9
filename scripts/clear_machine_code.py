"""Removes the machine code of the engine's loops that numba left behind: every change of the loops adds a set of files.

python scripts/clear_machine_code.py
"""

from __future__ import annotations

from pathlib import Path

from latte.simulation.engine.compiled import cache_folder
from latte.simulation.engine.loop_files import hash_sources
from latte.simulation.engine.loops_read import read_clients


def main() -> None:
    folder: Path = cache_folder(read_clients)
    old = [file for file in folder.glob("*.nb[ci]") if f".{hash_sources()}." not in file.name]
    for file in old:
        file.unlink(missing_ok=True)
    print(f"{len(old)} files removed from {folder}")


if __name__ == "__main__":
    main()
