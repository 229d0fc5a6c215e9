"""Diagnose a run folder: replay one method on one seed with the data of the run, and store the diagnosis there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ..core.validate import near
from ..data.catalogue import BenchmarkFile, find_benchmark, read_benchmark
from ..data.federation import Federation, federate, generators
from ..errors import refuse
from ..experiment.collection import Run, find_runs, read_run
from ..experiment.config import MethodConfig, RunConfig, build_config
from ..files.atomic import write_text
from ..files.documents import checksum, read_bytes
from ..methods import describe
from ..methods.latte.client import Latte
from ..methods.ristretto.client import Ristretto
from .diagnose import Diagnosis, HeadDiagnosis, diagnose, diagnose_heads

DIAGNOSIS_FILE, HEADS_FILE = "diagnosis.json", "heads.json"


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


def save_diagnosis(diagnosis: Diagnosis | HeadDiagnosis, path: Path) -> Path:
    """Write a diagnosis into the run folder, where the report looks for it."""
    file = path / (DIAGNOSIS_FILE if isinstance(diagnosis, Diagnosis) else HEADS_FILE)
    write_text(file, diagnosis.to_json())
    return file


def load_diagnosis(path: Path) -> Diagnosis | None:
    """Return the diagnosis in a run folder; None if there is none."""
    file = path / DIAGNOSIS_FILE
    return Diagnosis.from_json(read_bytes(file), str(file)) if file.exists() else None


def load_heads(path: Path) -> HeadDiagnosis | None:
    """Return the diagnosis of Ristretto in a run folder; None if there is none."""
    file = path / HEADS_FILE
    return HeadDiagnosis.from_json(read_bytes(file), str(file)) if file.exists() else None


def _method(config: RunConfig, label: str | None) -> MethodConfig:
    open_ones = [method for method in config.methods if describe(method.name).kind in (Latte, Ristretto)]
    chosen = [method for method in open_ones if label in (None, method.label)]
    if not chosen:
        known = [method.label for method in open_ones]
        got = "no Latte and no Ristretto" if label is None else repr(label)
        want = "one of " + ", ".join(near(str(label), known)) if known else "a run with Latte or Ristretto"
        raise refuse("method", got, want)
    return chosen[0]
