"""Open pictures of any kind as upright 8-bit RGB, and refuse bad files in one clear line."""

from __future__ import annotations

import threading
import warnings
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from ..core.extras import need
from ..files.reading import read_bytes

PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"})
MOST_PICTURE_BYTES = 1 << 29  # a larger file is hardly a picture
MOST_PIXELS = 89_478_485  # pixels: Pillow's own warning level, an error here
PROGRAMS = ("EPS", "WMF")  # Pillow would run an interpreter on a file that may come from anywhere
_ORIENTATION = 0x0112  # the EXIF tag
# Pillow can only *warn* about a decompression bomb, and the warning filters belong to the whole process
_FILTERS = threading.Lock()


class BadImageError(ValueError):
    """A file that is not a picture or cannot be used. The message is one line with the file's name."""


def open_picture(source: str | Path | bytes) -> Any:
    """Return the picture in a file (or in the bytes of one) as an upright RGB ``PIL.Image``.

    Greyscale, palette, RGBA, CMYK and 16-bit pictures are converted, the EXIF rotation is applied. Anything
    else (a text file, a truncated JPEG, a decompression bomb) raises ``BadImageError``.
    """
    label = "image bytes" if isinstance(source, bytes) else str(source)
    data = source if isinstance(source, bytes) else _read(Path(source))
    try:
        return to_rgb(_decode(data))
    except BadImageError as error:
        raise BadImageError(f"{label}: {error}") from None
    except Exception as error:  # Pillow's plugins raise anything, from struct.error to SyntaxError
        raise BadImageError(f"{label}: {_reason(error)}") from None


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path, "picture", MOST_PICTURE_BYTES)
    except ValueError as error:
        raise BadImageError(str(error)) from None


def _decode(data: bytes) -> Any:
    image_module = need("PIL.Image", "onnx")
    if not data:
        raise BadImageError("the file is empty")
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        picture = image_module.open(BytesIO(data))  # reads the header only
    if picture.format in PROGRAMS:
        raise BadImageError(f"{picture.format} is a program that draws, want a picture made of pixels")
    check_size(picture.size)
    picture.load()
    return _upright(picture)


def check_size(size: tuple[int, int]) -> None:
    """Refuse a picture of more pixels than anyone sends on purpose."""
    if size[0] * size[1] > MOST_PIXELS:
        raise BadImageError(f"{size[0]} x {size[1]} pixels (a decompression bomb?), want at most {MOST_PIXELS}")


def _upright(picture: Any) -> Any:
    try:
        turned = picture.getexif().get(_ORIENTATION, 1) in range(2, 9)
    except Exception:  # damaged EXIF data do not make the pixels bad
        return picture
    return need("PIL.ImageOps", "onnx").exif_transpose(picture) if turned else picture


def _reason(error: Exception) -> str:
    kind = type(error).__name__
    if kind == "UnidentifiedImageError":
        return "not an image, or of a kind Pillow cannot read"
    if kind == "FileNotFoundError":
        return "no such file"
    if kind.startswith("DecompressionBomb"):
        return f"more than {MOST_PIXELS} pixels (a decompression bomb?)"
    return f"cannot be read ({' '.join(str(error).split()) or kind})"


def to_rgb(picture: Any) -> Any:
    """Return any ``PIL.Image`` as RGB; alpha is dropped, as the reference transform does.

    16-bit values keep their high byte; floating-point ones are read as 0..1 where they fit, else as 0..255.
    """
    if picture.mode == "RGB":
        return picture
    if picture.mode[0] in "IF":
        return _from_wide(np.asarray(picture))
    if picture.mode in ("P", "PA", "La"):  # by way of RGBA: Pillow warns about transparency otherwise
        picture = picture.convert("LA" if picture.mode == "La" else "RGBA")
    return picture.convert("RGB")


def _from_wide(values: Any) -> Any:
    if values.dtype.kind == "f":
        if not np.isfinite(values).all():
            raise BadImageError("NaN or infinite pixels")
        scaled = values * 255.0 if values.max() <= 1.0 and values.min() >= 0.0 else values
        grey = np.clip(np.rint(scaled), 0, 255)
    else:
        grey = np.clip(values >> 8 if values.max() > 255 else values, 0, 255)
    return need("PIL.Image", "onnx").fromarray(grey.astype(np.uint8)).convert("RGB")


def as_picture(value: Any) -> Any:
    """Return a ``PIL.Image``, an (H, W, 3) uint8 array, a path or the bytes of a file as an RGB picture."""
    if isinstance(value, (str, Path, bytes)):
        return open_picture(value)
    if isinstance(value, np.ndarray):
        if value.dtype != np.uint8 or value.ndim != 3 or value.shape[2] != 3 or not value.size:
            raise BadImageError(f"an array of {value.dtype} {value.shape}, want uint8 (H, W, 3)")
        return need("PIL.Image", "onnx").fromarray(value)
    if not hasattr(value, "convert"):
        raise BadImageError(f"a {type(value).__name__}, want a PIL image, a path or a uint8 array (H, W, 3)")
    return to_rgb(value)
