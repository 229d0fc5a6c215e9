"""Data: datasets of images, corruptions, embedding files, partitions, the bundled benchmarks.

=============== ====================================================================================
module          contents
=============== ====================================================================================
``federation``  ``Embeddings``, ``Federation``: a benchmark in memory, dealt to clients
``catalogue``   benchmarks by name: list, find, read, check; rows for choosing parameters
``embeddings``  embedding files (safetensors, and the plain .npz layout)
``bundled``     the two benchmarks that ship with the package
``images``      labelled pictures by name: folders, ``cifar``, ``classes``
``corruptions`` the nineteen corruptions of CIFAR-C
``embed``       pictures to an embedding file, in chunks
``fetch``       datasets from the network: resumed and verified
=============== ====================================================================================
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .catalogue import BenchmarkFile, find_benchmark, list_benchmarks, read_benchmark
    from .embed import BadImagesError, EmbedPlan, embed_images
    from .embeddings import convert_npz, load_embeddings, load_federation, save_embeddings
    from .federation import ClientStream, Embeddings, Federation, federate, stratified_folds
    from .fetch import fetch_dataset
    from .images import CorruptionPlan, ImageSet, open_images

__all__ = [
    "BadImagesError",
    "BenchmarkFile",
    "ClientStream",
    "CorruptionPlan",
    "EmbedPlan",
    "Embeddings",
    "Federation",
    "ImageSet",
    "convert_npz",
    "embed_images",
    "federate",
    "fetch_dataset",
    "find_benchmark",
    "list_benchmarks",
    "load_embeddings",
    "load_federation",
    "open_images",
    "read_benchmark",
    "save_embeddings",
    "stratified_folds",
]

if not TYPE_CHECKING:  # a type checker reports names that do not exist
    __getattr__, __dir__ = lazy_names(__name__)
