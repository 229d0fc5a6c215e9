"""What a method costs per image and per round, in closed form.

A multiply-accumulate (MAC) is one multiplication, whether or not an addition follows; exp, division, comparison and
sorting are not counted. The zero-shot head (C · D, which every method has) is not counted here either.

The *direct* form follows the formulas as they are printed, and is how the paper counts. The *own* form follows the code
of this package, which reads the norm of a weighted sum from a Gram matrix instead of forming the sum.
Full memories are assumed; c classes, d dimensions, k slots per class, V views.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from ..core.validate import at_least, choice, refuse
from ..methods import describe
from ..methods.dmn import DmnParams
from ..methods.latte import LatteParams
from ..methods.tda import TdaParams

PAPER_SIZES = (100, 512)  # classes and dimensions of the paper's cost table
PAPER_SHARE = "less than 0.4 %"  # of the encoder's size: a round of Latte ("Communication cost (RQ2)")
PRECISIONS = {"fp32": 4, "fp16": 2, "int8": 1}  # bytes per number of a vector
Terms = dict[str, int]

LARGEST_SIZE = 100_000  # classes, dimensions or views: the methods are run at these sizes


@dataclass(frozen=True, slots=True)
class CostShape:
    """The sizes that decide the cost: classes, dimensions, views of the methods that augment."""

    classes: int
    dim: int
    views: int = 64

    def __post_init__(self) -> None:
        at_least("classes", self.classes, 2, LARGEST_SIZE)
        at_least("dim", self.dim, 1, LARGEST_SIZE)
        at_least("views", self.views, 1, LARGEST_SIZE)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one round of one client. ``vectors`` only (as the paper counts), or ``whole``, with what else is needed.

    ``whole`` adds an entropy per vector (2 bytes; 4 with fp32), a validity bit per vector, and with int8 a float32
    scale per vector.
    """

    up: int
    down: int
    whole_up: int
    whole_down: int

    @property
    def vectors(self) -> int:
        """Up and down together, vectors only: the paper's number."""
        return self.up + self.down

    @property
    def whole(self) -> int:
        """Up and down together, with entropies, validity and scales."""
        return self.whole_up + self.whole_down


# --- multiply-accumulates --------------------------------------------------------------------------------------


def direct_macs(name: str, params: Any, shape: CostShape) -> Terms:
    """Return the MACs per image beyond encoder and head, term by term, as the printed formulas have them.

    >>> from latte.methods.latte import PRESETS
    >>> terms = direct_macs("latte", PRESETS["cifar100c"], CostShape(classes=100, dim=512))
    >>> sum(terms.values())    # the paper: 871 K
    871200
    """
    return _terms(_DIRECT, name, params, shape)


def own_macs(name: str, params: Any, shape: CostShape) -> Terms:
    """Return the MACs per image beyond encoder and head, term by term, as this package computes."""
    return _terms({**_DIRECT, **_OWN}, name, params, shape)


def _terms(table: Mapping[str, Callable[[Any, CostShape], Terms]], name: str, params: Any, shape: CostShape) -> Terms:
    family = describe(name).family
    choice("method", family, tuple(table))
    return table[family](params, shape)


def _latte(p: LatteParams, s: CostShape) -> Terms:
    """Similarities (eq. 4), one exponent per slot (gamma · h is known when stored), eq. 5 without its norm, eq. 6."""
    c, k, d = s.classes, p.k_l, s.dim
    return {"similarity": c * k * d, "weights": c * k, "weighted sum": c * k * d, "product": c * d}


def _latte_own(p: LatteParams, s: CostShape) -> Terms:
    """Similarities, weights, Σ w s, wᵀ G w, alpha; gamma · h and G of the class that changed."""
    c, k, d = s.classes, p.k_l, s.dim
    read = {"similarity": c * k * d, "weights": c * k, "sum": c * k, "norm": c * k * k + c * k, "mix": c}
    return {**read, "class update": k * k * d + k}


def _tda(p: TdaParams, s: CostShape) -> Terms:
    """Two caches: similarities, exponents, sums per class; the negative one weighs a row of C indicators per item."""
    c, d = s.classes, s.dim
    attract = {"similarity": c * p.k * d, "weights": c * p.k, "mix": c}
    repel = {"negative similarity": c * p.k_negative * d, "negative weights": c * p.k_negative}
    return {**attract, **repel, "negative sum": c * p.k_negative * c, "negative mix": c}


def _dmn(p: DmnParams, s: CostShape) -> Terms:
    """As Latte, with the text as one more item, whose similarity the head has computed already."""
    c, k, d = s.classes, p.k, s.dim
    read = {"similarity": c * k * d, "weights": c * (k + 1), "weighted sum": c * (k + 1) * d}
    return {**read, "product": c * d, "mix": c}


