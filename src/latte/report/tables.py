"""From results to tables: one table per benchmark, one row per method, the paper's numbers where they belong."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..analysis.stats import Answers, Paired, estimate, paired, with_images
from ..errors import refuse
from ..simulation.results import SETTINGS, Result, same_scores
from ..text import short_count
from . import published as paper

PANELS = ("summary", "deployment", "domains")
SETTING_TITLES = {
    "preset": "published hyper-parameters",
    "default": "one setting for all data",
    "tuned": "chosen with labels, on other partitions than the reported ones",
    "oracle": "chosen with the labels it is scored on: an upper bound, not a result",
    "custom": "set by hand",
}
IMAGES_NOTE = (
    "The interval of the total covers the random split and, by a bootstrap, the choice of images; all other intervals "
    "cover the random split alone."
)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    key
        What :meth:`Group.values` calls its numbers, or "gain", "paper", "difference".
    label
        Its heading.
    kind
        "accuracy", "gain", "bytes" (in kB) and "calibration", of which less is better, "paper" (published),
        "difference" (from the published), "change" (within a row, from its first images to its last).
    help
        What the numbers are.
    panel
        Where it is shown: one of :data:`PANELS`.
    """

    key: str
    label: str
    kind: str
    help: str = ""
    panel: str = "summary"

    @property
    def signed(self) -> bool:
        """Whether its numbers are differences."""
        return self.kind in ("gain", "difference", "change")

    @property
    def missing(self) -> str:
        """What stands where a row has no number: nothing to say, or something that its records do not have."""
        return "n/a" if self.panel == "deployment" else "–"


def _deployment(key: str, label: str, text: str, kind: str = "accuracy") -> Column:
    return Column(key, label, kind, text, "deployment")


