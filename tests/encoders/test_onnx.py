"""The ONNX backend: batches, order, checks of the folder; and the real model against its recorded embeddings."""

import hashlib
import json
import sys

import numpy as np
import pytest

from latte.encoders import Encoder, load_encoder, zero_shot
from tiny_models import make_photo
from tiny_onnx import FOLDER
from waiting import run

pytest.importorskip("onnxruntime")
pytest.importorskip("tokenizers")


def test_is_an_encoder(tiny):
    assert isinstance(tiny, Encoder)
    assert (tiny.name, tiny.dim, tiny.scale) == ("tiny", 8, 20.0)


def test_images_against_the_model_written_out(tiny, photo):
    """The convolution, tanh and mean of tests/support/tiny_onnx.py in numpy."""
    kernel = np.random.default_rng(7).normal(size=(8, 3, 8, 8)).astype(np.float32)
    x = tiny.preprocess(photo)
    windows = np.lib.stride_tricks.sliding_window_view(x, (8, 8), axis=(1, 2))[:, ::4, ::4]
    want = np.tanh(np.einsum("cijkl,dckl->dij", windows, kernel)).mean(axis=(1, 2))
    want /= np.linalg.norm(want)
    assert np.allclose(tiny.images([photo])[0], want, atol=1e-5)


def test_texts_against_the_model_written_out(tiny):
    rng = np.random.default_rng(7)
    rng.normal(size=(8, 3, 8, 8))
    table = rng.normal(size=(23, 8)).astype(np.float32)
    want = table[[2, 5, 6, 2, 7, 22]].sum(axis=0)  # a photo of a dog .
    assert np.allclose(tiny.texts(["A photo of a dog."])[0], want / np.linalg.norm(want), atol=1e-6)


def test_batches_do_not_change_the_rows_or_their_order(tiny):
    pictures = [make_photo(20 + 3 * number, 9 + 4 * number) for number in range(9)]  # both input sizes
    one = np.concatenate([tiny.images([picture]) for picture in pictures])
    for batch_size in (1, 2, 4, 9, 100):
        assert np.allclose(tiny.images(pictures, batch_size=batch_size), one, atol=1e-6)
    texts = [f"a photo of {words}" for words in ("a dog", "the large polar bear.", "cat", "house in a game")]
    alone = np.concatenate([tiny.texts([text]) for text in texts])
    assert np.allclose(tiny.texts(texts, batch_size=3), alone, atol=1e-6)


def test_pictures_arrays_paths_and_bytes_are_the_same(tiny, photo, tmp_path):
    photo.save(tmp_path / "a.png")
    forms = [photo, np.asarray(photo), tmp_path / "a.png", str(tmp_path / "a.png"), tiny.preprocess(photo)]
    rows = tiny.images([*forms, (tmp_path / "a.png").read_bytes()])
    assert np.allclose(rows, rows[0], atol=1e-7)


def test_progress_is_called_after_every_batch(tiny, photo):
    seen = []
    tiny.images([photo] * 5, batch_size=2, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(2, 5), (4, 5), (5, 5)]


def test_nothing_gives_no_rows(tiny):
    assert tiny.images([]).shape == (0, 8) and tiny.texts([]).shape == (0, 8)


@pytest.mark.parametrize("bad", ["one text", ["dog", ""], ["dog", "  "], ["dog", None]])
def test_odd_texts_are_refused(tiny, bad):
    with pytest.raises(ValueError, match="texts"):
        tiny.texts(bad)


def test_a_text_that_does_not_fit_is_refused_not_cut(tiny):
    assert tiny.texts(["dog " * 16]).shape == (1, 8)  # the tokenizer file itself would cut at 8
    with pytest.raises(ValueError, match=r"dog dog.* of 17 tokens, want at most 16 tokens"):
        tiny.texts(["dog " * 17])


@pytest.mark.parametrize("shape", [(3, 4), (1, 3, 4, 4), (4, 8, 8)])
def test_odd_arrays_are_refused(tiny, shape):
    with pytest.raises(ValueError, match="preprocessed arrays"):
        tiny.images([np.zeros(shape, np.float32)])


