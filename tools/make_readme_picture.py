"""Draw docs/figures/readme.svg: who helps whom in the demo, and what it gains. ``tools/make_readme.py`` calls this.

Every line and every number comes from the demo's own trials. The picture brings its background, light or dark as the
reader's system has it, so that it is readable on any page.
"""

import math
from collections.abc import Sequence
from xml.sax.saxutils import escape

import numpy as np

from latte.demo.pacs import DemoRow, best_baseline
from latte.experiment.runner import TrialRun
from latte.report.page.charts import LOOKS, Look
from latte.simulation.wrapped import share_inside

WIDTH, HEIGHT = 800, 430
CENTRE, RADIUS, GAP = (205, 210), 128, 0.30  # of the circle; radians between two domains
DONORS = 3  # lines per client: to those that it got most from
LEFT, RIGHT, TOP, STEP = 440, 772, 112, 86  # of the bars
CARD, INK, SOFT = Look("#ffffff", "#15181d"), Look("#22262b", "#e6e8eb"), Look("#5f6368", "#a9b0b8")
DOMAINS = (LOOKS["tda"], LOOKS["tpt"], LOOKS["dmn"], LOOKS["vte"])
NOTES = (
    "A line leads to one of the 3 clients that gave most to it (Latte). Nobody told them the domains;",
    "{inside:.0f} % of what they got is from their own. PACS, a small model (not CLIP); 95 % intervals, 10 splits.",
)
BARS = {"latte": LOOKS["latte"], "ristretto": LOOKS["ristretto"]}


def style() -> str:
    """Return the colours as classes, for light and for dark."""
    looks = {"card": CARD, "ink": INK, "soft": SOFT, **{f"d{i}": look for i, look in enumerate(DOMAINS)}, **BARS}
    fill = [f".{name}{{fill:{look.light};stroke:{look.light}}}" for name, look in looks.items()]
    dark = [f".{name}{{fill:{look.dark};stroke:{look.dark}}}" for name, look in looks.items()]
    plain = "text{stroke:none!important;font-family:system-ui,sans-serif}path{fill:none!important;stroke-linecap:round}"
    return f"<style>{''.join(fill)}@media(prefers-color-scheme:dark){{{''.join(dark)}}}{plain}</style>"


def text(x: float, y: float, words: str, size: int = 15, look: str = "ink", more: str = "") -> str:
    return f'<text class="{look}" x="{x:.1f}" y="{y:.1f}" font-size="{size}" {more}>{escape(words)}</text>'


def angles(domains: Sequence[str]) -> list[float]:
    """Return where each client stands on the circle: domain after domain, with gaps."""
    starts = [i > 0 and domain != domains[i - 1] for i, domain in enumerate(domains)]
    step = (2 * math.pi - GAP * len(set(domains))) / len(domains)
    return [-math.pi / 2 + step * i + GAP * (sum(starts[: i + 1]) + 0.5) for i in range(len(domains))]


def place(angle: float, radius: float = RADIUS) -> tuple[float, float]:
    return CENTRE[0] + radius * math.cos(angle), CENTRE[1] + radius * math.sin(angle)


def fleet(trial: TrialRun) -> list[str]:
    """Draw the clients of one trial on a circle, with a line to each of the clients that they got most from."""
    assert trial.downloads is not None
    domains = [client.domain for client in trial.result.clients]
    names = list(dict.fromkeys(domains))
    around = angles(domains)
    received = trial.downloads * (1 - np.eye(len(domains)))
    lines, dots = [], []
    for i, angle in enumerate(around):
        look = f"d{names.index(domains[i])}"
        for j in np.argsort(-received[i], kind="stable")[:DONORS]:
            (x1, y1), (x2, y2), (cx, cy) = place(angle), place(around[j]), place((angle + around[j]) / 2, 0.35 * RADIUS)
            bend = f"M{x1:.1f} {y1:.1f}Q{cx:.1f} {cy:.1f} {x2:.1f} {y2:.1f}"
            lines.append(f'<path class="{look}" opacity="0.45" stroke-width="1.4" d="{bend}"/>')
        x, y = place(angle)
        dots.append(f'<circle class="{look}" cx="{x:.1f}" cy="{y:.1f}" r="5.5"/>')
    return [*lines, *dots, *(label(name, domains, around) for name in names)]


def inside(trial: TrialRun) -> float:
    """Return the share of what clients receive, in per cent, that comes from clients of their own domain."""
    groups = np.unique([client.domain for client in trial.result.clients], return_inverse=True)[1]
    return share_inside(trial.downloads, groups)


def label(name: str, domains: Sequence[str], around: Sequence[float]) -> str:
    mine = [angle for angle, domain in zip(around, domains, strict=True) if domain == name]
    x, y = place(sum(mine) / len(mine), RADIUS + 20)
    anchor = "start" if x > CENTRE[0] else "end"
    return text(x, y + 5, name.partition("_")[0], 16, "ink", f'text-anchor="{anchor}"')


def bar(row: DemoRow, name: str, number: int, scale: float) -> list[str]:
    """Draw one gain with its interval; the bar begins at zero."""
    gain = row.gain
    assert gain is not None and gain.interval is not None
    y, look = TOP + STEP * number, row.name if row.name in BARS else "soft"
    end, low, high = (LEFT + scale * value for value in (gain.mean, *gain.interval))
    whisker = f"M{low:.1f} {y + 23}H{high:.1f}M{low:.1f} {y + 18}v10M{high:.1f} {y + 18}v10"
    return [
        text(LEFT, y, name, 16, "ink", 'font-weight="600"'),
        text(RIGHT, y, f"{row.accuracy:.1f} %", 16, "ink", 'text-anchor="end" font-weight="600"'),
        f'<rect class="{look}" stroke-width="0" x="{LEFT}" y="{y + 12}" width="{end - LEFT:.1f}" height="22" rx="2"/>',
        f'<path class="card" stroke-width="6" d="{whisker}"/><path class="ink" stroke-width="2" d="{whisker}"/>',
        text(max(high, end) + 10, y + 29, row.format_gain().partition(" ")[0], 17),
        text(LEFT, y + 52, f"{row.format_bytes()} kB per client", 14, "soft"),
    ]


def picture(rows: Sequence[DemoRow], trial: TrialRun) -> str:
    """Return the picture from the rows of the demo and a trial of Latte."""
    best, baselines = best_baseline(rows), sum(row.baseline for row in rows)
    by_method = {row.name: row for row in rows}
    shown = [(best, f"{best.label}, best of {baselines}"), (by_method["latte"], "Latte")]
    shown.append((by_method["ristretto"], "Ristretto"))
    scale = (RIGHT - LEFT - 60) / max(row.gain.interval[1] for row, _ in shown)
    zero_shot = f"points over zero-shot, which has {by_method['clip'].accuracy:.1f} %"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">',
        "<title>A fleet that helps each other: forty clients in four domains, and the accuracy that they gain</title>",
        style(),
        f'<rect class="card" width="{WIDTH}" height="{HEIGHT}" rx="12"/>',
        text(28, 38, "Who helps whom: 40 clients, no labels", 17, "ink", 'font-weight="600"'),
        *fleet(trial),
        text(LEFT, 38, "What they gain", 17, "ink", 'font-weight="600"'),
        text(LEFT, 62, zero_shot, 15, "soft"),
        *(mark for number, (row, name) in enumerate(shown) for mark in bar(row, name, number, scale)),
        *(
            text(28, HEIGHT - 42 + 22 * i, words.format(inside=inside(trial)), 14, "soft")
            for i, words in enumerate(NOTES)
        ),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"
