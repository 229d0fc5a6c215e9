"""The search for the parameters of TDA and DMN, whose values the paper does not print.

The paper (appendix, "Hyperparameter selection") uses the strategy of DMN for every method: the best accuracy on
labelled test data. It selects on other corruptions than it reports (CIFAR-C), and on other partitions and seeds
(VLCS, TerraIncognita). So does this search: on other seeds and, where the data has them, on images under other
corruptions than those under which a reported seed shows them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.validate import choice
from ..data.benchmark import Embeddings
from ..data.catalogue import default_clients
from ..data.embeddings import save_embeddings
from ..data.partition import is_crossed
from ..data.unseen import exclude_reported, select_unseen
from ..experiment.config import MethodConfig
from ..experiment.plan import OpenBenchmark, open_benchmark
from ..experiment.tune import TunedFile, Tuning, make_tunings, save_tuned, select
from ..files.checksums import sha256_of
from ..methods import describe
from .reproduce import BASELINES, Bench

TUNING = "tuning"  # the folder
TUNING_MODES = ("tuned", "oracle")
FIRST_SEED, SEEDS = 100, 5  # of the search; as many as the paper reports


@dataclass(frozen=True, slots=True)
class Search:
    """The runs from which the parameters are chosen. ``apart``: no reported row of the data is in them."""

    benchmark: str
    tunings: tuple[Tuning, ...]
    runs: Path
    apart: bool

    @property
    def folder(self) -> Path:
        """Where the runs of the search go."""
        return self.runs / TUNING

    @property
    def file(self) -> Path:
        """The file of the choice; another search has another name."""
        sweeps = "\n".join(tuning.sweep.name for tuning in self.tunings)
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
    methods = tuple(MethodConfig(name, preset=_preset(name)) for name in BASELINES)
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


def _preset(name: str) -> str | None:
    return "paper" if "paper" in describe(name).presets else None


def _unreported_rows(bench: Bench, pool: Bench | None, seed: int, folder: Path) -> OpenBenchmark | None:
    """Return rows that no reported seed shows: of ``pool``, or of a file with every corruption; None without either."""
    benchmark, reported = bench.benchmark, bench.config.seeds
    if pool is not None:
        return _open_stored(
            folder,
            f"{benchmark.entry.name}-unseen-{_digest(benchmark.info.sha256 + pool.benchmark.info.sha256)}",
            lambda: exclude_reported(pool.benchmark.embeddings, benchmark.embeddings),
        )
    clients = default_clients(benchmark.embeddings, benchmark.entry.name)
    if clients is None or not is_crossed(benchmark.embeddings):
        return None
    digest = _digest(json.dumps([benchmark.info.sha256, clients, sorted(reported), seed]))
    name = f"{benchmark.entry.name}-unseen-{digest}"
    return _open_stored(folder, name, lambda: select_unseen(benchmark.embeddings, clients, reported, seed))


def _open_stored(folder: Path, name: str, make: Callable[[], Embeddings]) -> OpenBenchmark:
    """Write embeddings, unless they are there, and open them."""
    path = folder / f"{name}.safetensors"
    if not path.is_file():
        embeddings = make()
        folder.mkdir(parents=True, exist_ok=True)
        save_embeddings(path, embeddings)
    return open_benchmark(str(path))


def _digest(text: str) -> str:
    return sha256_of(text.encode())[:10]
