"""The leaderboard: every method on every set of some run folders, with ranks, intervals, bytes, time and origins."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..analysis.stats import LEVEL, Answers, estimate, paired, with_images
from ..core.types import Reals
from ..core.validate import choice
from ..errors import refuse
from ..experiment.collection import Collection
from ..methods import METHODS, describe
from ..methods.base import Origin
from ..text import markdown
from .contents import Comparable, comparable_sets
from .formats.markup import markdown_table
from .formats.text import in_columns, signed
from .tables import Group, group, result_key

FORMS = ("local", "global", "collaborative")
FORMATS = ("text", "markdown", "json", "html")
DRAWS = 2_000  # of images and splits, for ranks: an end of an interval is one of the ranks that were drawn
PART = 100  # draws at once: a draw weighs every image
NOTES = (
    "Gain: points over zero-shot on the same splits, with a 95 % interval over splits and images. Bold: above zero; "
    "▼: below.",
    "Rank: 1 is best; among all rows of a set, on the splits that all of them have, with a 95 % interval from drawing "
    "splits and images again. Means of ranks and gains are over all sets; a row that lacks a set has none.",
    "kB: sent and received by a client, vectors in half precision; 0 where nothing is sent. ms: wall time per image of "
    "the run, on the machine and with the engine of its manifest. Both are medians over the sets.",
)


@dataclass(frozen=True, slots=True)
class Score:
    """How one method did on one set.

    Parameters
    ----------
    accuracy
        In per cent, the mean over seeds.
    seeds
        How many.
    gain, low, high
        Points over zero-shot, and the wider interval; None for zero-shot itself, or where nothing measures noise.
    rank, rank_low, rank_high
        Among all rows of the set; None for a row that saw the labels it is scored on, or without stored answers.
    kilobytes, milliseconds
        Of a client, and of an image; None where they are not known.
    """

    accuracy: float
    seeds: int
    gain: float | None = None
    low: float | None = None
    high: float | None = None
    rank: float | None = None
    rank_low: float | None = None
    rank_high: float | None = None
    kilobytes: float | None = None
    milliseconds: float | None = None

    @property
    def helps(self) -> bool:
        """Whether its whole interval is above zero."""
        return self.low is not None and self.low > 0

    @property
    def hurts(self) -> bool:
        """Whether its whole interval is below zero."""
        return self.high is not None and self.high < 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One method with one set of parameters; ``scores`` follow the sets, None where it was not run.

    ``form`` is "local", "global" or "collaborative"; ``mean_gain`` and ``mean_rank``, each with its interval, are there
    for entries that have every set.
    """

    label: str
    name: str
    form: str
    setting: str
    origin: Origin | None
    scores: tuple[Score | None, ...]
    mean_gain: tuple[float, float, float] | None = None
    mean_rank: tuple[float, float, float] | None = None

    @property
    def helped(self) -> int:
        """On how many sets it gains."""
        return sum(score is not None and score.helps for score in self.scores)

    @property
    def hurt(self) -> int:
        """On how many sets it loses."""
        return sum(score is not None and score.hurts for score in self.scores)

    def median(self, key: str) -> float | None:
        """Return the median of "kilobytes" or "milliseconds" over the sets where it is known."""
        known = [value for score in self.scores if score is not None and (value := getattr(score, key)) is not None]
        return statistics.median(known) if known else None


@dataclass(frozen=True, slots=True)
class BoardSet:
    """A set: a benchmark in one kind of federation; ``prompts`` are the templates, where the data file names them."""

    title: str
    encoder: str
    images: int
    clients: int
    domains: int
    seeds: tuple[int, ...]
    zero_shot: float
    prompts: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Board:
    """The sets whose images have one view, or those with many, and the methods on them, the best first."""

    title: str
    sets: tuple[BoardSet, ...]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Measured:
    """A set, what was measured on it by row, and the ranks (draws, rows that have one) behind the intervals."""

    about: BoardSet
    groups: Mapping[str, Group]
    scores: Mapping[str, Score]
    draws: Reals | None


def build_leaderboard(collection: Collection, forms: Sequence[str] = ()) -> list[Board]:
    """Return the boards of everything in ``collection``, sets of one view and of many apart.

    ``forms`` are those of :data:`FORMS` that take part; none: all. Zero-shot always does.
    """
    for form in forms:
        choice("form", form, FORMS)
    measured: dict[bool, list[_Measured]] = {}
    for found in comparable_sets(collection):
        groups = [one for one in group(found.results, found.names) if not forms or _form(one.name) in ("", *forms)]
        views = any(one.name in METHODS and describe(one.name).uses_views for one in groups)
        measured.setdefault(views, []).append(_measure(found, groups))
    return [
        _board("Many views of an image" if views else "One view of an image", measured[views])
        for views in sorted(measured)
    ]


