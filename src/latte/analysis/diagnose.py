"""Diagnoses of a method: one seed is replayed with the readable simulator, and what clients hold is counted.

The memories of Latte, per class: how full they are, how often a client syncs without a prototype of its own (B3) and
has nothing to read (B2), the share of external items among those it reads, how often the gate of the released code
would silence the class although something is stored (B1), and how certain the stored items are.

The heads of Ristretto: how much evidence each rests on and how far it is trusted, whose evidence it is (the routes),
and in how many directions images spread around their classes (the spectrum of the covariance).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from ..core.types import Mask, Prototypes, Reals, Vectors
from ..core.validate import near
from ..data.catalogue import BenchmarkFile, find_benchmark, read_benchmark
from ..data.federation import Federation, federate, generators
from ..errors import refuse
from ..experiment.collection import Run, find_runs, read_run
from ..experiment.config import MethodConfig, RunConfig, build_config
from ..files.atomic import write_text
from ..files.documents import checksum, parse_json, read_bytes, structure
from ..methods import describe, resolve
from ..methods.latte.client import Latte, LatteParams
from ..methods.latte.readout import GATE, merge_memories
from ..methods.ristretto.client import Ristretto
from ..methods.ristretto.heads import HeadTask, RistrettoParams, solve
from ..methods.ristretto.pooling import Evidence, factors_within
from ..simulation.simulator import Client, Schedule, set_up, simulate
from ..simulation.wrapped import WrappedExchange, share_inside
from .stats import ZeroShotAnswers, zero_shot_answers

QUANTILES = (0.1, 0.5, 0.9)
LEVELS = tuple(round(0.05 * i, 2) for i in range(21))
SHOWN = 10  # eigenvalues


@dataclass(frozen=True, slots=True)
class Replayed:
    """What every diagnosis of a method on one seed says, and the file of it in a run folder.

    ``accuracy`` is that of the replay.
    """

    FORMAT: ClassVar[str]
    FILE: ClassVar[str]

    benchmark: str
    method: str
    seed: int
    params: dict[str, Any]
    clients: int
    samples: int
    accuracy: float

    def to_json(self) -> str:
        """Return everything as JSON."""
        return json.dumps({"format": self.FORMAT, **asdict(self)}, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, name: str = "diagnosis") -> Self:
        """Read what :meth:`to_json` wrote; ``name`` is its origin, for refusals."""
        raw = parse_json(text, name)
        if not isinstance(raw, dict) or raw.pop("format", None) != cls.FORMAT:
            raise refuse(name, "another kind of file", f"{cls.FORMAT}: what latte diagnose wrote")
        return structure(raw, cls, name)

    def save(self, folder: Path) -> Path:
        """Write the diagnosis into the run folder, where the report looks for it."""
        write_text(folder / self.FILE, self.to_json())
        return folder / self.FILE

    @classmethod
    def load(cls, folder: Path) -> Self | None:
        """Return the diagnosis in a run folder; None if there is none."""
        file = folder / cls.FILE
        return cls.from_json(read_bytes(file), str(file)) if file.exists() else None


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
class Diagnosis(Replayed):
    """The diagnosis of Latte on one seed.

    ``below`` gives, for images, local items and external items, the share in per cent with an entropy up to each of
    :data:`LEVELS`.
    """

    FORMAT: ClassVar = "latte-diagnosis/1"
    FILE: ClassVar = "diagnosis.json"

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


@dataclass(frozen=True, slots=True)
class DomainReport:
    """The heads of the clients of one domain (or of all): means over the clients at the end of their streams.

    ``trust`` is the evidence weight w, from 0 to 1; ``evidence`` the images that a head rests on; ``own``: the client's
    own among them, in per cent; ``inside``: how much of the others' comes from the client's domain, in per cent (None
    where nothing comes from others).
    """

    name: str
    clients: int
    images: int
    accuracy: float
    trust: float
    evidence: float
    own: float
    inside: float | None


@dataclass(frozen=True, slots=True)
class HeadDiagnosis(Replayed):
    """The diagnosis of Ristretto on one seed.

    ``trust_after``: the mean trust of the heads in use when a client has seen 1, 2, 4, ... images. ``chance``: what
    ``inside`` would be if everyone's evidence counted alike. ``spectrum``: the largest eigenvalues of the covariance,
    in per cent of all; ``directions``: how many equal ones would spread as much.
    """

    FORMAT: ClassVar = "latte-heads/1"
    FILE: ClassVar = "heads.json"

    zero_shot: ZeroShotAnswers
    total: DomainReport
    domains: tuple[DomainReport, ...]
    trust_after: dict[str, float]
    chance: float
    spectrum: tuple[float, ...]
    directions: float

    def best(self) -> str:
        """Return what ``inside`` is at best, in words: nothing stops a head from using its own domain only."""
        alone = any(domain.clients == 1 for domain in self.domains)
        return "100 %" + (" (0 % for a client that is alone in its domain)" if alone else "")


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
    labels = [federation.labels(client) for client in federation.clients]
    watch, right = _Watch(exchange, federation.embeddings.zero_shot.classes), 0
    for step in simulate(clients, watch, schedule, rng):
        watch.see(clients[step.client], step.sample, step.prediction.entropy)
        right += bool(step.prediction.label == labels[step.client][step.sample])
        progress(1)
    methods, names = [latte_of(client) for client in clients], federation.embeddings.zero_shot.classnames
    local = np.concatenate([m.local.entropy[m.local.valid] for m in methods])
    others = np.concatenate([m.external.entropy[m.external.valid] for m in methods])
    return Diagnosis(
        federation.embeddings.name,
        "latte",
        0,
        asdict(chosen),
        len(methods),
        federation.samples,
        100 * right / federation.samples,
        watch.report("all", np.ones(len(names), np.bool_), methods),
        tuple(watch.report(name, np.arange(len(names)) == y, methods) for y, name in enumerate(names)),
        {"images": _below(np.array(watch.entropies)), "local items": _below(local), "external items": _below(others)},
    )


def latte_of(client: Client) -> Latte:
    """Return the method of a client, which is Latte."""
    assert isinstance(client.method, Latte)
    return client.method


class _Watch(WrappedExchange):
    """Counts per class (C,) while the federation runs; an exchange that looks at the uploads and passes all on."""

    def __init__(self, exchange: Any, classes: int) -> None:
        super().__init__(exchange)
        self.images = np.zeros(classes, np.int64)  # taken for the class
        self.readable = self.images.copy()  # predictions with something stored
        self.silenced = self.images.copy()  # of those, how many the gate silences
        self.items = self.images.copy()  # items read, over all predictions
        self.external = self.images.copy()  # of those, from others
        self.queries = 0  # syncs, of any client
        self.empty = self.images.copy()  # syncs without a prototype
        self.entropies: list[float] = []  # of the images

    def push(self, client: str, upload: Prototypes) -> None:
        self.queries += 1
        self.empty += ~upload.seen
        self.exchange.push(client, upload)

    def see(self, client: Client, sample: int, entropy: float) -> None:
        """Look at a client right after it predicted: its memory is still the one that was read."""
        method, vector = latte_of(client), np.asarray(client.stream[sample][0], np.float32)
        read = np.isfinite(method.merged.offset)  # (C, K)
        self.images[int(method.zero_shot.logits(vector).argmax())] += 1
        self.entropies.append(entropy)
        self.readable += read.any(axis=1)
        self.silenced += read.any(axis=1) & _silenced_classes(method, vector)
        self.items += read.sum(axis=1)
        if method.params.memory == "external":
            self.external += read.sum(axis=1)
        elif method.params.memory == "both":
            self.external += (read & merge_memories(method.local, method.external).external).sum(axis=1)

    def report(self, name: str, chosen: Mask, methods: Sequence[Latte]) -> ClassReport:
        """Return the counts of the ``chosen`` classes (C,), and what is stored of them."""
        filled = np.array([m.local.valid[chosen].mean() for m in methods])
        held = np.array([m.local.valid[chosen].any(axis=1).mean() for m in methods])
        predictions, readable = len(self.entropies) * chosen.sum(), self.readable[chosen].sum()
        return ClassReport(
            name,
            int(self.images[chosen].sum()),
            100 * float(filled.mean()),
            100 * float(1 - held.mean()),
            _share(self.empty[chosen].sum(), self.queries * chosen.sum()),
            100 - (_share(readable, predictions) or 0.0),
            _share(self.external[chosen].sum(), self.items[chosen].sum()),
            _share(self.silenced[chosen].sum(), readable),
            _quantiles([m.local.entropy[chosen][m.local.valid[chosen]] for m in methods]),
            _quantiles([m.external.entropy[chosen][m.external.valid[chosen]] for m in methods]),
        )


def _silenced_classes(method: Latte, vector: Vectors) -> Mask:
    """Return per class (C,) whether the released code would silence it: its weighted sum is no longer than the gate.

    The weights are those of B8, exp(beta (s - 1) - gamma h), whatever the variant of the run.
    """
    memory, p = method.merged, method.params
    similarity = (memory.vectors @ vector).astype(np.float64)  # (C, K)
    weights = np.exp(p.beta * (similarity - 1) + memory.offset)  # 0 in free slots
    squares = np.einsum("ck,ckl,cl->c", weights, memory.gram, weights)
    quiet: Mask = squares <= GATE * GATE
    return quiet


def _share(part: Any, whole: Any) -> float | None:
    return 100 * float(part) / float(whole) if whole else None


def _quantiles(parts: Sequence[Reals]) -> tuple[float, ...] | None:
    values = np.concatenate(parts)
    return tuple(float(q) for q in np.quantile(values, QUANTILES)) if len(values) else None


def _below(values: Reals) -> tuple[float, ...]:
    """Return the share of ``values`` in per cent up to each level."""
    return tuple(100 * float((values <= level).mean()) if len(values) else 0.0 for level in LEVELS)


def diagnose_heads(
    federation: Federation,
    params: Any = None,
    schedule: Schedule | None = None,
    rng: np.random.Generator | None = None,
    progress: Callable[[int], object] = lambda samples: None,
) -> HeadDiagnosis:
    """Run Ristretto on ``federation`` and look at every head; ``progress(1)`` is called after each image.

    >>> from dataclasses import replace
    >>> from latte.data.bundled import bundled
    >>> federation = bundled()
    >>> few = replace(federation, clients=federation.clients[:4])
    >>> sorted(diagnose_heads(few).trust_after, key=int)
    ['1', '2', '4', '8', '16', '32']
    """
    chosen: RistrettoParams = resolve("ristretto", params)
    clients, exchange = set_up(federation, "ristretto", chosen)
    labels = [federation.labels(client) for client in federation.clients]
    right, trust = np.zeros(len(clients)), [np.zeros(len(client.stream)) for client in clients]
    for step in simulate(clients, exchange, (schedule or Schedule()).for_method(Ristretto.sync), rng):
        method = clients[step.client].method
        assert isinstance(method, Ristretto)
        trust[step.client][step.sample] = method.head.trust
        right[step.client] += bool(step.prediction.label == labels[step.client][step.sample])
        progress(1)
    sums = [client.method.summary() for client in clients if isinstance(client.method, Ristretto)]
    given, means = np.stack([s.counts for s in sums]), np.stack([s.means for s in sums])
    evidence = Evidence.of(given, means).times(factors_within(given, chosen.count_cap))
    solution = solve(evidence, HeadTask.of(federation.embeddings.zero_shot, chosen))  # what a server makes at the end
    groups, total = np.array([client.domain for client in federation.clients]), solution.offsets.total
    used = solution.routes * evidence.counts.sum(axis=1)  # (n, n): the images of client j that head i rests on
    own, classes = used.diagonal(), federation.embeddings.zero_shot.classes
    others = used - np.diag(own)

    def report(name: str, domain: Mask) -> DomainReport:
        images = sum(len(client) for client, counts in zip(federation.clients, domain, strict=True) if counts)
        part = float((others * (groups[:, None] == groups))[domain].sum())
        return DomainReport(
            name,
            int(domain.sum()),
            images,
            100 * float(right[domain].sum()) / images,
            float((total / (total + chosen.nu * classes))[domain].mean()),
            float(total[domain].mean()),
            100 * float((own / total)[domain].mean()),
            _share(part, float(others[domain].sum())),
        )

    values = np.linalg.eigvalsh(solution.shared.covariance)[::-1]
    return HeadDiagnosis(
        federation.embeddings.name,
        "ristretto",
        0,
        asdict(chosen),
        len(clients),
        federation.samples,
        100 * float(right.sum()) / federation.samples,
        zero_shot_answers(federation),
        report("all", np.ones(len(groups), np.bool_)),
        tuple(report(federation.embeddings.domains[d], groups == d) for d in dict.fromkeys(groups.tolist())),
        _trust_after(trust),
        share_inside(1 - np.eye(len(groups)), groups) if len(groups) > 1 else 0.0,
        tuple(float(v) for v in 100 * values[:SHOWN] / values.sum()),
        float(values.sum() ** 2 / (values**2).sum()),
    )


def _trust_after(trust: Sequence[Reals]) -> dict[str, float]:
    """Return the mean trust of the heads that answered the image after the first 1, 2, 4, 8, ... ones."""
    longest, means, images = max(map(len, trust)), {}, 1
    while images < longest:
        means[str(images)] = float(np.mean([series[images] for series in trust if len(series) > images]))
        images *= 2
    return means


# --- a run folder: replay one method on one seed with the data of the run -----------------------------------------


@dataclass(frozen=True, slots=True)
class RunReplay:
    """What is replayed: one method of a run on one of its seeds."""

    run: Run
    config: RunConfig
    method: MethodConfig
    seed: int
    federation: Federation


def open_replay(path: Path, data: Path | None = None, label: str | None = None, seed: int | None = None) -> RunReplay:
    """Read a finished run; ``label`` picks the method, ``seed`` one of its seeds.

    The memories of Latte and the heads of Ristretto can be looked into; by default it is the first of these.
    """
    folders = find_runs([path])
    if len(folders) != 1:
        raise refuse("run folder", f"{path}, which holds {len(folders)} runs", "one of them")
    run = read_run(folders[0])
    if not run.done:
        raise refuse("run folder", f"{path}, which is unfinished", "a finished run (run it again)")
    file = run.file()
    config = build_config(file.config)
    chosen = config.seeds[0] if seed is None else seed
    if chosen not in config.seeds:
        raise refuse("seed", chosen, f"one of the run's: {', '.join(map(str, config.seeds))}")
    recorded = run.manifest.get("data")  # of the manifest, or the benchmark by name
    place = recorded.get("path") if isinstance(recorded, dict) else None
    known = data is None and isinstance(place, str) and Path(place).is_file()
    entry = BenchmarkFile(config.benchmark, Path(str(place))) if known else find_benchmark(config.benchmark, data)
    if checksum(entry.path) != file.data.sha256:
        got = f"{entry.path}, which is not the run's"
        raise refuse("embedding file", got, "the file that the run saw (--data DIR)")
    federation = federate(read_benchmark(entry), config.clients_per_domain, chosen, config.order)
    return RunReplay(run, config, _method(config, label), chosen, federation)


def replay_run(
    planned: RunReplay, progress: Callable[[int], object] = lambda samples: None
) -> Diagnosis | HeadDiagnosis:
    """Replay and diagnose; a replay that does not give the recorded accuracy is refused."""
    heads, cohort = describe(planned.method.name).kind is Ristretto, generators(planned.seed).cohort
    look: Callable[..., Diagnosis | HeadDiagnosis] = diagnose_heads if heads else diagnose
    seen = look(planned.federation, dict(planned.method.params), planned.config.schedule, cohort, progress)
    diagnosis = replace(seen, benchmark=planned.config.benchmark, method=planned.method.label, seed=planned.seed)
    recorded = [r for r in planned.run.results if (r.method, r.seed) == (planned.method.label, planned.seed)]
    if abs(recorded[0].micro - diagnosis.accuracy) > 1e-9:
        got = f"accuracy {diagnosis.accuracy:.3f} where the run recorded {recorded[0].micro:.3f}"
        raise refuse("replay", got, "the same: run it again with this version (latte run)")
    return diagnosis


def _method(config: RunConfig, label: str | None) -> MethodConfig:
    open_ones = [method for method in config.methods if describe(method.name).kind in (Latte, Ristretto)]
    chosen = [method for method in open_ones if label in (None, method.label)]
    if not chosen:
        known = [method.label for method in open_ones]
        got = "no Latte and no Ristretto" if label is None else repr(label)
        want = "one of " + ", ".join(near(str(label), known)) if known else "a run with Latte or Ristretto"
        raise refuse("method", got, want)
    return chosen[0]
