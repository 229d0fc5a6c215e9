"""Views: the spec's ranges and mixtures, the same for the same key."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latte.encoders import Preprocess
from latte.encoders import views as augmix
from latte.encoders.views import ViewPlan, crop_box, crop_flip, generator, make_views, mix
from tiny_models import make_photo

Image = pytest.importorskip("PIL.Image")
RULE = Preprocess(size=(48, 48), short_side=48)
SIDES = st.integers(1, 300)


class Fixed:
    """A generator whose every uniform draw is the same: a strength becomes known."""

    def __init__(self, level, sign):
        self.level, self.sign = level, sign

    def uniform(self, low, high):
        return low + self.level * (high - low)

    def random(self):
        return self.sign


@pytest.mark.parametrize("kind", ["augmix", "crop_flip"])
def test_shape_dtype_and_plain_view(photo, kind):
    views = make_views(photo, "a.jpg", RULE, ViewPlan(kind))
    assert views.shape == (64, 3, 48, 48) and views.dtype == np.float32
    assert np.array_equal(views[0], RULE(photo))
    assert len({view.tobytes() for view in views}) == 64
    assert np.isfinite(views).all()


def test_seed_and_key_change_the_views(photo):
    first = make_views(photo, "a", RULE, ViewPlan(count=3))
    for key, seed in (("b", 0), ("a", 1), (0, 0)):
        assert not np.array_equal(first[1:], make_views(photo, key, RULE, ViewPlan(count=3, seed=seed))[1:])
    assert generator(0, 1).random() != generator(0, "1").random()


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (3, 2)])
@pytest.mark.parametrize("kind", ["augmix", "crop_flip"])
def test_tiny_and_thin_pictures(size, kind):
    assert make_views(make_photo(*size), 0, RULE, ViewPlan(kind, count=8)).shape == (9, 3, 48, 48)


def test_a_low_resolution_source_has_small_views():
    rule = Preprocess(size=(64, 64), short_side=64, low_res=40, low_res_size=32)
    assert make_views(make_photo(32, 32), 0, rule, ViewPlan(count=2)).shape == (3, 3, 32, 32)


@given(SIDES, SIDES, st.integers(0, 10**6))
def test_a_crop_lies_inside_with_the_area_and_ratio_it_should_have(width, height, seed):
    left, top, w, h = crop_box((width, height), ViewPlan(), np.random.default_rng(seed))
    assert left >= 0 and top >= 0 and left + w <= width and top + h <= height and w >= 1 <= h
    thin = not 3 / 4 <= width / height <= 4 / 3
    if min(w, h) > 20 and not thin:  # large enough for rounding not to matter
        assert 0.07 <= w * h / (width * height) <= 1
        assert 0.7 <= w / h <= 1.43


def test_crops_follow_torchvisions_distribution():
    """Area uniform in 0.08 to 1 where every draw fits, log-ratio uniform, and a uniform place."""
    rng = np.random.default_rng(0)
    boxes = np.array([crop_box((400, 400), ViewPlan(area=(0.08, 0.5)), rng) for _ in range(4000)], float)
    area = boxes[:, 2] * boxes[:, 3] / 400**2
    assert abs(area.mean() - 0.29) < 0.01 and abs(area.std() - 0.42 / math.sqrt(12)) < 0.005
    ratio = np.log(boxes[:, 2] / boxes[:, 3])
    assert abs(ratio.mean()) < 0.01 and abs(ratio.std() - 2 * math.log(4 / 3) / math.sqrt(12)) < 0.005
    place = boxes[:, 0] / (400 - boxes[:, 2])
    assert abs(place.mean() - 0.5) < 0.02 and abs(place.std() - 1 / math.sqrt(12)) < 0.01


@pytest.mark.parametrize("size, want", [((100, 10), (13, 10)), ((10, 100), (10, 13)), ((1, 1), (1, 1))])
def test_where_no_crop_fits_the_centre_is_taken(size, want):
    class Never(Fixed):
        def integers(self, stop):
            raise AssertionError("no random crop fits")

    plan = ViewPlan(area=(1.0, 1.0))
    left, top, w, h = crop_box(size, plan, Never(0.5, 0)) if size != (1, 1) else (0, 0, 1, 1)
    assert (w, h) == want and (left, top) == ((size[0] - w) // 2, (size[1] - h) // 2)


def test_half_of_the_views_are_mirrored():
    picture = Image.fromarray(np.repeat(np.linspace(0, 255, 64).astype(np.uint8)[None, :, None], 64, 0).repeat(3, 2))
    plan, rng = ViewPlan("crop_flip"), np.random.default_rng(1)
    slopes = [np.diff(np.asarray(crop_flip(picture, (32, 32), plan, rng), int)[0, :, 0]).mean() for _ in range(600)]
    assert 0.44 < np.mean(np.array(slopes) < 0) < 0.56


def test_mixing_before_normalising_is_mixing_after(photo):
    """The spec's formula, literally: m·pre(x) + (1 − m)·Σ w_i·pre(chain_i(x))."""
    picture = photo.resize((48, 48))
    for seed in range(20):
        got = RULE.normalise(mix(picture, np.random.default_rng(seed)))
        rng = np.random.default_rng(seed)
        w, m = rng.dirichlet([1.0, 1.0, 1.0]), rng.beta(1.0, 1.0)
        mixed = np.zeros((3, 48, 48))
        for weight in w:
            chain = picture.copy()
            for _ in range(rng.integers(1, 4)):
                chain = augmix.augment(chain, augmix.AUGMENTATIONS[rng.integers(9)], rng)
            mixed += weight * RULE.normalise(np.asarray(chain)).astype(np.float64)
        want = m * RULE.normalise(np.asarray(picture)) + (1 - m) * mixed
        assert np.allclose(got, want, atol=3e-6)


