"""Downloads between clients as a heat map, and the memories of some clients as t-SNE maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...analysis.snapshots import ClientMemory, Collaboration, MemoryItems
from ...core.extras import need
from ...core.types import Reals, Vectors
from ..png import LIGHT_STOPS
from .style import INK, SOFT, as_label, canvas

MOST_NAMED = 12  # classes that a legend can name and an eye can tell apart


def draw_collaboration(counts: Collaboration) -> Any:
    """Draw downloads (N, N), clients sorted by domain, lines between domains."""
    title = (
        f"{counts.share.inside:.1f} % of downloads stay inside the domain"
        f"\n(by chance {counts.share.chance:.1f} %, at best {counts.share.best:.1f} %)"
    )
    return _heat_map(counts, ("whose prototypes", "client that downloads", "prototypes downloaded"), title)


def draw_routing(shares: Collaboration) -> Any:
    """Draw the shares of evidence (N, N) that heads use, clients sorted by domain, lines between domains."""
    title = (
        f"{shares.share.inside:.1f} % of others' evidence is of the own domain"
        f"\n(all alike: {shares.share.chance:.1f} %, at best {shares.share.best:.1f} %)"
    )
    return _heat_map(shares, ("whose evidence", "client whose head it is", "share of the evidence that is used"), title)


def _heat_map(counts: Collaboration, words: tuple[str, str, str], title: str) -> Any:
    """Draw (N, N) numbers; ``words`` are on the axis across, the axis down and the scale."""
    side = 5.4
    figure, ((axes,),) = canvas(side + 0.9, side)
    ramp = need("matplotlib.colors", "report").LinearSegmentedColormap.from_list("latte", LIGHT_STOPS)
    picture = axes.imshow(counts.downloads, cmap=ramp, interpolation="nearest", vmin=0)
    starts, names = _blocks(counts.domains)
    middles = [(start + end) / 2 - 0.5 for start, end in zip(starts, [*starts[1:], len(counts.domains)], strict=True)]
    size = 9 if len(names) <= 8 else 7.5
    axes.set_xticks(middles, names, rotation=90, fontsize=size)
    axes.set_yticks(middles, names, fontsize=size)
    axes.tick_params(length=0)
    for start in starts[1:]:
        axes.axhline(start - 0.5, color=SOFT, linewidth=0.4)
        axes.axvline(start - 0.5, color=SOFT, linewidth=0.4)
    axes.set_xlabel(f"{words[0]} (clients, sorted by domain)")
    axes.set_ylabel(words[1])
    axes.set_title(title)
    figure.colorbar(picture, ax=axes, shrink=0.7, label=words[2], pad=0.02)
    return figure


def _blocks(domains: Sequence[str]) -> tuple[list[int], list[str]]:
    """Return where each domain starts, and its name."""
    starts = [i for i, name in enumerate(domains) if i == 0 or domains[i - 1] != name]
    return starts, [as_label(domains[i]) for i in starts]


@dataclass(frozen=True, eq=False)
class Placed:
    """A client's memories with a place (n, 2) for each item; both memories share one map."""

    memory: ClientMemory
    local: Reals
    merged: Reals


def place_memories(memories: Sequence[ClientMemory]) -> list[Placed]:
    """Give each client's items their places: one t-SNE per client, over its local and merged memory together."""
    return [_placed(memory) for memory in memories]


def _placed(memory: ClientMemory) -> Placed:
    both = np.concatenate([memory.local.vectors, memory.merged.vectors])
    distinct, where = np.unique(both, axis=0, return_inverse=True)  # an item that is in both is one point
    places = tsne(distinct)[where.ravel()]
    n = len(memory.local.vectors)
    return Placed(memory, places[:n], places[n:])


