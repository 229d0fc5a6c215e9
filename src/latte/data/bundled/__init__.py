"""The small federated benchmark that ships with the package."""

from __future__ import annotations

from pathlib import Path

from ..benchmark import Federation
from ..embeddings import load_federation

__all__ = ["BUNDLED_FILE", "bundled"]

BUNDLED_FILE = Path(__file__).with_name("cifar10c_mini.safetensors")


def bundled() -> Federation:
    """Return 38 clients with 60 images each: CIFAR-10-C at severity 5, two clients per corruption.

    >>> federation = bundled()
    >>> len(federation), federation.samples, federation.embeddings.zero_shot.classes
    (38, 2280, 10)
    """
    return load_federation(BUNDLED_FILE)
