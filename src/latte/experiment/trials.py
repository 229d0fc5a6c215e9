"""The items of a plan on all cores, in memory: nothing is written. ``latte demo`` runs this way."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..core.types import Reals
from ..simulation.engine import has_engine
from ..simulation.records import Result
from .item import make_result, run_together
from .plan import Job, Plan, as_message
from .predictions import Predictions, pack, predictions_of, unpack
from .runner import Options
from .structure import build_config
from .workers import unordered


@dataclass(frozen=True, eq=False)
class TrialRun:
    """One method on one seed.

    ``over_time`` (longest,) is the accuracy in per cent over all samples up to each position of the streams,
    ``downloads`` (N, N) who received how much from whom, None for a method that does not collaborate.
    ``predictions`` are the answers to single images, None where they are not known.
    """

    result: Result
    over_time: Reals
    downloads: Reals | None
    predictions: Predictions | None = None

    def to_json(self) -> str:
        """Return one line of JSON: what comes back from a worker process."""
        downloads = None if self.downloads is None else self.downloads.tolist()
        content = {"result": self.result.to_json(), "over_time": self.over_time.tolist(), "downloads": downloads}
        return json.dumps(content | {"predictions": None if self.predictions is None else pack(self.predictions)})

    @classmethod
    def from_json(cls, line: str) -> TrialRun:
        """Read what :meth:`to_json` wrote."""
        content = json.loads(line)
        downloads = None if content["downloads"] is None else np.array(content["downloads"], np.float64)
        predictions = None if content["predictions"] is None else unpack(content["predictions"])
        return cls(Result.from_json(content["result"]), np.array(content["over_time"]), downloads, predictions)


def run_trials(plan: Plan, jobs: int = 0) -> Iterator[TrialRun]:
    """Run every item of ``plan`` and yield the trials as they end; ``jobs`` 0 means one process per core."""
    items = sorted(plan.items(), key=lambda item: has_engine(item.method.name))  # the slowest first, to end together
    messages = [as_message([Job(plan, item)]) for item in items]
    for _, answer in unordered(run_trial, messages, Options(jobs).processes):
        if isinstance(answer, BaseException):
            raise answer
        yield TrialRun.from_json(answer)


def in_order(trials: Iterable[TrialRun], plan: Plan) -> list[TrialRun]:
    """Return the trials in the order of the items of ``plan``."""
    by_key = {(trial.result.method, trial.result.seed): trial for trial in trials}
    return [by_key[item.method.label, item.seed] for item in plan.items()]


def run_trial(message: str) -> str:
    """Run one item in a worker process; like :func:`latte.experiment.item.work` it passes text in and out."""
    task = json.loads(message)
    config = build_config(task["configs"][0])
    federation, (outcome,) = run_together([config], Path(task["path"]))
    downloads = None if outcome.downloads is None else outcome.downloads.astype(np.float64)
    result, predictions = make_result(federation, config, outcome), predictions_of(federation, outcome)
    return TrialRun(result, outcome.over_time(federation), downloads, predictions).to_json()
