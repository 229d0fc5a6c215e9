"""The cost table: closed forms, measurements and the paper's numbers, a row per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ..experiment.config import MethodConfig
from ..methods import describe, resolve
from .cost import (
    PRECISIONS,
    CostShape,
    PaperCost,
    Traffic,
    direct_macs,
    has_macs,
    own_macs,
    paper_costs,
    server_macs,
    traffic,
)
from .cost_encoder import CLIP_TEXT, passes_macs
from .cost_measure import Measured, Reference, measure_method

CLIENTS = 190  # of a server: as many as the paper has on CIFAR-100-C


@dataclass(frozen=True, slots=True)
class CostRow:
    """What one method costs; ``name`` is its registered name, ``label`` what the user calls it.

    ``encoder_macs`` of all passes for an image (None: not known), ``direct`` and ``own`` MACs beside them (term by
    term; None: not known), ``server``: MACs of a sync of all clients (None: there is no server), ``traffic`` by
    precision (None: sends nothing), ``measured`` and ``relative`` where measured: the time of one image, all passes of
    the encoder included, divided by one pass.
    """

    label: str
    name: str
    augments: bool
    backprop: bool
    encoder_macs: int | None
    direct: Mapping[str, int] | None
    own: Mapping[str, int] | None
    server: Mapping[str, int] | None
    traffic: Mapping[str, Traffic] | None
    measured: Measured | None
    relative: float | None
    paper: PaperCost | None

    @property
    def direct_total(self) -> int | None:
        """The MACs beside the encoder as the printed formulas have them."""
        return None if self.direct is None else sum(self.direct.values())

    @property
    def own_total(self) -> int | None:
        """The MACs beside the encoder as this package computes."""
        return None if self.own is None else sum(self.own.values())


def cost_rows(
    methods: Sequence[MethodConfig],
    shape: CostShape,
    encoder_macs: int | None,
    reference: Reference | None,
    clients: int = CLIENTS,
) -> list[CostRow]:
    """Return a row per method; without a ``reference`` nothing is measured. A server has so many ``clients``."""
    return [_row(method, shape, encoder_macs, reference, clients) for method in methods]


def _row(
    method: MethodConfig, shape: CostShape, macs: int | None, reference: Reference | None, clients: int
) -> CostRow:
    name, params = method.name, resolve(method.name, dict(method.params), method.preset)
    passes = None if macs is None else passes_macs(name, macs, CLIP_TEXT.macs, shape.views, shape.classes)
    prompts = describe(name).tunes_prompt
    measured = measure_method(name, params, shape) if reference and not prompts else None
    return CostRow(
        method.label,
        name,
        describe(name).uses_views,
        prompts,
        passes,
        direct_macs(name, params, shape) if has_macs(name) else None,
        own_macs(name, params, shape) if has_macs(name) else None,
        server_macs(name, params, shape, clients),
        _traffic(name, params, shape),
        measured,
        _relative(name, shape, reference, measured),
        paper_costs().get(name),
    )


def _traffic(name: str, params: Any, shape: CostShape) -> dict[str, Traffic] | None:
    by_precision = {precision: traffic(name, params, shape, precision) for precision in PRECISIONS}
    return {precision: bytes_ for precision, bytes_ in by_precision.items() if bytes_ is not None} or None


def _relative(name: str, shape: CostShape, reference: Reference | None, measured: Measured | None) -> float | None:
    if reference is None or measured is None:
        return None
    passes = shape.views if describe(name).uses_views else 1
    return passes + measured.seconds / reference.seconds


def cost_record(rows: Sequence[CostRow], shape: CostShape, reference: Reference | None) -> dict[str, Any]:
    """Return everything as plain numbers."""
    sums = [{"macs": row.direct_total, "own_macs": row.own_total} for row in rows]
    return {
        "shape": asdict(shape),
        "reference": asdict(reference) if reference else None,
        "methods": [{**asdict(row), **both} for row, both in zip(rows, sums, strict=True)],
    }
