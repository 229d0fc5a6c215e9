"""The corruptions against a recording of the published generator, and against slow versions written another way."""

import colorsys
import math

import numpy as np
import pytest

import published_cifar_c
from latte.data.corruptions import FUNCTIONS, corrupt, effects, filters
from latte.data.corruptions.filters import streams

ndimage = pytest.importorskip("scipy.ndimage")
# These draw nothing of their own (Pillow does the work), choose which values to overwrite, or have other textures.
NOT_RECORDED = {"pixelate", "jpeg_compression", "impulse_noise", "frost"}


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in NOT_RECORDED])
def test_every_value_is_that_of_the_published_generator(name):
    """Truncated where it truncates: a level is never rounded up."""
    with np.load(published_cifar_c.RECORDING) as recording:
        by_severity = recording[name]
    for severity, expected in enumerate(by_severity, start=1):
        got = FUNCTIONS[name](published_cifar_c.picture()[None], severity, [published_cifar_c.Numbers()])[0]
        assert (got != expected).sum() == 0, severity


def test_drops_brighter_than_white_start_again_at_black():
    with np.load(published_cifar_c.RECORDING) as recording:
        expected = recording["spatter_overflowing"]
    got = effects.spatter(published_cifar_c.picture()[None], 3, [published_cifar_c.Numbers(seed=4)])[0]
    assert (got == expected).all()


@pytest.mark.parametrize("sigma", [0.05, 0.25, 0.4, 1.0, 6.4])
@pytest.mark.parametrize(("border", "mode"), [("edge", "nearest"), ("symmetric", "reflect")])
def test_gaussian_is_scipys(sigma, border, mode):
    images = np.random.default_rng(0).random((3, 20, 24, 3))
    expected = ndimage.gaussian_filter(images, (0, sigma, sigma, 0), mode=mode, truncate=3.0)
    assert np.allclose(filters.gaussian(images, sigma, border, 3.0), expected, atol=1e-12)


@pytest.mark.parametrize("factor", [1.0, 1.01, 1.13, 1.25, 1.75, 2.25])
def test_zoom_is_scipys(factor):
    image = np.random.default_rng(0).random((32, 32, 3))
    inner = math.ceil(32 / factor)
    first = (32 - inner) // 2
    middle = image[first : first + inner, first : first + inner]
    large = ndimage.zoom(middle, (factor, factor, 1), order=1, mode="nearest")
    trim = (len(large) - 32) // 2
    expected = large[trim : trim + 32, trim : trim + 32]
    assert np.allclose(filters.zoom(image[None], factor)[0], expected, atol=1e-12)


@pytest.mark.parametrize(("fold", "mode"), [("fold_symmetric", "reflect"), ("fold_reflect", "mirror")])
def test_sampling_is_scipys(fold, mode):
    rng = np.random.default_rng(0)
    images = rng.random((2, 9, 11, 3))
    y, x = rng.uniform(-12, 20, (2, 9, 11)), rng.uniform(-12, 20, (2, 9, 11))
    got = filters.sample(images, y, x, getattr(filters, fold))
    for i in range(2):
        for channel in range(3):
            plane = images[i, :, :, channel]
            expected = ndimage.map_coordinates(plane, [y[i], x[i]], order=1, mode=mode)
            assert np.allclose(got[i, :, :, channel], expected, atol=1e-9)


def test_glass_blur_copies_where_the_published_loop_seems_to_swap(pictures):
    rows, columns = 32, 32
    for index in range(3):
        image = pictures[index].copy()
        steps = streams(0, 4, [index])[0].integers(-1, 1, (2, rows - 2, columns - 2))
        for h in range(rows - 1, 1, -1):
            for w in range(columns - 1, 1, -1):
                from_h, from_w = h + steps[0, h - 2, w - 2], w + steps[1, h - 2, w - 2]
                # both sides are views: the second assignment writes back what the first has just written
                image[h, w], image[from_h, from_w] = image[from_h, from_w], image[h, w]
        moved = effects.displace(pictures[index : index + 1], streams(0, 4, [index]))[0]
        assert (moved == image).all()
        colours = [len(np.unique(of.reshape(-1, 3), axis=0)) for of in (pictures[index], moved)]
        assert colours[1] < colours[0]  # a swap would keep them all


