"""What each figure shows, in a few sentences with the numbers that matter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ...analysis.studies import Setup
from ...analysis.study_runs import Score, summary
from ...data.partition import federate
from ..paper import display
from ..text import signed
from .maps import MOST_NAMED

if TYPE_CHECKING:
    from ...analysis.snapshots import Collaboration
    from .maps import Placed

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


def seeds_of(setup: Setup) -> str:
    """Return what the bands and whiskers mean."""
    n = len(setup.seeds)
    if n == 1:
        return "One seed, so no band: a difference of a point may be noise."
    return f"Mean over {n} seeds; bands and whiskers are one standard deviation."


def clients_of(setup: Setup) -> str:
    """Return how many clients there are, in words."""
    if setup.clients is None:
        return f"the {len(federate(setup.benchmark.embeddings, None, 0))} clients that the file fixes"
    return f"{setup.clients} client{'s' if setup.clients > 1 else ''} per domain"


def of_study(name: str, setup: Setup, scores: Sequence[Score]) -> str:
    """Return the caption of a figure of scores."""
    words = {
        "decentralisation": _decentralisation,
        "period": _period,
        "ablation": _ablation,
        "sensitivity": _sensitivity,
        "steps": _steps,
    }
    return f"{words[name](setup, scores)} {seeds_of(setup)}"


def _decentralisation(setup: Setup, scores: Sequence[Score]) -> str:
    values = sorted({float(score.value) for score in scores})
    means = {(score.method, float(score.value)): mean for score, mean, _ in summary(scores)}
    moves = ", ".join(
        f"{display(method)} {signed(means[method, values[-1]] - means[method, values[0]])}"
        for method in dict.fromkeys(score.method for score in scores)
    )
    return (
        f"The images of each domain are dealt to {values[0]:g} … {values[-1]:g} clients. "
        f"Change in points from {values[0]:g} to {values[-1]:g} clients per domain: {moves}."
    )


def _period(setup: Setup, scores: Sequence[Score]) -> str:
    longest = longest_stream(setup)
    words = (
        f"{clients_of(setup).capitalize()}. Latte and Ristretto sync after every T images; doubling: after 1, 2, 4, 8 "
        "and 16 images of a client, then every T."
    )
    if max(float(score.value) for score in scores) >= longest:
        words += f" A stream is at most {longest} images long here: from T = {longest} on nobody ever syncs."
    return words


def _ablation(setup: Setup, scores: Sequence[Score]) -> str:
    return (
        f"Latte with {clients_of(setup)}. Left: the memory that is read. Right: the weight in the readout "
        "(beta = 0 switches similarity off, gamma = 0 certainty; the prototypes stay as they are). "
        "The axis does not start at 0."
    )


def _sensitivity(setup: Setup, scores: Sequence[Score]) -> str:
    return (
        f"Latte and Ristretto with {clients_of(setup)}; one parameter varies, Latte's others stay at "
        f"{'the published preset ' + setup.preset if setup.preset else 'the default for all data'}. "
        "The dotted line is the value that the other figures have. Values are at even steps."
    )


def _steps(setup: Setup, scores: Sequence[Score]) -> str:
    means = {str(score.value): mean for score, mean, _ in summary(scores)}
    whole, plain = means["all six"], means["5 no head"]
    losses = ", ".join(f"{name} {signed(mean - whole)}" for name, mean in means.items() if name != "all six")
    return (
        f"Ristretto with {clients_of(setup)}, {whole:.2f} % ({signed(whole - plain)} over zero-shot, which it is "
        f"without a head). What each step is worth, in points: {losses}. The axis does not start at 0."
    )


def of_routing(setup: Setup, shares: Collaboration) -> str:
    """Return the caption of the heat map of routes."""
    return (
        "Pixel (i, j) is the share of client j's evidence that the head of client i uses, the mean over the syncs of "
        f"i (seed {setup.seeds[0]}, {len(shares.clients)} clients; a client's own evidence, of which it uses all, is "
        f"left out). Of all shares, {shares.share.inside:.1f} % go to clients of the own domain; if all were alike, it "
        f"would be {shares.share.chance:.1f} %, and at best, with heads that use their own domain only, "
        f"{shares.share.best:.1f} %."
    )


def of_collaboration(setup: Setup, counts: Collaboration) -> str:
    """Return the caption of the heat map."""
    return (
        f"Pixel (i, j) counts the prototypes of client j that client i was given over the whole run (seed "
        f"{setup.seeds[0]}, {len(counts.clients)} clients, an exchange after every image). {counts.share.inside:.1f} % "
        f"of {int(counts.downloads.sum()):,} downloads stay inside the domain; donors drawn evenly among the other "
        f"clients would give {counts.share.chance:.1f} %, and at best it is {counts.share.best:.1f} %: every client "
        f"takes the others of its own domain first, and anyone for what is left of its k_e = {setup.latte.k_e} slots."
    )


def of_memory(setup: Setup, placed: Sequence[Placed]) -> str:
    """Return the caption of the t-SNE maps."""
    drops = [(client.memory.local.mean_entropy, client.memory.merged.mean_entropy) for client in placed]
    local, merged = (sum(values) / len(drops) for values in zip(*drops, strict=True))
    most = max(client.memory.samples for client in placed)
    classes = setup.benchmark.embeddings.zero_shot.classes
    part = f" Of {classes} classes the {MOST_NAMED} with the most own items are drawn." if classes > MOST_NAMED else ""
    return (
        f"t-SNE of what one client per domain has stored after {most} images (seed {setup.seeds[0]}); colour is the "
        "pseudo-class, a hollow diamond a prototype of another client. Both memories of a client share one map; a map "
        "shows who is near whom, not distances. Mean entropy (0 certain, 1 no idea) over these clients: local "
        f"{local:.3f}, merged {merged:.3f}.{part}"
    )


def longest_stream(setup: Setup) -> int:
    """Return the length of the longest stream."""
    federation = federate(setup.benchmark.embeddings, setup.clients, setup.seeds[0])
    return max(len(client) for client in federation.clients)
