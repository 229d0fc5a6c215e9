"""Pillow, or the line that installs it."""

from __future__ import annotations

from typing import Any


def pillow_image() -> Any:
    """Return the module ``PIL.Image``."""
    try:
        from PIL import Image
    except ImportError:
        raise ImportError('images need Pillow: pip install "latte-tta[data]"') from None
    return Image
