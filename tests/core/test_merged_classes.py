"""What is read of a class has the same bits whether the class was merged by itself or with all others."""

import numpy as np
import pytest

from latte import External, Latte, ZeroShot


def unit(rng, *shape):
    rows = rng.normal(size=shape).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


@pytest.mark.parametrize("memory", ["both", "local", "external"])
@pytest.mark.parametrize(("classes", "slots", "others", "dim"), [(2, 1, 0, 4), (10, 8, 9, 256), (40, 12, 5, 512)])
def test_all_classes_at_once_and_one_by_one(memory, classes, slots, others, dim):
    rng = np.random.default_rng(classes)
    client = Latte(ZeroShot(unit(rng, classes, dim), map(str, range(classes))), k_l=slots, k_e=others, memory=memory)
    for row in unit(rng, 6 * classes, dim):
        client.predict(row)
    shape, task = (classes, others), client.zero_shot.fingerprint
    valid = rng.random(shape) < 0.7
    client.receive(External(unit(rng, *shape, dim), rng.uniform(0, 1, shape), valid, task))
    client._build()  # of all classes; an insertion merges its own
    together = [array.copy() for array in (client.merged.vectors, client.merged.offset, client.merged.gram)]
    for label in range(classes):
        client._merge(slice(label, label + 1))
    for array, expected in zip(
        (client.merged.vectors, client.merged.offset, client.merged.gram), together, strict=True
    ):
        assert array.tobytes() == expected.tobytes()
