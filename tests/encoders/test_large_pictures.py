"""Very large pictures: decoded at reduced size, within a stated memory, and almost the same to the model."""

import sys
from io import BytesIO

import numpy as np
import pytest

from latte.encoders import BadImageError, as_picture, open_picture, pictures
from latte.encoders import pictures as module
from latte.encoders.base import encode_files
from waiting import run

Image = pytest.importorskip("PIL.Image")


@pytest.fixture
def small_limits(monkeypatch):
    """Everything above 10,000 pixels is very large, and reduced to 40 pixels of the short side."""
    monkeypatch.setattr(pictures, "LARGE", 10_000)
    monkeypatch.setattr(module, "LEAST_SIDE", 40)
    monkeypatch.setattr(module, "_STRIP", 3_000)


def saved(picture, kind, **options):
    buffer = BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def smooth(size):
    width, height = size
    x, y = np.meshgrid(np.linspace(0, 1, width), np.linspace(0, 1, height))
    return Image.fromarray((255 * np.stack([x, y, (x + y) / 2], axis=-1)).astype(np.uint8))


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP", "BMP"])
@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "CMYK", "1"])
def test_every_kind_is_the_average_of_its_pixels(small_limits, kind, mode):
    source = smooth((213, 167)).convert(mode)
    try:
        data = saved(source, kind)
    except (OSError, ValueError):
        pytest.skip(f"no {mode} in {kind}")
    reduced = open_picture(data)
    factor = 167 // 40
    assert reduced.mode == "RGB" and reduced.size == (-(-213 // factor), -(-167 // factor))
    want = as_picture(Image.open(BytesIO(data))).resize(reduced.size, Image.Resampling.BOX)
    # where the last row or column of blocks is cut, the averages differ a little
    difference = np.abs(np.asarray(reduced, int) - np.asarray(want, int))[:-1, :-1]
    assert difference.mean() < (16 if mode == "1" else 4)


def test_wide_pixels_are_scaled_by_the_whole_picture(small_limits):
    rows = np.linspace(0, 65535, 167).astype(np.uint16)
    deep = np.repeat(rows[:, None], 213, axis=1)  # the first strips alone would fit into a byte
    reduced = np.asarray(open_picture(saved(Image.fromarray(deep), "PNG")))
    assert reduced[0].max() < 5 and reduced[-1].min() > 250
    floats = np.repeat(np.linspace(0, 1, 167, dtype=np.float32)[:, None], 213, axis=1)
    assert np.asarray(open_picture(saved(Image.fromarray(floats), "TIFF")))[-1].min() > 250


def test_nan_pixels_are_refused(small_limits):
    with pytest.raises(BadImageError, match="NaN"):
        open_picture(saved(Image.fromarray(np.full((200, 200), np.nan, np.float32)), "TIFF"))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
def test_exif_rotation_is_applied(small_limits, orientation, kind):
    exif = Image.Exif()
    exif[0x0112] = orientation
    source = smooth((240, 160))
    upright = open_picture(saved(source, kind, exif=exif))
    turns = {1: None, 2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}[orientation]
    want = (source if turns is None else source.transpose(turns)).resize(upright.size, Image.Resampling.BOX)
    assert np.abs(np.asarray(upright, int) - np.asarray(want, int)).mean() < 4


def test_a_long_strip_is_not_reduced(small_limits):
    assert open_picture(saved(smooth((2000, 30)), "PNG")).size == (2000, 30)


def test_a_damaged_large_picture_is_refused_with_one_line(small_limits):
    data = saved(smooth((300, 200)), "PNG")
    with pytest.raises(BadImageError) as error:
        open_picture(data[: len(data) // 2])
    assert "\n" not in str(error.value)


def test_pictures_that_are_not_very_large_are_what_they_were():
    """The pixels, and so the embeddings, of everything that was accepted before."""
    rng = np.random.default_rng(0)
    noise = Image.fromarray(rng.integers(0, 256, (700, 900, 3), dtype=np.uint8))
    for kind in ("PNG", "JPEG"):
        data = saved(noise, kind)
        assert np.array_equal(np.asarray(open_picture(data)), np.asarray(Image.open(BytesIO(data)).convert("RGB")))
    assert module.LARGE == Image.MAX_IMAGE_PIXELS == 89_478_485, "what Pillow warns of, and was refused"


def test_the_limit_is_an_option(tiny):
    data = saved(smooth((200, 100)), "PNG")
    assert open_picture(data, most_pixels=20_000).size == (200, 100)
    with pytest.raises(BadImageError, match=r"200 x 100 pixels .*bomb.*want at most 19,999"):
        open_picture(data, most_pixels=19_999)
    (batch,) = encode_files(tiny, [data, saved(smooth((99, 100)), "PNG")], skip_bad=True, most_pixels=10_000)
    assert batch.index.tolist() == [1] and "want at most 10,000" in batch.bad[0][1]
    before = Image.MAX_IMAGE_PIXELS
    with pytest.raises(BadImageError, match="bomb"):
        open_picture(data, most_pixels=100)
    assert before == Image.MAX_IMAGE_PIXELS, "it belongs to the whole process"


CHILD = """
import sys
from latte.encoders import open_picture
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
open_picture(sys.argv[1])
before = peak()
print(*open_picture(sys.argv[2]).size, (peak() - before) / 1024)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_jpeg_of_a_scanner_takes_little_memory(tmp_path):
    smooth((64, 48)).save(tmp_path / "small.jpg")
    smooth((64, 48)).resize((12_000, 9_000)).save(tmp_path / "large.jpg", quality=80)
    done = run(sys.executable, "-c", CHILD, tmp_path / "small.jpg", tmp_path / "large.jpg", check=True)
    width, height, megabytes = map(float, done.stdout.split())
    assert (width, height) == (3000, 2250)
    assert megabytes < 200, "all pixels would be 412 MiB"
