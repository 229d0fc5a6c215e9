"""A file system that loses at a power cut what was not synced; torn sectors of it may arrive."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from waiting import wait_until


class LossyDisk:
    """A mounted folder ``mount``; after :meth:`cut_power` it holds what a disk would hold."""

    def __init__(self, tool: Path, folder: Path) -> None:
        self.tool, self.root, self.mount = tool, folder / "trees", folder / "mount"
        for path in (self.root, self.mount):
            path.mkdir(parents=True)

    def start(self, seed: int) -> None:
        """Mount it; ``seed`` decides which sectors are torn at the next cut."""
        variables = {**os.environ, "TORN": str(seed)}
        command = [sys.executable, str(self.tool), str(self.root), str(self.mount)]
        self._process = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: os.path.ismount(self.mount) or self._process.poll() is not None, "the mount")
        if not os.path.ismount(self.mount):
            pytest.skip("needs the right to mount a FUSE file system, and libfuse")

    def cut_power(self) -> None:
        """Unmount; what was not synced is lost, or torn. The caller has killed who writes."""
        wait_until(lambda: subprocess.run(["umount", self.mount], capture_output=True).returncode == 0, "the unmount")
        self._process.wait()
        shutil.rmtree(self.root / "live")
        shutil.copytree(self.root / "disk", self.root / "live")


@contextmanager
def lossy_disk(tool: Path, folder: Path, seed: int = 1) -> Iterator[LossyDisk]:
    """Yield a mounted one; it is unmounted at the end."""
    if importlib.util.find_spec("mfusepy") is None or not Path("/dev/fuse").exists():
        pytest.skip("needs /dev/fuse and: pip install mfusepy")
    disk = LossyDisk(tool, folder)
    disk.start(seed)
    try:
        yield disk
    finally:
        if os.path.ismount(disk.mount):
            disk.cut_power()
