"""Labelling in an experiment: which images a person labels, each right after its answer."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..core.types import Integers
from ..core.validate import at_least, real
from ..data.federation import Federation
from ..errors import refuse

WITHIN = 32  # first images of each client among which labels are given


@dataclass(frozen=True, slots=True)
class Labelling:
    """Which images of a federation somebody labels. At most one of the first three is more than 0; none: nobody does.

    Accuracy is then that on the images that nobody labelled, of every method, also of those that learn from no label.

    Parameters
    ----------
    per_class
        So many images of each class, in the whole federation, drawn at random.
    random
        So many images in the whole federation, drawn at random.
    margin
        So many images in the whole federation: those with the smallest margin between the two best zero-shot logits.
    within
        They are among the first so many images of each client; among more, where more than half of these would get one.
    wrong
        The share of labels that name a class drawn among the others.
    """

    per_class: int = 0
    random: int = 0
    margin: int = 0
    within: int = WITHIN
    wrong: float = 0.0

    def __post_init__(self) -> None:
        numbers = {name: getattr(self, name) for name in ("per_class", "random", "margin")}
        for name, number in numbers.items():
            at_least(f"labels.{name}", number, 0)
        given = [f"labels.{name}" for name, number in numbers.items() if number]
        if len(given) > 1:
            raise refuse(" and ".join(given), "more than one", "one of them")
        at_least("labels.within", self.within, 1)
        real("labels.wrong", self.wrong, 0.0, 1.0)

    def __bool__(self) -> bool:
        return bool(self.per_class or self.random or self.margin)

    def told(self, federation: Federation, rng: np.random.Generator) -> tuple[Integers, ...] | None:
        """Return the class that is named after each image of each client (n,), -1 for none; None without labels."""
        if not self:
            return None
        told = [np.full(len(client), -1, np.int64) for client in federation.clients]
        wanted = self.per_class * federation.embeddings.zero_shot.classes or self.random or self.margin
        within = max(self.within, -(-2 * wanted // len(federation)))
        early = [(i, k) for i, client in enumerate(federation.clients) for k in range(min(within, len(client)))]
        truth = np.array([federation.labels(federation.clients[i])[k] for i, k in early])
        for place in self._chosen(federation, early, truth, rng):
            client, image = early[place]
            told[client][image] = truth[place]
            if rng.random() < self.wrong:
                others = np.delete(np.arange(federation.embeddings.zero_shot.classes), truth[place])
                told[client][image] = rng.choice(others)
        return tuple(told)

    def _chosen(
        self, federation: Federation, early: list[tuple[int, int]], truth: Integers, rng: np.random.Generator
    ) -> list[int]:
        """Return the places in ``early`` of the images that get a label."""
        order = rng.permutation(len(early))
        if self.margin:
            samples = np.array([federation.clients[i].samples[k] for i, k in early])
            logits = federation.embeddings.zero_shot.logits(np.asarray(federation.embeddings.views[samples, 0]))
            best = np.sort(logits, axis=1)
            order = np.argsort(best[:, -1] - best[:, -2], kind="stable")
        if self.per_class:
            return [place for label in np.unique(truth) for place in order[truth[order] == label][: self.per_class]]
        chosen: list[int] = order[: self.random or self.margin].tolist()
        return chosen
