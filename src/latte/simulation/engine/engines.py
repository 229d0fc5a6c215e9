"""The engines of our methods, as their classes name them. Nothing here needs numba before it runs."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from ...data.benchmark import Federation
from ...methods.clip import ClipParams
from ...methods.dmn import DmnParams
from ...methods.latte import LatteParams
from ...methods.ristretto import RistrettoParams
from ...methods.tda import TdaParams
from ..calibration import confidences_of
from ..outcome import Outcome
from . import plain_classify
from .dmn_engine import run_dmn
from .lifetimes import Order
from .method_engine import GridEngine, GridOutcome, MethodEngine, ReadoutAxes, ReplayOptions
from .ristretto_engine import run_ristretto
from .streams import Streams, lay_out
from .tda_engine import run_tda
from .timeline import order_of


class ClipEngine(MethodEngine[ClipParams]):
    """Zero-shot logits of all samples in one pass. There is no memory, so sharing it changes nothing."""

    serves_shared: ClassVar[bool] = True

    def run(self, federation: Federation, params: ClipParams, options: ReplayOptions) -> Outcome:
        """Return what the readable simulator would return."""
        streams = lay_out(federation, plain_classify)
        return Outcome.fast(streams.pseudo, confidences_of(streams.logits), streams.offsets)


class TdaEngine(GridEngine[TdaParams]):
    """TDA on the plain view, each client by itself or one cache for all."""

    serves_shared: ClassVar[bool] = True

    def fits(self, params: TdaParams) -> bool:
        """Say whether the parameters use the plain view only, and look for no copies."""
        return params.views == "first" and super().fits(params)

    def run_grid(
        self, federation: Federation, params: TdaParams, axes: ReadoutAxes, options: ReplayOptions
    ) -> GridOutcome:
        """Return the outcomes for every alpha and beta of the positive cache."""
        streams = lay_out(federation, plain_classify)
        labels, confidences = run_tda(streams, params, handling_order(streams, options), axes)
        return GridOutcome(self.readout, *axes, labels, confidences, streams.offsets, None)


class DmnEngine(GridEngine[DmnParams]):
    """DMN on the plain view, each client by itself or one memory for all."""

    serves_shared: ClassVar[bool] = True
    readout: ClassVar[tuple[str, str]] = ("weight", "beta")

    def fits(self, params: DmnParams) -> bool:
        """Say whether the parameters use the plain view only, and look for no copies."""
        return params.views == "first" and super().fits(params)

    def run_grid(
        self, federation: Federation, params: DmnParams, axes: ReadoutAxes, options: ReplayOptions
    ) -> GridOutcome:
        """Return the outcomes for every weight of the memory and every beta."""
        streams = lay_out(federation, plain_classify)
        labels, confidences = run_dmn(streams, params, handling_order(streams, options), axes)
        return GridOutcome(self.readout, *axes, labels, confidences, streams.offsets, None)


class LatteEngine(GridEngine[LatteParams]):
    """Latte with compiled loops; each client has a memory of its own."""

    needs_loops: ClassVar[bool] = True

    def run_grid(
        self, federation: Federation, params: LatteParams, axes: ReadoutAxes, options: ReplayOptions
    ) -> GridOutcome:
        """Return the outcomes for every alpha and beta."""
        from .kernels import prepare_loops  # imports numba
        from .latte_engine import run_latte

        prepare_loops()
        latte = run_latte(federation, params, axes, options)
        path = "fast, in blocks" if latte.in_blocks else "fast"
        offsets = latte.streams.offsets
        return GridOutcome(self.readout, *axes, latte.labels, latte.confidences, offsets, latte.downloads, path)


class RistrettoEngine(MethodEngine[RistrettoParams]):
    """Ristretto: between two syncs, the images of a client are one product; each client has sums of its own."""

    def run(self, federation: Federation, params: RistrettoParams, options: ReplayOptions) -> Outcome:
        """Return what the readable simulator would return."""
        return run_ristretto(federation, params, options.schedule, options.rng)


def handling_order(streams: Streams, options: ReplayOptions) -> Order:
    """Return the order in which samples are handled, by one memory per client or, if it is shared, one for all."""
    if not options.shared:
        return Order(np.arange(len(streams)), streams.offsets)
    sequence = order_of(streams.lengths, options.schedule, options.rng)
    return Order(sequence, np.array([0, len(sequence)]))
