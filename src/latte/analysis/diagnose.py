"""Look into the memories of a run: replay one seed with the readable simulator and count.

Per class: how full the local memories are, how often a client syncs without a prototype of its own (B3) and has nothing
to read (B2), the share of external items among those it reads, how often the gate of the released code would silence
the class although something is stored (B1), and how certain the stored items are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np

from ..core.types import Mask, Reals
from ..data.benchmark import Federation
from ..errors import refuse
from ..methods import resolve
from ..methods.latte import Latte, LatteParams
from ..simulation.readable import set_up
from ..simulation.schedule import Schedule
from .diagnosis_file import DiagnosisFile
from .replay import replay
from .watch import Watch, WatchedExchange, latte_of

QUANTILES = (0.1, 0.5, 0.9)
LEVELS = tuple(round(0.05 * i, 2) for i in range(21))


@dataclass(frozen=True, slots=True)
class ClassReport:
    """The counts of one class (or of all). Shares are in per cent, None where there was nothing to count.

    ``images`` that were taken for the class. ``full``: filled local slots at the end, over clients. ``without``:
    clients that end with no item of it. ``empty_queries``: syncs at which a client had no prototype to ask with.
    ``unreadable``: predictions with nothing stored for it. ``external``: items from others among those read.
    ``silenced``: predictions at which the released code's gate silences it, of those with something stored.
    ``local_entropy`` and ``external_entropy``: 10, 50 and 90 % quantiles of what is stored at the end.
    """

    name: str
    images: int
    full: float
    without: float
    empty_queries: float | None
    unreadable: float
    external: float | None
    silenced: float | None
    local_entropy: tuple[float, ...] | None
    external_entropy: tuple[float, ...] | None

    def __post_init__(self) -> None:
        shares = (self.full, self.without, self.empty_queries, self.unreadable, self.external, self.silenced)
        _check_shares(self.name, [share for share in shares if share is not None])
        for entropies in (self.local_entropy, self.external_entropy):
            if entropies is not None and len(entropies) != len(QUANTILES):
                raise refuse("entropy", f"{len(entropies)} quantiles", f"{len(QUANTILES)}")


@dataclass(frozen=True, slots=True)
class Diagnosis(DiagnosisFile):
    """The diagnosis of one method on one seed.

    ``below`` gives, for images, local items and external items, the share in per cent with an entropy up to each of
    :data:`LEVELS`. ``accuracy`` is that of the replay.
    """

    FORMAT: ClassVar = "latte-diagnosis/1"

    benchmark: str
    method: str
    seed: int
    params: dict[str, Any]
    clients: int
    samples: int
    accuracy: float
    total: ClassReport
    classes: tuple[ClassReport, ...]
    below: dict[str, tuple[float, ...]]

    def __post_init__(self) -> None:
        _check_shares("accuracy", [self.accuracy])
        for name, shares in self.below.items():
            _check_shares(name, shares)
            if len(shares) != len(LEVELS):
                raise refuse("below", f"{len(shares)} shares", f"{len(LEVELS)}, one per level")


def _check_shares(name: str, shares: Sequence[float]) -> None:
    for share in shares:
        if not -1e-6 <= share <= 100 + 1e-6:  # room for rounding
            raise refuse(name, share, "a share from 0 to 100 %")


def diagnose(
    federation: Federation,
    params: Any = None,
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
    progress: Callable[[int], object] = lambda samples: None,
) -> Diagnosis:
    """Run Latte on ``federation`` and watch every memory; ``progress(1)`` is called after each image.

    >>> from dataclasses import replace
    >>> from latte.data.bundled import bundled
    >>> federation = bundled()
    >>> few = replace(federation, clients=federation.clients[:3])
    >>> diagnose(few, {"k_l": 2}).total.images
    180
    """
    chosen: LatteParams = resolve("latte", params)
    clients, exchange = set_up(federation, "latte", chosen)
    assert exchange is not None, "Latte collaborates"
    watch = Watch(federation.embeddings.zero_shot.classes)
    right = 0
    for answer in replay(federation, clients, WatchedExchange(exchange, watch), schedule, rng):
        watch.see(answer.client, answer.sample, answer.prediction.entropy)
        right += answer.correct
        progress(1)
    return _diagnosis(federation, chosen, [latte_of(client) for client in clients], watch, right)


# --- summing up -----------------------------------------------------------------------------------------------


def _diagnosis(
    federation: Federation, params: LatteParams, methods: Sequence[Latte], watch: Watch, right: int
) -> Diagnosis:
    names = federation.embeddings.zero_shot.classnames
    every = np.ones(len(names), np.bool_)
    local = np.concatenate([m.local.entropy[m.local.valid] for m in methods])
    others = np.concatenate([m.external.entropy[m.external.valid] for m in methods])
    return Diagnosis(
        federation.embeddings.name,
        "latte",
        0,
        asdict(params),
        len(methods),
        federation.samples,
        100 * right / federation.samples,
        _count("all", every, methods, watch),
        tuple(_count(name, np.arange(len(names)) == y, methods, watch) for y, name in enumerate(names)),
        {"images": _below(np.array(watch.entropies)), "local items": _below(local), "external items": _below(others)},
    )


def _count(name: str, chosen: Mask, methods: Sequence[Latte], watch: Watch) -> ClassReport:
    filled = np.array([m.local.valid[chosen].mean() for m in methods])
    held = np.array([m.local.valid[chosen].any(axis=1).mean() for m in methods])
    predictions, readable = len(watch.entropies) * chosen.sum(), watch.readable[chosen].sum()
    return ClassReport(
        name,
        int(watch.images[chosen].sum()),
        100 * float(filled.mean()),
        100 * float(1 - held.mean()),
        _share(watch.empty[chosen].sum(), watch.queries * chosen.sum()),
        100 - (_share(readable, predictions) or 0.0),
        _share(watch.external[chosen].sum(), watch.items[chosen].sum()),
        _share(watch.silenced[chosen].sum(), readable),
        _quantiles([m.local.entropy[chosen][m.local.valid[chosen]] for m in methods]),
        _quantiles([m.external.entropy[chosen][m.external.valid[chosen]] for m in methods]),
    )


def _share(part: Any, whole: Any) -> float | None:
    return 100 * float(part) / float(whole) if whole else None


def _quantiles(parts: Sequence[Reals]) -> tuple[float, ...] | None:
    values = np.concatenate(parts)
    return tuple(float(q) for q in np.quantile(values, QUANTILES)) if len(values) else None


def _below(values: Reals) -> tuple[float, ...]:
    """Return the share of ``values`` in per cent up to each level."""
    return tuple(100 * float((values <= level).mean()) if len(values) else 0.0 for level in LEVELS)