MICRO = Column("micro", "Total", "accuracy", "accuracy over all samples (micro-average), %")
MACRO = Column("macro", "Macro", "accuracy", "mean of the clients' accuracies, %")
# for a deployment: the accuracy of the worst client and domain, and whether it improves with use
WORST = (
    _deployment("worst_client", "Worst client", "the lowest accuracy of a client, %"),
    _deployment("worst_domain", "Worst domain", "the lowest accuracy of a domain, %"),
)
QUARTERS = (
    _deployment("first_quarter", "First quarter", "accuracy over the first quarter of every client's stream, %"),
    _deployment("last_quarter", "Last quarter", "accuracy over the last quarter of every client's stream, %"),
    _deployment("change", "Change", "last quarter minus first quarter, points", "change"),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A mean in per cent (or points), and its standard deviation over seeds where there is one.

    ``paper`` and ``paper_sd`` are what the paper prints for the same method and domain, where it may be compared.
    """

    mean: float
    sd: float | None = None
    paper: float | None = None
    paper_sd: float | None = None


@dataclass(frozen=True, slots=True)
class Row:
    """One method with one set of parameters; ``cells`` follow the table's columns, None where there is no number.

    ``method`` is the method's label in the results, ``name`` its registered name, ``label`` what the row is called.
    """

    method: str
    name: str
    label: str
    setting: str
    seeds: tuple[int, ...]
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True, slots=True)
class Fact:
    """A number that belongs to the table but not into a cell; ``paper`` is what the paper prints for it, or "".

    >>> Fact("Latte's round", 0.3564, "%", "less than 0.4%").sentence()
    "Latte's round: 0.356 % here, less than 0.4% in the paper."
    """

    name: str
    here: float
    unit: str
    paper: str = ""

    def sentence(self) -> str:
        """Return the fact in words."""
        beside = f", {self.paper} in the paper" if self.paper else ""
        amount = f"{short_count(self.here)}{self.unit}" if self.unit == "B" else f"{self.here:.3g} {self.unit}"
        return f"{self.name}: {amount} here{beside}."


@dataclass(frozen=True, slots=True)
class ResultTable:
    """The results on one benchmark.

    ``differences`` holds every pair of rows, paired over seeds, of the total and then of the columns of deployment;
    ``reference`` is the label of the row that the others are shown against. ``notes`` are sentences that a reader needs
    beside the numbers; ``facts`` are in them, in words.
    """

    title: str
    benchmark: str
    encoder: str | None
    backbone: str | None
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    differences: tuple[Paired, ...]
    reference: str
    notes: tuple[str, ...] = ()
    facts: tuple[Fact, ...] = ()

    @property
    def beside_paper(self) -> bool:
        """Whether cells have the paper's value beside ours."""
        return any(cell is not None and cell.paper is not None for row in self.rows for cell in row.cells)

    @property
    def short_title(self) -> str:
        """The title without the encoder."""
        return self.title.replace(f", {self.encoder}", "", 1)

    def panel(self, *names: str) -> list[int]:
        """Return the positions of the columns in the panels ``names``."""
        return [i for name in names for i, column in enumerate(self.columns) if column.panel == name]

    def against_reference(self, metric: str = "micro") -> tuple[Paired, ...]:
        """Return the differences of the reference minus each other row."""
        return tuple(pair for pair in self.differences if pair.first == self.reference and pair.metric == metric)

    def best(self, column: int) -> float | None:
        """Return the highest mean of an accuracy or gain column; rows that saw the labels do not count.

        None where nothing gains: zero-shot, whose own gain is left empty, is then the best.
        """
        kind = self.columns[column].kind
        if kind not in ("accuracy", "gain"):
            return None
        cells = [row.cells[column] for row in self.rows if row.setting != "oracle"]
        highest = max((cell.mean for cell in cells if cell is not None), default=None)
        return None if kind == "gain" and (highest or 0) <= 0 else highest

    def is_best(self, row: Row, column: int) -> bool:
        """Say whether a cell is the best of its column, or is shown as the same number as the best."""
        cell, best = row.cells[column], self.best(column)
        if cell is None or best is None or row.setting == "oracle":
            return False
        return f"{cell.mean:.2f}" == f"{best:.2f}"


# --- the rows of a table: results by method and parameters --------------------------------------------------------

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

    def values(self, key: str) -> dict[int, float]:
        """Return the number of a column by seed, where it was recorded.

        ``key`` is an attribute of :class:`latte.simulation.results.Result`, "domain:NAME", "change" (from the first
        quarter to the last), "sent" (kB of a client) or "ece" (the expected calibration error in per cent).
        """
        numbers = {seed: _number(result, key) for seed, result in self.results.items()}
        return {seed: number for seed, number in numbers.items() if number is not None}


def _number(result: Result, key: str) -> float | None:
    if key.startswith("domain:"):
        return result.by_domain().get(key.removeprefix("domain:"))
    if key == "change":
        first, last = result.first_quarter, result.last_quarter
        return None if first is None or last is None else last - first
    if key == "sent":
        return None if result.sent is None else result.sent / 1000
    if key == "ece":
        return None if result.calibration_error is None else 100 * result.calibration_error
    number: float | None = getattr(result, key)
    return number


def group(results: Iterable[Result], names: Mapping[str, str] | None = None) -> list[Group]:
    """Return the results on one benchmark by method, setting and parameters, in the order in which they come.

    ``names`` are the registered names of methods by the labels in the results; a label that has none names its method.
    """
    by_key: dict[GroupKey, dict[int, Result]] = {}
    for result in results:
        key = (result.method, result.setting, json.dumps(dict(result.params), sort_keys=True, default=str))
        seeds = by_key.setdefault(key, {})
        seeds[result.seed] = _join(seeds.get(result.seed, result), result)
    groups = []
    for key, seeds in by_key.items():
        name = (names or {}).get(key[0]) or paper.family(key[0])
        same = [other for other in by_key if other[0] == key[0]]
        label = paper.display(key[0], name) + (f" [{_distinction(key, same)}]" if len(same) > 1 else "")
        groups.append(Group(key[0], name, label, key[1], dict(sorted(seeds.items()))))
    return groups


def _join(first: Result, second: Result) -> Result:
    """Return one record for two of the same run: one may lack the calibration or the quarters of streams."""
    if first is not second and not same_scores(first, second):
        what = f"{second.method}, seed {second.seed} twice with different scores"
        raise refuse("results", what, "runs of one configuration in one table (report them one by one)")
    error = first.calibration_error if second.calibration_error is None else second.calibration_error
    clients = second.clients if first.first_quarter is None else first.clients
    return replace(first, clients=clients, calibration_error=error)


def _distinction(key: GroupKey, same: Sequence[GroupKey]) -> str:
    """Return the setting (where it differs) and the parameters that differ, as ``alpha=0.5``."""
    mine, others = json.loads(key[2]), [json.loads(other[2]) for other in same]
    parts = [key[1]] if len({other[1] for other in same}) > 1 else []
    missing = object()
    parts += [
        f"{name}={mine[name]}" for name in mine if any(other.get(name, missing) != mine[name] for other in others)
    ]
    return ", ".join(parts) or "no parameters"


def _in_order(groups: Sequence[Group]) -> list[Group]:
    """Return groups as a table has them.

    Methods are in the order of the paper, then those that it does not have; the rows of one method by their setting,
    then by their parameters, as numbers.
    """
    printed, methods = list(paper.METHOD_TITLES), list(dict.fromkeys(row.method for row in groups))

    def place(row: Group) -> tuple[Any, ...]:
        rank = printed.index(row.name) if row.name in printed else len(printed)
        params = sorted(next(iter(row.results.values())).params.items())
        values = tuple((parameter, *order_of(value)) for parameter, value in params)
        return rank, methods.index(row.method), SETTINGS.index(row.setting), values

    return sorted(groups, key=place)


def order_of(value: object) -> tuple[int, float, str]:
    """Return what a value of a parameter is sorted by: numbers by size, then everything else as text.

    >>> sorted([10, "all", 0.3, 1], key=order_of)
    [0.3, 1, 10, 'all']
    """
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return 0, float(value), ""
    return 1, 0.0, str(value)


def result_key(result: Result) -> str:
    """Return what distinguishes a result from the others of its table."""
    return json.dumps([result.method, result.setting, dict(result.params), result.seed], sort_keys=True, default=str)


# --- the table ----------------------------------------------------------------------------------------------------


def build_table(
    results: Sequence[Result],
    encoder: str | None = None,
    claimed: str | None = None,
    names: Mapping[str, str] | None = None,
    answers: Mapping[str, Answers] | None = None,
) -> ResultTable:
    """Return the table of one benchmark.

    Parameters
    ----------
    results
        At least one, all of one benchmark.
    encoder, claimed
        Decide about the paper's columns: see :func:`latte.report.published.comparable`.
    names
        The registered names of methods that have another label in the results, by label
        (:meth:`latte.experiment.collection.Run.method_names`).
    answers
        What is known of single images, by :func:`result_key`: with them, differences of the total have an interval
        over splits and images.
    """
    benchmark = results[0].benchmark
    groups = _in_order(group(results, names))
    backbone = paper.comparable(benchmark, encoder, claimed)
    base, reference = _plainest(groups, "clip"), _plainest(groups, "latte") or groups[-1]
    domains = dict.fromkeys(domain for result in results for domain in result.by_domain())
    columns = _columns(groups, base is not None, backbone, paper.in_paper_order(benchmark, domains))
    deployment = [column for column in columns if column.panel == "deployment"]
    differences = tuple(_differences(groups, [MICRO, *deployment], answers or {}))
    over = (IMAGES_NOTE,) if any(pair.image_low is not None for pair in differences) else ()
    rows = [
        Row(
            row.method,
            row.name,
            row.label,
            row.setting,
            tuple(row.results),
            tuple(_cell(row, column, base, backbone) for column in columns),
        )
        for row in groups
    ]
    return ResultTable(
        title=benchmark if encoder is None else f"{benchmark}, {encoder}",
        benchmark=benchmark,
        encoder=encoder,
        backbone=backbone,
        columns=tuple(columns),
        rows=tuple(rows),
        differences=differences,
        reference=reference.label,
        notes=(*_notes(groups), *over, *(_paper_notes(results, backbone) if backbone else ())),
    )


def _plainest(groups: Sequence[Group], name: str) -> Group | None:
    """Return the row of a method: the one that has its name as its label, or else the first."""
    rows = [row for row in groups if row.name == name]
    return next((row for row in rows if row.method == name), rows[0] if rows else None)


def _columns(groups: Sequence[Group], gain: bool, backbone: str | None, domains: Sequence[str]) -> list[Column]:
    """Return the columns; where no row has a number, there is none beside the accuracies."""
    columns = [MICRO, MACRO]
    if gain:
        columns.append(Column("gain", "Gain", "gain", "total minus CLIP's on the same seeds, points"))
    if any(row.values("sent") for row in groups):
        columns.append(Column("sent", "kB/client", "bytes", "sent and received by a client, vectors in fp16, kB"))
    if any(row.values("ece") for row in groups):
        columns.append(Column("ece", "ECE", "calibration", "expected calibration error, 20 bins, %; less is better"))
    if backbone:
        columns.append(Column("paper", "Paper", "paper", f"the paper's total with CLIP {backbone}, %"))
        columns.append(Column("difference", "Δ paper", "difference", "our total minus the paper's, points"))
    columns += WORST + (QUARTERS if any(row.values("first_quarter") for row in groups) else ())
    columns += [Column(f"domain:{name}", name, "accuracy", f"accuracy on {name}, %", "domains") for name in domains]
    return columns


def _cell(row: Group, column: Column, base: Group | None, backbone: str | None) -> Cell | None:
    domain = column.label if column.panel == "domains" else paper.TOTAL
    printed = paper.published_accuracy(row.benchmark, backbone, row.name, domain) if backbone else None
    if column.kind in ("paper", "difference"):
        if printed is None:
            return None
        if column.kind == "paper":
            return Cell(printed.mean, printed.sd)
        return Cell(estimate(row.values("micro").values()).mean - printed.mean)
    if column.kind == "gain":  # per seed, over the seeds that both have
        clip = base.values("micro") if base is not None and base is not row else {}
        values = [own - clip[seed] for seed, own in row.values("micro").items() if seed in clip]
    else:
        values = list(row.values(column.key).values())
    if not values:
        return None
    if column.kind == "bytes":
        return Cell(sum(values) / len(values))
    cell = Cell((mean := estimate(values)).mean, mean.sd)
    return replace(cell, paper=printed.mean, paper_sd=printed.sd) if printed and column.panel == "domains" else cell


def _differences(
    groups: Sequence[Group], columns: Sequence[Column], answers: Mapping[str, Answers]
) -> Iterator[Paired]:
    """Yield the differences of every pair of rows, column by column."""
    by_seed = {
        row.label: {s: answers[key] for s, result in row.results.items() if (key := result_key(result)) in answers}
        for row in groups
    }
    ends: dict[tuple[str, str], Paired] = {}
    for column in columns:
        for first, second in itertools.permutations(groups, 2):
            names = (first.label, second.label)
            pair = paired(names, first.values(column.key), second.values(column.key))
            if pair is None:
                continue
            if column is MICRO and names[::-1] in ends:  # the same draws: one is the mirror of the other
                low, high = ends[names[::-1]].image_low, ends[names[::-1]].image_high
                pair = pair if low is None or high is None else replace(pair, image_low=-high, image_high=-low)
            elif column is MICRO:
                pair = ends[names] = with_images(pair, by_seed[first.label], by_seed[second.label])
            yield replace(pair, metric=column.key)


def _notes(groups: Sequence[Group]) -> Iterator[str]:
    """Yield what a reader has to know about the rows."""
    results = [result for row in groups for result in row.results.values()]
    seeds = list(dict.fromkeys(tuple(row.results) for row in groups))
    if all(len(row_seeds) == 1 for row_seeds in seeds):
        yield "One seed: no standard deviation and no interval over splits can be given."
    elif len(seeds) > 1:
        yield "The rows do not all have the same seeds; differences use the seeds that two rows share."
    else:
        yield f"Every row has the same {len(seeds[0])} seeds: {', '.join(map(str, seeds[0]))}."
    counts = {count for result in results for count in Counter(client.domain for client in result.clients).values()}
    low, high = min(counts), max(counts)
    yield f"Clients per domain: {low if low == high else f'{low} to {high}'}."  # gains depend on it
    for setting in dict.fromkeys(row.setting for row in groups):
        yield f"{setting}: {SETTING_TITLES.get(setting, 'of unknown origin')}."
    titles = {row.method: paper.display(row.name) for row in groups if paper.family(row.method) != row.name}
    if titles:
        yield f"Labels: {', '.join(f'{label} is {title}' for label, title in titles.items())}."
    for label, words in dict.fromkeys((row.label, one.approximation) for row in groups for one in row.results.values()):
        if words:
            yield f"{label} is approximate ({words}); approximation=off calculates it exactly."
    lacking = [row.label for row in groups if not row.values("first_quarter")]
    if lacking:
        rows = "" if len(lacking) == len(groups) else f" of {', '.join(lacking)}"
        older = "the records are older than these numbers"
        yield f"First and last quarter{rows}: n/a; {older}."


def _paper_notes(results: Sequence[Result], backbone: str) -> Iterator[str]:
    """Say what the paper's column is, and where a run is not of the paper's size."""
    name = paper.canonical(results[0].benchmark) or ""
    yield (
        f"Paper: the published total on {paper.BENCHMARKS[name]} with CLIP {backbone}; beside the accuracy on a "
        "domain, in brackets or below it: the published one. Published standard deviations are over five orders of "
        "the stream (the paper's Tables 7 and 8; none for methods that the order does not touch). Seeds here change "
        "the partition too."
    )
    for size in sorted({result.samples for result in results} - {paper.SAMPLES[name]}):
        yield f"The paper has {paper.SAMPLES[name]:,} samples; these results have {size:,}."
