import inspect
import sys

import numpy as np
import pytest

import latte.data.corruptions as package
from latte.data.corruptions import CORRUPTIONS, SEVERITIES, corrupt, corrupt_each, load_textures
from latte.data.corruptions.effects import ICE, TEXTURE_SIDE, draw_textures

# the others draw random numbers
FIXED = {"defocus_blur", "zoom_blur", "gaussian_blur", "brightness", "contrast", "saturate", "pixelate"}
FIXED |= {"jpeg_compression"}
# The constants of these do not let the distance from the clean image grow at every step.
UNEVEN = {"glass_blur", "motion_blur", "frost", "elastic_transform", "spatter", "saturate"}
EVERY = [(name, severity) for name in CORRUPTIONS for severity in SEVERITIES]


def distances(pictures, name):
    clean = pictures.astype(float)
    return [float(np.abs(corrupt(pictures, name, s) - clean).mean()) for s in SEVERITIES]


def test_the_order_is_the_benchmarks():
    expected = (
        *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur", "motion_blur"),
        *("zoom_blur", "snow", "frost", "fog", "brightness", "contrast", "elastic_transform", "pixelate"),
        *("jpeg_compression", "speckle_noise", "gaussian_blur", "spatter", "saturate"),
    )
    assert expected == CORRUPTIONS


@pytest.mark.parametrize(("name", "severity"), EVERY)
def test_an_image_does_not_depend_on_its_batch(pictures, name, severity):
    images, places = pictures[:70], np.arange(300, 370)  # more than one chunk
    before = images.copy()
    whole = corrupt(images, name, severity, places, seed=3)
    assert whole.dtype == np.uint8
    assert whole.shape == images.shape
    assert (images == before).all()
    order = np.array([66, 2, 40])
    assert (corrupt(images[order], name, severity, places[order], seed=3) == whole[order]).all()
    assert (corrupt(images[5:6], name, severity, [305], seed=3) == whole[5:6]).all()
    assert (whole != images).any(axis=(1, 2, 3)).mean() > 0.9


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_seed_and_index_matter_where_there_is_chance(pictures, name):
    images = pictures[:4]
    first = corrupt(images, name, 5)
    assert (corrupt(images, name, 5, [0, 1, 2, 3], seed=0) == first).all()
    other_seed, other_place = corrupt(images, name, 5, seed=1), corrupt(images, name, 5, [4, 5, 6, 7])
    same = [(other_seed == first).all(), (other_place == first).all()]
    assert same == [name in FIXED] * 2


@pytest.mark.parametrize("name", [name for name in CORRUPTIONS if name not in UNEVEN])
def test_the_distance_grows_with_the_severity(pictures, name):
    assert (np.diff(distances(pictures, name)) > 0).all()


def test_the_uneven_ones_are_uneven_as_documented(pictures):
    glass = distances(pictures, "glass_blur")
    assert max(glass[:3]) < min(glass[3:])  # one pass of moving, then two
    motion = distances(pictures, "motion_blur")
    assert motion[0] < motion[1] < motion[2] < motion[4]
    assert abs(motion[3] - motion[2]) < 0.01  # the longer tail weighs nothing at sigma 2
    frost = distances(pictures, "frost")
    assert frost[0] < frost[1]
    elastic = distances(pictures, "elastic_transform")
    assert elastic == sorted(elastic, reverse=True)
    water_then_mud = distances(pictures, "spatter")
    assert water_then_mud[0] < water_then_mud[1] < water_then_mud[2]
    assert water_then_mud[3] < water_then_mud[4]
    saturate = distances(pictures, "saturate")
    assert saturate[0] < saturate[1]
    assert saturate[2] < saturate[3] < saturate[4]


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("size", [(8, 8), (40, 56), (224, 224)])
def test_other_sizes(name, size):
    rng = np.random.default_rng(1)
    images = np.repeat(rng.integers(0, 256, (2, *size, 1), dtype=np.uint8), 3, axis=3)
    for severity in (1, 5):
        assert corrupt(images, name, severity).shape == images.shape


@pytest.mark.parametrize("name", CORRUPTIONS)
@pytest.mark.parametrize("value", [0, 128, 255])
def test_flat_images(name, value):
    flat = np.full((3, 32, 32, 3), value, np.uint8)
    for severity in SEVERITIES:
        result = corrupt(flat, name, severity)
        if name.endswith("blur") or name in ("contrast", "pixelate", "elastic_transform"):
            # blurring a flat image changes nothing but the last bit
            assert np.abs(result.astype(int) - flat).max() <= 1


