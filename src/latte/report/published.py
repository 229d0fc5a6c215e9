"""The accuracies that the paper prints, and the rule for when they may be shown beside ours.

``paper_accuracy.csv`` holds all 900 of them: four benchmarks, two backbones, nine methods, every domain and the total.
"""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files

from ..core.validate import choice
from ..errors import refuse
from ..methods import METHODS, describe

BENCHMARKS = {
    "vlcs": "VLCS",
    "terra": "TerraIncognita",
    "cifar10c": "CIFAR-10-C",
    "cifar100c": "CIFAR-100-C",
}
BACKBONES = ("ViT-B/16", "RN50")
_ROWS = ("clip", "vte", "tpt", "zero", "tda", "tda-global", "dmn", "dmn-global", "latte")  # of the paper's tables
METHOD_TITLES = {name: describe(name).title for name in _ROWS}
TOTAL = "total"
SAMPLES = {"vlcs": 10_729, "terra": 24_788, "cifar10c": 60_000, "cifar100c": 60_000}

# how the two backbones are called by their makers, by the model hub and by open_clip, without prefix and punctuation
_ENCODERS = {
    "ViT-B/16": {"clipvitb16", "openaiclipvitb16", "openaiclipvitbasepatch16", "clipvitbasepatch16", "vitb16openai"},
    "RN50": {"cliprn50", "openaicliprn50", "rn50openai"},
}


@dataclass(frozen=True, slots=True)
class Published:
    """A mean over five seeds and, where the paper prints it, the standard deviation."""

    mean: float
    sd: float | None


@functools.cache
def accuracies() -> Mapping[tuple[str, str, str, str], Published]:
    """Return all accuracies by (benchmark, backbone, method, domain), the domain in small letters and digits only."""
    text = files("latte.report").joinpath("paper_accuracy.csv").read_text("utf-8")
    return {
        (row["dataset"], row["backbone"], row["method"], _plain(row["domain"])): Published(
            float(row["accuracy_mean"]), float(row["accuracy_sd"]) if row["accuracy_sd"] else None
        )
        for row in csv.DictReader(text.splitlines())
    }


def published_accuracy(benchmark: str, backbone: str, method: str, domain: str = TOTAL) -> Published | None:
    """Return what the paper prints, or None where it prints nothing.

    >>> published_accuracy("vlcs", "ViT-B/16", "latte")
    Published(mean=82.57, sd=0.12)
    >>> published_accuracy("vlcs", "ViT-B/16", "tda-global", "SUN09").mean
    76.95
    """
    choice("backbone", backbone, BACKBONES)
    name, row = canonical(benchmark), METHOD_TITLES.get(family(method))
    if name is None or row is None:
        return None
    return accuracies().get((BENCHMARKS[name], backbone, row, _plain(domain)))


def in_paper_order(benchmark: str, domains: Iterable[str]) -> list[str]:
    """Return ``domains`` in the order of the paper's tables; those that it does not have come last, as they are.

    >>> in_paper_order("cifar10c", ["brightness", "mine", "shot_noise", "Gaussian Noise"])
    ['Gaussian Noise', 'shot_noise', 'brightness', 'mine']
    """
    name = BENCHMARKS.get(canonical(benchmark) or "")
    printed = list(dict.fromkeys(key[3] for key in accuracies() if key[0] == name))
    rank = {domain: position for position, domain in enumerate(printed)}
    return sorted(domains, key=lambda domain: rank.get(_plain(domain), len(rank)))


def family(label: str) -> str:
    """Return the method that a label such as "latte+variant=released" names, if no user chose the label.

    >>> family("latte+variant=released"), family("tda-global")
    ('latte', 'tda-global')
    """
    return label.partition("+")[0]


def display(label: str, name: str | None = None) -> str:
    """Return how a row is called in a table: by the title of its method, or by the label that the user chose.

    ``name`` is the registered name of the method; None: the label names it.

    >>> display("tda"), display("latte+variant=released"), display("mine")
    ('TDA (local)', 'Latte [variant=released]', 'mine')
    >>> display("clip", "tda"), display("latte+k_l=3", "latte")
    ('clip', 'Latte [k_l=3]')
    """
    method, *changes = label.split("+")
    if name is not None and method != name:
        return label
    title = describe(method).title if method in METHODS else method
    return title + (f" [{', '.join(changes)}]" if changes else "")


def canonical(benchmark: str) -> str | None:
    """Return the short name of a benchmark of the paper, or None for any other.

    A file name such as "vlcs-vit-b-16" names its encoder too; only the part before it counts.

    >>> canonical("CIFAR-10-C"), canonical("vlcs-vit-b-16"), canonical("pacs")
    ('cifar10c', 'vlcs', None)
    """
    plain = _plain(benchmark)
    for ending in ("views64", "vitb16", "rn50"):
        plain = plain.removesuffix(ending)
    plain = "terra" if plain == "terraincognita" else plain
    return plain if plain in BENCHMARKS else None


def backbone_of(encoder: str) -> str | None:
    """Return which backbone of the paper ``encoder`` is; None for every other model, and for other weights.

    A bare "ViT-B/16" is not enough: most models of that shape are not CLIP.

    >>> backbone_of("openai/clip-vit-base-patch16"), backbone_of("CLIP RN50"), backbone_of("mini-vlm")
    ('ViT-B/16', 'RN50', None)
    """
    plain = _plain(re.sub(r"^(hf|onnx|openclip|local):", "", encoder))
    return next((backbone for backbone, names in _ENCODERS.items() if plain in names), None)


def comparable(benchmark: str, encoder: str | None, claimed: str | None = None) -> str | None:
    """Return the backbone whose published numbers may stand beside a run, or None.

    The rule: the benchmark is one of the paper's four *and* the run was made with one of the paper's two CLIP
    encoders. The encoder that the data file names decides. Where it names none, ``claimed`` (what the user states
    with ``--backbone``) does; where it names another, the claim is refused. An accuracy of any other model is
    never set beside a published one.
    """
    if claimed is not None:
        choice("--backbone", claimed, BACKBONES)
    backbone = backbone_of(encoder) if encoder else claimed
    if claimed is not None and backbone != claimed:
        raise refuse("--backbone", f"{claimed} for embeddings of {encoder!r}", "the encoder the data was made with")
    return backbone if canonical(benchmark) else None


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
