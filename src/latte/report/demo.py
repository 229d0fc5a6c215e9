"""The page that ``latte demo`` writes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from ..data.benchmark import Federation
from ..simulation.collaboration import share_inside
from ..simulation.outcome import Outcome
from .html import Section, Series, heatmap_section, lines_section, render_page, table_section, text_section
from .tables import build_table


def demo_page(federation: Federation, outcomes: Mapping[str, Outcome]) -> str:
    """Return the page: the table, the accuracy over time, the downloads between clients, and what was run."""
    embeddings = federation.embeddings
    settings = {"latte": "preset"}
    results = [
        outcome.result(federation, name, {}, settings.get(name, "default"), 0) for name, outcome in outcomes.items()
    ]
    table = build_table(results, embeddings.metadata.get("encoder"))
    return render_page(
        "Latte demo",
        [
            table_section(table, "Accuracy per domain"),
            _over_time(federation, outcomes),
            _collaboration(federation, outcomes["latte"]),
            text_section("What was run", _about(federation)),
        ],
        subtitle=f"{len(federation)} clients, {federation.samples} images, no labels used, nothing trained.",
    )


def _over_time(federation: Federation, outcomes: Mapping[str, Outcome]) -> Section:
    series = []
    for name, outcome in outcomes.items():
        accuracy = outcome.over_time(federation)
        series.append(Series(name, tuple(range(1, len(accuracy) + 1)), tuple(map(float, accuracy))))
    caption = "Accuracy over all images seen so far, all clients together."
    return lines_section("Accuracy over time", series, "images seen by each client", "accuracy so far, %", caption)


def _collaboration(federation: Federation, outcome: Outcome) -> Section:
    assert outcome.downloads is not None
    names = [client.name for client in federation.clients]
    groups = np.array([client.domain for client in federation.clients])
    domains = [federation.embeddings.domains[group] for group in groups]
    inside = share_inside(outcome.downloads, groups)
    chance = share_inside(1 - np.eye(len(names), dtype=np.int64), groups)
    caption = (
        f"Row: who downloads; column: whose prototypes. {inside:.1f} % of the downloads stay inside the client's own "
        f"domain; picking clients at random would give {chance:.1f} %."
    )
    return heatmap_section("Who helps whom", outcome.downloads, names, domains, caption)


def _about(federation: Federation) -> list[str]:
    metadata = federation.embeddings.metadata
    return [
        metadata.get("made", ""),
        "Latte has the parameters that the paper published for CIFAR-10-C and syncs after every round. With 60 images "
        "per client the local memories have hardly filled, so differences of a point are within chance: the standard "
        "error of an accuracy over 2,280 images is one point.",
        "Ristretto is not the paper's: it has one set of constants for all data, and syncs after 1, 2, 4, 8, 16 images "
        "of a client, then every 16.",
    ]
