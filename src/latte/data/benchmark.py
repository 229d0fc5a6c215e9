"""A benchmark in memory: embeddings of labelled images, and the stream of every client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Integers
from ..core.validate import first_twice
from ..core.zero_shot import ZeroShot
from ..errors import refuse


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Cached view embeddings of labelled images.

    ``views`` (n, V, D) in any float type (it may be memory-mapped), ``labels`` (n,), ``domain`` (n,) indices into
    ``domains``. ``metadata`` says how the file was made. ``index`` (n,), where known, is the source image of each row:
    rows with the same number show the same image (under two corruptions, say). ``client`` (n,), where present,
    assigns every row to a client, which sees its rows in the order of the file.
    """

    name: str
    zero_shot: ZeroShot
    views: NDArray[Any]
    labels: Integers
    domain: Integers
    domains: tuple[str, ...]
    metadata: Mapping[str, str] = field(default_factory=dict)
    index: Integers | None = None
    client: Integers | None = None

    def __post_init__(self) -> None:
        if self.views.ndim != 3 or self.views.shape[1] < 1 or self.views.shape[2] != self.zero_shot.dim:
            raise refuse("views", f"shape {self.views.shape}", f"(n, V, {self.zero_shot.dim}) with V >= 1")
        self._check("labels", self.labels, self.zero_shot.classes)
        self._check("domain", self.domain, len(self.domains))
        if (twice := first_twice(self.domains)) is not None:
            raise refuse("domains", f"{twice!r} twice", "every domain once")
        if self.index is not None:
            self._check("index", self.index, np.iinfo(np.int64).max)
        if self.client is not None:
            self._check("client", self.client, len(self))

    def _check(self, name: str, values: Integers, limit: int) -> None:
        n = len(self)
        if values.shape != (n,):
            raise refuse(name, f"shape {values.shape}", f"({n},), one per image")
        if n and not (values.min() >= 0 and values.max() < limit):
            raise refuse(name, f"values from {values.min()} to {values.max()}", f"0 to {limit - 1}")

    def __len__(self) -> int:
        return len(self.views)


@dataclass(frozen=True, eq=False)
class ClientStream:
    """The stream of one client: ``samples`` (n,) are positions in the embeddings, in the order of the stream."""

    name: str
    domain: int
    samples: Integers

    def __len__(self) -> int:
        return len(self.samples)


@dataclass(frozen=True, eq=False)
class Federation:
    """Embeddings, and the clients whose streams they make up."""

    embeddings: Embeddings
    clients: tuple[ClientStream, ...]

    def __len__(self) -> int:
        return len(self.clients)

    @property
    def samples(self) -> int:
        """The number of samples of all clients together."""
        return sum(len(client) for client in self.clients)

    def stream(self, client: ClientStream) -> NDArray[np.float32]:
        """Return the views in the stream of ``client``, (n, V, D) float32."""
        return np.asarray(self.embeddings.views[client.samples], np.float32)

    def labels(self, client: ClientStream) -> Integers:
        """Return the true labels of the stream of ``client`` (n,)."""
        return self.embeddings.labels[client.samples]