@pytest.mark.parametrize("degrees", [-135.0, -90.0, -44.9, 0.0, 13.7, 45.0])
def test_motion_blur_walks_from_every_pixel(degrees):
    image = np.random.default_rng(0).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    radius, sigma, angle = 4, 2.0, math.radians(degrees)
    weights = [math.exp(-(i * i) / (2 * sigma * sigma)) for i in range(2 * radius + 1)]
    got = effects.streaks(image[None], radius, sigma, [degrees])[0]
    for y, x in np.ndindex(12, 10):
        total = np.zeros(3)
        for i, weight in enumerate(weights):
            row = min(max(y + math.ceil(i * math.sin(angle) - 0.5), 0), 11)
            column = min(max(x + math.ceil(i * math.cos(angle) - 0.5), 0), 9)
            total += weight / sum(weights) * image[row, column]
        assert (got[y, x] == np.floor(total + 0.5 / 257)).all()  # truncated, but for the last of 16 bits


def test_defocus_is_a_disk():
    point = np.zeros((1, 17, 17, 3), np.uint8)
    point[0, 8, 8] = 255
    spread = corrupt(point, "defocus_blur", 5)[0, 6:11, 6:11, 0]
    # radius 1.5 reaches the eight neighbours, and its softened edge is too thin to show
    expected = np.zeros((5, 5), np.uint8)
    expected[1:4, 1:4] = 255 // 9
    assert np.abs(spread.astype(int) - expected).max() <= 1
    assert all(np.isclose(effects.disk(*of).sum(), 1) for of in effects.DEFOCUS)


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_colours_go_through_hsv(pictures, severity):
    rng = np.random.default_rng(0)
    few = np.concatenate([pictures[:1, ::4, ::4], rng.integers(0, 256, (1, 8, 8, 3), dtype=np.uint8)])
    few[1, 0, :3] = [[0, 0, 0], [255, 255, 255], [90, 90, 90]]
    brighter, saturated = corrupt(few, "brightness", severity), corrupt(few, "saturate", severity)
    factor, offset = effects.SATURATE[severity - 1]
    for at in np.ndindex(few.shape[:3]):
        h, s, v = colorsys.rgb_to_hsv(*(few[at] / 255.0))
        raised = colorsys.hsv_to_rgb(h, s, min(v + effects.BRIGHTNESS[severity - 1], 1))
        deeper = colorsys.hsv_to_rgb(h, min(max(s * factor + offset, 0), 1), v)
        # colorsys adds in another order: where the result is a whole level, its last bit may be another
        for got, wanted in ((brighter[at], np.multiply(raised, 255)), (saturated[at], np.multiply(deeper, 255))):
            below = wanted - got.astype(float)
            assert ((below >= -1e-9) & (below < 1 + 1e-9)).all()


def test_tilt_moves_three_points(pictures):
    shift = np.random.default_rng(0).uniform(-2, 2, (4, 3, 2))
    images = pictures[:4] / 255.0
    got = effects._tilt(images, shift)
    corners = np.array([[26, 26], [26, 6], [6, 6]], float)
    y, x = np.mgrid[:32, :32]
    for i in range(4):
        homogeneous = np.c_[corners + shift[i], np.ones(3)]
        back = np.linalg.solve(homogeneous, corners)  # from the output to the input, (x, y, 1) @ back
        source = np.stack([x, y, np.ones_like(x)], axis=-1) @ back
        for channel in range(3):
            plane = images[i, :, :, channel]
            at = [source[..., 1], source[..., 0]]
            expected = ndimage.map_coordinates(plane, at, order=1, mode="mirror")
            assert np.allclose(got[i, :, :, channel], expected, atol=1e-9)


