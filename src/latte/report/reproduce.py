"""The paper's table for one benchmark: which files it needs, and which methods run on which of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.validate import choice
from ..errors import InputError, refuse
from ..experiment.config import MethodConfig, RunConfig
from ..experiment.plan import UNKNOWN, OpenBenchmark, Plan, open_benchmark, plan_on
from ..experiment.runs import check_classifiers
from ..experiment.tune import TunedFile, use_tuned
from ..methods import describe
from ..simulation.records import Result
from . import paper

PAPER_VIEWS = 64  # per image: what VTE, TPT and Zero look at
ENCODERS = {"ViT-B/16": "openclip:ViT-B-16/openai", "RN50": "openclip:RN50/openai"}
RELEASED = "latte+variant=released"
BASELINES = ("tda", "tda-global", "dmn", "dmn-global")  # the rows whose parameters the paper selected but did not print
_PLAIN = ("clip", *BASELINES, "latte", RELEASED)
_VIEWED = ("vte", "tpt", "zero")


@dataclass(frozen=True, slots=True)
class PaperFile:
    """An embedding file of a benchmark of the paper, and the rows of the table that it serves."""

    benchmark: str
    backbone: str
    path: Path
    views: int
    methods: tuple[str, ...]
    seed: int = 0

    def command(self) -> str:
        """Return the command that makes the file; IMAGES is where the pictures of the benchmark are."""
        views = f" --views {self.views - 1}" if self.views > 1 else ""  # besides the plain image
        seed = f" --seed {self.seed}" if self.seed else ""
        return f"latte embed {self.benchmark}:IMAGES --encoder {ENCODERS[self.backbone]}{views}{seed} --out {self.path}"

    def missing(self) -> str:
        """Return a sentence for a missing file: which rows need it, and the command that makes it."""
        rows = ", ".join(paper.display(method) for method in self.methods)
        return f"{self.path} is not there (for {rows}); make it with: {self.command()}"


def paper_files(benchmark: str, backbone: str, folder: Path) -> tuple[PaperFile, PaperFile]:
    """Return the two files of the paper's table: one view per image, and 64.

    >>> [file.path.name for file in paper_files("vlcs", "ViT-B/16", Path("data"))]
    ['vlcs-vit-b-16.safetensors', 'vlcs-vit-b-16-views64.safetensors']
    """
    stem = _stem(benchmark, backbone)
    plain = PaperFile(benchmark, backbone, _file(folder, stem), 1, _PLAIN)
    return plain, PaperFile(benchmark, backbone, _file(folder, f"{stem}-views{PAPER_VIEWS}"), PAPER_VIEWS, _VIEWED)


def tuning_source(benchmark: str, backbone: str, folder: Path) -> PaperFile | None:
    """Return the file that the paper's protocol tunes on: for CIFAR-C, the images under other corruptions.

    None for the other benchmarks, which are tuned on other partitions of the same file.

    >>> tuning_source("cifar10c", "RN50", Path()).command()
    'latte embed cifar10c:IMAGES --encoder openclip:RN50/openai --seed 1 --out cifar10c-rn50-tuning.safetensors'
    """
    if not benchmark.startswith("cifar"):
        return None
    path = _file(folder, f"{_stem(benchmark, backbone)}-tuning")
    return PaperFile(benchmark, backbone, path, 1, BASELINES, seed=1)


def _file(folder: Path, stem: str) -> Path:
    """Return the file that is there, in either format; without one, that which ``latte embed`` would make."""
    made, other = folder / f"{stem}.safetensors", folder / f"{stem}.npz"
    return other if other.is_file() and not made.is_file() else made


def _stem(benchmark: str, backbone: str) -> str:
    choice("benchmark", benchmark, tuple(paper.BENCHMARKS))
    choice("backbone", backbone, paper.BACKBONES)
    return f"{benchmark}-{backbone.lower().replace('/', '-')}"


@dataclass(frozen=True, slots=True)
class Bench:
    """A file, its benchmark after all checks, and what runs on it; ``config`` has no tuned parameters yet."""

    source: PaperFile
    benchmark: OpenBenchmark
    config: RunConfig

    def plan(self, tuned: TunedFile | None = None) -> Plan:
        """Return what to run, with the parameters that ``tuned`` holds for rows of this file."""
        has_baselines = any(method.name in BASELINES for method in self.config.methods)
        config = use_tuned(self.config, tuned, self.benchmark) if tuned and has_baselines else self.config
        return plan_on(config, self.benchmark)


def benches(files: Iterable[PaperFile], seeds: Sequence[int], text_encoder: str | None = None) -> list[Bench]:
    """Open the files, after a check that they are of the paper's encoder and of one classifier.

    Without a ``text_encoder``, the rows that tune a prompt are left out.
    """
    loaded = [_bench(source, seeds, text_encoder) for source in files]
    check_classifiers((b.source.benchmark, b.benchmark.info.fingerprint, str(b.source.path)) for b in loaded)
    return loaded


def _bench(source: PaperFile, seeds: Sequence[int], text_encoder: str | None) -> Bench:
    if not source.path.is_file():
        raise InputError(source.missing())
    benchmark = open_benchmark(str(source.path))
    encoder = None if benchmark.info.encoder == UNKNOWN else benchmark.info.encoder
    if paper.comparable(source.benchmark, encoder, source.backbone) is None:
        raise refuse("encoder", encoder, f"CLIP {source.backbone}")
    rows = [name for name in source.methods if text_encoder or name not in needing_text_encoder()]
    methods = tuple(_method(name, source.benchmark) for name in rows)
    config = RunConfig(str(source.path), methods, tuple(seeds), text_encoder=text_encoder)
    bench = Bench(source, benchmark, config)
    bench.plan()  # refuses what cannot run before anything is written
    return bench


def needing_text_encoder() -> tuple[str, ...]:
    """Return the rows that embeddings alone cannot give: their methods tune the prompt of the text encoder."""
    return tuple(name for name in _VIEWED if describe(name).tunes_prompt)


def _method(label: str, benchmark: str) -> MethodConfig:
    """Return a row: Latte with the paper's parameters for the benchmark, the others with those of their own code."""
    name = paper.family(label)
    params = {"variant": "released"} if label == RELEASED else {}
    presets = describe(name).presets
    preset = benchmark if benchmark in presets else "official" if "official" in presets else None
    return MethodConfig(name, label, preset, params)


def one_name(results: Iterable[Result], benchmark: str) -> list[Result]:
    """Return the results of both files under the name of the benchmark, for one table."""
    return [replace(result, benchmark=benchmark) for result in results]