def tsne(vectors: Vectors) -> Reals:
    """Return a place (n, 2) for each unit vector; by the first two principal components where n is below 5."""
    n = len(vectors)
    if n < 5:
        left, scales, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
        flat = np.zeros((n, 2))
        flat[:, : min(2, len(scales))] = (left * scales)[:, :2]
        return flat
    model = need("sklearn.manifold", "report").TSNE(perplexity=min(15.0, (n - 1) / 3), init="pca", random_state=0)
    places: Reals = np.asarray(model.fit_transform(vectors), np.float64)
    return places


def classes_to_draw(placed: Sequence[Placed], classes: int) -> list[int]:
    """Return the classes to draw: all, or those with the most items of the clients' own."""
    if classes <= MOST_NAMED:
        return list(range(classes))
    counts = np.bincount(np.concatenate([client.memory.local.label for client in placed]), minlength=classes)
    return sorted(np.argsort(-counts, kind="stable")[:MOST_NAMED].tolist())


def draw_memory(placed: Sequence[Placed], classnames: Sequence[str]) -> Any:
    """Draw a column per client: its local memory above, what it reads (merged with the external one) below."""
    figure, axes = canvas(max(1.75 * len(placed), 4.4), 4.9, 2, len(placed))
    classes = classes_to_draw(placed, len(classnames))
    colours = dict(zip(classes, _colours(len(classes)), strict=True))
    for column, client in enumerate(placed):
        for row, (items, where) in enumerate(
            ((client.memory.local, client.local), (client.memory.merged, client.merged))
        ):
            _scatter(axes[row, column], items, where, colours)
            axes[row, column].set_title(f"mean entropy {items.mean_entropy:.2f}", fontsize=8.5, color=INK)
        _same_frame(axes[:, column], np.concatenate([client.local, client.merged]))
        axes[1, column].set_xlabel(as_label(client.memory.domain), fontsize=9)
    axes[0, 0].set_ylabel("local memory")
    axes[1, 0].set_ylabel("merged memory")
    names = [(as_label(classnames[number]), colour) for number, colour in colours.items()]
    figure.legend(handles=_legend(names), loc="outside lower center", ncols=4 if len(placed) > 2 else 3, fontsize=8)
    return figure


def _scatter(axes: Any, items: MemoryItems, where: Reals, colours: dict[int, Any]) -> None:
    for label, colour in colours.items():
        own = where[(items.label == label) & ~items.external]
        axes.scatter(*own.T, s=11, color=[colour], linewidths=0)
        other = where[(items.label == label) & items.external]
        axes.scatter(*other.T, s=16, marker="D", facecolors="none", edgecolors=[colour], linewidths=0.9)
    axes.set_xticks([])
    axes.set_yticks([])
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    for spine in axes.spines.values():
        spine.set_linewidth(0.5)


def _same_frame(column: Any, where: Reals) -> None:
    low, high = where.min(axis=0), where.max(axis=0)
    room = 0.06 * np.maximum(high - low, 1e-6)
    for axes in column:
        axes.set_xlim(low[0] - room[0], high[0] + room[0])
        axes.set_ylim(low[1] - room[1], high[1] + room[1])


def _colours(classes: int) -> Any:
    """Return a colour per class, for at most ``MOST_NAMED``."""
    extra = ((0.0, 0.0, 0.0), (0.68, 0.78, 0.91))  # black and pale blue, beside matplotlib's ten
    return [*need("matplotlib", "report").colormaps["tab10"].colors, *extra][:classes]


def _legend(names: Sequence[tuple[str, Any]]) -> list[Any]:
    line = need("matplotlib.lines", "report").Line2D
    kinds = [("o", "own embedding", SOFT), ("D", "prototype of another client", "none")]
    handles = [
        line([], [], marker=m, color="none", markeredgecolor=SOFT, markerfacecolor=face, markersize=5, label=name)
        for m, name, face in kinds
    ]
    return handles + [
        line([], [], marker="o", color="none", markeredgecolor=colour, markerfacecolor=colour, markersize=5, label=name)
        for name, colour in names
    ]
