"""Calls that used to give a plausible wrong answer, or blamed the wrong thing."""

import json
import warnings

import numpy as np
import pytest

from latte import Clip, Latte, ZeroShot, create
from latte.core.privacy import Privacy, PrivateClient
from latte.data.bundled import bundled
from latte.data.embeddings import load_embeddings, numbered, save_embeddings
from latte.engine import run_fast
from latte.errors import InputError
from latte.files.tensors import read_safetensors, write_safetensors
from latte.methods.tda import SHARPEST, Tda, TdaParams
from latte.methods.views import Vte
from latte.paper.reproduce import paper_files, tuning_source
from latte.simulation.simulator import run_readable

ZERO_SHOT = ZeroShot(np.eye(2, 4), ("cat", "dog"))
BATCH = np.eye(4, dtype=np.float32)[:2]


@pytest.mark.parametrize("name", ["vte", "zero"])
def test_a_method_of_many_views_refuses_data_with_one(name):
    with pytest.raises(InputError, match=f"one view of each image, want several views of each image for {name}"):
        run_readable(bundled(), name)


@pytest.mark.parametrize("method", [Clip(ZERO_SHOT), Latte(ZERO_SHOT), Tda(ZERO_SHOT)], ids=lambda m: type(m).__name__)
def test_a_batch_that_is_taken_for_views_is_warned_of(method):
    with pytest.warns(UserWarning, match=r"reads the first of 2 rows, .*for 2 images call predict_many"):
        method.predict(BATCH)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        method.predict(BATCH[:1])
        method.predict(BATCH[0])
        method.predict_many(BATCH)
        method.predict_many(BATCH[:, None].repeat(2, axis=1))


def test_methods_that_read_all_views_do_not_warn():
    private = PrivateClient(Latte(ZERO_SHOT), Privacy(least_images=2))
    with pytest.warns(UserWarning, match="Latte reads the first"):
        private.predict(BATCH)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Vte(ZERO_SHOT).predict(BATCH)
        Tda(ZERO_SHOT, views="confident").predict(BATCH)


def test_the_zero_shot_classifier_does_not_offer_an_option_that_it_lacks():
    with pytest.raises(InputError, match="want unit rows") as refused:
        ZeroShot(3 * np.eye(2), ("cat", "dog"))
    assert "normalise" not in str(refused.value)
    with pytest.raises(InputError, match="or pass normalise=True"):
        Latte(ZERO_SHOT).predict(3 * BATCH[0])


@pytest.mark.parametrize("text", ["ab", b"ab"])
def test_a_text_is_not_taken_for_class_names(text):
    with pytest.raises(InputError, match="2 names, such as a list"):
        ZeroShot(np.eye(2), text)


def save_npz(path, classes=("cat", "dog")):
    images = np.tile(np.eye(len(classes), 4, dtype=np.float32), (2, 1))
    columns = {"label": np.arange(len(images)) % len(classes), "domain": np.zeros(len(images), int)}
    np.savez(path, emb=images, **columns, domains=["x"], classes=list(classes), text=np.eye(len(classes), 4))
    return path


def test_a_npz_file_is_read_wherever_an_embedding_file_is(tmp_path):
    assert load_embeddings(save_npz(tmp_path / "x.npz")).zero_shot.classnames == ("cat", "dog")
    assert len(load_embeddings(str(tmp_path / "x.npz"))) == 4


def test_reproduce_finds_npz_files(tmp_path):
    for stem in ("cifar10c-vit-b-16", "cifar10c-vit-b-16-views64", "cifar10c-vit-b-16-tuning"):
        save_npz(tmp_path / f"{stem}.npz")
    found = [*paper_files("cifar10c", "ViT-B/16", tmp_path), tuning_source("cifar10c", "ViT-B/16", tmp_path)]
    assert [file.path.suffix for file in found] == [".npz"] * 3 and all(file.path.is_file() for file in found)
    (tmp_path / "cifar10c-vit-b-16.safetensors").touch()
    assert paper_files("cifar10c", "ViT-B/16", tmp_path)[0].path.suffix == ".safetensors", "as elsewhere"


def test_a_class_name_that_occurs_twice_in_a_file_is_numbered(tmp_path):
    classes = ("crane", "dog", "crane")
    found = load_embeddings(save_npz(tmp_path / "x.npz", classes))
    assert found.zero_shot.classnames == ("crane", "dog", "crane (2)")
    save_embeddings(tmp_path / "y.safetensors", found)
    tensors = read_safetensors(tmp_path / "y.safetensors", "embedding file")
    write_safetensors(tmp_path / "z.safetensors", tensors.arrays, {**tensors.metadata, "classes": json.dumps(classes)})
    assert load_embeddings(tmp_path / "z.safetensors").zero_shot.fingerprint == found.zero_shot.fingerprint
    assert numbered(["a", "a", "a"]) == ("a", "a (2)", "a (3)")
    assert numbered(["a", "a (2)", "a"]) == ("a", "a (2)", "a (3)")


def test_a_plain_encoder_is_no_prompt_tuner():
    class Encoder:
        name, dim, scale = "e", 4, 100.0

    with pytest.raises(InputError, match=r"text_encoder: got Encoder, want one that gradients pass through"):
        create("tpt", ZERO_SHOT, text_encoder=Encoder())


@pytest.mark.parametrize("name", ["beta", "beta_negative"])
def test_a_beta_at_which_rounding_decides_is_refused(name):
    TdaParams(**{name: SHARPEST})
    with pytest.raises(InputError, match=rf"{name}: got 2e\+06, want at most 1e\+06"):
        TdaParams(**{name: 2e6})


def test_at_the_sharpest_beta_both_paths_agree(compiled_loops):
    federation, params = bundled(), {"beta": SHARPEST, "beta_negative": SHARPEST}
    fast, readable = run_fast(federation, "tda", TdaParams(**params)), run_readable(federation, "tda", params)
    assert (np.concatenate(fast.labels) == np.concatenate(readable.labels)).all()
