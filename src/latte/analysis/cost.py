"""What a method costs per image and per round, in closed form.

A multiply-accumulate (MAC) is one multiplication, whether or not an addition follows; exp, division, comparison and
sorting are not counted. The zero-shot head (C · D, which every method has) is not counted here either.

The *direct* form follows the formulas as they are printed, and is how the paper counts. The *own* form follows the code
of this package, which reads the norm of a weighted sum from a Gram matrix instead of forming the sum.
Full memories are assumed; c classes, d dimensions, k slots per class, V views.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from ..core.validate import at_least, choice
from ..errors import refuse
from ..methods import describe
from ..methods.dmn import DmnParams
from ..methods.latte import LatteParams
from ..methods.ristretto import RistrettoParams
from ..methods.tda import TdaParams
from ..methods.traffic import PRECISIONS as PRECISIONS
from ..methods.traffic import Traffic as Traffic
from ..methods.traffic import traffic_of

PAPER_SIZES = (100, 512)  # classes and dimensions of the paper's cost table
PAPER_SHARE = "less than 0.4 %"  # of the encoder's size: a round of Latte ("Communication cost (RQ2)")
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


# --- multiply-accumulates --------------------------------------------------------------------------------------


def has_macs(name: str) -> bool:
    """Say whether the multiplications of a method are known: those of a method of your own are not.

    >>> has_macs("tda-global")
    True
    """
    return describe(name).family in _DIRECT


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


def _ristretto(p: RistrettoParams, s: CostShape) -> Terms:
    """The head's logits, the weight of the head in soft labels, class sums."""
    c, d = s.classes, s.dim
    return {"head": c * d, "trust": c, "class sums": c * d}


def _ristretto_own(p: RistrettoParams, s: CostShape) -> Terms:
    """One product of 2 C rows of D + 1 numbers instead of C rows of D."""
    return {**_ristretto(p, s), "bias": 2 * s.classes}


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
    "ristretto": _ristretto,
    "zero": _views,
    "vte": _vte,
    "tpt": _tpt,
}
_OWN: dict[str, Callable[[Any, CostShape], Terms]] = {
    "latte": _latte_own,
    "dmn": _dmn_own,
    "ristretto": _ristretto_own,
}


# --- the server ------------------------------------------------------------------------------------------------


def server_macs(name: str, params: Any, shape: CostShape, clients: int) -> Terms | None:
    """Return the MACs of a server for one sync of all ``clients``, term by term; None for a method without a server.

    >>> from latte.methods.ristretto import RistrettoParams
    >>> sum(server_macs("ristretto", RistrettoParams(), CostShape(classes=10, dim=256), clients=40).values())
    103612416
    """
    info = describe(name)
    count = _SERVER.get(info.family) if info.collaborative else None
    return None if count is None else count(params, shape, clients)


def _latte_server(p: LatteParams, s: CostShape, n: int) -> Terms:
    """Every prototype with every other of its class."""
    return {"similarity": n * n * s.classes * s.dim}


def _ristretto_server(p: RistrettoParams, s: CostShape, n: int) -> Terms:
    """Every class mean with every other, a weighted sum of them, two scatter matrices, an inverse, the heads."""
    pairs, rows = n * n * s.classes * s.dim, n * s.classes * s.dim**2
    return {"routing": pairs, "pooling": pairs, "scatter": 2 * rows, "inverse": s.dim**3, "heads": rows}


_SERVER: dict[str, Callable[[Any, CostShape, int], Terms]] = {"latte": _latte_server, "ristretto": _ristretto_server}

# --- bytes -----------------------------------------------------------------------------------------------------


def traffic(name: str, params: Any, shape: CostShape, precision: str = "fp16") -> Traffic | None:
    """Return the bytes of one sync; None for a method that sends nothing.

    The class of a method says what it sends (:mod:`latte.methods.traffic`). Latte sends
    one prototype per class and gets k_e back, a round being whenever a client likes. A global memory is
    charged as the paper does, per image: the new item up, the whole memory down.

    >>> from latte.methods.latte import PRESETS
    >>> traffic("latte", PRESETS["cifar100c"], CostShape(classes=100, dim=512)).vectors    # the paper: 614 K
    614400
    """
    return traffic_of(name, params, shape.classes, shape.dim, precision)


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
