"""Opening pictures: every kind that exists is handled, every bad one is refused with one line."""

import struct
import warnings
import zlib
from io import BytesIO

import numpy as np
import pytest

from latte.encoders import BadImageError, as_picture, open_picture

Image = pytest.importorskip("PIL.Image")


def saved(picture, kind, **options) -> bytes:
    buffer = BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK", "YCbCr", "HSV", "PA", "RGB"])
def test_every_mode_becomes_rgb(photo, mode):
    picture = photo.convert("LA" if mode == "PA" else mode)
    picture = picture.convert("PA") if mode == "PA" else picture
    result = as_picture(picture)
    assert result.mode == "RGB" and result.size == photo.size
    if mode in ("RGBA", "RGB", "CMYK"):
        assert np.abs(np.asarray(result, int) - np.asarray(photo, int)).max() <= 2


def test_alpha_is_dropped_as_in_the_reference(photo):
    rgba = photo.copy()
    rgba.putalpha(0)
    assert np.array_equal(np.asarray(open_picture(saved(rgba, "PNG"))), np.asarray(photo))


def test_palette_with_transparency_does_not_warn(photo):
    palette = photo.convert("P", palette=Image.Palette.ADAPTIVE, colors=16)
    data = saved(palette, "PNG", transparency=bytes(range(16)))
    want = np.asarray(palette.convert("RGB"))
    assert np.array_equal(np.asarray(open_picture(data)), want)  # a warning would be an error here


def test_cmyk_jpeg(photo):
    result = np.asarray(open_picture(saved(photo.convert("CMYK"), "JPEG", quality=95)), int)
    assert np.abs(result - np.asarray(photo, int)).mean() < 6


def test_sixteen_bits_keep_their_high_byte():
    deep = (np.arange(256 * 4, dtype=np.uint16).reshape(32, 32) * 64).astype(np.uint16)
    result = np.asarray(open_picture(saved(Image.fromarray(deep), "PNG")))
    assert np.array_equal(result, np.repeat((deep >> 8).astype(np.uint8)[..., None], 3, -1))


@pytest.mark.parametrize("top", [1.0, 255.0])
def test_floating_point_tiff(top):
    grey = np.linspace(0, top, 64, dtype=np.float32).reshape(8, 8)
    result = np.asarray(open_picture(saved(Image.fromarray(grey), "TIFF")))
    assert result.max() == 255 and result.min() == 0


def test_nan_pixels_are_refused():
    with pytest.raises(BadImageError, match="NaN"):
        as_picture(Image.fromarray(np.full((4, 4), np.nan, np.float32)))


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation_is_applied(photo, orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    upright = open_picture(saved(photo, "PNG", exif=exif))
    turned = {5: True, 6: True, 7: True, 8: True}.get(orientation, False)
    assert upright.size == (photo.size[::-1] if turned else photo.size)
    turns = {1: None, 2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}[orientation]
    want = photo if turns is None else photo.transpose(turns)
    assert np.array_equal(np.asarray(upright), np.asarray(want))


def test_one_pixel(tiny):
    data = saved(Image.new("RGB", (1, 1), (200, 30, 90)), "PNG")
    assert tiny.images([data]).shape == (1, tiny.dim)


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few bytes that claims to be huge."""
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)

    def chunk(kind, data):
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


@pytest.mark.parametrize("side", [20_000, 60_000])
@pytest.mark.parametrize("filters", ["error", "default"])
def test_a_decompression_bomb_is_refused_with_one_line(side, filters):
    with warnings.catch_warnings(record=filters == "default") as caught:
        warnings.simplefilter(filters)
        with pytest.raises(BadImageError, match="decompression bomb") as error:
            open_picture(bomb(side, side))
    assert "\n" not in str(error.value) and not caught


BAD = {
    "text.jpg": b"this is not a picture",
    "empty.jpg": b"",
    "half.png": b"\x89PNG\r\n\x1a\n" + b"\0" * 30,
    "html.png": b"<html><body>404</body></html>",
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_no_picture_is_refused_by_name(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(BAD[name])
    with pytest.raises(BadImageError, match=name) as error:
        open_picture(path)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP"])
def test_every_truncation_is_refused_or_read(photo, kind):
    data = saved(photo, kind)
    refused = 0
    for stop in range(0, len(data), max(1, len(data) // 25)):
        try:
            assert open_picture(data[:stop]).size == photo.size
        except BadImageError as error:
            assert "\n" not in str(error)
            refused += 1
    assert refused > 15


def test_damaged_bytes_never_raise_anything_else(photo):
    rng = np.random.default_rng(0)
    for kind in ("JPEG", "PNG", "GIF", "TIFF"):
        for _ in range(40):
            data = bytearray(saved(photo, kind))
            for place in rng.integers(0, len(data), 20):
                data[place] = rng.integers(256)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of Pillow, about odd metadata
                try:
                    open_picture(bytes(data))
                except BadImageError as error:
                    assert "\n" not in str(error)


def test_a_program_that_draws_is_not_run():
    script = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"
    with pytest.raises(BadImageError, match="EPS is a program"):
        open_picture(script)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(BadImageError, match="which is not there"):
        open_picture(tmp_path / "none.jpg")
    with pytest.raises(BadImageError, match="is a folder"):
        open_picture(tmp_path)


@pytest.mark.parametrize("value", [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3), int), 7, None])
def test_other_things_are_refused(value):
    with pytest.raises(BadImageError, match="want"):
        as_picture(value)
