"""Choose hyper-parameters on partitions that are not reported, and record the data that were seen.

The rule is the paper's (which is DMN's): run every point of a grid and keep the one with the highest accuracy; a later
point must be strictly better. That needs labels, so it is no test-time method: a number that was chosen this way is
"tuned" when the choice was made on other partitions, and "oracle" when it was made on the streams it is reported on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import InputError, refuse
from ..files.atomic import write_text
from ..files.documents import read_json, structure
from ..methods import METHODS, describe
from .config import MethodConfig, RunConfig
from .plan import UNKNOWN, DataInfo, OpenBenchmark
from .runner import results
from .sweep import Sweep, SweepAxis, check_plain, make_sweep

TUNED_FORMAT = "latte-tuned/1"
TUNING_RULE = "highest mean accuracy over samples and seeds; on ties the earlier point of the grid"


@dataclass(frozen=True, slots=True)
class Choice:
    """The choice for a method.

    ``tied`` points of the ``grid`` have the same highest accuracy; all of them: the parameter made no difference. Only
    the name and the parameters are needed to use a choice. ``point`` has what else was varied.
    """

    name: str
    params: dict[str, Any]
    accuracy: float | None = None
    tied: int = 1
    grid: tuple[dict[str, Any], ...] = ()
    runs: str = ""
    point: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_plain(self.params)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningData:
    """The data that the choices were made on; what has a default is for people."""

    benchmark: str = ""
    data: DataInfo
    seeds: tuple[int, ...]
    clients_per_domain: int | None
    order: str = ""
    schedule: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TunedFile:
    """The content of a tuned file: choices by the labels of their methods, and the data that they were made on."""

    format: str = TUNED_FORMAT
    rule: str = TUNING_RULE
    saw: TuningData
    methods: dict[str, Choice]


def tuning_grid(name: str) -> tuple[SweepAxis, ...]:
    """Return the grid that the class of a method names; empty if it names none."""
    return tuple(SweepAxis(f"method.{key}", values) for key, values in describe(name).tuning.items())


def make_tunings(config: RunConfig, benchmark: OpenBenchmark, axes: Sequence[SweepAxis] = ()) -> list[Sweep]:
    """Plan the search of every method in ``config``: over ``axes``, or over the method's own grid."""
    tunings = []
    for method in config.methods:
        grid = tuple(axes) or tuning_grid(method.name)
        if not grid:
            known = ", ".join(name for name in METHODS if tuning_grid(name))
            raise refuse("tune", f"{method.name!r}, which has no grid", f"one of {known}, or --over KEY=V1,V2,...")
        tunings.append(make_sweep(replace(config, methods=(method,)), grid, benchmark))
    return tunings


def select(tunings: Sequence[Sweep], out: Path) -> TunedFile:
    """Return the choice of every search that is done, with the scores it was made by and the data it saw."""
    plan = tunings[0].points[0].plan
    config = plan.config
    data = TuningData(
        benchmark=config.benchmark,
        data=plan.data,
        seeds=config.seeds,
        clients_per_domain=config.clients_per_domain,
        order=config.order,
        schedule=asdict(config.schedule),
    )
    return TunedFile(saw=data, methods={tuning.methods[0].label: _choose(tuning, out) for tuning in tunings})


def save_tuned(path: Path, tuned: TunedFile) -> None:
    """Write the choice to a file for later runs."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(asdict(tuned), indent=1) + "\n")


def read_tuned(path: Path) -> TunedFile:
    """Read what :func:`save_tuned` wrote; a file of another form is refused."""
    tuned = read_json(path, dict[str, Any], "tuned file (what latte tune wrote)")
    if tuned.get("format") != TUNED_FORMAT:
        raise refuse(str(path), "another kind of file", f"{TUNED_FORMAT}: what latte tune wrote")
    return structure(tuned, TunedFile, str(path), extra=True)


def use_tuned(config: RunConfig, tuned: TunedFile, benchmark: OpenBenchmark) -> RunConfig:
    """Return ``config`` with the chosen parameters, each labelled "tuned" or "oracle"."""
    saw, here = tuned.saw.data, benchmark.info
    if saw.fingerprint != here.fingerprint and (saw.encoder == UNKNOWN or saw.encoder != here.encoder):
        raise refuse("--tuned", f"parameters tuned with encoder {saw.encoder!r}", f"encoder {here.encoder!r}")
    setting = "oracle" if _overlaps(config, tuned.saw, benchmark) else "tuned"
    methods = tuple(_with_choice(method, tuned.methods, setting) for method in config.methods)
    if methods == config.methods:
        there = ", ".join(f"{label} ({choice.name})" for label, choice in tuned.methods.items()) or "none"
        raise refuse("--tuned", "a file that tuned none of these methods", f"one of those in it: {there}")
    return replace(config, methods=methods)


def _choose(tuning: Sweep, out: Path) -> Choice:
    folder = Path(out) / tuning.name
    scores = []
    for point in tuning.points:
        measured = results(point.plan, folder)
        scores.append(sum(result.micro for result in measured) / len(measured))
    best = max(range(len(scores)), key=lambda i: (scores[i], -i))
    (method,) = tuning.points[best].plan.config.methods
    return Choice(
        method.name,
        dict(method.params),
        scores[best],
        scores.count(scores[best]),
        tuple({**p.values, "accuracy": s} for p, s in zip(tuning.points, scores, strict=True)),
        tuning.name,
        dict(tuning.points[best].values),
    )


def _overlaps(config: RunConfig, saw: TuningData, benchmark: OpenBenchmark) -> bool:
    """Return whether the reported streams are among those the choice was made on.

    Clients that the file fixes are the same under every seed: only their order changes, so that is an overlap too.
    """
    if saw.data.fingerprint != benchmark.info.fingerprint:
        return False
    fixed = saw.clients_per_domain is None and config.clients_per_domain is None
    return bool(set(saw.seeds) & set(config.seeds)) or (fixed and benchmark.embeddings.client is not None)


def _with_choice(method: MethodConfig, choices: Mapping[str, Choice], setting: str) -> MethodConfig:
    choice = choices.get(method.label) or next((c for c in choices.values() if c.name == method.name), None)
    if choice is None or choice.name != method.name:
        return method
    try:
        return replace(method, preset=None, params=dict(choice.params), setting=setting)
    except InputError as error:
        raise InputError(f"--tuned: {method.label}: {error}") from None
