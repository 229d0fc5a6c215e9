"""From results to tables: one table per benchmark, one row per method, the paper's numbers where they belong."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from ..analysis.stats import Paired, estimate, paired
from ..core.validate import refuse
from ..simulation.records import Result
from . import paper
from .result_table import SETTING_TITLES, Cell, Column, ResultTable, Row

ORDER = tuple(paper.METHOD_TITLES)


@dataclass(frozen=True, slots=True)
class Group:
    """The results of one method with one set of parameters on one benchmark, by seed."""

    method: str
    label: str
    setting: str
    results: Mapping[int, Result]

    @property
    def benchmark(self) -> str:
        """The name of the benchmark."""
        return next(iter(self.results.values())).benchmark

    def micro(self) -> dict[int, float]:
        """Return the accuracy over samples by seed."""
        return {seed: result.micro for seed, result in self.results.items()}

    def macro(self) -> dict[int, float]:
        """Return the mean of the clients' accuracies by seed."""
        return {seed: result.macro for seed, result in self.results.items()}

    def kilobytes(self) -> list[float]:
        """Return what a client sent and received on each seed; empty for a method that sends nothing."""
        return [result.sent / 1000 for result in self.results.values() if result.sent is not None]

    def calibration(self) -> dict[int, float]:
        """Return the expected calibration error in per cent by seed, where it was measured."""
        errors = {seed: result.calibration_error for seed, result in self.results.items()}
        return {seed: 100 * error for seed, error in errors.items() if error is not None}


class Shown(NamedTuple):
    """Which columns a table has beside the accuracies: where no row has a number, there is no column."""

    gain: bool
    sent: bool
    calibration: bool


def build_tables(
    results: Iterable[Result], encoders: Mapping[str, str] | None = None, claimed: str | None = None
) -> list[ResultTable]:
    """Return one table per benchmark, in the order in which the benchmarks appear.

    ``encoders`` (benchmark -> encoder) and ``claimed`` decide about the paper's columns: see
    :func:`latte.report.paper.comparable`.
    """
    by_benchmark: dict[str, list[Result]] = {}
    for result in results:
        by_benchmark.setdefault(result.benchmark, []).append(result)
    if not by_benchmark:
        raise refuse("results", "none", "at least one finished (method, seed)")
    return [build_table(same, (encoders or {}).get(name), claimed) for name, same in by_benchmark.items()]


def build_table(results: Sequence[Result], encoder: str | None = None, claimed: str | None = None) -> ResultTable:
    """Return the table of one benchmark."""
    benchmark = results[0].benchmark
    groups = sorted(group(results), key=_position)
    backbone = paper.comparable(benchmark, encoder, claimed)
    appearing = dict.fromkeys(domain for result in results for domain in result.by_domain())
    domains = paper.in_paper_order(benchmark, appearing)
    base = next((row for row in groups if row.method == "clip"), None)
    shown = Shown(
        gain=base is not None,
        sent=any(row.kilobytes() for row in groups),
        calibration=any(row.calibration() for row in groups),
    )
    return ResultTable(
        title=benchmark if encoder is None else f"{benchmark}, {encoder}",
        benchmark=benchmark,
        encoder=encoder,
        backbone=backbone,
        columns=_columns(domains, shown, backbone),
        rows=tuple(_row(row, domains, base, shown, backbone) for row in groups),
        differences=_differences(groups),
        reference=_reference(groups).label,
        notes=_notes(groups) + (_paper_notes(results, backbone) if backbone else ()),
    )


def group(results: Iterable[Result]) -> list[Group]:
    """Return the results on one benchmark by method, setting and parameters, in the order in which they come."""
    by_key: dict[tuple[str, str, str], dict[int, Result]] = {}
    for result in results:
        key = (result.method, result.setting, json.dumps(dict(result.params), sort_keys=True, default=str))
        seeds = by_key.setdefault(key, {})
        if seeds.setdefault(result.seed, result).clients != result.clients:
            what = f"{result.method}, seed {result.seed} twice with different scores"
            raise refuse("results", what, "runs of one configuration in one table (report them one by one)")
        if result.calibration_error is not None:
            seeds[result.seed] = result  # the same run, and what the fast engine does not know
    labels = _labels(list(by_key))
    return [Group(key[0], labels[key], key[1], dict(sorted(seeds.items()))) for key, seeds in by_key.items()]


def _position(group: Group) -> int:
    """Return the place of a row: methods in the order of the paper, then the others."""
    name = paper.family(group.method)
    return ORDER.index(name) if name in ORDER else len(ORDER)


def _labels(keys: Sequence[tuple[str, str, str]]) -> dict[tuple[str, str, str], str]:
    """Name the rows: the method, and what distinguishes it where the method is there more than once."""
    labels = {}
    for key in keys:
        same = [other for other in keys if other[0] == key[0]]
        name = paper.display(key[0])
        labels[key] = f"{name} [{_distinction(key, same)}]" if len(same) > 1 else name
    return labels


