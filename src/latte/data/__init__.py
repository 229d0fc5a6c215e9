"""Data: datasets of images, corruptions, embedding files, partitions, the bundled benchmarks.

=============== ====================================================================================
module          contents
=============== ====================================================================================
``benchmark``   ``Embeddings``, ``Federation``: a benchmark in memory
``catalogue``   benchmarks by name: list, find, read, check
``embeddings``  embedding files (safetensors); ``npz`` reads the plain .npz layout
``partition``   images dealt to clients; ``unseen`` selects rows for choosing parameters
``bundled``     the two benchmarks that ship with the package
``image_set``   labelled pictures by name: ``folders``, ``cifar``, ``cifar_c``, ``classes``
``corruptions`` the nineteen corruptions of CIFAR-C
``embed``       pictures to an embedding file; ``chunks`` makes it resume
``fetch``       datasets from the network; ``download`` resumes and verifies
``processes``   worker processes that end with their parent
=============== ====================================================================================
"""

from __future__ import annotations

from ..lazy import lazy_names

TYPE_CHECKING = False  # see latte.lazy
if TYPE_CHECKING:
    from .benchmark import ClientStream, Embeddings, Federation
    from .catalogue import BenchmarkFile, find_benchmark, list_benchmarks, read_benchmark
    from .embed import BadImagesError, EmbedPlan, embed_images
    from .embeddings import load_embeddings, load_federation, save_embeddings
    from .fetch import fetch_dataset
    from .image_set import CorruptionPlan, ImageSet, open_images
    from .npz import convert_npz
    from .partition import federate, stratified_folds

_HOMES = {
    ".benchmark": ("ClientStream", "Embeddings", "Federation"),
    ".catalogue": ("BenchmarkFile", "find_benchmark", "list_benchmarks", "read_benchmark"),
    ".embed": ("BadImagesError", "EmbedPlan", "embed_images"),
    ".embeddings": ("load_embeddings", "load_federation", "save_embeddings"),
    ".fetch": ("fetch_dataset",),
    ".image_set": ("CorruptionPlan", "ImageSet", "open_images"),
    ".npz": ("convert_npz",),
    ".partition": ("federate", "stratified_folds"),
}

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
    __getattr__, __dir__ = lazy_names(__name__, _HOMES)