def _form(name: str) -> str:
    """Return the form of a method; "" for zero-shot, and for a method that is not known here."""
    return "" if name == "clip" or name not in METHODS else describe(name).form


def _measure(found: Comparable, groups: Sequence[Group]) -> _Measured:
    plain = next((one for one in groups if one.name == "clip"), None)
    if plain is None:
        raise refuse(f"set {found.title}", "no zero-shot", "runs with clip among their methods, which gains are over")
    answers = {
        one.label: {
            seed: found.answers[key]
            for seed, result in one.results.items()
            if (key := result_key(result)) in found.answers
        }
        for one in groups
    }
    ranked = [one for one in groups if one.setting != "oracle"]
    seeds = sorted(set.intersection(*(set(one.results) for one in ranked)))
    if not seeds:
        raise refuse(f"set {found.title}", "rows without a seed in common", "runs of the same seeds")
    means = np.array([[one.results[seed].micro for seed in seeds] for one in ranked]).mean(axis=1)
    draws = draw_ranks([[answers[one.label].get(seed) for seed in seeds] for one in ranked])
    ranks = dict(zip((one.label for one in ranked), _ranks(means[None])[0], strict=True))
    ends: Mapping[str, Reals] = {}
    if draws is not None:
        quantiles = np.quantile(draws, [0.5 - LEVEL / 2, 0.5 + LEVEL / 2], axis=0, method="nearest")
        ends = dict(zip(ranks, quantiles.T, strict=True))
    scores = {}
    for one in groups:
        gain = None if one is plain else paired((one.label, plain.label), one.values("micro"), plain.values("micro"))
        if gain is not None:
            gain = with_images(gain, answers[one.label], answers[plain.label])
        interval = (None, None) if gain is None or gain.interval is None else gain.interval
        times = [found.seconds[key] for result in one.results.values() if (key := result_key(result)) in found.seconds]
        sent = list(one.values("sent").values())
        samples = next(iter(one.results.values())).samples
        rank_low, rank_high = map(float, ends[one.label]) if one.label in ends else (None, None)
        scores[one.label] = Score(
            accuracy=estimate(one.values("micro").values()).mean,
            seeds=len(one.results),
            gain=None if gain is None else gain.mean,
            low=interval[0],
            high=interval[1],
            rank=float(ranks[one.label]) if one.label in ranks else None,
            rank_low=rank_low,
            rank_high=rank_high,
            kilobytes=statistics.fmean(sent) if sent else None if _form(one.name) == "collaborative" else 0.0,
            milliseconds=1000 * statistics.fmean(times) / samples if times else None,
        )
    first = next(iter(plain.results.values()))
    zero_shot = estimate(plain.values("micro").values()).mean
    domains = len({client.domain for client in first.clients})
    about = (found.encoder or "not recorded", first.samples, len(first.clients), domains, tuple(seeds), zero_shot)
    names = {one.label: one for one in groups}
    return _Measured(BoardSet(found.title, *about, found.prompts()), names, scores, draws)


def draw_ranks(answers: Sequence[Sequence[Answers | None]], draws: int = DRAWS) -> Reals | None:
    """Return the ranks (draws, M) of M methods when images and splits are drawn again.

    ``answers`` are those of each method on the same splits. The images of a draw are the same for all methods and
    splits; of S splits S − 1 are drawn, because the spread of S draws is too small by (S − 1) / S. None without the
    same images everywhere.
    """
    every = [one for method in answers for one in method if one is not None]
    if not every or len(every) != sum(map(len, answers)):
        return None
    images, seen = every[0].images, every[0].seen.astype(np.float32)
    if not all(np.array_equal(one.images, images) and np.array_equal(one.seen, seen) for one in every):
        return None
    methods, splits = len(answers), len(answers[0])
    right = np.stack([one.right for one in every], axis=1).astype(np.float32)  # (n, M S)
    rng, found = np.random.default_rng(0), []
    for start in range(0, draws, PART):
        count = min(PART, draws - start)
        weights = rng.poisson(1.0, (count, len(images))).astype(np.float32)  # Poisson bootstrap
        accuracy = (weights @ right / (weights @ seen)[:, None]).reshape(count, methods, splits)
        drawn = rng.multinomial(max(1, splits - 1), np.full(splits, 1 / splits), size=count)
        found.append(_ranks(np.einsum("rms,rs->rm", accuracy, drawn)))
    return np.concatenate(found)


