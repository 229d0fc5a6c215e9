"""An experiment in one call, from Python."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from ..simulation.records import Result
from ..simulation.schedule import Schedule
from .config import MethodConfig, RunConfig, parse_method
from .plan import make_plan
from .runner import Options, run


def run_experiment(
    benchmark: str,
    methods: Sequence[str | MethodConfig],
    *,
    seeds: Iterable[int] = (0,),
    schedule: Schedule | None = None,
    out: str | Path = "runs",
    data: str | Path | None = None,
    options: Options | None = None,
) -> list[Result]:
    """Run every method on every seed of a benchmark and return the results, in order.

    A method is named as on the command line, ``[LABEL=]NAME[:PRESET][+KEY=VALUE...]``. Finished items are kept in a
    folder under ``out``: the same call again only reads them, and a call that was stopped goes on.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     clip, latte = run_experiment("cifar10c-mini", ["clip", "latte:cifar10c"], out=folder)
    >>> clip.method, round(clip.micro, 2)
    ('clip', 35.57)
    """
    chosen = tuple(m if isinstance(m, MethodConfig) else MethodConfig(**parse_method(m)) for m in methods)
    config = RunConfig(benchmark, chosen, tuple(seeds), schedule=schedule or Schedule())
    plan = make_plan(config, None if data is None else Path(data))
    return run(plan, Path(out), options)
