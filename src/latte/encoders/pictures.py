"""Pictures of any kind, opened as upright 8-bit RGB; bad files are refused in one clear line."""

from __future__ import annotations

import errno
import threading
import warnings
from importlib.util import find_spec
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np
from numpy.typing import NDArray

from ..errors import InputError, need
from ..files.documents import read_bytes

if TYPE_CHECKING:
    from PIL.Image import Image

# a file, its bytes, a picture of Pillow, or an array: uint8 (H, W, 3) in RGB, or float32 (3, H, W) preprocessed
Picture: TypeAlias = Union[str, PathLike[str], bytes, "Image", NDArray[Any]]

HEIC_SUFFIXES = frozenset({".heic", ".heif"})  # of telephones; a package that need not be there reads them
_READS_HEIC = find_spec("pillow_heif") is not None
HEIC_HINT = "HEIC pictures need another package: pip install pillow-heif, or let the camera write JPEG"
PICTURE_SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm", ".pgm"}) | (
    HEIC_SUFFIXES if _READS_HEIC else frozenset()
)
_HEIC_BRANDS = (b"ftypheic", b"ftypheix", b"ftyphevc", b"ftypheim", b"ftypheis", b"ftypmif1", b"ftypmsf1")
# what the system says of a file that will be no better the next time
LASTING = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL, errno.EFBIG)
MOST_PICTURE_BYTES = 1 << 29  # a larger file is hardly a picture
MOST_PIXELS = 300_000_000  # by default: a sheet of A3 at 1,200 dpi has 278 million, the largest phone camera 200
# very large pictures are decoded at reduced size: a model sees a few hundred pixels of a side, whatever the camera gave
LARGE = 89_478_485  # pixels: Pillow's own warning level
LEAST_SIDE = 2048  # pixels that the short side still has: nine times the input of a model of 224 x 224
_STRIP = 1 << 22  # pixels that are converted at a time
_ONE_LARGE_AT_A_TIME = threading.Lock()
PROGRAMS = ("EPS", "WMF")  # Pillow would run an interpreter on a file that may come from anywhere
_ORIENTATION = 0x0112  # the EXIF tag
# Pillow can only *warn* about a decompression bomb, and the warning filters belong to the whole process
_FILTERS = threading.Lock()


class BadImageError(InputError):
    """A file that is not a picture or cannot be used. The message is one line with the file's name.

    A problem that is ``passing`` is none of the file: a missing permission, a disk that fails, too little memory.
    """

    def __init__(self, message: str, passing: bool = False) -> None:
        super().__init__(message)
        self.passing = passing


def open_picture(source: str | PathLike[str] | bytes, most_pixels: int = MOST_PIXELS) -> Image:
    """Return the picture in a file (or in the bytes of one) as an upright RGB ``PIL.Image``.

    Greyscale, palette, RGBA, CMYK and 16-bit pictures are converted, the EXIF rotation is applied. A very large picture
    comes at reduced size. Anything else (a text file, a truncated JPEG, a decompression bomb
    of more than ``most_pixels``) raises ``BadImageError``.
    """
    label = "image bytes" if isinstance(source, bytes) else str(source)
    data = source if isinstance(source, bytes) else _read(Path(source))
    try:
        picture: Image = _decode(data, most_pixels)
        return picture
    except BadImageError as error:
        raise BadImageError(f"{label}: {error}") from None
    except MemoryError:
        raise BadImageError(f"{label}: not enough memory to read it", passing=True) from None
    except Exception as error:  # Pillow's plugins raise anything, from struct.error to SyntaxError
        reason = f"cannot be read ({' '.join(str(error).split()) or type(error).__name__})"
        if type(error).__name__ == "UnidentifiedImageError":
            reason = "not an image, or of a kind Pillow cannot read"
        raise BadImageError(f"{label}: {reason}") from None


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path, "picture", MOST_PICTURE_BYTES)
    except InputError as error:
        reason = error.__context__  # of the system, where the file could not be opened
        passing = isinstance(reason, OSError) and reason.errno not in LASTING
        raise BadImageError(str(error), passing) from None


