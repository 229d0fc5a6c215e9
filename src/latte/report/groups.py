"""Results by method and parameters: the rows of a table, in the order in which a reader looks for them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import refuse
from ..simulation.records import SETTINGS, Result, same_scores
from . import paper
from .metrics import MACRO, MICRO, Metric

ORDER = tuple(paper.METHOD_TITLES)
GroupKey = tuple[str, str, str]  # method, setting, parameters as JSON


@dataclass(frozen=True, slots=True)
class Group:
    """The results of one method with one set of parameters on one benchmark, by seed.

    ``method`` is the method's label in the results, ``name`` its registered name, ``label`` what a table calls the row.
    """

    method: str
    name: str
    label: str
    setting: str
    results: Mapping[int, Result]

    @property
    def benchmark(self) -> str:
        """The name of the benchmark."""
        return next(iter(self.results.values())).benchmark

    def values(self, metric: Metric) -> dict[int, float]:
        """Return a number by seed, where it was recorded."""
        numbers = {seed: metric.of(result) for seed, result in self.results.items()}
        return {seed: number for seed, number in numbers.items() if number is not None}

    def micro(self) -> dict[int, float]:
        """Return the accuracy over samples by seed."""
        return self.values(MICRO)

    def macro(self) -> dict[int, float]:
        """Return the mean of the clients' accuracies by seed."""
        return self.values(MACRO)

    def kilobytes(self) -> list[float]:
        """Return what a client sent and received on each seed; empty for a method that sends nothing."""
        return [result.sent / 1000 for result in self.results.values() if result.sent is not None]

    def calibration(self) -> dict[int, float]:
        """Return the expected calibration error in per cent by seed, where it was measured."""
        errors = {seed: result.calibration_error for seed, result in self.results.items()}
        return {seed: 100 * error for seed, error in errors.items() if error is not None}


def group(results: Iterable[Result], names: Mapping[str, str] | None = None) -> list[Group]:
    """Return the results on one benchmark by method, setting and parameters, in the order in which they come.

    ``names`` are the registered names of methods by the labels in the results; a label that has none names its method.
    """
    by_key: dict[GroupKey, dict[int, Result]] = {}
    for result in results:
        key = (result.method, result.setting, json.dumps(dict(result.params), sort_keys=True, default=str))
        seeds = by_key.setdefault(key, {})
        seeds[result.seed] = _join(seeds.get(result.seed, result), result)
    known = {key[0]: (names or {}).get(key[0]) or paper.family(key[0]) for key in by_key}
    labels = _labels(list(by_key), known)
    return [
        Group(key[0], known[key[0]], labels[key], key[1], dict(sorted(seeds.items()))) for key, seeds in by_key.items()
    ]


def in_order(groups: Sequence[Group]) -> list[Group]:
    """Return groups as a table has them.

    Methods are in the order of the paper, then those that it does not have; the rows of one method by their setting,
    then by their parameters, as numbers.
    """
    methods = list(dict.fromkeys(row.method for row in groups))
    return sorted(groups, key=lambda row: _place(row, methods))


def _join(first: Result, second: Result) -> Result:
    """Return one record for two of the same run: one may lack the calibration or the quarters of streams."""
    if first is not second and not same_scores(first, second):
        what = f"{second.method}, seed {second.seed} twice with different scores"
        raise refuse("results", what, "runs of one configuration in one table (report them one by one)")
    error = first.calibration_error if second.calibration_error is None else second.calibration_error
    clients = second.clients if first.first_quarter is None else first.clients
    return replace(first, clients=clients, calibration_error=error)


def _place(row: Group, methods: Sequence[str]) -> tuple[Any, ...]:
    """Return what rows are sorted by."""
    rank = ORDER.index(row.name) if row.name in ORDER else len(ORDER)
    params = sorted(next(iter(row.results.values())).params.items())
    values = tuple((parameter, *order_of(value)) for parameter, value in params)
    return rank, methods.index(row.method), SETTINGS.index(row.setting), values


def order_of(value: object) -> tuple[int, float, str]:
    """Return what a value of a parameter is sorted by: numbers by size, then everything else as text.

    >>> sorted([10, "all", 0.3, 1], key=order_of)
    [0.3, 1, 10, 'all']
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return 0, float(value), ""
    return 1, 0.0, str(value)


def _labels(keys: Sequence[GroupKey], names: Mapping[str, str]) -> dict[GroupKey, str]:
    """Name the rows: the method, and what distinguishes it where the method is there more than once."""
    labels = {}
    for key in keys:
        same = [other for other in keys if other[0] == key[0]]
        title = paper.display(key[0], names[key[0]])
        labels[key] = f"{title} [{_distinction(key, same)}]" if len(same) > 1 else title
    return labels


def _distinction(key: GroupKey, same: Sequence[GroupKey]) -> str:
    """Return the setting (where it differs) and the parameters that differ, as ``alpha=0.5``."""
    mine, others = json.loads(key[2]), [json.loads(other[2]) for other in same]
    parts = [key[1]] if len({other[1] for other in same}) > 1 else []
    missing = object()
    parts += [
        f"{name}={mine[name]}" for name in mine if any(other.get(name, missing) != mine[name] for other in others)
    ]
    return ", ".join(parts) or "no parameters"