def _ranks(values: Reals) -> Reals:
    """Return the ranks of values (..., M), 1 for the highest; equal ones share the mean of their ranks."""
    higher = (values[..., None, :] > values[..., :, None] + 1e-9).sum(axis=-1)
    equal = (np.abs(values[..., None, :] - values[..., :, None]) <= 1e-9).sum(axis=-1)
    ranks: Reals = 1.0 + higher + (equal - 1) / 2
    return ranks


def _board(title: str, measured: Sequence[_Measured]) -> Board:
    """Return the board of some sets: its rows by mean rank, then those that lack a set."""
    rows = {label: group for one in measured for label, group in one.groups.items()}
    entries = []
    for label, one in rows.items():
        scores = tuple(found.scores.get(label) for found in measured)
        info = describe(one.name) if one.name in METHODS else None
        entries.append(
            Entry(
                label=label,
                name=one.name,
                form=_form(one.name),
                setting=one.setting,
                origin=None if info is None else info.origin,
                scores=scores,
                mean_gain=_mean_gain(scores),
                mean_rank=_mean_rank(label, scores, measured),
            )
        )
    entries.sort(key=lambda entry: (entry.mean_rank or (math.inf,), -_average(entry)))
    return Board(title, tuple(one.about for one in measured), tuple(entries), tuple(_notes(measured)))


def _average(entry: Entry) -> float:
    gains = [score.gain or 0.0 for score in entry.scores if score is not None]
    return statistics.fmean(gains)


def _mean_gain(scores: Sequence[Score | None]) -> tuple[float, float, float] | None:
    """Return the mean over sets with its interval: sets have errors of their own, which add as squares."""
    known = [score for score in scores if score is not None and score.gain is not None]
    if len(known) < len(scores):
        return None
    gains = [(score.gain, score.low, score.high) for score in known]
    mean = statistics.fmean(gain for gain, _, _ in gains if gain is not None)
    down = math.hypot(*(gain - low for gain, low, _ in gains if gain is not None and low is not None)) / len(known)
    up = math.hypot(*(high - gain for gain, _, high in gains if gain is not None and high is not None)) / len(known)
    return mean, mean - down, mean + up


def _mean_rank(
    label: str,
    scores: Sequence[Score | None],
    measured: Sequence[_Measured],
) -> tuple[float, float, float] | None:
    ranks = [score.rank for score in scores if score is not None and score.rank is not None]
    if len(ranks) < len(measured):
        return None
    mean = statistics.fmean(ranks)
    columns = []
    for one in measured:
        ranked = [name for name, score in one.scores.items() if score.rank is not None]
        columns.append(None if one.draws is None else one.draws[:, ranked.index(label)])
    known = [column for column in columns if column is not None]
    if len(known) < len(columns):
        return mean, math.nan, math.nan
    low, high = np.quantile(np.mean(known, axis=0), [0.5 - LEVEL / 2, 0.5 + LEVEL / 2])
    return mean, float(low), float(high)


def _notes(measured: Iterable[_Measured]) -> Iterator[str]:
    yield from NOTES
    for one in measured:
        if one.draws is None:
            yield f"{one.about.title}: no intervals of ranks; not every row has its answers (latte run --predictions)."


# --- as text ------------------------------------------------------------------------------------------------------


def render_leaderboard(boards: Sequence[Board], kind: str, width: int) -> str:
    """Return boards as "text" of so many characters, "markdown" or "json"."""
    if kind == "json":
        return json.dumps([_plain(board) for board in boards], indent=1) + "\n"
    return "\n\n".join(_markdown(board) if kind == "markdown" else _text(board, width) for board in boards) + "\n"


def _plain(board: Board) -> dict[str, Any]:
    plain = asdict(board)
    for entry in plain["entries"]:
        if entry["mean_rank"] is not None:
            entry["mean_rank"] = [None if math.isnan(value) else value for value in entry["mean_rank"]]
    return plain


SUMMARY = ("Method", "Form", "Mean rank", "Mean gain", "Gains / loses on", "kB", "ms")


