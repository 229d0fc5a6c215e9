"""The demo on one machine: what is run, the few rows that are printed, and the page that is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..analysis.stats import Paired, estimate
from ..core.types import Reals
from ..experiment.config import MethodConfig, RunConfig
from ..experiment.plan import Plan, make_plan
from ..experiment.runner import TrialRun
from ..report.contents import answers_of
from ..report.page import sections as page
from ..report.page.sections import Section, Series
from ..report.published import display
from ..report.tables import ResultTable, build_table, group, result_key
from ..simulation.simulator import Schedule
from ..simulation.wrapped import share_inside

BENCHMARK = "pacs-demo"
METHODS = ("clip", "tda", "tda-global", "dmn", "dmn-global", "latte", "ristretto")  # all that need one view only
SEEDS = tuple(range(10))
SYNC = "doubling"  # Ristretto's own; Latte has it too, so that both send equally often
ZERO_SHOT = "zero-shot"  # of the small model: the method is called "clip", and this model is not CLIP
OWN = ("clip", "latte", "ristretto")  # the rows that are no baseline
SETTING = "PACS, all 9,991 images: 40 clients, each sees one of 4 domains, none has labels."
ENCODER = "Encoder: a small vision-language model (EfficientNet-Lite0 and MiniLM), not CLIP."
INTERVAL = "Mean over 10 splits to the clients; [95 % interval over splits and images]."
ABOUT = (
    "All of PACS (Li, Yang, Song and Hospedales, ICCV 2017; for research use), embedded by a small vision-language "
    "model: EfficientNet-Lite0 and all-MiniLM-L6-v2 with aligned heads that never saw PACS. It is not CLIP, and none "
    "of these numbers can be compared with published ones. No image, domain or class was left out.",
    "Each of the forty clients sees images of one domain. A seed decides which, and in which order; the images are the "
    "same for every seed. Intervals of gains are over the splits and, by a bootstrap, over the images; those of the "
    "worst client, the worst domain and the quarters are over the splits alone.",
    "Every method has one setting for all data. PACS was among the sets on which the defaults of Latte and Ristretto "
    "were chosen; docs/ristretto.md has sets that were not.",
    "Latte and Ristretto sync after 1, 2, 4, 8, 16 images of a client, then after every 16; the global forms of TDA "
    "and DMN-ZS sync after every image. kB per client: sent and received in the whole run, vectors in "
    "half precision.",
    "Ristretto is a method of this project, not of the paper. Both gain on PACS; docs/results.md has the data on which "
    "they lose.",
)


@dataclass(frozen=True, slots=True)
class DemoRow:
    """A method over all seeds: accuracy in per cent, gain over zero-shot in points, kB that a client sent."""

    name: str
    label: str
    accuracy: float
    gain: Paired | None
    kilobytes: float | None
    domains: Mapping[str, float]

    @property
    def baseline(self) -> bool:
        """Whether it is a baseline of the paper."""
        return self.name not in OWN

    def format_gain(self) -> str:
        """Return the gain and its interval; nothing for zero-shot itself."""
        if self.gain is None or self.gain.interval is None:
            return ""
        return f"{self.gain.mean:+.1f} [{self.gain.interval[0]:+.1f}, {self.gain.interval[1]:+.1f}]"

    def format_bytes(self) -> str:
        """Return what a client sent and received."""
        return f"{self.kilobytes or 0:,.0f}"

    def as_json(self) -> dict[str, Any]:
        """Return the row for ``--json``."""
        gain = self.gain
        ends = (None, None) if gain is None else (gain.interval, (gain.low, gain.high))
        return {
            "method": self.name,
            "label": self.label,
            "accuracy": self.accuracy,
            "gain": None if gain is None else gain.mean,
            "interval": ends[0],
            "interval_over_splits": ends[1],
            "kB_per_client": self.kilobytes or 0.0,
            "domains": dict(self.domains),
        }


def demo_plan() -> Plan:
    """Return what is run: every method with its defaults, on every seed."""
    methods = tuple(MethodConfig(name) for name in METHODS)
    return make_plan(RunConfig(BENCHMARK, methods, SEEDS, schedule=Schedule(sync=SYNC)))


def demo_table(trials: Sequence[TrialRun], encoder: str | None = None) -> ResultTable:
    """Return the table of all trials, with the intervals over images where they are known."""
    answers = {result_key(t.result): answers_of(t.predictions) for t in trials if t.predictions is not None}
    return build_table([trial.result for trial in trials], encoder, answers=answers)


def demo_rows(trials: Sequence[TrialRun]) -> list[DemoRow]:
    """Return a row per method, in the order of ``trials``."""
    groups = group([trial.result for trial in trials])
    differences = demo_table(trials).differences
    zero_shot = next(same for same in groups if same.name == "clip").label
    gains = {p.first: p for p in differences if p.second == zero_shot and p.metric == "micro"}
    rows = []
    for same in groups:
        micro, sent = same.values("micro"), same.values("sent").values()
        domains = [result.by_domain() for result in same.results.values()]
        means = {name: estimate([scores[name] for scores in domains]).mean for name in domains[0]}
        kilobytes, gain = estimate(sent).mean if sent else None, gains.get(same.label)
        rows.append(DemoRow(same.name, _label(same.name), estimate(micro.values()).mean, gain, kilobytes, means))
    return rows


def best_baseline(rows: Sequence[DemoRow]) -> DemoRow:
    """Return the baseline with the highest accuracy: chosen with the labels, so it can only look better than it is."""
    return max((row for row in rows if row.baseline), key=lambda row: row.accuracy)


def demo_lines(rows: Sequence[DemoRow]) -> list[str]:
    """Return what is printed: zero-shot, the best baseline, Latte and Ristretto."""
    best, baselines = best_baseline(rows), sum(row.baseline for row in rows)
    lines = [f"{'':<26}{'accuracy, %':>13}{'gain over zero-shot':>24}{'kB per client':>16}"]
    for row in rows:
        if not row.baseline or row is best:
            name = f"{row.label}, best of {baselines}" if row is best else row.label
            lines.append(f"{name:<26}{row.accuracy:>13.1f}{row.format_gain():>24}{row.format_bytes():>16}")
    return [SETTING, ENCODER, "", *lines, "", INTERVAL]


def demo_page(trials: Sequence[TrialRun], encoder: str) -> str:
    """Return the page: gains with intervals, the table, the gain over time, who helps whom, and what was run."""
    table = _with_zero_shot(demo_table(trials, encoder))
    gains = [pair for pair in table.differences if pair.second == ZERO_SHOT and pair.metric == "micro"]
    sections = [
        page.differences_section("Gain over zero-shot", gains, "A seed is one random split of the images."),
        page.table_section(table, "Accuracy"),
        _over_time(trials),
        _collaboration(trials, "latte", "Whose prototypes Latte's clients get"),
        _collaboration(trials, "ristretto", "Whose evidence Ristretto's heads use"),
        page.text_section("What was run", ABOUT),
    ]
    return page.render_page("Latte demo", sections, subtitle=f"{SETTING} {ENCODER}")


def _label(name: str) -> str:
    return ZERO_SHOT if name == "clip" else display(name)


def _with_zero_shot(table: ResultTable) -> ResultTable:
    """Return the table with zero-shot called what it is here."""
    rows = tuple(replace(row, label=_label(row.name)) for row in table.rows)
    names = {old.label: new.label for old, new in zip(table.rows, rows, strict=True)}
    pairs = tuple(replace(pair, first=names[pair.first], second=names[pair.second]) for pair in table.differences)
    columns = tuple(replace(column, help=column.help.replace("CLIP", ZERO_SHOT)) for column in table.columns)
    return replace(table, rows=rows, differences=pairs, columns=columns)


def _over_time(trials: Sequence[TrialRun]) -> Section:
    """Draw the gain over the images so far; accuracy itself would fall where the clients of the easy domains end."""
    shortest = min(len(trial.over_time) for trial in trials)  # up to where all streams go
    names = dict.fromkeys(trial.result.method for trial in trials)
    same = {name: [t.over_time[:shortest] for t in trials if t.result.method == name] for name in names}
    curves: dict[str, Reals] = {name: np.mean(each, axis=0) for name, each in same.items()}
    base = curves.pop("clip")
    positions = tuple(range(1, len(base) + 1))
    series = [Series(name, positions, tuple(map(float, curve - base))) for name, curve in curves.items()]
    caption = (
        "Gain over zero-shot on all images so far, all clients together, mean over the seeds. A client sees 167 "
        "(photo) to 393 (sketch) images: from 167 on, one domain after the other ends."
    )
    return page.lines_section("Gain over time", series, "images seen by each client", "gain so far, points", caption)


def _collaboration(trials: Sequence[TrialRun], method: str, title: str) -> Section:
    trial = next(trial for trial in trials if trial.result.method == method)
    assert trial.downloads is not None
    clients = trial.result.clients
    domains = [client.domain for client in clients]
    groups = np.unique(domains, return_inverse=True)[1]
    others = trial.downloads * (1 - np.eye(len(clients)))
    chance = share_inside(1 - np.eye(len(clients)), groups)
    shown = np.where(np.eye(len(clients), dtype=bool), np.nan, others)
    caption = (
        f"Row: who receives; column: from whom (seed {trial.result.seed}). {share_inside(others, groups):.0f} % stays "
        f"inside the client's own domain; without a choice it would be {chance:.0f} %."
    )
    return page.heatmap_section(title, shown, [client.name for client in clients], domains, caption)
