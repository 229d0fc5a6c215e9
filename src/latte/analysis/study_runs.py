"""Run the cases of studies, of any number in one pool of processes, each distinct run once.

The runs go into run folders: a second call computes what is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..experiment.config import check_items
from ..experiment.folder import RunFolder
from ..experiment.plan import PlacedPlan, Plan, plan_on
from ..experiment.runner import Event, IncompleteError, Options, execute_all, results
from .stats import estimate
from .studies import Case, Setup

StepProgress = Callable[[str, int, int], object]  # what is done, how many steps of it, of how many


@dataclass(frozen=True, slots=True)
class Score:
    """The accuracy of one seed at one point, in per cent of all samples."""

    panel: str
    method: str
    value: float | str
    seed: int
    accuracy: float


def measure(
    setup: Setup,
    cases: Sequence[Case],
    out: Path,
    options: Options | None = None,
    progress: StepProgress = lambda what, done, total: None,
) -> list[Score]:
    """Run what is missing of the cases in run folders under ``out``; one :class:`Score` per case and seed, in order."""
    plans = [plan_on(case.config, setup.benchmark) for case in cases]
    distinct = {plan.name: plan for plan in plans}  # points of several figures are often the same run
    _execute(list(distinct.values()), out, options or Options(), progress)
    by_name = {name: results(plan, out) for name, plan in distinct.items()}
    return [
        Score(case.panel, case.method, case.value, result.seed, result.micro)
        for case, plan in zip(cases, plans, strict=True)
        for result in by_name[plan.name]
    ]


def _execute(plans: Sequence[Plan], out: Path, options: Options, progress: StepProgress) -> None:
    total = sum(len(plan.items()) for plan in plans)
    check_items("figure", total)
    problems: list[str] = []
    try:
        with RunFolder(out).lock():
            for event in _follow([PlacedPlan(plan, out) for plan in plans], options, progress, total):
                if event.kind == "failed":
                    problems.append(f"{event.item.method.label}, seed {event.item.seed}: {event.problem}")
    except IncompleteError as error:
        raise IncompleteError(f"{problems[0]}; {error}") from None


def _follow(plans: Sequence[PlacedPlan], options: Options, progress: StepProgress, total: int) -> Iterator[Event]:
    """Execute plans and report their progress: first what is there already, then every run."""
    progress("runs", 0, total)
    existing = done = 0
    for _, event in execute_all(plans, options):
        if event.kind == "existing":
            existing += 1
        else:
            if existing and not done:
                progress("runs there already", existing, total)
            done += 1
            progress("runs", existing + done, total)
        yield event
    if not done:
        progress("runs there already", existing, total)


def summary(scores: Sequence[Score]) -> list[tuple[Score, float, float]]:
    """Return, per point, its first score, the mean over seeds and the standard deviation (0 for one seed)."""
    groups: dict[tuple[str, str, float | str], list[Score]] = {}
    for score in scores:
        groups.setdefault((score.panel, score.method, score.value), []).append(score)
    estimates = {key: estimate([score.accuracy for score in group]) for key, group in groups.items()}
    return [(group[0], estimates[key].mean, estimates[key].sd or 0.0) for key, group in groups.items()]
