"""The numbers of a result that tables show beside the accuracies on single domains."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ..simulation.records import Result
from .result_table import Column


class Metric(NamedTuple):
    """A number of one result: how its column is called, and how it is calculated (None where it was not recorded)."""

    column: Column
    of: Callable[[Result], float | None]


def _change(result: Result) -> float | None:
    first, last = result.first_quarter, result.last_quarter
    return None if first is None or last is None else last - first


def _deployment(key: str, label: str, text: str, kind: str = "accuracy") -> Column:
    return Column(key, label, kind, text, "deployment")


MICRO = Metric(
    Column("micro", "Total", "accuracy", "accuracy over all samples (micro-average), %"), lambda result: result.micro
)
MACRO = Metric(Column("macro", "Macro", "accuracy", "mean of the clients' accuracies, %"), lambda result: result.macro)
# for a deployment: the accuracy of the worst client and domain, and whether it improves with use
WORST = (
    Metric(
        _deployment("worst_client", "Worst client", "the lowest accuracy of a client, %"),
        lambda result: result.worst_client,
    ),
    Metric(
        _deployment("worst_domain", "Worst domain", "the lowest accuracy of a domain, %"),
        lambda result: result.worst_domain,
    ),
)
QUARTERS = (
    Metric(
        _deployment("first_quarter", "First quarter", "accuracy over the first quarter of every client's stream, %"),
        lambda result: result.first_quarter,
    ),
    Metric(
        _deployment("last_quarter", "Last quarter", "accuracy over the last quarter of every client's stream, %"),
        lambda result: result.last_quarter,
    ),
    Metric(_deployment("change", "Change", "last quarter minus first quarter, points", "change"), _change),
)
