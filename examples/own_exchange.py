"""A collaborative method with messages and an exchange of its own: class frequencies instead of prototypes.

latte run --plugin examples/own_exchange.py --benchmark cifar10c-mini --methods clip,census --seeds 0-1
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from latte import BaseExchange, BaseMethod, Prediction, register
from latte.core.maths import entropy_of_one, softmax
from latte.core.types import Arrays, Reals, State, Vectors
from latte.core.validate import positive, require


@dataclass(frozen=True)
class Sums:  # upload and download: the probabilities of each class, summed over images (C,), and the task
    mass: Reals
    task: str = ""


class CensusExchange(BaseExchange[Sums, Sums]):
    Upload: ClassVar = Sums

    def verify(self, upload: Sums) -> None:
        positive("mass", upload.mass, (self.zero_shot.classes,))

    def answer(self, client: str, uploads: dict[str, Sums]) -> Sums:
        others = [upload.mass / upload.mass.sum() for name, upload in uploads.items() if name != client]
        return Sums(np.mean(others or [uploads[client].mass], axis=0), self.task)


class Census(BaseMethod[Any]):
    Exchange: ClassVar = CensusExchange

    def predict_rows(self, views: Vectors) -> Prediction:  # what is predicted often, here or elsewhere, loses weight
        logits = self.zero_shot.logits(views[0])
        self.mass[0] += softmax(logits)
        shares = (self.mass / self.mass.sum(axis=1, keepdims=True)).sum(axis=0)
        return self.prediction(logits - 0.5 * np.log(shares), entropy_of_one(logits))

    def summary(self) -> Sums:
        return Sums(self.mass[0].copy(), self.zero_shot.fingerprint)

    def receive(self, download: Sums) -> None:
        self.check_download(download)
        self.mass[1] = positive("mass", download.mass, (self.zero_shot.classes,))

    def reset(self) -> None:
        self.mass = np.ones((2, self.zero_shot.classes))  # of this client, and of the others

    def state(self) -> State:
        return {"mass": self.mass.copy()}

    def load(self, arrays: Arrays) -> None:
        self.mass = positive("mass", require(arrays, ["mass"])["mass"], (2, self.zero_shot.classes))


register("census", f"{__name__}:Census")
