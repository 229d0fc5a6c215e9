"""Make the two benchmarks that ship with the package from the mini-VLM's embeddings.

    python tools/make_bundled.py FOLDER    # which has cifar10c.npz and pacs.npz

``cifar10c-mini`` is a small cut for tests: per corruption, 120 images (12 per class, drawn with seed 0) are dealt to
two clients, 6 per class each, and shuffled. ``pacs-demo`` is all of PACS, for ``latte demo``. Both are float16 with one
view.

Why PACS: of the sets that we have with several domains, it is the only one with natural domains, whose zero-shot
classifier has not been trained on its classes, and that fits into 6 MB as a whole. So nothing is selected: no image, no
domain, no class. Why float16: the embeddings are stored as they are, so the demo has the numbers of the tables. With 8
bits and a scale per row the file would have 2.6 MB instead of 5.2, and no accuracy or gain would move by more than 0.1
points (``benchmarks/engine/demo_precision.py``).
"""

import hashlib
import json
import sys
from pathlib import Path

import numpy as np

from latte.core.zero_shot import ZeroShot
from latte.data.bundled import BUNDLED_FILE, DEMO_FILE
from latte.data.embeddings import save_embeddings
from latte.data.federation import Embeddings

CLIENTS, PER_CLASS = 2, 6
MODEL = (
    "a small vision-language model (EfficientNet-Lite0 and all-MiniLM-L6-v2, frozen, with aligned heads that never saw "
    "{unseen}; it is not CLIP)"
)
MADE_CIFAR = (
    "CIFAR-10 images, each under one corruption at severity 5, embedded by "
    + MODEL.format(unseen="CIFAR-10 or a corrupted image")
    + ". Per corruption 12 images of each class were drawn with numpy seed 0 and dealt to two clients, 6 per class "
    "each, in shuffled order. tools/make_bundled.py"
)
MADE_PACS = (
    "All 9,991 images of PACS (Li, Yang, Song and Hospedales: Deeper, Broader and Artier Domain Generalization, ICCV "
    "2017), a dataset for research use, embedded by "
    + MODEL.format(unseen="PACS")
    + ". These are embeddings, not images. Nothing was selected. tools/make_bundled.py"
)


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


def take(name: str, source: Path, rows: np.ndarray | slice, made: str) -> Embeddings:
    """Return some rows of a file."""
    data = np.load(source, allow_pickle=False)
    info = json.loads(str(data["meta"]))
    return Embeddings(
        name,
        ZeroShot(data["text"].astype(np.float32), tuple(map(str, data["classes"])), float(info["logit_scale"])),
        data["emb"][rows][:, None].astype(np.float16),
        data["label"][rows].astype(np.int64),
        data["domain"][rows].astype(np.int64),
        tuple(map(str, data["domains"])),
        {
            "encoder": info["model"],
            "templates": json.dumps(info["templates"]),
            "sources": json.dumps({source.name: hashlib.sha256(source.read_bytes()).hexdigest()}),
            "made": made,
        },
    )


def main(folder: Path) -> None:
    cifar, pacs = folder / "cifar10c.npz", folder / "pacs.npz"
    data = np.load(cifar, allow_pickle=False)
    rows, owner = cut(data["label"], data["domain"], np.random.default_rng(0))
    save_embeddings(BUNDLED_FILE, take("cifar10c-mini", cifar, rows, MADE_CIFAR), owner)
    save_embeddings(DEMO_FILE, take("pacs-demo", pacs, slice(None), MADE_PACS))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
