"""Latte over a whole federation: the memories are replayed window by window, and each window is read."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ..data.federation import Federation
from ..methods.latte.client import LatteParams
from .api import GridEngine, GridOutcome, ReadoutAxes, ReplayOptions
from .cache import prepare_loops
from .loops.arrays import BOTH, EXTERNAL, LOCAL, ReadoutGrid
from .streams import WINDOW, Crew, windows

MEMORY_CODES = {"both": BOTH, "local": LOCAL, "external": EXTERNAL}


class LatteEngine(GridEngine[LatteParams]):
    """Latte with compiled loops; each client has a memory of its own."""

    needs_loops: ClassVar[bool] = True

    def run_grid(
        self, federation: Federation, params: LatteParams, axes: ReadoutAxes, options: ReplayOptions
    ) -> GridOutcome:
        """Return the outcomes for every alpha and beta."""
        from .reader import LatteReplay, WindowReader  # this imports numba

        prepare_loops()
        with Crew(options.threads) as crew:
            replay = LatteReplay(federation, params, crew)
            s, (alphas, betas) = replay.streams, axes
            gamma, gate = params.readout_rate(s.zero_shot.classes), -1.0 if params.gate is None else params.gate
            numbers = (float(gamma), float(gate), float(s.zero_shot.scale))  # a whole number would be another type
            labels = np.full((len(alphas), len(betas), len(s)), -1, np.int64)
            confidences = np.zeros(labels.shape if options.calibration else (0, 0, 0))
            readout = ReadoutGrid(MEMORY_CODES[params.memory], alphas, betas, *numbers, confidences)
            reader = WindowReader(replay, readout, labels)
            for window in windows(s.lengths, options.schedule, options.rng, WINDOW):
                reader.submit(window.handled, replay.run(window))
                replay.forget()
            reader.wait()
        recorded = confidences if options.calibration else None
        path = "fast, in blocks" if replay.in_blocks else "fast"
        return GridOutcome(self.readout, *axes, labels, recorded, s.offsets, replay.server.downloads(), path)
