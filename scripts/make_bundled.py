"""Cut the bundled benchmark out of the mini-VLM's CIFAR-10-C embeddings.

    python scripts/make_bundled.py CIFAR10C.npz OUT.safetensors

Per corruption, 120 images (12 per class, drawn with seed 0) are dealt to two clients, 6 per class each, and
shuffled. float16, one view.
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from latte.core.zero_shot import ZeroShot
from latte.data.benchmark import Embeddings
from latte.data.embeddings import save_embeddings

CLIENTS, PER_CLASS = 2, 6


def cut(label: np.ndarray, domain: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return the chosen rows, client after client in stream order, and the client of each."""
    rows, owner = [], []
    for d in range(int(domain.max()) + 1):
        classes = [np.flatnonzero((domain == d) & (label == y)) for y in range(int(label.max()) + 1)]
        drawn = np.stack([rng.choice(pool, CLIENTS * PER_CLASS, replace=False) for pool in classes])
        for m in range(CLIENTS):
            mine = rng.permutation(drawn[:, m * PER_CLASS : (m + 1) * PER_CLASS].ravel())
            rows.append(mine)
            owner.append(np.full(len(mine), d * CLIENTS + m))
    return np.concatenate(rows), np.concatenate(owner)


def main(source: Path, target: Path) -> None:
    data = np.load(source, allow_pickle=False)
    rows, owner = cut(data["label"], data["domain"], np.random.default_rng(0))
    info = json.loads(str(data["meta"]))
    embeddings = Embeddings(
        "cifar10c-mini",
        ZeroShot(data["text"].astype(np.float32), tuple(map(str, data["classes"])), float(info["logit_scale"])),
        data["emb"][rows][:, None].astype(np.float16),
        data["label"][rows].astype(np.int64),
        data["domain"][rows].astype(np.int64),
        tuple(map(str, data["domains"])),
        {
            "encoder": info["model"],
            "templates": json.dumps(info["templates"]),
            "sources": json.dumps({source.name: hashlib.sha256(source.read_bytes()).hexdigest()}),
            "made": "CIFAR-10 images, each under one corruption at severity 5, embedded by a small vision-language "
            "model (EfficientNet-Lite0 and all-MiniLM-L6-v2, frozen, with aligned heads that never saw CIFAR-10 or a "
            "corrupted image; it is not CLIP). Per corruption 12 images of each class were drawn with numpy seed 0 "
            "and dealt to two clients, 6 per class each, in shuffled order. scripts/make_bundled.py",
        },
    )
    save_embeddings(target, embeddings, owner)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
