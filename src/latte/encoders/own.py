"""Encoders of one's own: a function from pictures to embeddings is enough."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..errors import refuse
from .base import BaseEncoder, Encoder
from .pictures import open_picture
from .preprocess import Preprocess

Embed: TypeAlias = Callable[[list[Any]], Any]  # n pictures to (n, D): an array, or a tensor of torch


class AsGiven(Preprocess):
    """No preprocessing: a function of one's own does that itself."""

    __slots__ = ()

    def __call__(self, picture: Any) -> Any:
        """Return the picture."""
        return picture


class FunctionEncoder(BaseEncoder):
    """The function ``embed`` as an encoder; it gets at most 32 pictures at once and returns rows (n, ``dim``).

    A path, or the bytes of a file, comes to it as an upright RGB ``PIL.Image``; anything else comes as it was given.

    >>> encoder = FunctionEncoder(lambda frames: [frame.mean(axis=(0, 1)) for frame in frames], dim=3)
    >>> encoder.images([np.full((4, 4, 3), (3, 0, 4))])
    array([[0.6, 0. , 0.8]], dtype=float32)
    """

    fingerprint = ""  # nobody can tell what a function computes

    def __init__(self, embed: Embed, dim: int, scale: float = 100.0) -> None:
        super().__init__(getattr(embed, "__name__", type(embed).__name__), dim, scale, AsGiven())
        self.embed = embed

    def _image_rows(self, images: Any) -> NDArray[Any]:
        opened = [open_picture(one) if isinstance(one, (str, bytes, os.PathLike)) else one for one in images]
        rows = plain_rows(self.embed(opened))
        if rows.shape != (len(opened), self.dim):
            want = f"({len(opened)}, {self.dim}): a row for each of {len(opened)} pictures"
            raise refuse("embeddings", f"shape {rows.shape} from {self.name}", want)
        return rows


def plain_rows(rows: Any) -> NDArray[Any]:
    """Return rows as an array of numpy, tensors of torch too."""
    return np.asarray(rows.detach().cpu() if hasattr(rows, "detach") else rows)


def as_encoder(encoder: str | Encoder | Embed, dim: int | None = None) -> Encoder:
    """Return an encoder: loaded by its name, as it is, or around a function whose rows have ``dim`` numbers."""
    from . import load_encoder

    if isinstance(encoder, str):
        return load_encoder(encoder)
    given: Any = encoder
    if hasattr(given, "images") and hasattr(given, "dim"):
        whole: Encoder = given
        return whole
    if not callable(given):
        want = 'a name such as "onnx:DIR", an Encoder, or a function from a list of pictures to their embeddings'
        raise refuse("encoder", f"a {type(given).__name__}", want)
    if dim is None:
        raise refuse("text", "none", "rows (C, D), one per class: a function has no text model")
    return FunctionEncoder(given, dim)
