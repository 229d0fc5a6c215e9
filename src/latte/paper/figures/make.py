"""The figures of the paper: run, draw, write as PNG, SVG and CSV, and say what each shows, with the main numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.validate import choice
from ...data.federation import federate
from ...errors import need
from ...experiment.runner import Options
from ...files.atomic import write_text
from ...report.formats.text import signed
from ...report.page.sections import picture_section, render_page
from ...report.published import display
from .. import studies
from ..studies import Collaboration, Score, Setup, StepProgress, summary
from . import draw
from .draw import Drawing

TITLES = {
    "decentralisation": "Accuracy against clients per domain",
    "period": "Accuracy against the communication period",
    "collaboration": "Who downloads from whom",
    "memory": "Local and merged memory of one client per domain",
    "ablation": "What is read, and what weighs it",
    "sensitivity": "Accuracy against each parameter",
    "steps": "Ristretto without each of its steps",
    "routing": "Whose evidence a head of Ristretto uses",
}
FIGURES = tuple(TITLES)
RUNS = "runs"  # the folder of the run folders, beside the figures
PAGE = "index.html"


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure on disk: ``folder``/``name``.png, .svg and .csv, its title and what it shows."""

    folder: Path
    name: str
    title: str
    caption: str

    def path(self, ending: str) -> Path:
        """Return one of its files."""
        return self.folder / f"{self.name}.{ending}"


def make_figures(
    names: Sequence[str],
    setup: Setup,
    folder: Path,
    options: Options | None = None,
    values: Sequence[int] = (),
    progress: StepProgress = lambda what, done, total: None,
) -> list[Picture]:
    """Compute and draw the figures ``names`` into ``folder``.

    The runs go to run folders under ``folder``/runs: a call that was stopped goes on where it was, and a second one
    only draws. ``values`` replaces what ``decentralisation`` and ``period`` vary. ``progress(what, done, total)``
    follows the work.
    """
    for name in names:
        choice("figure", name, FIGURES)
    need_packages(names)
    cases = {name: studies.STUDIES[name](setup, values) for name in names if name in studies.STUDIES}
    every = [case for group in cases.values() for case in group]  # all studies are run in one pool
    scores = iter(studies.measure(setup, every, folder / RUNS, options, progress) if every else ())
    pictures = []
    for name in names:
        mine = [next(scores) for _ in range(len(cases.get(name, ())) * len(setup.seeds))]
        progress(name, 0, 1)
        with draw.settings():
            drawing = _draw(name, setup, mine)
        drawing.save(folder)
        pictures.append(Picture(folder, name, TITLES[name], drawing.caption))
        progress(name, 1, 1)
    return pictures


def need_packages(names: Sequence[str]) -> None:
    """Import what the figures ``names`` are drawn with: a missing package is named before anything is computed."""
    if names:
        need("matplotlib.figure", "report")
    if "memory" in names:
        need("sklearn.manifold", "report")


# --- each figure: its picture, its numbers and its words ----------------------------------------------------------


def _draw(name: str, setup: Setup, scores: Sequence[Score]) -> Drawing:
    if name in studies.STUDIES:
        return _study(name, setup, scores)
    return {"collaboration": _collaboration, "routing": _routing, "memory": _memory}[name](setup)