def test_the_nine_operations_are_those_of_the_spec():
    names = "autocontrast equalize posterize rotate solarize shear_x shear_y translate_x translate_y"
    assert " ".join(augmix.AUGMENTATIONS) == names


@pytest.mark.parametrize("level", [0.0, 0.3, 0.7, 0.999])
@pytest.mark.parametrize("sign", [0.2, 0.9])
def test_strengths_are_those_of_severity_one(level, sign):
    """Against AugMix's rule written out: int or float of level · largest / 10, level in 0.1 to 1."""
    from PIL import ImageOps

    picture = make_photo(224, 224)
    drawn, rng = 0.1 + level * 0.9, Fixed(level, sign)
    s = -1 if sign > 0.5 else 1
    bilinear = Image.Resampling.BILINEAR

    def moved(matrix):
        return picture.transform((224, 224), Image.Transform.AFFINE, matrix, resample=bilinear)

    shear, shift = s * drawn * 0.3 / 10, s * int(drawn * (224 / 3) / 10)
    want = {
        "autocontrast": ImageOps.autocontrast(picture),
        "equalize": ImageOps.equalize(picture),
        "posterize": ImageOps.posterize(picture, 4),
        "rotate": picture.rotate(s * int(drawn * 30 / 10), resample=bilinear),
        "solarize": ImageOps.solarize(picture, 256 - int(drawn * 256 / 10)),
        "shear_x": moved((1, shear, 0, 0, 1, 0)),
        "shear_y": moved((1, 0, 0, shear, 1, 0)),
        "translate_x": moved((1, 0, shift, 0, 1, 0)),
        "translate_y": moved((1, 0, 0, 0, 1, shift)),
    }
    for name in augmix.AUGMENTATIONS:
        assert np.array_equal(np.asarray(augmix.augment(picture, name, rng)), np.asarray(want[name])), name


@pytest.mark.parametrize(
    "change",
    [{"kind": "mix"}, {"count": -1}, {"seed": -1}, {"area": (0.5, 0.1)}, {"area": (0, 1)}, {"ratio": (0, 1)}],
)
def test_impossible_plans_are_refused(change):
    with pytest.raises(ValueError, match="want"):
        ViewPlan(**change)


def test_an_encoder_takes_views_as_they_are(tiny, photo):
    views = make_views(photo, "x", tiny.preprocess, ViewPlan(count=4))
    rows = tiny.images(views)
    assert rows.shape == (5, tiny.dim)
    assert np.allclose(rows[0], tiny.images([photo])[0], atol=1e-6)


@pytest.mark.slow
def test_views_are_as_far_from_the_plain_one_as_the_recorded_ones(mini, shared, pictures):
    """Recorded per picture: 31 crops with flips, 32 with AugMix on top, drawn by other code."""
    recorded = np.load(shared / "data" / "embeddings" / "views_pacs.npz", allow_pickle=False)
    paths = np.load(shared / "data" / "embeddings" / "pacs.npz", allow_pickle=False)["paths"]
    have = [row for row, index in enumerate(recorded["index"]) if (pictures / paths[index]).is_file()][:4]
    for kind, part in (("crop_flip", slice(1, 32)), ("augmix", slice(32, 64))):
        ours, theirs = [], []
        for row in have:
            path = paths[recorded["index"][row]]
            plan = ViewPlan(kind, count=part.stop - part.start)
            ours.append(mini.images(make_views(pictures / path, str(path), mini.preprocess, plan)))
            theirs.append(recorded["views"][row].astype(np.float32)[[0, *range(part.start, part.stop)]])
        near, far = ((np.array(e)[:, 1:] @ np.array(e)[:, 0, :, None]).ravel() for e in (ours, theirs))
        assert abs(near.mean() - far.mean()) < 0.01 and abs(near.std() - far.std()) < 0.012
