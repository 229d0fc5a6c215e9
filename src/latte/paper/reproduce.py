"""The paper's table for one benchmark: its files and rows, the search for the baselines' parameters, and its notes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.validate import choice
from ..core.zero_shot import ZeroShot
from ..data.catalogue import default_clients, exclude_reported, select_unseen
from ..data.embeddings import save_embeddings
from ..data.federation import is_crossed
from ..errors import InputError, refuse
from ..experiment.collection import check_classifiers
from ..experiment.config import MethodConfig, RunConfig, apply_settings
from ..experiment.plan import UNKNOWN, OpenBenchmark, Plan, open_benchmark, plan_on
from ..experiment.sweep import Sweep, SweepAxis
from ..experiment.tune import TunedFile, make_tunings, save_tuned, select, use_tuned
from ..files.documents import sha256_of
from ..methods import describe, resolve
from ..methods.dmn import DmnParams
from ..methods.traffic import CostShape
from ..report import published as paper
from ..report.tables import Fact
from .cost import PAPER_SHARE, encoder_bytes, paper_costs, traffic

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
    plain = PaperFile(benchmark, backbone, _file(benchmark, backbone, folder), 1, _PLAIN)
    path = _file(benchmark, backbone, folder, f"-views{PAPER_VIEWS}")
    return plain, PaperFile(benchmark, backbone, path, PAPER_VIEWS, _VIEWED)


def tuning_source(benchmark: str, backbone: str, folder: Path) -> PaperFile | None:
    """Return the file that the paper's protocol tunes on: for CIFAR-C, the images under other corruptions.

    None for the other benchmarks, which are tuned on other partitions of the same file.

    >>> tuning_source("cifar10c", "RN50", Path()).command()
    'latte embed cifar10c:IMAGES --encoder openclip:RN50/openai --seed 1 --out cifar10c-rn50-tuning.safetensors'
    """
    if not benchmark.startswith("cifar"):
        return None
    return PaperFile(benchmark, backbone, _file(benchmark, backbone, folder, "-tuning"), 1, BASELINES, seed=1)


def _file(benchmark: str, backbone: str, folder: Path, ending: str = "") -> Path:
    """Return the file that is there, in either format; without one, that which ``latte embed`` would make."""
    choice("benchmark", benchmark, tuple(paper.BENCHMARKS))
    choice("backbone", backbone, paper.BACKBONES)
    stem = f"{benchmark}-{backbone.lower().replace('/', '-')}{ending}"
    made, other = folder / f"{stem}.safetensors", folder / f"{stem}.npz"
    return other if other.is_file() and not made.is_file() else made


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


def benches(
    files: Iterable[PaperFile],
    seeds: Sequence[int],
    text_encoder: str | None = None,
    more: Sequence[MethodConfig] = (),
    settings: Sequence[str] = (),
) -> list[Bench]:
    """Open the files, after a check that they are of the paper's encoder and of one classifier.

    Without a ``text_encoder``, the rows that tune a prompt are left out. ``more`` rows are added to the file that has
    their views; ``settings`` such as "schedule.period=5" change every run.
    """
    loaded = []
    for source in files:
        if not source.path.is_file():
            raise InputError(source.missing())
        benchmark = open_benchmark(str(source.path))
        encoder = None if benchmark.info.encoder == UNKNOWN else benchmark.info.encoder
        if paper.comparable(source.benchmark, encoder, source.backbone) is None:
            raise refuse("encoder", encoder, f"CLIP {source.backbone}")
        rows = [name for name in source.methods if text_encoder or name not in needing_text_encoder()]
        methods = [_method(name, source.benchmark) for name in rows]
        if not source.seed:  # not the file for tuning
            methods += [one for one in more if describe(one.name).uses_views == (source.views > 1)]
        config = RunConfig(str(source.path), tuple(methods), tuple(seeds), text_encoder=text_encoder)
        config = apply_settings(config, settings)
        loaded.append(Bench(source, benchmark, config))
        loaded[-1].plan()  # refuses what cannot run before anything is written
    check_classifiers((b.source.benchmark, b.benchmark.info.fingerprint, str(b.source.path)) for b in loaded)
    return loaded


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


# --- the search for the parameters of TDA and DMN, whose values the paper does not print --------------------------

TUNING = "tuning"  # the folder
TUNING_MODES = ("tuned", "oracle")
FIRST_SEED, SEEDS = 100, 5  # of the search; as many as the paper reports


@dataclass(frozen=True, slots=True)
class Search:
    """The runs from which the parameters are chosen. ``apart``: no reported row of the data is in them."""

    benchmark: str
    tunings: tuple[Sweep, ...]
    runs: Path
    apart: bool

    @property
    def folder(self) -> Path:
        """Where the runs of the search go."""
        return self.runs / TUNING

    @property
    def file(self) -> Path:
        """The file of the choice; another search has another name."""
        sweeps = "\n".join(tuning.name for tuning in self.tunings)
        return self.runs / f"tuned-{self.benchmark}-{_digest(sweeps)}.json"


def make_search(bench: Bench, mode: str, runs: Path, pool: Bench | None = None) -> Search:
    """Plan the search for the rows of ``bench``: on other data, or ("oracle") on the reported seeds themselves.

    ``pool`` holds the same images under other corruptions. Rows that have to be held apart are written to a file in
    ``runs``; where the data has none, the search is on other partitions of the rows that are reported.
    """
    choice("mode", mode, TUNING_MODES)
    seeds = bench.config.seeds if mode == "oracle" else other_seeds(bench.config.seeds)
    held_apart = None if mode == "oracle" else _unreported_rows(bench, pool, seeds[0], runs / TUNING)
    benchmark = held_apart or bench.benchmark
    clients = default_clients(benchmark.embeddings, benchmark.entry.name)
    presets = {name: "paper" if "paper" in describe(name).presets else None for name in BASELINES}
    methods = tuple(MethodConfig(name, preset=preset) for name, preset in presets.items())
    config = replace(bench.config, methods=methods, seeds=seeds, clients_per_domain=clients, text_encoder=None)
    tunings = tuple(make_tunings(config, benchmark))
    return Search(bench.benchmark.entry.name, tunings, runs, held_apart is not None)


def choose(search: Search) -> TunedFile:
    """Return the choice of a search that is done, and write it with all scores to its file."""
    tuned = select(search.tunings, search.folder)
    save_tuned(search.file, tuned)
    return tuned


def other_seeds(reported: Sequence[int]) -> tuple[int, ...]:
    """Return the seeds of the search, none of which is reported.

    >>> other_seeds((0, 1, 101))
    (100, 102, 103, 104, 105)
    """
    free = (seed for seed in range(FIRST_SEED, FIRST_SEED + SEEDS + len(reported)) if seed not in reported)
    return tuple(free)[:SEEDS]


def _unreported_rows(bench: Bench, pool: Bench | None, seed: int, folder: Path) -> OpenBenchmark | None:
    """Return rows that no reported seed shows: of ``pool``, or of a file with every corruption; None without either.

    They are written to a file in ``folder``, unless it is there.
    """
    benchmark, reported = bench.benchmark, bench.config.seeds
    clients = default_clients(benchmark.embeddings, benchmark.entry.name)
    if pool is not None:
        digest = _digest(benchmark.info.sha256 + pool.benchmark.info.sha256)
    elif clients is not None and is_crossed(benchmark.embeddings):
        digest = _digest(json.dumps([benchmark.info.sha256, clients, sorted(reported), seed]))
    else:
        return None
    path = folder / f"{benchmark.entry.name}-unseen-{digest}.safetensors"
    if not path.is_file():
        if pool is not None:
            embeddings = exclude_reported(pool.benchmark.embeddings, benchmark.embeddings)
        else:
            assert clients is not None
            embeddings = select_unseen(benchmark.embeddings, clients, reported, seed)
        folder.mkdir(parents=True, exist_ok=True)
        save_embeddings(path, embeddings)
    return open_benchmark(str(path))


def _digest(text: str) -> str:
    return sha256_of(text.encode())[:10]


# --- the notes of a reproduced table: how the parameters were chosen, and the costs that the paper states ---------

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
SAME_IMAGES = "The tuning saw the reported images and their labels, split among other clients, as in the paper."
SAME_CORRUPTIONS = (
    "The tuning saw the reported images under the reported corruptions and their labels, split among other clients; "
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
    if any(row.setting == "oracle" for row in rows):
        leak = ORACLE
    elif search.apart:
        leak = APART
    elif other := tuning_source(source.benchmark, source.backbone, source.path.parent):
        leak = SAME_CORRUPTIONS.format(command=other.command())
    else:
        leak = SAME_IMAGES
    k = next(row.params["k"] for row in rows if row.name == "dmn")
    return (STRATEGY, _describe_search(search, tuned), leak, DMN_K.format(k=k, default=default), LATTE, VIEWS_NOTE)


def _describe_search(search: Search, tuned: TunedFile) -> str:
    by_grid: dict[tuple[SweepAxis, ...], list[str]] = {}
    choices = []
    for tuning in search.tunings:
        name, axes, choice = paper.display(tuning.methods[0].name), tuning.axes, tuned.methods[tuning.methods[0].label]
        by_grid.setdefault(axes, []).append(name)
        values = {axis: choice.params[_short(axis.key)] for axis in axes}
        words = " ".join(f"{_short(axis.key)}={value:g}" for axis, value in values.items())
        ends = [_short(axis.key) for axis, value in values.items() if value in (axis.values[0], axis.values[-1])]
        tied = f" (the first of {choice.tied} points with the same accuracy)" if choice.tied > 1 else ""
        edge = f" ({' and '.join(ends)} at the end of the grid)" if ends else ""
        choices.append(f"{name} {words}{tied}{edge}")
    seeds = ", ".join(map(str, tuned.saw.seeds))
    grids = "; ".join(
        f"{' and '.join(names)} "
        + ", ".join(f"{_short(axis.key)} {' '.join(f'{v:g}' for v in axis.values)}" for axis in axes)
        for axes, names in by_grid.items()
    )
    return (
        f"Tuned on seeds {seeds}, each row by itself. Grids: {grids}. Chosen: {'; '.join(choices)}. "
        f"All scores: {search.file}."
    )


def _short(key: str) -> str:
    return key.rpartition(".")[2]


def facts(plan: Plan, benchmark: str, backbone: str, zero_shot: ZeroShot) -> tuple[Fact, ...]:
    """Return the bytes of the paper's Table 3 and its share of the encoder, computed for this benchmark.

    Table 3 is CIFAR-100-C with ViT-B/16: its bytes stand beside ours there only.
    """
    printed = paper_costs() if (benchmark, backbone) == ("cifar100c", "ViT-B/16") else {}
    shape, rounds = CostShape(zero_shot.classes, zero_shot.dim), {}
    for method in plan.config.methods:
        if method.name in ("latte", "dmn-global") and method.name not in rounds:
            sent = traffic(method.name, resolve(method.name, dict(method.params)), shape)
            assert sent is not None
            rounds[method.name] = sent.vectors
    encoder = encoder_bytes(backbone)
    size = paper_costs()["clip"].bytes_per_round if backbone == "ViT-B/16" else ""
    share = f"{PAPER_SHARE} (beside Table 3: CIFAR-100-C, ViT-B/16)"
    beside = {name: printed[name].bytes_per_round if name in printed else "" for name in rounds}
    return (
        Fact(f"Image encoder of CLIP {backbone}, 2 bytes per weight, sent once", encoder, "B", size),
        Fact("One round of Latte, vectors of 2 bytes per number", rounds["latte"], "B", beside["latte"]),
        Fact("One round of Latte against that encoder", 100 * rounds["latte"] / encoder, "%", share),
        Fact("One image of DMN-ZS (global), likewise", rounds["dmn-global"], "B", beside["dmn-global"]),
    )
