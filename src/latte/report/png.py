"""A matrix as a tiny PNG, one pixel per cell, so that a large heat map stays a small page."""

from __future__ import annotations

import base64
import struct
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

# from "never" to "most often": even steps in lightness, starting at the page's own colour
LIGHT_STOPS = ("#f4f6f9", "#b8cfe6", "#6a9fd0", "#2c67a8", "#0b2a55")
DARK_STOPS = ("#1d222a", "#244a75", "#2f7bb8", "#6fb4dd", "#d9f0ff")


def data_uri(values: NDArray[Any], stops: tuple[str, ...]) -> str:
    """Return ``values`` (R, C) in [0, 1] as a ``data:`` address of a PNG coloured along ``stops``."""
    return "data:image/png;base64," + base64.b64encode(encode(colours(values, stops))).decode("ascii")


def colours(values: NDArray[Any], stops: tuple[str, ...]) -> NDArray[np.uint8]:
    """Return the colour of each value, (R, C, 3)."""
    table = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops], float)
    at = np.linspace(0, 1, len(stops))
    channels = [np.interp(np.clip(values, 0, 1), at, table[:, channel]) for channel in range(3)]
    pixels: NDArray[np.uint8] = np.rint(np.stack(channels, axis=-1)).astype(np.uint8)
    return pixels


def encode(pixels: NDArray[np.uint8]) -> bytes:
    """Return ``pixels`` (R, C, 3) as a PNG file."""
    rows, columns, _ = pixels.shape
    lines = b"".join(b"\0" + row.tobytes() for row in pixels)  # filter 0: the bytes as they are
    header = struct.pack(">IIBBBBB", columns, rows, 8, 2, 0, 0, 0)  # 8 bits, RGB
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
