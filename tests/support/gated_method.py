"""A plugin for tests that stop a run midway: its method waits for the file ``gate``, so the run cannot end before.

Every process that has come so far leaves the file ``entered-PID``.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from latte.core.types import Prediction, Vectors
from latte.methods import register
from latte.methods.clip import Clip

GATE = Path("gate")


@dataclass(frozen=True)
class GatedParams:
    alpha: float = 1.0  # something to sweep over


class Gated(Clip):
    Params: ClassVar = GatedParams
    presets: ClassVar[dict[str, GatedParams]] = {}

    waited = False

    def predict_rows(self, views: Vectors) -> Prediction:
        if not self.waited:
            Path(f"entered-{os.getpid()}").touch()
            while not GATE.exists():
                time.sleep(0.01)
            self.waited = True
        return super().predict_rows(views)


register("gated", f"{__name__}:Gated")