def _decode(data: bytes, most_pixels: int) -> Any:
    if not data:
        raise BadImageError("the file is empty")
    picture = _open_header(data, most_pixels)
    if picture.format in PROGRAMS:
        raise BadImageError(f"{picture.format} is a program that draws, want a picture made of pixels")
    if picture.width * picture.height > most_pixels:
        size = f"{picture.width} x {picture.height} pixels (a decompression bomb?)"
        raise BadImageError(f"{size}, want at most {most_pixels:,}")
    if picture.width * picture.height > LARGE:
        shown = _decode_reduced(picture)
    else:
        picture.load()
        shown = picture
    try:
        orientation = picture.getexif().get(_ORIENTATION)
    except Exception:  # damaged EXIF data do not make the pixels bad
        orientation = None
    if orientation in range(2, 9):
        shown.getexif()[_ORIENTATION] = int(orientation)  # a reduced picture has no EXIF data of its own
        shown = need("PIL.ImageOps", "onnx").exif_transpose(shown)
    return to_rgb(shown)


def _decode_reduced(picture: Any) -> Any:
    """Return a large picture as RGB, averaged, with at least ``LEAST_SIDE`` pixels on its short side if it has as many.

    One at a time, and converted in strips: the memory is that of the picture in the file's own colours.
    """
    with _ONE_LARGE_AT_A_TIME:
        factor = max(1, min(picture.size) // LEAST_SIDE)
        picture.draft(None, (picture.width // factor, picture.height // factor))  # of a JPEG; others ignore it
        picture.load()
        factor = max(1, min(picture.size) // LEAST_SIDE)
        width, height = picture.size
        extremes = picture.getextrema() if picture.mode[0] in "IF" else None
        small = need("PIL.Image", "onnx").new("RGB", (-(-width // factor), -(-height // factor)))
        rows = max(1, _STRIP // (width * factor)) * factor
        for top in range(0, height, rows):
            strip = picture.crop((0, top, width, min(top + rows, height)))
            small.paste(to_rgb(strip, extremes).reduce(factor), (0, top // factor))
        return small


def _open_header(data: bytes, most_pixels: int) -> Any:
    """Return a picture of which only the header has been read; the limit is ours, not Pillow's."""
    image_module = need("PIL.Image", "onnx")
    if data[4:12] in _HEIC_BRANDS:
        if _READS_HEIC:
            need("pillow_heif", "onnx").register_heif_opener()
        elif data[4:12] not in (b"ftypmif1", b"ftypmsf1"):  # these two may be AVIF, which Pillow reads
            raise BadImageError(HEIC_HINT)
    with _FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before, image_module.MAX_IMAGE_PIXELS = image_module.MAX_IMAGE_PIXELS, most_pixels
        try:
            return image_module.open(BytesIO(data))
        except image_module.DecompressionBombError:  # from twice the limit on, Pillow has no size to show
            raise BadImageError(f"far too many pixels (a decompression bomb?), want at most {most_pixels:,}") from None
        finally:
            image_module.MAX_IMAGE_PIXELS = before


def to_rgb(picture: Image, extremes: tuple[float, float] | None = None) -> Image:
    """Return any ``PIL.Image`` as RGB; alpha is dropped, as the reference transform does.

    16-bit values keep their high byte; floating-point values are read as 0..1 if all of them fit, else as 0..255. The
    lowest and the highest value decide; if ``picture`` is a part, ``extremes`` are those of the whole picture.
    """
    if picture.mode == "RGB":
        return picture
    if picture.mode[0] in "IF":
        values = np.asarray(picture)
        low, high = extremes or (values.min(), values.max())
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise BadImageError("NaN or infinite pixels")
        if values.dtype.kind == "f":
            values = np.rint(values * 255.0 if high <= 1.0 and low >= 0.0 else values)
        elif high > 255:
            values = values >> 8
        grey: Image = need("PIL.Image", "onnx").fromarray(np.clip(values, 0, 255).astype(np.uint8))
        return grey.convert("RGB")
    if picture.mode in ("P", "PA", "La"):  # by way of RGBA: Pillow warns about transparency otherwise
        picture = picture.convert("LA" if picture.mode == "La" else "RGBA")
    return picture.convert("RGB")


def as_picture(value: Picture, most_pixels: int = MOST_PIXELS) -> Image:
    """Return a ``PIL.Image``, an (H, W, 3) uint8 array, a path or the bytes of a file as an RGB picture."""
    if isinstance(value, (str, PathLike, bytes)):
        return open_picture(value, most_pixels)
    if isinstance(value, np.ndarray):
        if value.dtype != np.uint8 or value.ndim != 3 or value.shape[2] != 3 or not value.size:
            raise BadImageError(f"an array of {value.dtype} {value.shape}, want uint8 (H, W, 3)")
        picture: Image = need("PIL.Image", "onnx").fromarray(value)
        return picture
    if not hasattr(value, "convert"):
        raise BadImageError(f"a {type(value).__name__}, want a PIL image, a path or a uint8 array (H, W, 3)")
    return to_rgb(value)
