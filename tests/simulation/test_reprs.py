"""What is shown of an object in a console is short, however large the object is."""

import numpy as np

from latte import BaseExchange, Prediction, ZeroShot, create
from latte.core.memory import LocalMemory
from latte.core.types import Prototypes
from latte.simulation.simulator import Client


class Plain(BaseExchange):
    Upload = Prototypes


def test_reprs_are_short():
    names = tuple(f"a class with a long name, number {y}" for y in range(1000))
    prediction = Prediction(7, np.eye(1000)[7], 0.5, names)
    assert len(repr(prediction)) < 200 and names[7] in repr(prediction) and "C=1000" in repr(prediction)
    zero_shot = ZeroShot(np.eye(2, 4), ("cat", "dog"))
    client = Client("ann", create("clip", zero_shot), np.zeros((60, 1, 4)))
    assert repr(client) == "Client('ann', Clip(C=2, D=4), 60 images)"
    assert repr(LocalMemory(classes=2, slots=3, dim=4)) == "LocalMemory(0 items, C=2, S=3, D=4)"
    assert repr(Plain(zero_shot)) == f"Plain(0 clients, C=2, D=4, task={zero_shot.fingerprint[:8]!r})"
