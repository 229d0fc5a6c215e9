"""The reference CLIP transform, against slow versions of it and against transformers' own."""

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.encoders import Preprocess
from latte.encoders.preprocess import CLIP_MEAN, CLIP_STD, INTERPOLATIONS, from_hf, from_json, from_open_clip
from tiny_models import make_photo

Image = pytest.importorskip("PIL.Image")
SIDES = st.integers(1, 90)


def slow(picture, side, rounding):
    """torchvision's Resize(side, bicubic), CenterCrop(side), ToTensor, Normalize, step by step in float64."""
    width, height = picture.size
    short, long = min(width, height), max(width, height)
    new_long = int(side * long / short)
    size = (side, new_long) if width <= height else (new_long, side)
    resized = np.asarray(picture.resize(size, Image.Resampling.BICUBIC), np.float64)
    left, top = rounding((size[0] - side) / 2.0), rounding((size[1] - side) / 2.0)
    cropped = resized[top : top + side, left : left + side] / 255.0
    result = np.empty((3, side, side))
    for channel in range(3):
        result[channel] = (cropped[..., channel] - CLIP_MEAN[channel]) / CLIP_STD[channel]
    return result


@given(SIDES, SIDES, st.integers(1, 40), st.sampled_from(["round", "floor"]))
def test_equals_the_slow_reference(width, height, side, rounding):
    picture = make_photo(width, height)
    rule = Preprocess(size=(side, side), short_side=side, crop_rounding=rounding)
    want = slow(picture, side, {"round": round, "floor": int}[rounding])
    got = rule(picture)
    assert got.shape == (3, side, side) and got.dtype == np.float32 and got.flags.c_contiguous
    assert np.allclose(got, want, atol=2e-6)


@pytest.mark.parametrize("turned", [False, True])
def test_a_strip_does_not_explode(monkeypatch, turned):
    rule = Preprocess(size=(64, 64), short_side=64, mean=(0, 0, 0), std=(1, 1, 1))
    strip = make_photo(2, 300).transpose(4) if turned else make_photo(2, 300)
    want = rule(strip)
    monkeypatch.setattr("latte.encoders.preprocess._MOST", 1000)  # from here on only the crop is computed
    assert np.abs(rule(strip) - want).max() <= 2.01 / 255  # the same but for rounding, once per direction


def test_a_very_long_strip():
    rule = Preprocess()
    assert rule(Image.new("RGB", (1, 20_000), (9, 9, 9))).shape == (3, 224, 224)
    assert rule(Image.new("RGB", (20_000, 1), (9, 9, 9))).shape == (3, 224, 224)


@pytest.mark.parametrize("name", ["CLIPImageProcessor", "SiglipImageProcessor"])
def test_equals_transformers_on_real_pictures(pictures, name):
    module = pytest.importorskip("transformers")
    reference, config = processor(module, name)
    rule = from_hf(config)
    files = sorted(path for path in pictures.rglob("*.*") if path.is_file())[::50]
    sizes = set()
    for number, path in enumerate(files):
        whole = Image.open(path).convert("RGB")  # all of one size: parts of them have any shape
        picture = whole.crop((0, 0, 227 - 5 * (number % 7), 227 - 13 * (number % 5)))
        sizes.add(picture.size)
        want = np.asarray(reference(picture, return_tensors="np")["pixel_values"][0])
        assert np.abs(rule(picture) - want).max() < 2e-6
    assert len(files) > 25 and len(sizes) > 20


def processor(module, name):
    """The PIL and numpy processor of transformers, under the name it has in this version."""
    kind = name.removesuffix("ImageProcessor")
    found = getattr(module, f"{name}Pil", None) or getattr(module, name)
    made = found()
    config = json.loads(made.to_json_string())
    return made, config | {"image_processor_type": f"{kind}ImageProcessor"}


@pytest.mark.parametrize("width, height", [(225, 224), (227, 224), (229, 400), (31, 57), (500, 333)])
def test_odd_margins_as_in_transformers(width, height):
    reference, config = processor(pytest.importorskip("transformers"), "CLIPImageProcessor")
    picture = make_photo(width, height)
    want = np.asarray(reference(picture, return_tensors="np")["pixel_values"][0])
    assert np.abs(from_hf(config)(picture) - want).max() < 2e-6


def test_a_low_resolution_source_takes_the_small_input():
    rule = Preprocess(size=(160, 160), short_side=160, low_res=64, low_res_size=128)
    assert rule(make_photo(64, 90)).shape == (3, 128, 128)
    assert rule(make_photo(65, 90)).shape == (3, 160, 160)
    plain = Preprocess(size=(128, 128), short_side=128)
    assert np.array_equal(rule(make_photo(50, 40)), plain(make_photo(50, 40)))


def test_a_crop_larger_than_the_picture_is_padded_with_black():
    rule = Preprocess(size=(8, 8), short_side=4, mean=(0, 0, 0), std=(1, 1, 1))
    result = rule(Image.new("RGB", (4, 4), (255, 255, 255)))
    assert result[:, 2:6, 2:6].min() == 1 and result.sum() == 3 * 16


def test_normalise_leaves_its_argument_alone():
    pixels = np.full((2, 3, 4, 3), 7, np.float32)
    Preprocess().normalise(pixels)
    assert (pixels == 7).all()


def test_json_round_trip():
    rule = Preprocess(size=(160, 120), short_side=None, low_res=64, low_res_size=32, interpolation="bilinear")
    assert from_json(json.loads(json.dumps(rule.to_json()))) == rule
    with pytest.raises(ValueError, match="no key 'colour'"):
        from_json({"colour": "red"})


def test_hf_files():
    clip = {"size": 224, "crop_size": 224, "do_center_crop": True, "resample": 3, "image_mean": [0.1] * 3}
    assert from_hf(clip) == replace(Preprocess(crop_rounding="floor"), mean=(0.1, 0.1, 0.1))
    siglip = from_hf(
        {"size": {"height": 256, "width": 200}, "resample": 2, "image_processor_type": "SiglipImageProcessor"}
    )
    assert siglip.size == (256, 200) and siglip.short_side is None and siglip.mean == (0.5, 0.5, 0.5)
    raw = from_hf({"do_normalize": False, "do_rescale": False})
    assert raw.rescale == 1 and raw.std == (1, 1, 1)


@pytest.mark.parametrize(
    "config",
    [
        {"do_resize": False},
        {"size": {"shortest_edge": 224}, "do_center_crop": False},
        {"size": {"height": 256, "width": 256}, "do_center_crop": True, "crop_size": 224},
        {"resample": 9},
    ],
)
def test_hf_files_that_cannot_be_followed_are_refused(config):
    with pytest.raises(ValueError, match="want"):
        from_hf(config)


def test_open_clip_files():
    config = {"size": [224, 224], "interpolation": "bicubic", "resize_mode": "shortest", "mean": None}
    assert from_open_clip(config) == Preprocess()
    assert from_open_clip({"size": 256, "resize_mode": "squash"}).short_side is None
    with pytest.raises(ValueError, match="longest"):
        from_open_clip({"resize_mode": "longest"})


@pytest.mark.parametrize(
    "change",
    [{"size": (0, 4)}, {"short_side": 0}, {"std": (0, 1, 1)}, {"interpolation": "cubic"}, {"low_res": 5}],
)
def test_impossible_rules_are_refused(change):
    with pytest.raises(ValueError, match="want"):
        Preprocess(**change)


def test_interpolations_are_pillows_numbers():
    assert {name: int(Image.Resampling[name.upper()]) for name in INTERPOLATIONS} == INTERPOLATIONS
