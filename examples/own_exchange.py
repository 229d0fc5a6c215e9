"""A collaborative method with messages and an exchange of its own, in one file.

    latte run --plugin examples/own_exchange.py --benchmark cifar10c-mini --methods clip,census --seeds 0-1

Every client sums up the probabilities that the model gives each class. It uploads the sums, gets back the mean shares
of the others, and takes weight from classes that are predicted more often than others.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from latte import BaseExchange, BaseMethod, Prediction, ZeroShot, register
from latte.core.maths import entropy_of_one, softmax
from latte.core.stored import exactly, require
from latte.core.types import Arrays, Reals, State, Vectors
from latte.core.validate import message, refuse


@dataclass(frozen=True)
class Sums:  # upload and download: an array per class (C,), and the task
    mass: Reals
    task: str = ""


def positive(name: str, mass: object, classes: int) -> Reals:
    array = exactly(name, mass, np.float64, (classes,))
    if not (np.isfinite(array) & (array > 0)).all():
        raise refuse(name, "a value that is not positive", "sums of probabilities")
    return array.copy()


class CensusExchange(BaseExchange[Sums, Sums]):
    Upload: ClassVar = Sums

    def verify(self, upload: Sums) -> None:
        positive("upload.mass", upload.mass, self.zero_shot.classes)

    def answer(self, client: str, uploads: Mapping[str, Sums]) -> Sums:
        others = [one.mass / one.mass.sum() for name, one in uploads.items() if name != client]
        return Sums(np.mean(others or [uploads[client].mass], axis=0), self.task)


class Census(BaseMethod[Any]):
    Upload: ClassVar = Sums
    Download: ClassVar = Sums

    @classmethod
    def exchange_for(cls, zero_shot: ZeroShot, params: Any = None, clients: Iterable[str] = ()) -> CensusExchange:
        return CensusExchange(zero_shot, clients)

    def predict_rows(self, views: Vectors) -> Prediction:
        logits = self.zero_shot.logits(views[0])
        self.mass += softmax(logits)
        shares = self.mass / self.mass.sum() + self.others / self.others.sum()
        return self.prediction(logits - 0.5 * np.log(shares), entropy_of_one(logits))

    def summary(self) -> Sums:
        return Sums(self.mass.copy(), self.zero_shot.fingerprint)

    def receive(self, download: Sums) -> None:
        message("download", download, Sums, self.zero_shot.fingerprint)
        self.others = positive("download.mass", download.mass, self.zero_shot.classes)

    def reset(self) -> None:
        self.mass, self.others = np.ones(self.zero_shot.classes), np.ones(self.zero_shot.classes)

    def state(self) -> State:
        return {"mass": self.mass.copy(), "others": self.others.copy()}

    def load(self, arrays: Arrays) -> None:
        require(arrays, ("mass", "others"))
        loaded = [positive(name, arrays[name], self.zero_shot.classes) for name in ("mass", "others")]
        self.mass, self.others = loaded


register("census", f"{__name__}:Census")
