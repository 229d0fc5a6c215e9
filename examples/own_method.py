"""A method of your own in one file, run in the suite beside ours.

    latte run --plugin examples/own_method.py --benchmark cifar10c-mini --methods clip,mine --seeds 0-1
    python examples/own_method.py

The method here follows the class prior of its own stream: it keeps a running mean of the zero-shot probabilities and
divides by it, so that classes which the model over-predicts on this client lose weight.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from latte import BaseMethod, Prediction, register
from latte.core.maths import entropy_of_one, softmax
from latte.core.types import Arrays, State, Vectors
from latte.core.validate import positive, real, require


@dataclass(frozen=True)
class PriorParams:
    strength: float = 0.5  # 0 is CLIP
    pseudo_count: float = 20.0  # images that speak for a uniform prior

    def __post_init__(self) -> None:
        real("strength", self.strength)
        real("pseudo_count", self.pseudo_count, 1e-6)


class Prior(BaseMethod[PriorParams]):
    Params: ClassVar = PriorParams
    presets: ClassVar = {"strong": PriorParams(strength=1.0)}

    def predict_rows(self, views: Vectors) -> Prediction:
        logits = self.zero_shot.logits(views[0])
        self.mass += softmax(logits)
        adjusted = logits - self.params.strength * np.log(self.mass / self.mass.sum())
        return self.prediction(adjusted, entropy_of_one(logits))

    def reset(self) -> None:
        classes = self.zero_shot.classes
        self.mass = np.full(classes, self.params.pseudo_count / classes)

    def state(self) -> State:
        return {"mass": self.mass.copy()}

    def load(self, arrays: Arrays) -> None:
        self.mass = positive("mass", require(arrays, ["mass"])["mass"], self.mass.shape)


register("mine", f"{__name__}:Prior")


def main(out: Path) -> None:
    """The Python way: check the contract, then run the comparison."""
    from latte import check_method
    from latte.experiment.config import MethodConfig, RunConfig
    from latte.experiment.plan import make_plan
    from latte.experiment.runner import run

    check_method(Prior)
    methods = (MethodConfig("clip"), MethodConfig("mine"), MethodConfig("mine", "mine, strong", preset="strong"))
    plan = make_plan(RunConfig("cifar10c-mini", methods, seeds=(0, 1)))
    for result in run(plan, out):
        print(f"{result.method:<14} seed {result.seed}  {result.micro:.2f} %")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "runs"))
