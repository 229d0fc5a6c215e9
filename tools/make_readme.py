"""Fill in what README.md, docs/ristretto.md and benchmarks/results/calibration.md show; draw the README's picture.

    python tools/make_readme.py            # all; runs the demo
    python tools/make_readme.py --tables   # only the tables: the README's from benchmarks/results/leaderboard.json,
                                           # the others from benchmarks/results/same-syncs/

What is between a marker such as ``<!-- results -->`` and the next empty line, or the end of the code block, is
replaced.
"""

import argparse
import json
import re
from pathlib import Path
from typing import Any

from make_readme_picture import picture

from latte.analysis.stats import t_quantile
from latte.demo.pacs import demo_lines, demo_plan, demo_rows
from latte.experiment.runner import in_order, run_trials

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results" / "same-syncs"
README = ROOT / "README.md"
RISTRETTO, CALIBRATION = ROOT / "docs" / "ristretto.md", RESULTS.parent / "calibration.md"
PICTURE = ROOT / "docs" / "figures" / "readme.svg"
SMALL, CLIP = "a small model", "CLIP ViT-B/32"
SPACE = "\N{NO-BREAK SPACE}"  # a number and its interval stay on one line
SETS = {  # every embedding file that we have, by the encoder; several domains first
    "pacs": ("PACS", SMALL),
    "cifar10c": ("CIFAR-10-C", SMALL),
    "cifar10c-mini": ("CIFAR-10-C, 2,280 images", SMALL),
    "cifar10_clean_test4k": ("CIFAR-10", SMALL),
    "cifar100c_test": ("CIFAR-100-C", SMALL),
    "clip_dtd": ("DTD", CLIP),
    "clip_pets": ("Pets", CLIP),
    "clip_caltech": ("Caltech101", CLIP),
    "clip_sun397": ("SUN397", CLIP),
    "clip_cars": ("Cars", CLIP),
}
BASELINES = ("TDA (local)", "TDA (global)", "DMN-ZS (local)", "DMN-ZS (global)")
ADAPTIVE = (*BASELINES, "Latte", "Ristretto")
SEEDS = 10


class Measured:
    """The table of one benchmark."""

    def __init__(self, name: str) -> None:
        (table,) = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        self.benchmark = table["benchmark"]
        self.cells = {row["label"]: row["cells"] for row in table["rows"]}
        pairs = [pair for pair in table["differences"] if pair["metric"] == "micro"]
        self.pairs = {(pair["first"], pair["second"]): pair for pair in pairs}

    def accuracy(self, label: str) -> float:
        return float(self.cells[label]["micro"]["mean"])

    def kilobytes(self, label: str) -> float:
        return float(self.cells[label]["sent"]["mean"])

    def calibration_error(self, label: str) -> tuple[float, float]:
        """Return the mean over seeds in %, and half of its 95 % interval."""
        cell = self.cells[label]["ece"]
        return float(cell["mean"]), t_quantile(0.975, SEEDS - 1) * float(cell["sd"]) / SEEDS**0.5

    def gain(self, label: str) -> dict[str, Any]:
        return self.pairs[label, "CLIP"]


def signed(value: float, digits: int = 1) -> str:
    written = f"{value:+.{digits}f}"
    return f"{0:.{digits}f}" if float(written) == 0 else written.replace("-", "−")


def shown(pair: dict[str, Any], digits: int = 1) -> str:
    """Return a difference with its wider interval: bold where that is above zero, marked where it is below."""
    ends = [pair["low"], pair["high"]] if pair["image_low"] is None else [pair["image_low"], pair["image_high"]]
    mean, low, high = (signed(value, digits) for value in (pair["mean"], *ends))
    interval = f"{SPACE}[{low},{SPACE}{high}]" if ends[1] - ends[0] > 1e-9 else ""
    if ends[0] > 0:
        return f"**{mean}**{interval}"
    return f"{mean}{interval}{SPACE}▼" if ends[1] < 0 else f"{mean}{interval}"


def results_table() -> str:
    """Return the table of README.md, from the leaderboard."""
    board = json.loads((RESULTS.parent / "leaderboard.json").read_text(encoding="utf-8"))[0]
    baselines = [entry for entry in board["entries"] if entry["name"] not in ("clip", "latte", "ristretto")]
    lines = [f"| | zero-shot, % | best of {len(baselines)} baselines | Latte | Ristretto |", "|:--|--:|:--|:--|:--|"]
    for encoder in (SMALL, CLIP):
        lines.append(f"| **{encoder}** | | | | |")
        places = {one["title"]: place for place, one in enumerate(board["sets"])}
        lines += [
            results_row(board, places[name], title, baselines)
            for name, (title, same) in SETS.items()
            if same == encoder
        ]
    return "\n".join(lines)


