"""Write docs/results.md from the tables of benchmarks/results/, the figures and tools/results_text.md.

python tools/make_results_page.py
"""

import json
from pathlib import Path

ROOT = Path(__file__).parent.parent
RESULTS, FIGURES, TARGET = ROOT / "benchmarks" / "results", ROOT / "docs" / "figures", ROOT / "docs" / "results.md"
SHOWN = "pacs"  # the benchmark of the figures, a folder of docs/figures
SPREAD = " Mean over 5 seeds; bands and whiskers are one standard deviation."  # said once
LEFT_OUT = ("collaboration", "memory", "routing", "sensitivity", "steps")  # not on the page, but in the folder


def totals(name: str) -> dict[str, str]:
    """Return label -> "mean ±sd" of one table, the best in bold."""
    (table,) = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    cells = {row["label"]: row["cells"]["micro"] for row in table["rows"]}
    best = max(round(cell["mean"], 2) for cell in cells.values())
    return {label: text(cell, best) for label, cell in cells.items()}


def text(cell: dict, best: float) -> str:
    spread = f" ±{cell['sd']:.2f}" if cell["sd"] is not None else ""
    shown = f"{cell['mean']:.2f}{spread}"
    return f"**{shown}**" if round(cell["mean"], 2) == best else shown


def grid(names: list[str]) -> str:
    """Return a Markdown table: a row per benchmark, a column per method."""
    rows = {name: totals(name) for name in names}
    labels = list(dict.fromkeys(label for cells in rows.values() for label in cells))
    lines = ["| | " + " | ".join(labels) + " |", "|:--|" + "--:|" * len(labels)]
    lines += [f"| {name} | " + " | ".join(rows[name].get(label, "") for label in labels) + " |" for name in names]
    return "\n".join(lines)


def figures() -> str:
    captions = json.loads((FIGURES / SHOWN / "captions.json").read_text(encoding="utf-8"))
    parts = [
        f"### {figure['title']}\n\n![{figure['title']}](figures/{SHOWN}/{name}.svg)\n\n"
        + figure["caption"].removesuffix(SPREAD)
        for name, figure in captions.items()
        if name not in LEFT_OUT
    ]
    return "\n\n".join(parts)


def page() -> str:
    names = sorted(path.name.removesuffix(".manifest.json") for path in RESULTS.glob("*.manifest.json"))
    views = [name for name in names if name.startswith("views_")]
    words = (ROOT / "tools" / "results_text.md").read_text(encoding="utf-8")
    plain = grid([name for name in names if name not in views])
    return words.format(accuracy=plain, views=grid(views), figures=figures())


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
