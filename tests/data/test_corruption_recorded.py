"""The corruptions at severity 5 against embeddings of images that another program corrupted."""

import numpy as np
import pytest

from latte.data.corruptions import CORRUPTIONS, corrupt

FIXED = (
    *("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression"),
    *("gaussian_blur", "saturate"),
)
RANDOM = tuple(name for name in CORRUPTIONS if name not in FIXED)


@pytest.fixture(scope="module")
def recorded(shared):
    with np.load(shared / "data" / "embeddings" / "cifar10c.npz") as file:
        return {key: file[key] for key in ("emb", "label", "domain", "index", "text")}


@pytest.fixture(scope="module")
def embed(shared):
    from PIL import Image

    onnxruntime = pytest.importorskip("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(shared / "data" / "mini-vlm" / "image.onnx"), options)

    def run(images):
        cubic = Image.Resampling.BICUBIC
        large = [np.asarray(Image.fromarray(image).resize((128, 128), cubic)) for image in images]
        pixels = (np.stack(large).astype(np.float32).transpose(0, 3, 1, 2) - 127) / 128
        parts = [session.run(None, {"image": pixels[i : i + 32]})[0] for i in range(0, len(pixels), 32)]
        return np.concatenate(parts)

    return run


def sample(recorded, name, n):
    """Rows and places in the test set of n test images that were recorded under this corruption."""
    rows = np.flatnonzero((recorded["domain"] == CORRUPTIONS.index(name)) & (recorded["index"] >= 50_000))[:n]
    return rows, recorded["index"][rows] - 50_000


def test_those_without_chance_give_the_recorded_embeddings(recorded, embed, cifar_test):
    for name in FIXED:
        rows, places = sample(recorded, name, 24)
        ours = embed(corrupt(cifar_test[places], name, 5))
        cosines = (ours * recorded["emb"][rows].astype(np.float32)).sum(axis=1)
        assert cosines.min() > 0.99, name
        assert cosines.mean() > 0.999, name


@pytest.mark.slow
def test_those_with_chance_give_the_recorded_centre_and_accuracy(recorded, embed, cifar_test):
    text, hits = recorded["text"].astype(np.float32), []
    for name in RANDOM:
        rows, places = sample(recorded, name, 100)
        ours = embed(corrupt(cifar_test[places], name, 5, places + 50_000))
        theirs = recorded["emb"][rows].astype(np.float32)
        a, b = ours.mean(axis=0), theirs.mean(axis=0)
        assert a @ b / np.linalg.norm(a) / np.linalg.norm(b) > 0.9965, name
        right = [(e @ text.T).argmax(axis=1) == recorded["label"][rows] for e in (ours, theirs)]
        assert abs(right[0].mean() - right[1].mean()) <= 0.15, name  # 100 images: about 2.5 standard errors
        hits.append([right[0].mean(), right[1].mean()])
    ours_all, theirs_all = np.mean(hits, axis=0)
    assert abs(ours_all - theirs_all) < 0.03