@pytest.mark.parametrize("file", ["image.onnx", "text.onnx", "tokenizer.json", "model.json"])
def test_a_missing_file_is_named(folder, file):
    (folder / file).unlink()
    with pytest.raises(ValueError, match=f"no {file}") as error:
        load_encoder(f"onnx:{folder}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("file", ["image.onnx", "text.onnx", "tokenizer.json"])
@pytest.mark.parametrize("checksums", [True, False])
def test_a_damaged_file_is_named(folder, file, checksums):
    data = bytearray((folder / file).read_bytes())
    data[: len(data) // 2] = b"\xff" * (len(data) // 2)
    (folder / file).write_bytes(data)
    if not checksums:
        edit(folder, lambda model: model.pop("sha256"))
    with pytest.raises(ValueError, match=file) as error:
        load_encoder(f"onnx:{folder}").texts(["dog"])
    assert ("\n" not in str(error.value) and "damaged" in str(error.value)) or not checksums


def edit(folder, change):
    path = folder / "model.json"
    model = json.loads(path.read_text())
    change(model)
    path.write_text(json.dumps(model))


CHANGES = {
    "no dim": lambda model: model.pop("dim"),
    "no text": lambda model: model.pop("text"),
    "dim is text": lambda model: model.update(dim="8"),
    "no image field": lambda model: model.update(image=3),
    "unknown input": lambda model: model["text"].update(inputs=["pixels"]),
    "unknown resize": lambda model: model["image"].update(resize="as you like"),
    "unknown rule": lambda model: model["image"].update(low_res_rule="small ones"),
    "unknown layout": lambda model: model["image"].update(layout="CHWN"),
    "outside": lambda model: model["image"].update(file="../image.onnx"),
    "wrong output": lambda model: model["image"].update(output="rows"),
    "wrong dim": lambda model: model.update(dim=9),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_wrong_model_json_is_refused(folder, name, photo):
    edit(folder, CHANGES[name])
    with pytest.raises(ValueError, match="want") as error:
        load_encoder(f"onnx:{folder}").images([photo])
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\xff"])
def test_a_model_json_that_is_none_is_refused(folder, text):
    (folder / "model.json").write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"model\.json"):
        load_encoder(f"onnx:{folder}")


def test_fingerprint_is_of_the_contents_only(folder, tiny):
    assert load_encoder(f"onnx:{folder}").fingerprint == tiny.fingerprint
    edit(folder, lambda model: model.update(name="another"))
    assert load_encoder(f"onnx:{folder}").fingerprint == tiny.fingerprint
    edit(folder, lambda model: model.update(logit_scale=21.0))
    assert load_encoder(f"onnx:{folder}").fingerprint != tiny.fingerprint


def test_the_committed_folder_is_what_its_model_json_says():
    sums = json.loads((FOLDER / "model.json").read_text())["sha256"]
    assert all(hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == value for name, value in sums.items())


# the real model


def recorded(shared, name):
    return np.load(shared / "data" / "embeddings" / f"{name}.npz", allow_pickle=False)


@pytest.mark.parametrize("name", ["pacs", "cifar10c"])
def test_recorded_text_embeddings_are_reproduced(mini, shared, name):
    data = recorded(shared, name)
    classifier = zero_shot(mini, [str(value) for value in data["classes"]])
    assert cosines(classifier.text, data["text"]).min() > 0.9999
    assert classifier.scale == 100


@pytest.mark.slow
def test_real_jpegs_give_the_recorded_embeddings_and_accuracy(mini, shared, pictures):
    data = recorded(shared, "pacs")
    have = np.array([(pictures / path).is_file() for path in data["paths"]])
    chosen = np.flatnonzero(have)[::4]
    rows = mini.images([pictures / data["paths"][number] for number in chosen], batch_size=64)
    want = data["emb"][chosen].astype(np.float32)
    assert len(chosen) == 420 and cosines(rows, want).min() > 0.999
    classifier = zero_shot(mini, [str(value) for value in data["classes"]])
    label = data["label"][chosen]
    got, expected = ((classifier.logits(e).argmax(1) == label).mean() * 100 for e in (rows, want))
    assert abs(got - expected) <= 0.3


def test_cifar_takes_the_small_input(mini, shared):
    from PIL import Image

    data = recorded(shared, "cifar10_clean_test4k")
    sheet = Image.open(shared / "data" / "images" / "cifar10_test_sheet.webp").convert("RGB")
    rows, want = [], []
    for position, index in enumerate(data["index"][:100]):
        row, column = divmod(int(index) - 50_000, 100)
        rows.append(np.asarray(sheet.crop((32 * column, 32 * row, 32 * column + 32, 32 * row + 32))))
        want.append(data["emb"][position])
    assert cosines(mini.images(rows), np.array(want)).min() > 0.999


def cosines(rows, want):
    want = want.astype(np.float64)
    return (rows * want).sum(1) / np.linalg.norm(want, axis=1)


def test_nothing_is_recorded_for_the_makers_of_the_runtime(tmp_path):
    """ONNX Runtime 1.31 leaves the number of a machine, and events to be sent, in the cache of the user."""
    script = f"from latte.encoders import load_encoder; load_encoder('onnx:{FOLDER}').texts(['a dog'])"
    run(sys.executable, "-c", script, check=True, HOME=str(tmp_path), XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert not list(tmp_path.rglob("*"))
