"""The engine on real embeddings, at a size that the readable simulator can follow."""

import numpy as np
import pytest

from latte.core.zero_shot import ZeroShot
from latte.data.federation import ClientStream, Embeddings, Federation
from latte.simulation.simulator import Schedule
from simulation.engine_support import compare

FILES = {
    "cifar10c": (19, 1500),
    "cifar100c_test": (8, 700),
    "cifar10_clean_test4k": (8, 1000),
    "pacs": (12, 1200),
    "clip_caltech": (5, 600),
    "clip_cars": (4, 320),
    "clip_dtd": (5, 700),
    "clip_pets": (6, 800),
    "clip_sun397": (3, 240),
}


def real_federation(path, clients: int, samples: int) -> Federation:
    with np.load(path, allow_pickle=False) as file:
        rows, text = file["emb"].astype(np.float32), file["text"].astype(np.float32)
        labels, domain = file["label"].astype(np.int64), file["domain"].astype(np.int64)
        names, domains = tuple(map(str, file["classes"])), tuple(map(str, file["domains"]))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    embeddings = Embeddings(path.stem, ZeroShot(text, names), rows[:, None], labels, domain, domains)
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(rows))[:samples]
    parts = np.array_split(chosen[np.argsort(domain[chosen], kind="stable")], clients)
    streams = (ClientStream(f"client {i}", int(domain[p[0]]), rng.permutation(p)) for i, p in enumerate(parts))
    return Federation(embeddings, tuple(streams))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("variant", ["paper", "released"])
def test_latte(shared, name, variant):
    pytest.importorskip("numba")
    federation = real_federation(shared / "data" / "embeddings" / f"{name}.npz", *FILES[name])
    outcome = compare(federation, "latte", {"variant": variant, "k_l": 6, "k_e": 3}, Schedule(2))
    assert outcome.ties <= 1
    assert outcome.downloads_equal


@pytest.mark.parametrize("method", ["tda", "tda-global", "dmn", "dmn-global", "clip"])
def test_other_methods(shared, method):
    federation = real_federation(shared / "data" / "embeddings" / "cifar10c.npz", 10, 1500)
    assert compare(federation, method).ties <= 1
