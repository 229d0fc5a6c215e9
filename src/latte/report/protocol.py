"""The notes of a reproduced table: how the parameters were chosen, and the costs that the paper states."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..analysis.cost import PAPER_SHARE, CostShape, paper_costs, traffic
from ..analysis.cost_encoder import encoder_bytes
from ..core.zero_shot import ZeroShot
from ..experiment.plan import Plan
from ..experiment.tune import Choice, TunedFile, Tuning
from ..methods import resolve
from ..methods.dmn import DmnParams
from . import paper
from .baselines import Search
from .reproduce import BASELINES, PaperFile, tuning_source
from .result_table import Fact

STRATEGY = (
    "The paper selects hyper-parameters as DMN does, by the best accuracy on labelled test data: on other corruptions "
    "of the images for CIFAR-C, on other partitions and seeds of the same images for VLCS and TerraIncognita "
    '(appendix, "Hyperparameter selection"). For TDA and DMN-ZS it prints neither the grids nor the choices.'
)
LATTE = "Latte has the paper's values for this benchmark, selected in the same way, the same for both backbones."
VIEWS_NOTE = "VTE, TPT and Zero have the constants of their own code: the paper does not say what it selected for them."
DMN_K = (
    "DMN-ZS holds {k} images per class: the paper does not print its k, but the 2.05M bytes of DMN-ZS (global) in its "
    "Table 3 (CIFAR-100-C, ViT-B/16) are 100 · 20 · 512 numbers of 2 bytes, if only the download counts. "
    "The code of DMN has {default}."
)
DEFAULTS = (
    "TDA and DMN-ZS have the defaults of their own code (DMN-ZS with {default} images per class), "
    "whereas the paper's are tuned: these rows do not follow its protocol."
)
APART = "No image is in the tuning under a corruption under which a reported seed shows it; its label was seen."
SAME_IMAGES = "The tuning saw the reported images and their labels, dealt to other clients, as in the paper."
SAME_CORRUPTIONS = (
    "The tuning saw the reported images under the reported corruptions and their labels, dealt to other clients; "
    "the paper tunes under other corruptions, for which a file is missing: {command}"
)
ORACLE = (
    "TDA and DMN-ZS are tuned on the very streams that are reported, which is the search of DMN's own code: "
    "an upper bound, not a result."
)


def notes(
    source: PaperFile, plan: Plan, search: Search | None = None, tuned: TunedFile | None = None
) -> tuple[str, ...]:
    """Return the sentences for a table whose rows of TDA and DMN are those of ``plan``, on the file of ``source``."""
    default = DmnParams().k
    if search is None or tuned is None:
        return (STRATEGY, DEFAULTS.format(default=default), LATTE, VIEWS_NOTE)
    rows = [method for method in plan.config.methods if method.name in BASELINES]
    leak = ORACLE if any(row.setting == "oracle" for row in rows) else _leak(source, search)
    k = next(row.params["k"] for row in rows if row.name == "dmn")
    return (STRATEGY, _describe_search(search, tuned), leak, DMN_K.format(k=k, default=default), LATTE, VIEWS_NOTE)


def _leak(source: PaperFile, search: Search) -> str:
    """Return what the tuning saw of the reported data."""
    if search.apart:
        return APART
    other = tuning_source(source.benchmark, source.backbone, source.path.parent)
    return SAME_IMAGES if other is None else SAME_CORRUPTIONS.format(command=other.command())


def _describe_search(search: Search, tuned: TunedFile) -> str:
    seeds = ", ".join(map(str, tuned.saw.seeds))
    grids = "; ".join(f"{' and '.join(names)} {_grid(t)}" for names, t in _by_grid(search.tunings))
    choices = "; ".join(_describe_choice(t, tuned.methods[t.method.label]) for t in search.tunings)
    return f"Tuned on seeds {seeds}, each row by itself. Grids: {grids}. Chosen: {choices}. All scores: {search.file}."


def _by_grid(tunings: Sequence[Tuning]) -> list[tuple[list[str], Tuning]]:
    """Return the rows that share a grid, and one of their searches."""
    groups: dict[tuple[Any, ...], list[Tuning]] = {}
    for tuning in tunings:
        groups.setdefault(tuning.sweep.axes, []).append(tuning)
    return [([paper.display(t.method.name) for t in group], group[0]) for group in groups.values()]


def _grid(tuning: Tuning) -> str:
    return ", ".join(f"{_short(axis.key)} {' '.join(f'{v:g}' for v in axis.values)}" for axis in tuning.sweep.axes)


def _describe_choice(tuning: Tuning, choice: Choice) -> str:
    values = {axis: choice.params[_short(axis.key)] for axis in tuning.sweep.axes}
    words = " ".join(f"{_short(axis.key)}={value:g}" for axis, value in values.items())
    ends = [_short(axis.key) for axis, value in values.items() if value in (axis.values[0], axis.values[-1])]
    tied = f" (the first of {choice.tied} points with the same accuracy)" if choice.tied > 1 else ""
    edge = f" ({' and '.join(ends)} at the end of the grid)" if ends else ""
    return f"{paper.display(tuning.method.name)} {words}{tied}{edge}"


def _short(key: str) -> str:
    return key.rpartition(".")[2]


def facts(plan: Plan, benchmark: str, backbone: str, zero_shot: ZeroShot) -> tuple[Fact, ...]:
    """Return the bytes of the paper's Table 3 and its share of the encoder, computed for this benchmark.

    Table 3 is CIFAR-100-C with ViT-B/16: its bytes stand beside ours there only.
    """
    printed = paper_costs() if (benchmark, backbone) == ("cifar100c", "ViT-B/16") else {}
    encoder, rounds = encoder_bytes(backbone), _round_bytes(plan, zero_shot)
    size = paper_costs()["clip"].bytes_per_round if backbone == "ViT-B/16" else ""
    share = f"{PAPER_SHARE} (beside Table 3: CIFAR-100-C, ViT-B/16)"
    beside = {name: printed[name].bytes_per_round if name in printed else "" for name in rounds}
    return (
        Fact(f"Image encoder of CLIP {backbone}, 2 bytes per weight, sent once", encoder, "B", size),
        Fact("One round of Latte, vectors of 2 bytes per number", rounds["latte"], "B", beside["latte"]),
        Fact("One round of Latte against that encoder", 100 * rounds["latte"] / encoder, "%", share),
        Fact("One image of DMN-ZS (global), likewise", rounds["dmn-global"], "B", beside["dmn-global"]),
    )


def _round_bytes(plan: Plan, zero_shot: ZeroShot) -> dict[str, int]:
    shape, sizes = CostShape(zero_shot.classes, zero_shot.dim), {}
    for method in plan.config.methods:
        if method.name in ("latte", "dmn-global") and method.name not in sizes:
            sent = traffic(method.name, resolve(method.name, dict(method.params)), shape)
            assert sent is not None
            sizes[method.name] = sent.vectors
    return sizes
