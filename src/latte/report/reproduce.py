"""The paper's table for one benchmark: which files it needs, and which methods run on which of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.validate import choice, refuse
from ..experiment.compare import same_classifier
from ..experiment.config import MethodConfig, RunConfig
from ..experiment.plan import UNKNOWN, Plan, make_plan
from ..experiment.records import Result
from ..methods import find
from . import paper

VIEWS = 64  # per image: what VTE, TPT and Zero look at
ENCODERS = {"ViT-B/16": "openclip:ViT-B-16/openai", "RN50": "openclip:RN50/openai"}
RELEASED = "latte+variant=released"
_PLAIN = ("clip", "tda", "tda-global", "dmn", "dmn-global", "latte", RELEASED)
_VIEWED = ("vte", "tpt", "zero")


@dataclass(frozen=True, slots=True)
class Source:
    """An embedding file of a benchmark of the paper, and the rows of the table that it serves."""

    benchmark: str
    backbone: str
    path: Path
    views: int
    methods: tuple[str, ...]

    def command(self) -> str:
        """Return the command that makes the file; IMAGES is where the pictures of the benchmark are."""
        views = f" --views {self.views - 1}" if self.views > 1 else ""  # besides the plain image
        return f"latte embed {self.benchmark}:IMAGES --encoder {ENCODERS[self.backbone]}{views} --out {self.path}"

    def missing(self) -> str:
        """Return the sentence that says that the file is not there, and what to do."""
        rows = ", ".join(paper.display(method) for method in self.methods)
        return f"{self.path} is not there (for {rows}); make it with: {self.command()}"


def sources(benchmark: str, backbone: str, folder: Path) -> tuple[Source, Source]:
    """Return the two files of the paper's table: one view per image, and 64.

    >>> [source.path.name for source in sources("vlcs", "ViT-B/16", Path("data"))]
    ['vlcs-vit-b-16.safetensors', 'vlcs-vit-b-16-views64.safetensors']
    """
    choice("benchmark", benchmark, tuple(paper.BENCHMARKS))
    choice("backbone", backbone, paper.BACKBONES)
    stem = f"{benchmark}-{backbone.lower().replace('/', '-')}"
    plain = Source(benchmark, backbone, folder / f"{stem}.safetensors", 1, _PLAIN)
    return plain, Source(benchmark, backbone, folder / f"{stem}-views{VIEWS}.safetensors", VIEWS, _VIEWED)


def plans(found: Iterable[Source], seeds: Sequence[int]) -> list[Plan]:
    """Return what to run, after a check that the files are of the paper's encoder and of one classifier."""
    made = [_plan(source, seeds) for source in found]
    same_classifier((plan.config.benchmark.split("-")[0], plan.data.fingerprint, str(plan.entry.path)) for plan in made)
    return made


def _plan(source: Source, seeds: Sequence[int]) -> Plan:
    if not source.path.is_file():
        raise ValueError(source.missing())
    methods = tuple(_method(name, source.benchmark) for name in source.methods if name not in needing_text_encoder())
    plan = make_plan(RunConfig(str(source.path), methods, tuple(seeds)))
    encoder = None if plan.data.encoder == UNKNOWN else plan.data.encoder
    if paper.comparable(source.benchmark, encoder, source.backbone) is None:
        raise refuse("encoder", encoder, f"CLIP {source.backbone}")
    return plan


def needing_text_encoder() -> tuple[str, ...]:
    """Return the rows that embeddings alone cannot give: their methods tune the prompt of the text encoder."""
    return tuple(name for name in _VIEWED if getattr(find(name), "needs_text_encoder", False))


def _method(label: str, benchmark: str) -> MethodConfig:
    """Return a row: Latte with the paper's parameters for the benchmark, the others with their published ones."""
    name = paper.family(label)
    params = {"variant": "released"} if label == RELEASED else {}
    presets = find(name).presets
    preset = benchmark if benchmark in presets else "official" if "official" in presets else None
    return MethodConfig(name, label, preset, params)


def one_name(results: Iterable[Result], benchmark: str) -> list[Result]:
    """Return the results of both files under the name of the benchmark, for one table."""
    return [replace(result, benchmark=benchmark) for result in results]
