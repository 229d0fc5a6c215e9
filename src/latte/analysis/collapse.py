"""Whether the zero-shot model has collapsed: most of its answers are one class, whatever the images show.

Every method here learns from zero-shot answers, so none can repair a model that is mostly wrong. On the camera traps
where 61 % of the answers are one class, every adaptive method loses accuracy. (On PACS, where 48 % are, all gain.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..data.benchmark import Federation


@dataclass(frozen=True, slots=True)
class ZeroShotAnswers:
    """The zero-shot answers of a federation: how many are correct, and how many are the most frequent class (in %)."""

    classes: int
    accuracy: float
    most_frequent: str
    share: float

    @property
    def limit(self) -> float:
        """The share in per cent above which the model counts as collapsed: half way from an even share to all.

        >>> ZeroShotAnswers(10, 15.0, "empty", 61.0).limit
        55.0
        """
        return 50 + 50 / self.classes

    @property
    def collapsed(self) -> bool:
        """Whether most answers are one class."""
        return self.share > self.limit

    def warning(self) -> str | None:
        """Return what to say about a model that has collapsed; None for any other."""
        if not self.collapsed:
            return None
        return (
            f"the zero-shot model has collapsed: {self.share:.0f} % of its answers are {self.most_frequent!r}. "
            "Adaptation learns from these answers and may lose accuracy: compare with clip on labelled images."
        )


def zero_shot_answers(federation: Federation) -> ZeroShotAnswers:
    """Return the zero-shot answers to all images of all clients."""
    embeddings = federation.embeddings
    samples = np.concatenate([client.samples for client in federation.clients])
    names, text = embeddings.zero_shot.classnames, embeddings.zero_shot.text
    answers = (np.asarray(embeddings.views[samples, 0], np.float32) @ text.T).argmax(axis=1)
    counts = np.bincount(answers, minlength=len(names))
    right = float((answers == embeddings.labels[samples]).mean())
    top = int(counts.argmax())
    return ZeroShotAnswers(len(names), 100 * right, names[top], 100 * float(counts[top]) / len(answers))