def _study(name: str, setup: Setup, scores: Sequence[Score]) -> Drawing:
    figure: Any
    if name == "decentralisation":
        figure, words = _decentralisation(scores)
    elif name == "period":
        figure = draw.draw_against(scores, "images between two syncs, $T$")
        federation = federate(setup.benchmark.embeddings, setup.clients, setup.seeds[0])
        longest = max(len(client) for client in federation.clients)
        words = (
            f"{clients_of(setup).capitalize()}. Latte and Ristretto sync after every T images; doubling: after 1, 2, "
            "4, 8 and 16 images of a client, then every T."
        )
        if max(float(score.value) for score in scores) >= longest:
            words += f" A stream is at most {longest} images long here: from T = {longest} on nobody ever syncs."
    elif name == "ablation":
        figure = draw.draw_ablation(scores)
        words = (
            f"Latte with {clients_of(setup)}. Left: the memory that is read. Right: the weight in the readout "
            "(beta = 0 switches similarity off, gamma = 0 certainty; the prototypes stay as they are). "
            "The axis does not start at 0."
        )
    elif name == "sensitivity":
        used = {panel: studies.used_value(setup, panel) for panel in {score.panel for score in scores}}
        figure = draw.draw_sensitivity(scores, used)
        words = (
            f"Latte and Ristretto with {clients_of(setup)}; one parameter varies, Latte's others stay at "
            f"{preset_of(setup)}. "
            "The dotted line is the value that the other figures have. Values are at even steps."
        )
    else:
        figure = draw.draw_steps(scores)
        means = {str(score.value): mean for score, mean, _ in summary(scores)}
        whole, plain = means["all six"], means["5 no head"]
        losses = ", ".join(f"{step} {signed(mean - whole)}" for step, mean in means.items() if step != "all six")
        words = (
            f"Ristretto with {clients_of(setup)}, {whole:.2f} % ({signed(whole - plain)} over zero-shot, which it is "
            f"without a head). What each step is worth, in points: {losses}. The axis does not start at 0."
        )
    if len(setup.seeds) == 1:
        noise = "One seed, so no band: a difference of a point may be noise."
    else:
        noise = f"Mean over {len(setup.seeds)} seeds; bands and whiskers are one standard deviation."
    rows = [(s.panel, s.method, s.value, s.seed, s.accuracy) for s in scores]
    return Drawing(name, f"{words} {noise}", figure, ("panel", "method", "value", "seed", "accuracy"), rows)


def _decentralisation(scores: Sequence[Score]) -> tuple[Any, str]:
    figure = draw.draw_against(scores, "clients per domain (more clients: fewer images for each)")
    values = sorted({float(score.value) for score in scores})
    means = {(score.method, float(score.value)): mean for score, mean, _ in summary(scores)}
    moves = ", ".join(
        f"{display(method)} {signed(means[method, values[-1]] - means[method, values[0]])}"
        for method in dict.fromkeys(score.method for score in scores)
    )
    return figure, (
        f"The images of each domain are split among {values[0]:g} … {values[-1]:g} clients. "
        f"Change in points from {values[0]:g} to {values[-1]:g} clients per domain: {moves}."
    )


def _collaboration(setup: Setup) -> Drawing:
    counts = studies.collaboration(setup)
    share = counts.share
    title = (
        f"{share.inside:.1f} % of downloads stay inside the domain"
        f"\n(by chance {share.chance:.1f} %, at best {share.best:.1f} %)"
    )
    caption = (
        f"Pixel (i, j) counts the prototypes of client j that client i was given over the whole run (seed "
        f"{setup.seeds[0]}, {len(counts.clients)} clients, a sync after every image). {share.inside:.1f} % "
        f"of {int(counts.downloads.sum()):,} downloads stay inside the domain; donors drawn evenly among the other "
        f"clients would give {share.chance:.1f} %, and at best it is {share.best:.1f} %: every client "
        f"takes the others of its own domain first, and anyone for what is left of its k_e = {setup.latte.k_e} slots."
    )
    words = ("whose prototypes", "client that downloads", "prototypes downloaded")
    return _heat_map("collaboration", counts, words, title, caption, "downloads")


def _routing(setup: Setup) -> Drawing:
    shares = studies.routing(setup)
    share = shares.share
    title = (
        f"{share.inside:.1f} % of others' evidence is of the own domain"
        f"\n(all alike: {share.chance:.1f} %, at best {share.best:.1f} %)"
    )
    caption = (
        "Pixel (i, j) is the share of client j's evidence that the head of client i uses, the mean over the syncs of "
        f"i (seed {setup.seeds[0]}, {len(shares.clients)} clients; a client's own evidence, of which it uses all, is "
        f"left out). Of all shares, {share.inside:.1f} % go to clients of the own domain; if all were alike, it "
        f"would be {share.chance:.1f} %, and at best, with heads that use their own domain only, "
        f"{share.best:.1f} %."
    )
    words = ("whose evidence", "client whose head it is", "share of the evidence that is used")
    return _heat_map("routing", shares, words, title, caption, "share")