def results_row(board: dict[str, Any], place: int, title: str, baselines: list[dict[str, Any]]) -> str:
    known = [entry for entry in baselines if entry["scores"][place] is not None]
    best = max(known, key=lambda entry: entry["scores"][place]["gain"])
    own = {entry["name"]: entry for entry in board["entries"]}
    gains = [shown_score(entry["scores"][place]) for entry in (best, own["latte"], own["ristretto"])]
    accuracy = board["sets"][place]["zero_shot"]
    return f"| {title} | {accuracy:.1f} | {gains[0]} {best['label']} | {' | '.join(gains[1:])} |"


def shown_score(score: dict[str, Any]) -> str:
    """Return a gain of the leaderboard as :func:`shown` does."""
    return shown({"mean": score["gain"], "low": score["low"], "high": score["high"], "image_low": None})


def ristretto_table() -> str:
    """Return the table of docs/ristretto.md: largest gain of Ristretto first."""
    measured = {name: Measured(name) for name in SETS}
    order = sorted(measured, key=lambda name: -measured[name].gain("Ristretto")["mean"])
    lines = [
        "| | zero-shot | Ristretto | Latte | Ristretto − Latte | kB per client, Ristretto / Latte |",
        "|---|---|---|---|---|---|",
    ]
    for name in order:
        one, (title, encoder) = measured[name], SETS[name]
        gains = [shown(pair, 2) for pair in (one.gain("Ristretto"), one.gain("Latte"), one.pairs["Ristretto", "Latte"])]
        sent = f"{one.kilobytes('Ristretto'):,.0f} / {one.kilobytes('Latte'):,.0f}"
        title = f"CLIP {title}" if encoder == CLIP else title
        lines.append(f"| {title} | {one.accuracy('CLIP'):.1f} | {' | '.join(gains)} | {sent} |")
    return "\n".join(lines)


def calibration_table() -> str:
    """Return the table of benchmarks/results/calibration.md."""
    lines = [f"| | zero-shot | {' | '.join(ADAPTIVE)} |", "|:--" + "|--:" * (1 + len(ADAPTIVE)) + "|"]
    for name, (title, encoder) in SETS.items():
        measured = Measured(name)
        zero_shot, _ = measured.calibration_error("CLIP")
        cells = [compared(*measured.calibration_error(label), zero_shot) for label in ADAPTIVE]
        title = f"CLIP {title}" if encoder == CLIP else title
        lines.append(f"| {title} | {zero_shot:.1f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def compared(mean: float, half: float, zero_shot: float) -> str:
    """Return an error: bold where its interval is below zero-shot's, marked where it is above."""
    written = f"{mean:.1f}{SPACE}±{half:.1f}"
    if mean + half < zero_shot:
        return f"**{written}**"
    return f"{written}{SPACE}▲" if mean - half > zero_shot else written


def filled(page: str, marker: str, content: str) -> str:
    """Return a page with the block after a marker replaced; it ends at an empty line, a code block at its fence."""
    pattern = rf"(<!-- {marker} -->\n)(```text\n.*?```|.*?)(?=\n\n)"
    changed, count = re.subn(pattern, lambda match: match[1] + content, page, flags=re.DOTALL)
    assert count == 1, f"{count} markers {marker!r}"
    return changed


def main(tables_only: bool) -> None:
    readme = filled(README.read_text(encoding="utf-8"), "results", results_table())
    page = filled(RISTRETTO.read_text(encoding="utf-8"), "same syncs", ristretto_table())
    RISTRETTO.write_text(page, encoding="utf-8")
    page = filled(CALIBRATION.read_text(encoding="utf-8"), "calibration", calibration_table())
    CALIBRATION.write_text(page, encoding="utf-8")
    if not tables_only:
        plan = demo_plan()
        trials = in_order(run_trials(plan), plan)
        rows = demo_rows(trials)
        PICTURE.write_text(picture(rows, next(t for t in trials if t.result.method == "latte")), encoding="utf-8")
        readme = filled(readme, "demo", "```text\n" + "\n".join(demo_lines(rows)) + "\n```")
    README.write_text(readme, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", action="store_true")
    main(parser.parse_args().tables)
