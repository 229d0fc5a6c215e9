"""Pillow, or the line that installs it."""

from __future__ import annotations

from typing import Any

from ..core.extras import need


def pillow_image() -> Any:
    """Return the module ``PIL.Image``."""
    return need("PIL.Image", "data")