def _dmn_own(p: DmnParams, s: CostShape) -> Terms:
    c, k, d = s.classes, p.k, s.dim
    read = {"similarity": c * k * d, "weights": c * (k + 1), "sum": c * (k + 1)}
    norm = {"norm": c * (k + 1) * (k + 1) + c * (k + 1), "mix": c}
    return {**read, **norm, "gram update": (k + 1) * d}


def _views(p: Any, s: CostShape) -> Terms:
    """The head on the other views."""
    return {"head on the other views": (s.views - 1) * s.classes * s.dim}


def _vte(p: Any, s: CostShape) -> Terms:
    return {**_views(p, s), "head on the mean": s.classes * s.dim}


def _tpt(p: Any, s: CostShape) -> Terms:
    return {**_views(p, s), "head with the tuned prompt": s.classes * s.dim}


_DIRECT: dict[str, Callable[[Any, CostShape], Terms]] = {
    "clip": lambda p, s: {},
    "latte": _latte,
    "tda": _tda,
    "dmn": _dmn,
    "zero": _views,
    "vte": _vte,
    "tpt": _tpt,
}
_OWN: dict[str, Callable[[Any, CostShape], Terms]] = {"latte": _latte_own, "dmn": _dmn_own}


# (family, whether its memory is shared): how many vectors go up and down in a round
_SENT: dict[tuple[str, bool], Callable[[Any, CostShape], tuple[int, int]]] = {
    ("latte", False): lambda p, s: (s.classes, s.classes * p.k_e),
    ("dmn", True): lambda p, s: (1, s.classes * p.k),
    ("tda", True): lambda p, s: (1, s.classes * (p.k + p.k_negative)),
}

# --- bytes -----------------------------------------------------------------------------------------------------


def traffic(name: str, params: Any, shape: CostShape, precision: str = "fp16") -> Traffic | None:
    """Return the bytes of one round; None for a method that sends nothing.

    Latte sends one prototype per class and gets k_e back, a round being whenever a client likes. A global memory is
    charged as the paper does, per image: the new item up, the whole memory down.

    >>> from latte.methods.latte import PRESETS
    >>> traffic("latte", PRESETS["cifar100c"], CostShape(classes=100, dim=512)).vectors    # the paper: 614 K
    614400
    """
    choice("precision", precision, tuple(PRECISIONS))
    counts = _vectors_sent(name, params, shape)
    if counts is None:
        return None
    up, down = (_bytes(vectors, shape.dim, precision) for vectors in counts)
    entropies = counts[1] * max(PRECISIONS[precision], 2)  # down only: whoever receives an upload calculates its own
    return Traffic(up[0], down[0], up[1], down[1] + entropies)


def _vectors_sent(name: str, params: Any, shape: CostShape) -> tuple[int, int] | None:
    """Return how many vectors go up and down in a round."""
    info = describe(name)
    count = _SENT.get((info.family, info.shared))
    return None if count is None else count(params, shape)


def _bytes(vectors: int, dim: int, precision: str) -> tuple[int, int]:
    """Return the bytes of the vectors alone, and with scales and validity bits."""
    bare = vectors * dim * PRECISIONS[precision]
    scales = 4 * vectors if precision == "int8" else 0
    return bare, bare + scales + math.ceil(vectors / 8)


# --- the paper's own numbers -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PaperCost:
    """A row of the paper's Table 3 (CIFAR-100-C, ViT-B/16, a GPU), as printed; "" where it has no number.

    The bytes of CLIP are in brackets: they are those of the image encoder, which is sent once.
    """

    method: str
    augments: str
    backprop: str
    macs: str
    runtime_ms: str
    memory_gb: str
    bytes_per_round: str


def paper_costs() -> dict[str, PaperCost]:
    """Return the paper's cost table by method."""
    text = files("latte.analysis").joinpath("paper_cost.csv").read_text("utf-8")
    rows = [PaperCost(**row) for row in csv.DictReader(text.splitlines())]
    return {row.method: row for row in rows}


def short_count(number: float | None) -> str:
    """Write a count as the paper does, three digits and a letter.

    >>> short_count(871_200), short_count(614_400), short_count(17_563_453_440), short_count(2_049_024)
    ('871 K', '614 K', '17.6 G', '2.05 M')
    """
    if number is None:
        return ""
    if number < 0:
        raise refuse("number", number, "a count")
    letters = ("", " K", " M", " G", " T")
    power = 0
    while power < 4 and float(f"{number / 1000**power:.3g}") >= 1000:  # 999,600 is 1 M, not 1000 K
        power += 1
    return f"{float(f'{number / 1000**power:.3g}'):g}{letters[power]}"
