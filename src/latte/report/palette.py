"""One colour, dash and dot per method, the same in every table, chart and page.

The hues keep a contrast of at least 3:1 with the page in light and in dark mode. The local and the global form of one
method share a hue and differ in the dash, so that no reader depends on colour alone.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

from .paper import family

LIGHT_PAGE, DARK_PAGE = "#ffffff", "#15181d"


@dataclass(frozen=True, slots=True)
class Look:
    """How a method is drawn: its colour on a light and on a dark page, and an SVG dash pattern ("" is solid)."""

    light: str
    dark: str
    dash: str = ""


LOOKS = {
    "clip": Look("#5f6368", "#b4bac2", "2 4"),
    "vte": Look("#8a6a00", "#dcbc3c", "8 3 2 3"),
    "tpt": Look("#b02a6b", "#f48bb8", "8 3 2 3"),
    "zero": Look("#6f3bb0", "#c4a0f5", "8 3 2 3"),
    "tda": Look("#0b67b2", "#6db9f5", "6 4"),
    "tda-global": Look("#0b67b2", "#6db9f5"),
    "dmn": Look("#007a62", "#46cbb0", "6 4"),
    "dmn-global": Look("#007a62", "#46cbb0"),
    "latte": Look("#c8420a", "#ff8d5c"),
    "ristretto": Look("#4a2c17", "#e0b48c"),
}

# for methods that the paper does not have; which one depends on the name only
OTHERS = (
    Look("#3f6212", "#a3d65c", "10 3"),
    Look("#7c2d12", "#e8a584", "10 3"),
    Look("#155e75", "#5cc6e0", "10 3"),
    Look("#86198f", "#e58df0", "10 3"),
    Look("#334155", "#9fb3cf", "10 3"),
)


def look(label: str, name: str | None = None) -> Look:
    """Return how the row or line ``label`` is drawn, which is a form of the method ``name``; None: the label names it.

    A form such as "latte+variant=released", or one with a label of the user's, has its method's colour and long dashes.

    >>> look("latte").light == look("mine", "latte").light
    True
    """
    key = label.lower()
    method = family(key) if name is None else name
    if method not in LOOKS:
        return OTHERS[zlib.crc32(key.encode(errors="backslashreplace")) % len(OTHERS)]
    return LOOKS[method] if key == method else replace(LOOKS[method], dash="12 4")


def contrast_ratio(first: str, second: str) -> float:
    """Return the contrast ratio of two colours as WCAG 2 defines it, 1 to 21.

    >>> contrast_ratio("#000000", "#ffffff")
    21.0
    """
    low, high = sorted((_luminance(first), _luminance(second)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
