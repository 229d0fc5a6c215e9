"""A device that is killed again and again, beside one that is left alone."""

from __future__ import annotations

import random
import time
from pathlib import Path

import devices
from waiting import Running, wait_until


class Kills:
    """Lets a device classify ``pictures`` and kills it at random moments; ``server`` may be away."""

    def __init__(self, folder: Path, server: str, pictures: list[Path], seed: int = 0) -> None:
        self.folder, self.server, self.pictures = folder, server, pictures
        self.state, self.out = folder / "killed", folder / "killed.jsonl"
        self.kills = 0
        self._rng = random.Random(seed)

    def kill(self, count: int) -> None:
        """Kill the device ``count`` times, each time after some more pictures: at a quarter of the starts, before."""
        while self.kills < count:
            with self._start() as process:
                target = len(self.pictures) * (self.kills + 1) // (count + 2)
                if self._rng.random() > 0.25:
                    wait_until(lambda goal=target: devices.recorded(self.state) >= goal, f"{target} pictures", process)
                time.sleep(self._rng.uniform(0, 0.05))  # not to wait for anything: to hit another moment each time
                self._end(process)

    def _end(self, process: Running) -> None:
        assert process.alive(), f"it was done before it was killed: {process}"
        process.kill()
        self.kills += 1

    def _start(self):
        return devices.start_device(self.server, self.state, "killed", *self._places())

    def _places(self) -> tuple[object, ...]:
        return ("--out", self.out, self.pictures[0].parent)

    def finish(self) -> None:
        """Let the device do the rest undisturbed."""
        devices.run_device(self.server, self.state, "killed", *self._places())

    def undisturbed(self, name: str = "killed") -> Path:
        """Let another device of the same name do everything; return its state."""
        state = self.folder / "undisturbed"
        devices.run_device(self.server, state, name, self.pictures[0].parent)
        return state

    def check_each_once(self) -> None:
        """Every picture has been classified once, in order, and --out has every line once."""
        files = [str(path) for path in self.pictures]
        answers = devices.results(self.state)
        assert [answer["file"] for answer in answers] == files
        assert [answer["number"] for answer in answers] == list(range(1, len(files) + 1))
        assert self.out.read_text().splitlines() == devices.result_lines(self.state)