def test_no_images():
    empty = np.empty((0, 32, 32, 3), np.uint8)
    assert corrupt(empty, "snow", 5).shape == empty.shape
    assert corrupt_each(empty, np.arange(0), 5, np.arange(0)).shape == empty.shape


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"images": np.zeros((2, 32, 32, 3))}, "images: got float64"),
        ({"images": np.zeros((32, 32, 3), np.uint8)}, r"images: got uint8 of shape \(32, 32, 3\)"),
        ({"images": np.zeros((2, 32, 32), np.uint8)}, "images: got"),
        ({"images": np.zeros((2, 7, 32, 3), np.uint8)}, "H and W >= 8"),
        ({"name": "rain"}, "name: got 'rain', want one of 'gaussian_noise'"),
        ({"severity": 0}, "severity: got 0"),
        ({"severity": 6}, "severity: got 6"),
        ({"severity": True}, "severity: got True"),
        ({"indices": [1]}, "indices: got"),
        ({"indices": [0.5, 1.5]}, "indices: got float64"),
        ({"indices": [-1, 0]}, "indices: got -1"),
        ({"seed": -1}, "seed: got -1"),
    ],
)
def test_bad_input_is_refused(change, message):
    good = {"images": np.zeros((2, 32, 32, 3), np.uint8), "name": "fog", "severity": 5}
    with pytest.raises(ValueError, match=message):
        corrupt(**{**good, **change})


def test_without_pillow_the_install_line_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    images = np.zeros((1, 32, 32, 3), np.uint8)
    for name in ("pixelate", "jpeg_compression"):
        with pytest.raises(ImportError, match=r'pip install "pillow>=.*the extra data'):
            corrupt(images, name, 5)
    assert corrupt(images, "gaussian_noise", 5).any()  # the others need numpy only


# --- many at once -------------------------------------------------------------------------------------------


def test_each_image_under_its_own_corruption_on_any_number_of_processes(pictures):
    images = np.concatenate([pictures, pictures[:90]])
    which = np.arange(len(images)) % 19
    places = np.arange(len(images)) + 50_000
    alone = corrupt_each(images, which, 5, places, seed=2)
    for number, name in enumerate(CORRUPTIONS):
        of_this = which == number
        assert (alone[of_this] == corrupt(images[of_this], name, 5, places[of_this], seed=2)).all()
    assert (corrupt_each(images, which, 5, places, seed=2, workers=2) == alone).all()


# --- frost --------------------------------------------------------------------------------------------------


def test_drawn_textures_look_as_described():
    for ice, texture in zip(ICE, draw_textures(), strict=True):
        assert texture.shape == (TEXTURE_SIDE, TEXTURE_SIDE, 3)
        assert np.allclose(texture.mean(axis=(0, 1)), ice.mean, atol=1.5)
        spread = np.hypot(ice.coarse, ice.fine)
        assert np.allclose(texture.std(axis=(0, 1)), spread, rtol=0.15)


def test_photographs_replace_the_drawn_frost(tmp_path, pictures):
    from PIL import Image

    for i in (1, 2, 3, 4, 5):
        picture = Image.fromarray(np.full((400, 500, 3), 40 * i, np.uint8))
        picture.save(tmp_path / (f"frost{i}.png" if i < 4 else f"frost{i}.jpg"))
    textures = load_textures(tmp_path)
    assert [texture.shape for texture in textures] == [(80, 100, 3)] * 5
    black = np.zeros((50, 32, 32, 3), np.uint8)
    levels = corrupt(black, "frost", 5, textures=textures)[:, 0, 0, 0]
    assert set(levels.tolist()) == {int(0.45 * 40 * i) for i in (1, 2, 3, 4, 5)}
    with pytest.raises(ValueError, match="textures: got one of"):
        corrupt(np.zeros((1, 90, 90, 3), np.uint8), "frost", 5, textures=textures)
    (tmp_path / "frost4.jpg").unlink()
    with pytest.raises(ValueError, match=r"without frost4\.jpg"):
        load_textures(tmp_path)


def test_every_corruption_has_a_line_of_explanation():
    assert all(inspect.getdoc(function) for function in package.FUNCTIONS.values())
