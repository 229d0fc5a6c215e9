"""The two benchmarks that ship with the package: a small one for tests, and PACS for the demo.

README.md beside this file says where they come from, and on which terms.
"""

from __future__ import annotations

from pathlib import Path

from ..embeddings import load_embeddings, load_federation
from ..federation import Embeddings, Federation

__all__ = ["BUNDLED_FILE", "DEMO_FILE", "bundled", "demo_embeddings"]

BUNDLED_FILE = Path(__file__).with_name("cifar10c_mini.safetensors")
DEMO_FILE = Path(__file__).with_name("pacs_demo.safetensors")


def bundled() -> Federation:
    """Return 38 clients with 60 images each: CIFAR-10-C at severity 5, two clients per corruption.

    >>> federation = bundled()
    >>> len(federation), federation.samples, federation.embeddings.zero_shot.classes
    (38, 2280, 10)
    """
    return load_federation(BUNDLED_FILE)


def demo_embeddings() -> Embeddings:
    """Return all of PACS: four domains, not dealt to clients yet.

    >>> embeddings = demo_embeddings()
    >>> len(embeddings), embeddings.domains, embeddings.zero_shot.classes
    (9991, ('photo', 'art_painting', 'cartoon', 'sketch'), 7)
    """
    return load_embeddings(DEMO_FILE)