def test_plasma_is_diamond_square_on_a_torus():
    side, decay = 8, 1.75
    noise = streams(1, 9, [5])[0].uniform(-1, 1, side * side - 1).tolist()
    heights = np.zeros((side, side))
    step, wobble = side, 100.0
    while step >= 2:
        half, grid = step // 2, range(0, side, step)
        for y, x in [(y, x) for y in grid for x in grid]:
            around = [heights[(y + a) % side, (x + b) % side] for a in (0, step) for b in (0, step)]
            heights[y + half, x + half] = sum(around) / 4 + wobble**2 * noise.pop(0)
        for down, right in ((0, half), (half, 0)):
            for y, x in [(y + down, x + right) for y in grid for x in grid]:
                cross = [(half, 0), (-half, 0), (0, half), (0, -half)]
                around = [heights[(y + a) % side, (x + b) % side] for a, b in cross]
                heights[y, x] = sum(around) / 4 + wobble**2 * noise.pop(0)
        step, wobble = half, wobble / decay
    expected = (heights - heights.min()) / (heights.max() - heights.min())
    assert np.allclose(effects.plasma(streams(1, 9, [5]), side, decay)[0], expected)


# --- the parts of spatter -----------------------------------------------------------------------------------


def liquid(n):
    smooth = filters.gaussian(np.random.default_rng(0).normal(0.65, 0.3, (n, 32, 32)), 1.0)
    return np.where(smooth < 0.69, 0, np.clip(smooth, 0, 1))


def slow_canny(image, low, high):
    """One image, one pixel at a time, the direction by its angle."""
    size = image.shape
    p = np.pad(image.astype(int), 1, mode="edge")
    gx = ndimage.sobel(p, axis=1)[1:-1, 1:-1]
    gy = ndimage.sobel(p, axis=0)[1:-1, 1:-1]
    strength = np.pad(np.abs(gx) + np.abs(gy), 1)
    ridge = np.zeros(size, bool)
    for y, x in np.ndindex(size):
        m, angle = strength[y + 1, x + 1], math.degrees(math.atan2(gy[y, x], gx[y, x])) % 180
        if m <= low:
            continue
        if angle < 22.5 or angle > 157.5:
            (dy, dx), equal_allowed = (0, 1), True
        elif 67.5 < angle < 112.5:
            (dy, dx), equal_allowed = (1, 0), True
        else:
            (dy, dx), equal_allowed = (1, 1) if angle < 90 else (1, -1), False
        before, after = strength[y + 1 - dy, x + 1 - dx], strength[y + 1 + dy, x + 1 + dx]
        ridge[y, x] = m > before and (m > after or (equal_allowed and m == after))
    labels, _ = ndimage.label(ridge, np.ones((3, 3)))
    strong = np.unique(labels[ridge & (strength[1:-1, 1:-1] > high)])
    return ridge & np.isin(labels, strong)


def test_edges():
    drops = (liquid(20) * 255).astype(np.uint8)
    outlines = filters.canny(drops, 50, 150)
    assert outlines.any(axis=(1, 2)).all()
    for drop, edge in zip(drops, outlines, strict=True):
        assert (slow_canny(drop, 50, 150) == edge).all()


def test_distances_are_shortest_walks():
    mask = np.random.default_rng(0).random((5, 14, 17)) < 0.02
    mask[4] = False  # no edge at all
    for edge, got in zip(mask, filters.distances(mask, 20.0), strict=True):
        for y, x in np.ndindex(edge.shape):
            best = 20.0
            for a, b in np.argwhere(edge):
                near, far = sorted((abs(a - y), abs(b - x)))
                # k knight's steps (2, 1), then diagonal ones, then straight ones: the best k
                for k in range(min(near, far // 2) + 1):
                    long, short = max(far - 2 * k, near - k), min(far - 2 * k, near - k)
                    best = min(best, k * 2.1969 + short * 1.4 + (long - short) * 1.0)
            assert got[y, x] == pytest.approx(best, abs=1e-9)


def test_equalised_histogram():
    images = np.random.default_rng(0).integers(0, 21, (4, 8, 8), dtype=np.uint8)
    images[3] = 7
    for image, got in zip(images, filters.equalise(images), strict=True):
        values, counts = np.unique(image, return_counts=True)
        if len(values) == 1:
            assert (got == image).all()
            continue
        table = np.rint((np.cumsum(counts) - counts[0]) * (255 / (image.size - counts[0])))
        assert (got == table[np.searchsorted(values, image)]).all()


def test_water_shines_on_the_drops_only_and_dry_lenses_stay_clear():
    drops = liquid(10)
    drops[9] = 0
    shine = effects.water(drops, 0.5)
    assert (shine[drops == 0] == 0).all()
    assert np.allclose(shine[:9].max(axis=(1, 2)), 0.5)
    assert (shine[9] == 0).all()
