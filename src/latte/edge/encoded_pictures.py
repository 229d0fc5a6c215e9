"""Encoded pictures that wait until there are several, so that the device learns from a group at once.

The encoder, a model of some millions of weights, fills the caches of a processor. A prediction right after it, and its
record, take four times as long as they would right after another prediction.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from .classify import EmbeddedPicture
from .device_file import Source

GROUP_SECONDS = 0.2  # a picture waits for others at most this long
GROUP_PICTURES = 32  # a group of this many pictures waits for no more


class EncodedPicture(NamedTuple):
    """A picture that is encoded, and where it comes from."""

    source: Source
    picture: EmbeddedPicture


class EncodedPictures:
    """A group of pictures, in their order.

    >>> group = EncodedPictures()
    >>> group.add(EncodedPicture(Source("a.jpg"), EmbeddedPicture("a.jpg", None, "no picture")))
    >>> group.readable, group.is_due(), len(group.take()), bool(group)
    (0, False, 1, False)
    """

    def __init__(self) -> None:
        self._pictures: list[EncodedPicture] = []
        self._since = 0.0  # when the first of them came
        self.readable = 0  # how many of them have an embedding

    def __bool__(self) -> bool:
        return bool(self._pictures)

    def add(self, encoded: EncodedPicture) -> None:
        """Add a picture."""
        if not self._pictures:
            self._since = time.monotonic()
        self._pictures.append(encoded)
        self.readable += encoded.picture.row is not None

    def is_due(self) -> bool:
        """Return whether the pictures have waited long enough."""
        count = len(self._pictures)
        return count >= GROUP_PICTURES or (count > 0 and time.monotonic() - self._since >= GROUP_SECONDS)

    def take(self) -> list[EncodedPicture]:
        """Return the pictures; the next ones are another group."""
        pictures, self._pictures, self.readable = self._pictures, [], 0
        return pictures