def summary_cells(entry: Entry) -> list[str]:
    """Return the texts of an entry under :data:`SUMMARY`."""
    known = sum(score is not None and score.gain is not None for score in entry.scores)
    return [
        entry.label,
        entry.form or "–",
        _interval(entry.mean_rank, lambda value: f"{value:.1f}"),
        _interval(entry.mean_gain, lambda value: signed(value, 1)),
        f"{entry.helped} / {entry.hurt} of {known}" if known else "–",
        _amount(entry.median("kilobytes")),
        _amount(entry.median("milliseconds")),
    ]


def _interval(values: tuple[float, float, float] | None, written: Callable[[float], str]) -> str:
    if values is None:
        return "–"
    mean, low, high = values
    return written(mean) + ("" if math.isnan(low) or high - low < 1e-9 else f" [{written(low)}, {written(high)}]")


def _amount(value: float | None) -> str:
    """Return an amount with three digits that count."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if value >= 100 or value == 0 else f"{value:.3g}"


def score_text(score: Score | None) -> str:
    """Return a gain and its interval; for zero-shot its accuracy."""
    if score is None:
        return "–"
    if score.gain is None:
        return f"{score.accuracy:.1f} %"
    ends = "" if score.low is None or score.high is None else f" [{signed(score.low, 1)}, {signed(score.high, 1)}]"
    return f"{signed(score.gain, 1)}{ends}"


def rank_text(score: Score | None) -> str:
    """Return a rank and its interval."""
    if score is None or score.rank is None:
        return "–"
    ends = "" if score.rank_low is None else f" [{score.rank_low:g}, {score.rank_high:g}]"
    return f"{score.rank:g}{ends}"


ORIGIN = ("Method", "Paper", "Code", "Licence", "Constants", "Per dataset", "Chosen on test labels")


def origin_cells(entry: Entry) -> list[str]:
    """Return the texts of an entry under :data:`ORIGIN`."""
    origin = entry.origin
    if origin is None:
        return [entry.label, *["–"] * (len(ORIGIN) - 1)]
    paper = ", ".join(filter(None, (origin.paper, origin.venue)))
    return [
        entry.label, paper, origin.code or "–", origin.licence or "–",
        origin.constants, origin.per_dataset, origin.test_labels,
    ]  # fmt: skip


SETS = ("Set", "Encoder", "Prompts", "Images", "Clients", "Domains", "Splits", "Zero-shot, %")


def set_cells(one: BoardSet) -> list[str]:
    """Return the texts of a set under :data:`SETS`."""
    prompts = "not recorded" if one.prompts is None else f"{len(one.prompts)}: {one.prompts[0]}"
    if one.prompts is not None and len(one.prompts) > 1:
        prompts += " …"
    counts = (f"{one.images:,}", str(one.clients), str(one.domains), ", ".join(map(str, one.seeds)))
    return [one.title, one.encoder, prompts, *counts, f"{one.zero_shot:.1f}"]


def _markdown(board: Board) -> str:
    def marked(score: Score | None) -> str:
        text = score_text(score)
        return f"**{text}**" if score is not None and score.helps else text + (" ▼" if score and score.hurts else "")

    def rows(table: Iterable[Sequence[str]]) -> list[list[str]]:
        return [[markdown(cell) for cell in row] for row in table]

    titles = [markdown(one.title) for one in board.sets]
    gains = [[markdown(entry.label), *map(marked, entry.scores)] for entry in board.entries]
    ranks = rows([entry.label, *map(rank_text, entry.scores)] for entry in board.entries)
    numbers = [":--", *["--:"] * len(titles)]
    return "\n\n".join(
        [
            f"## {board.title}",
            markdown_table(SUMMARY, [":--", ":--", *["--:"] * 5], rows(map(summary_cells, board.entries))),
            "### Gains",
            markdown_table(["Method", *titles], numbers, gains),
            "### Ranks",
            markdown_table(["Method", *titles], numbers, ranks),
            "### Where the methods come from",
            markdown_table(ORIGIN, [":--"] * len(ORIGIN), rows(map(origin_cells, board.entries))),
            "### Sets",
            markdown_table(SETS, [":--"] * 3 + ["--:"] * 5, rows(map(set_cells, board.sets))),
            "\n".join(f"- {markdown(note)}" for note in board.notes),
        ]
    )


def _text(board: Board, width: int) -> str:
    summary = in_columns(SUMMARY, [summary_cells(entry) for entry in board.entries], width)
    titles = [one.title for one in board.sets]
    gains = [[entry.label, *map(score_text, entry.scores)] for entry in board.entries]
    parts = [board.title, summary, "Gain over zero-shot, points", in_columns(["Method", *titles], gains, width)]
    return "\n\n".join([*parts, *board.notes])
