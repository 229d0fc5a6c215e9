"""From results to tables: one table per benchmark, one row per method, the paper's numbers where they belong."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from ..analysis.stats import Answers, Paired, estimate, paired, with_images
from ..errors import refuse
from ..simulation.records import Result
from . import paper
from .groups import Group, in_order
from .groups import group as group
from .metrics import MACRO, MICRO, QUARTERS, WORST, Metric
from .result_table import SETTING_TITLES, Cell, Column, ResultTable, Row

IMAGES_NOTE = (
    "Intervals of the total are over splits and, by a bootstrap, over images; all others are over splits, which deal "
    "the same images to the clients in other ways."
)


class ExtraColumns(NamedTuple):
    """Which columns a table has beside the accuracies: where no row has a number, there is no column."""

    gain: bool
    sent: bool
    calibration: bool
    deployment: tuple[Metric, ...]


def build_tables(
    results: Iterable[Result],
    encoders: Mapping[str, str] | None = None,
    claimed: str | None = None,
    names: Mapping[str, str] | None = None,
) -> list[ResultTable]:
    """Return one table per benchmark, in the order in which the benchmarks appear.

    ``encoders`` (benchmark -> encoder) and ``claimed`` decide about the paper's columns: see
    :func:`latte.report.paper.comparable`. ``names`` are the registered names of methods that have another label in the
    results, by label (:meth:`latte.experiment.runs.Run.method_names`).
    """
    by_benchmark: dict[str, list[Result]] = {}
    for result in results:
        by_benchmark.setdefault(result.benchmark, []).append(result)
    if not by_benchmark:
        raise refuse("results", "none", "at least one finished (method, seed)")
    return [build_table(same, (encoders or {}).get(name), claimed, names) for name, same in by_benchmark.items()]


def build_table(
    results: Sequence[Result],
    encoder: str | None = None,
    claimed: str | None = None,
    names: Mapping[str, str] | None = None,
    answers: Mapping[str, Answers] | None = None,
) -> ResultTable:
    """Return the table of one benchmark; ``names`` as in :func:`build_tables`.

    ``answers`` are what is known of single images, by :func:`result_key`: with them, differences of the total have an
    interval over splits and images.
    """
    benchmark = results[0].benchmark
    groups = in_order(group(results, names))
    backbone = paper.comparable(benchmark, encoder, claimed)
    appearing = dict.fromkeys(domain for result in results for domain in result.by_domain())
    domains = paper.in_paper_order(benchmark, appearing)
    base = _plainest(groups, "clip")
    extra = ExtraColumns(
        gain=base is not None,
        sent=any(row.kilobytes() for row in groups),
        calibration=any(row.calibration() for row in groups),
        deployment=WORST + (QUARTERS if any(row.values(QUARTERS[0]) for row in groups) else ()),
    )
    differences = tuple(_differences(groups, (MICRO, *extra.deployment), answers or {}))
    over = (IMAGES_NOTE,) if any(pair.image_low is not None for pair in differences) else ()
    return ResultTable(
        title=benchmark if encoder is None else f"{benchmark}, {encoder}",
        benchmark=benchmark,
        encoder=encoder,
        backbone=backbone,
        columns=_columns(domains, extra, backbone),
        rows=tuple(_row(row, domains, base, extra, backbone) for row in groups),
        differences=differences,
        reference=_reference(groups).label,
        notes=_notes(groups) + over + (_paper_notes(results, backbone) if backbone else ()),
    )


def _columns(domains: Sequence[str], extra: ExtraColumns, backbone: str | None) -> tuple[Column, ...]:
    columns = [MICRO.column, MACRO.column]
    if extra.gain:
        columns.append(Column("gain", "Gain", "gain", "total minus CLIP's on the same seeds, points"))
    if extra.sent:
        columns.append(Column("sent", "kB/client", "bytes", "sent and received by a client, vectors in fp16, kB"))
    if extra.calibration:
        columns.append(Column("ece", "ECE", "calibration", "expected calibration error, 20 bins, %; less is better"))
    if backbone:
        columns.append(Column("paper", "Paper", "paper", f"the paper's total with CLIP {backbone}, %"))
        columns.append(Column("difference", "Δ paper", "difference", "our total minus the paper's, points"))
    columns += [metric.column for metric in extra.deployment]
    columns += [Column(f"domain:{name}", name, "accuracy", f"accuracy on {name}, %", "domains") for name in domains]
    return tuple(columns)


def _row(group: Group, domains: Sequence[str], base: Group | None, extra: ExtraColumns, backbone: str | None) -> Row:
    micro = _cell(group.micro().values())
    cells = [micro, _cell(group.macro().values())]
    if base is not None:
        cells.append(None if group is base else _gain(group, base))
    if extra.sent:
        cells.append(_mean_cell(group.kilobytes()))
    if extra.calibration:
        cells.append(_cell(group.calibration().values()))
    if backbone:
        cells += _beside_paper(group, micro, backbone)
    cells += [_cell(group.values(metric).values()) for metric in extra.deployment]
    by_domain = [result.by_domain() for result in group.results.values()]
    for domain in domains:
        cell = _cell([scores[domain] for scores in by_domain if domain in scores])
        printed = paper.published_accuracy(group.benchmark, backbone, group.name, domain) if backbone else None
        cells.append(replace(cell, paper=printed.mean, paper_sd=printed.sd) if cell and printed else cell)
    return Row(group.method, group.name, group.label, group.setting, tuple(group.results), tuple(cells))


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
    printed = paper.published_accuracy(row.benchmark, backbone, row.name)
    if printed is None or micro is None:
        return [None, None]
    return [Cell(printed.mean, printed.sd), Cell(micro.mean - printed.mean)]


def result_key(result: Result) -> str:
    """Return what distinguishes a result from the others of its table."""
    return json.dumps([result.method, result.setting, dict(result.params), result.seed], sort_keys=True, default=str)


def _differences(
    groups: Sequence[Group], metrics: Sequence[Metric], answers: Mapping[str, Answers]
) -> Iterator[Paired]:
    """Yield the differences of every pair of rows, metric by metric."""
    by_seed = {
        row.label: {s: answers[key] for s, result in row.results.items() if (key := result_key(result)) in answers}
        for row in groups
    }
    ends: dict[tuple[str, str], Paired] = {}
    for metric in metrics:
        for first, second in itertools.permutations(groups, 2):
            names = (first.label, second.label)
            pair = paired(names, first.values(metric), second.values(metric))
            if pair is None:
                continue
            if metric is MICRO and names[::-1] in ends:  # the same draws: one is the mirror of the other
                low, high = ends[names[::-1]].image_low, ends[names[::-1]].image_high
                pair = pair if low is None or high is None else replace(pair, image_low=-high, image_high=-low)
            elif metric is MICRO:
                pair = ends[names] = with_images(pair, by_seed[first.label], by_seed[second.label])
            yield replace(pair, metric=metric.column.key)


def _reference(groups: Sequence[Group]) -> Group:
    """Return the row that the others are compared with: Latte, or the last."""
    return _plainest(groups, "latte") or groups[-1]


def _plainest(groups: Sequence[Group], name: str) -> Group | None:
    """Return the row of a method: the one that has its name as its label, or else the first."""
    rows = [row for row in groups if row.name == name]
    return next((row for row in rows if row.method == name), rows[0] if rows else None)


def _notes(groups: Sequence[Group]) -> tuple[str, ...]:
    settings = dict.fromkeys(row.setting for row in groups)
    origins = (f"{setting}: {SETTING_TITLES.get(setting, 'of unknown origin')}." for setting in settings)
    extra = (*_label_notes(groups), *_approximation_notes(groups), *_quarter_notes(groups))
    return (_seed_note(groups), _client_note(groups), *origins, *extra)


def _client_note(groups: Sequence[Group]) -> str:
    """Say how many clients share a domain: gains depend on it."""
    results = [result for row in groups for result in row.results.values()]
    counts = {count for result in results for count in Counter(client.domain for client in result.clients).values()}
    low, high = min(counts), max(counts)
    return f"Clients per domain: {low if low == high else f'{low} to {high}'}."


def _label_notes(groups: Sequence[Group]) -> list[str]:
    """Say which methods the rows with labels of the user's are."""
    titles = {row.method: paper.display(row.name) for row in groups if paper.family(row.method) != row.name}
    return [f"Labels: {', '.join(f'{label} is {title}' for label, title in titles.items())}."] if titles else []


def _approximation_notes(groups: Sequence[Group]) -> list[str]:
    """Say which rows were calculated approximately, and how."""
    told = dict.fromkeys((row.label, result.approximation) for row in groups for result in row.results.values())
    exactly = "approximation=off calculates it exactly"
    return [f"{label} is approximate ({words}); {exactly}." for label, words in told if words]


def _quarter_notes(groups: Sequence[Group]) -> list[str]:
    """Say which rows lack the quarters of streams."""
    lacking = [row.label for row in groups if not row.values(QUARTERS[0])]
    if not lacking:
        return []
    rows = "" if len(lacking) == len(groups) else f" of {', '.join(lacking)}"
    older = "the records are older than these numbers (latte run --predictions adds them)"
    return [f"First and last quarter{rows}: n/a; {older}."]


def _seed_note(groups: Sequence[Group]) -> str:
    seeds = list(dict.fromkeys(tuple(row.results) for row in groups))
    if all(len(row_seeds) == 1 for row_seeds in seeds):
        return "One seed: no standard deviation and no interval over splits can be given."
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
