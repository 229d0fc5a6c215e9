"""Chunks of an interrupted embedding: damage is seen, and the finished file is what it would have been."""

import numpy as np
import pytest
from PIL import Image

from fuzz.mutate import damage_bytes, damage_header
from latte.data import embed as module
from latte.data.embed import BadImage, Chunk, EmbedPlan, PartialEmbedding, embed_images
from latte.data.embeddings import load_embeddings
from latte.data.images import open_images
from latte.encoders import load_encoder
from latte.files.atomic import lock
from latte.files.tensors import read_safetensors, write_safetensors

SHAPE = (2, 4)
BAD = (BadImage(3, "3.png: not an image"),)


def chunk(start=0, stop=6, bad=BAD):
    rows = np.random.default_rng(0).normal(size=(stop - start - len(bad), *SHAPE)).astype(np.float16)
    return Chunk(start, stop, rows, bad)


def partial(folder, shape=SHAPE, dtype="float16"):
    return PartialEmbedding(folder / "x.partial", {"plan": 1}, shape, dtype)


def never(start, stop):
    raise AssertionError("it is made again")


def test_a_finished_chunk_is_read_again(tmp_path):
    before = partial(tmp_path).chunk(0, 6, lambda start, stop: chunk())
    after = partial(tmp_path).chunk(0, 6, never)
    assert np.array_equal(before.rows, after.rows) and after.bad == BAD


@pytest.mark.parametrize("damage", [damage_bytes, damage_header])
def test_a_damaged_chunk_is_never_believed(tmp_path, damage):
    sound = partial(tmp_path).chunk(0, 6, lambda start, stop: chunk())
    file = tmp_path / "x.partial" / "000000000.safetensors"
    content, redone = file.read_bytes(), 0
    for seed in range(250):
        file.write_bytes(damage(np.random.default_rng(seed), content))
        calls = []
        restored = partial(tmp_path).chunk(0, 6, lambda start, stop, calls=calls: calls.append(1) or chunk())
        redone += bool(calls)
        assert np.array_equal(restored.rows, sound.rows) and restored.bad == sound.bad
        file.write_bytes(content)
    assert redone > 200


def test_a_chunk_of_another_shape_or_place_is_made_again(tmp_path):
    partial(tmp_path).chunk(0, 6, lambda start, stop: chunk())
    first = tmp_path / "x.partial" / "000000000.safetensors"
    first.with_name("000000006.safetensors").write_bytes(first.read_bytes())
    others = [(partial(tmp_path, (1, 4)), 0), (partial(tmp_path, dtype="float32"), 0), (partial(tmp_path), 6)]
    for other, start in others:
        with pytest.raises(AssertionError, match="made again"):
            other.chunk(start, start + 6, never)


def test_rows_that_are_no_numbers_are_not_kept(tmp_path):
    nan = Chunk(0, 2, np.full((2, *SHAPE), np.nan, np.float16), ())
    with pytest.raises(ValueError, match="images 0 to 1: got NaN or infinite"):
        partial(tmp_path).chunk(0, 2, lambda start, stop: nan)
    assert [file.name for file in (tmp_path / "x.partial").iterdir()] == ["plan.json"]


@pytest.fixture
def images(tmp_path):
    for number in range(12):
        place = tmp_path / "pictures" / "day" / ("cat", "dog")[number % 2]
        place.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng(number).integers(0, 256, (40, 40, 3), np.uint8)
        Image.fromarray(pixels).save(place / f"{number}.png")
    return open_images(f"folder:{tmp_path / 'pictures'}")


def test_one_process_at_a_time_makes_an_embedding(images, tmp_path):
    """Two would remove each other's chunks."""
    encoder, out = load_encoder("onnx:tests/data/tiny-onnx"), tmp_path / "x.safetensors"
    with lock(tmp_path / "x.safetensors.lock", "x"), pytest.raises(ValueError, match="another process at work: pid"):
        embed_images(images, encoder, out, EmbedPlan())
    assert len(embed_images(images, encoder, out, EmbedPlan())) == len(images)


def test_a_damaged_chunk_does_not_reach_the_finished_file(images, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "CHUNK_IMAGES", 4)
    encoder = load_encoder("onnx:tests/data/tiny-onnx")
    (tmp_path / "whole").mkdir()
    embed_images(images, encoder, tmp_path / "whole" / "x.safetensors", EmbedPlan())

    def stop(done):
        if len(list((tmp_path / "x.safetensors.partial").glob("*.safetensors"))) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        embed_images(images, encoder, tmp_path / "x.safetensors", EmbedPlan(), stop)
    damaged = tmp_path / "x.safetensors.partial" / "000000004.safetensors"
    tensors = read_safetensors(damaged)
    tensors.arrays["rows"][1, 0, :] = np.nan  # bits that fell over, in a file that is whole otherwise
    write_safetensors(damaged, tensors.arrays, tensors.metadata)
    embed_images(images, encoder, tmp_path / "x.safetensors", EmbedPlan())
    assert (tmp_path / "x.safetensors").read_bytes() == (tmp_path / "whole" / "x.safetensors").read_bytes()
    assert np.isfinite(load_embeddings(tmp_path / "x.safetensors").views).all()