def _heat_map(
    name: str, found: Collaboration, words: tuple[str, str, str], title: str, caption: str, unit: str
) -> Drawing:
    header = ("client", "domain", "from_client", "from_domain", unit)
    return Drawing(name, caption, draw.draw_heat_map(found, words, title), header, pair_rows(found))


def pair_rows(counts: Collaboration) -> list[tuple[object, ...]]:
    """Return a row per pair of clients: who, of which domain, from whom, of which domain, how much."""
    clients = list(zip(counts.clients, counts.domains, strict=True))
    return [
        (*client, *donor, number)
        for client, numbers in zip(clients, counts.downloads.tolist(), strict=True)
        for donor, number in zip(clients, numbers, strict=True)
    ]


def _memory(setup: Setup) -> Drawing:
    placed = [draw.place_memory(memory) for memory in studies.memories(setup)]
    classnames = setup.benchmark.embeddings.zero_shot.classnames
    rows: list[tuple[object, ...]] = []
    for client in placed:
        both = (("local", client.memory.local, client.local), ("merged", client.memory.merged, client.merged))
        for name, items, where in both:
            for label, external, entropy, (x, y) in zip(items.label, items.external, items.entropy, where, strict=True):
                item = (classnames[label], int(external), float(entropy), float(x), float(y))
                rows.append((client.memory.domain, client.memory.client, name, *item))
    drops = [(client.memory.local.mean_entropy, client.memory.merged.mean_entropy) for client in placed]
    local, merged = (sum(values) / len(drops) for values in zip(*drops, strict=True))
    most, classes = max(client.memory.samples for client in placed), len(classnames)
    part = (
        f" Of {classes} classes the {draw.MOST_NAMED} with the most own items are drawn."
        if classes > draw.MOST_NAMED
        else ""
    )
    caption = (
        f"t-SNE of what one client per domain has stored after {most} images (seed {setup.seeds[0]}); colour is the "
        "pseudo-class, a hollow diamond a prototype of another client. Both memories of a client share one map; a map "
        "shows who is near whom, not distances. Mean entropy (0 certain, 1 no idea) over these clients: local "
        f"{local:.3f}, merged {merged:.3f}.{part}"
    )
    header = ("domain", "client", "memory", "class", "external", "entropy", "x", "y")
    return Drawing("memory", caption, draw.draw_memory(placed, classnames), header, rows)


def clients_of(setup: Setup) -> str:
    """Return how many clients there are, in words."""
    if setup.clients is None:
        return f"the {len(federate(setup.benchmark.embeddings, None, 0))} clients that the file fixes"
    return f"{setup.clients} client{'s' if setup.clients > 1 else ''} per domain"


def preset_of(setup: Setup) -> str:
    """Return which parameters Latte has, in words."""
    return f"the published preset {setup.preset}" if setup.preset else "the default for all data"


def write_gallery(pictures: Sequence[Picture], setup: Setup, folder: Path) -> Path:
    """Write the page beside the figures; it shows them without the other files, and links to those."""
    sections = []
    for picture in pictures:
        links = {ending.upper(): f"{picture.name}.{ending}" for ending in ("csv", "png", "svg")}
        svg = picture.path("svg").read_text(encoding="utf-8")
        sections.append(picture_section(picture.title, svg, picture.caption, links))
    data, benchmark = setup.benchmark.embeddings, setup.benchmark
    subtitle = (
        f"{len(data):,} images, {data.zero_shot.classes} classes, {len(data.domains)} domains, {clients_of(setup)}; "
        f"Latte with {preset_of(setup)}; the others with their defaults; seeds {', '.join(map(str, setup.seeds))}; "
        f"encoder {benchmark.info.encoder}."
    )
    write_text(folder / PAGE, render_page(f"Figures: {benchmark.entry.name}", sections, subtitle))
    return folder / PAGE