def _distinction(key: tuple[str, str, str], same: Sequence[tuple[str, str, str]]) -> str:
    """Return the setting (where it differs) and the parameters that differ, as ``alpha=0.5``."""
    mine, others = json.loads(key[2]), [json.loads(other[2]) for other in same]
    parts = [key[1]] if len({other[1] for other in same}) > 1 else []
    missing = object()
    parts += [
        f"{name}={mine[name]}" for name in mine if any(other.get(name, missing) != mine[name] for other in others)
    ]
    return ", ".join(parts) or "no parameters"


def _columns(domains: Sequence[str], shown: Shown, backbone: str | None) -> tuple[Column, ...]:
    columns = [
        Column("micro", "Total", "accuracy", "accuracy over all samples (micro-average), %"),
        Column("macro", "Macro", "accuracy", "mean of the clients' accuracies, %"),
    ]
    if shown.gain:
        columns.append(Column("gain", "Gain", "gain", "total minus CLIP's on the same seeds, points"))
    if shown.sent:
        columns.append(Column("sent", "kB/client", "bytes", "sent and received by a client, vectors in fp16, kB"))
    if shown.calibration:
        columns.append(Column("ece", "ECE", "calibration", "expected calibration error, 20 bins, %; less is better"))
    if backbone:
        columns.append(Column("paper", "Paper", "paper", f"the paper's total with CLIP {backbone}, %"))
        columns.append(Column("difference", "Δ paper", "difference", "our total minus the paper's, points"))
    columns += [Column(f"domain:{name}", name, "accuracy", f"accuracy on {name}, %") for name in domains]
    return tuple(columns)


def _row(group: Group, domains: Sequence[str], base: Group | None, shown: Shown, backbone: str | None) -> Row:
    micro = _cell(group.micro().values())
    cells = [micro, _cell(group.macro().values())]
    if base is not None:
        cells.append(None if group is base else _gain(group, base))
    if shown.sent:
        cells.append(_mean_cell(group.kilobytes()))
    if shown.calibration:
        cells.append(_cell(group.calibration().values()))
    if backbone:
        cells += _beside_paper(group, micro, backbone)
    by_domain = [result.by_domain() for result in group.results.values()]
    for domain in domains:
        cell = _cell([scores[domain] for scores in by_domain if domain in scores])
        printed = paper.published_accuracy(group.benchmark, backbone, group.method, domain) if backbone else None
        cells.append(replace(cell, paper=printed.mean, paper_sd=printed.sd) if cell and printed else cell)
    return Row(group.method, group.label, group.setting, tuple(group.results), tuple(cells))


def _cell(values: Collection[float]) -> Cell | None:
    if not values:
        return None
    mean = estimate(values)
    return Cell(mean.mean, mean.sd)


def _mean_cell(values: Sequence[float]) -> Cell | None:
    return Cell(sum(values) / len(values)) if values else None


def _gain(group: Group, base: Group) -> Cell | None:
    """Return the mean and sd of the per-seed gains over the seeds that both have."""
    own, clip = group.micro(), base.micro()
    return _cell([own[seed] - clip[seed] for seed in own if seed in clip])


def _beside_paper(row: Group, micro: Cell | None, backbone: str) -> list[Cell | None]:
    printed = paper.published_accuracy(row.benchmark, backbone, row.method)
    if printed is None or micro is None:
        return [None, None]
    return [Cell(printed.mean, printed.sd), Cell(micro.mean - printed.mean)]


def _differences(groups: Sequence[Group]) -> tuple[Paired, ...]:
    pairs = (paired((one.label, two.label), one.micro(), two.micro()) for one, two in itertools.permutations(groups, 2))
    return tuple(pair for pair in pairs if pair is not None)


def _reference(groups: Sequence[Group]) -> Group:
    """Return the row that the others are compared with: Latte, or the last."""
    return next((row for row in groups if row.method == "latte"), groups[-1])


def _notes(groups: Sequence[Group]) -> tuple[str, ...]:
    settings = dict.fromkeys(row.setting for row in groups)
    origins = (f"{setting}: {SETTING_TITLES.get(setting, 'of unknown origin')}." for setting in settings)
    return (_seed_note(groups), *origins)


def _seed_note(groups: Sequence[Group]) -> str:
    seeds = list(dict.fromkeys(tuple(row.results) for row in groups))
    if all(len(one) == 1 for one in seeds):
        return "One seed: no standard deviation and no interval can be given."
    if len(seeds) > 1:
        return "The rows do not all have the same seeds; differences use the seeds that two rows share."
    return f"Every row has the same {len(seeds[0])} seeds: {', '.join(map(str, seeds[0]))}."


def _paper_notes(results: Sequence[Result], backbone: str) -> tuple[str, ...]:
    """Say what the paper's column is, and where a run is not of the paper's size."""
    name = paper.canonical(results[0].benchmark) or ""
    notes = [
        f"Paper: the published total on {paper.BENCHMARKS[name]} with CLIP {backbone}; beside the accuracy on a "
        "domain, in brackets or below it: the published one. Published standard deviations are over five orders of "
        "the stream (the paper's Tables 7 and 8; none for methods that the order does not touch). Seeds here change "
        "the partition too."
    ]
    for size in sorted({result.samples for result in results} - {paper.SAMPLES[name]}):
        notes.append(f"The paper has {paper.SAMPLES[name]:,} samples; these results have {size:,}.")
    return tuple(notes)
