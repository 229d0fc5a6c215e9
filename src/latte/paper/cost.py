"""What a method costs per image and per round: closed forms, measurements, and the paper's numbers beside them.

A multiply-accumulate (MAC) is one multiplication, whether or not an addition follows; exp, division, comparison and
sorting are not counted. The zero-shot head (C · D, which every method has) is not counted here either.

The *direct* form follows the formulas as they are printed, and is how the paper counts. The *own* form follows the code
of this package, which reads the norm of a weighted sum from a Gram matrix instead of forming the sum.
Full memories are assumed; c classes, d dimensions, k slots per class, V views.
"""

from __future__ import annotations

import csv
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.resources import files
from typing import Any

import numpy as np

from ..core.maths import normalised
from ..core.types import External, Method, Vectors
from ..core.validate import choice
from ..core.zero_shot import ZeroShot
from ..errors import need
from ..experiment.config import MethodConfig
from ..methods import METHODS, create, describe, resolve
from ..methods.latte.client import Latte
from ..methods.traffic import PRECISIONS, CostShape, Terms, Traffic, traffic_of

PAPER_SIZES = (100, 512)  # classes and dimensions of the paper's cost table
PAPER_SHARE = "less than 0.4 %"  # of the encoder's size: a round of Latte ("Communication cost (RQ2)")
CLIENTS = 190  # of a server: as many as the paper has on CIFAR-100-C
REFERENCE_SIDE = 2048  # of the square matrix in the reference product


# --- multiply-accumulates ------------------------------------------------------------------------------------------


def direct_macs(name: str, params: Any, shape: CostShape) -> Terms:
    """Return the MACs per image beyond encoder and head, term by term, as the printed formulas have them.

    Those of a method of your own are not known, and refused.

    >>> from latte.methods.latte.client import PRESETS
    >>> terms = direct_macs("latte", PRESETS["cifar100c"], CostShape(classes=100, dim=512))
    >>> sum(terms.values())    # the paper: 871 K
    871200
    """
    if not hasattr(describe(name).kind, "macs"):
        known = (
            other for other in METHODS if describe(other).family == other and hasattr(describe(other).kind, "macs")
        )
        choice("method", describe(name).family, tuple(known))
    terms: Terms = describe(name).kind.macs(params, shape)
    return terms


def own_macs(name: str, params: Any, shape: CostShape) -> Terms:
    """Return the MACs per image beyond encoder and head, term by term, as this package computes."""
    count = getattr(describe(name).kind, "own_macs", None)
    return direct_macs(name, params, shape) if count is None else count(params, shape)


def server_macs(name: str, params: Any, shape: CostShape, clients: int) -> Terms | None:
    """Return the MACs of a server for one sync of all ``clients``, term by term; None for a method without a server.

    >>> from latte.methods.ristretto.client import RistrettoParams
    >>> sum(server_macs("ristretto", RistrettoParams(), CostShape(classes=10, dim=256), clients=40).values())
    103612416
    """
    count = getattr(describe(name).kind, "server_macs", None)
    return None if count is None else count(params, shape, clients)


def traffic(name: str, params: Any, shape: CostShape, precision: str = "fp16") -> Traffic | None:
    """Return the bytes of one sync; None for a method that sends nothing.

    The class of a method says what it sends (:mod:`latte.methods.traffic`). Latte sends
    one prototype per class and gets k_e back. A global memory is charged as the paper does, per image: the
    new item up, the whole memory down.

    >>> from latte.methods.latte.client import PRESETS
    >>> traffic("latte", PRESETS["cifar100c"], CostShape(classes=100, dim=512)).vectors    # the paper: 614 K
    614400
    """
    return traffic_of(name, params, shape.classes, shape.dim, precision)


@dataclass(frozen=True, slots=True)
class PaperCost:
    """A row of the paper's Table 3 (CIFAR-100-C, ViT-B/16, a GPU), as printed; "" where it has no number.

    The bytes of CLIP are in brackets: they are those of the image encoder, which is sent once.
    """

    method: str
    augments: str
    backprop: str
    macs: str
    runtime_ms: str
    memory_gb: str
    bytes_per_round: str


def paper_costs() -> dict[str, PaperCost]:
    """Return the paper's cost table by method."""
    text = files("latte.paper").joinpath("paper_cost.csv").read_text("utf-8")
    rows = [PaperCost(**row) for row in csv.DictReader(text.splitlines())]
    return {row.method: row for row in rows}


# --- what an encoder costs: closed forms for transformers, and torch's own counter for any torch model ------------


@dataclass(frozen=True, slots=True)
class Tower:
    """A transformer: tokens, width, layers, what comes before (``stem``) and the projection to ``dim``.

    The hidden layer of each block is four times as wide as the block.
    """

    tokens: int
    width: int
    layers: int
    dim: int
    stem: int = 0

    @property
    def macs(self) -> int:
        """MACs of one pass: per token and layer 12 w² (q, k, v, out, two of 4 w) and 2 n w of attention.

        >>> VIT_B_16.macs    # the paper: 17.6 G
        17563453440
        """
        block = self.tokens * (12 * self.width**2 + 2 * self.tokens * self.width)
        return self.stem + self.layers * block + self.width * self.dim


def vit(image: int, patch: int, width: int, layers: int, dim: int) -> Tower:
    """Return a vision transformer with a class token; its stem multiplies each patch by a (3 p², w) matrix."""
    patches = (image // patch) ** 2
    return Tower(patches + 1, width, layers, dim, patches * 3 * patch**2 * width)


VIT_B_16 = vit(224, 16, 768, 12, 512)
CLIP_TEXT = Tower(77, 512, 12, 512)  # the text encoder of the same model
# weights of the image encoders of OpenAI's CLIP, layer by layer: the tests add them up again
PARAMETERS = {"ViT-B/16": 86_192_640, "RN50": 38_316_896}


def encoder_bytes(backbone: str) -> int:
    """Return the size of CLIP's image encoder with 2 bytes per weight: what a client downloads once.

    >>> encoder_bytes("ViT-B/16")    # the paper's Table 3: (172M)
    172385280
    """
    choice("backbone", backbone, tuple(PARAMETERS))
    return 2 * PARAMETERS[backbone]


def passes_macs(method: str, image: int, text: int, views: int, classes: int) -> int:
    """Return the MACs of all encoder passes for one image.

    Methods that augment encode every view. TPT also runs the text encoder on every class twice, before and after its
    step; the backward pass is not counted, as in the paper.

    >>> round(passes_macs("tpt", VIT_B_16.macs, CLIP_TEXT.macs, 64, 100) / 1e12, 2)    # the paper: 1.72 T
    1.72
    """
    info = describe(method)
    prompts = 2 * classes * text if info.tunes_prompt else 0
    return (views if info.uses_views else 1) * image + prompts


def counted_macs(forward: Callable[[], Any]) -> int:
    """Return the MACs that torch counts while ``forward`` runs (it counts two operations for each).

    Attention runs as plain matrix products meanwhile: torch does not count the fused kernel of the processor.
    """
    counting = need("torch.utils.flop_counter", "torch")
    attention = need("torch.nn.attention", "torch")
    plain = attention.sdpa_kernel(attention.SDPBackend.MATH)
    with plain, counting.FlopCounterMode(display=False) as counter:
        forward()
    return int(counter.get_total_flops()) // 2


# --- what a method adds to the encoder: time per image in the same run, and peak memory ---------------------------


@dataclass(frozen=True, slots=True)
class Reference:
    """The work that times are compared with: what it is, its seconds per image, its bytes of memory (None: unknown)."""

    what: str
    seconds: float
    bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """What one method took: ``seconds`` per image beside the encoder, and ``peak`` bytes of memory and workspace."""

    seconds: float
    peak: int


def matmul_reference(macs: int, repeats: int = 5) -> Reference:
    """Time one float32 matrix product with as many MACs as the encoder: what this machine could do at best."""
    columns = max(1, round(macs / REFERENCE_SIDE**2))
    rng = np.random.default_rng(0)
    left = rng.standard_normal((REFERENCE_SIDE, REFERENCE_SIDE), np.float32)
    right = rng.standard_normal((REFERENCE_SIDE, columns), np.float32)
    seconds = _median(lambda: left @ right, repeats)
    return Reference(f"one float32 matrix product of {REFERENCE_SIDE**2 * columns:,} MACs", seconds)


def encoder_reference(load: Callable[[], Any], repeats: int = 10) -> tuple[Any, Reference]:
    """Load an encoder and time it on one preprocessed picture at a time; return both.

    Its memory is by how much it raised the peak of the process.
    """
    before = peak_resident()
    encoder = load()
    pixels = one_picture(encoder)
    seconds = _median(lambda: encoder.images([pixels]), repeats)
    return encoder, Reference(f"the encoder {encoder.name}", seconds, peak_resident() - before)


def one_picture(encoder: Any) -> Vectors:
    """Return a noisy picture, preprocessed for ``encoder``: (3, H, W)."""
    picture = np.random.default_rng(0).integers(0, 256, (224, 224, 3), np.uint8)
    return np.asarray(encoder.preprocess(picture), np.float32)


def measure_method(name: str, params: Any, shape: CostShape, images: int = 200) -> Measured:
    """Let one client with a full memory handle ``images`` images; the median time, and the peak of a shorter run."""
    zero_shot, stream = material(shape, shape.views if describe(name).uses_views else 1, images)
    client = _client(name, zero_shot, params)
    for views in stream[: images // 2]:
        client.predict(views)
    times = [_timed(lambda views=views: client.predict(views)) for views in stream[images // 2 :]]  # type: ignore[misc]
    tracemalloc.start()
    try:  # the peak of what a client allocates: its memories and the workspace of its predictions
        client = _client(name, zero_shot, params)
        for views in stream[:20]:
            client.predict(views)
        return Measured(statistics.median(times), tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def material(shape: CostShape, views: int, images: int) -> tuple[ZeroShot, Vectors]:
    """Return a classifier, and images (n, V, D) scattered around its classes so that every memory fills."""
    rng = np.random.default_rng(0)
    text = normalised(rng.standard_normal((shape.classes, shape.dim), np.float32))
    labels = rng.integers(0, shape.classes, images)
    noise = rng.standard_normal((images, views, shape.dim), np.float32) / np.sqrt(np.float32(shape.dim))
    return ZeroShot(text, tuple(f"class {i}" for i in range(shape.classes))), normalised(text[labels][:, None] + noise)


def peak_resident() -> int:
    """Return the most memory that this process ever held, in bytes; 0 where the system does not report it."""
    try:
        import resource
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) if sys.platform == "darwin" else int(peak) * 1024


def _client(name: str, zero_shot: ZeroShot, params: Any) -> Method:
    method = create(name, zero_shot, params)
    if isinstance(method, Latte):  # what a sync brings: k_e prototypes for every class
        k, rng = method.params.k_e, np.random.default_rng(1)
        noise = rng.standard_normal((zero_shot.classes, k, zero_shot.dim), np.float32) / zero_shot.dim**0.5
        vectors = normalised((zero_shot.text[:, None] + noise).astype(np.float32))
        full = np.ones((zero_shot.classes, k), np.bool_)
        method.receive(External(vectors, np.where(full, 0.5, 1.0), full, method.zero_shot.fingerprint))
    return method


def _median(call: Callable[[], Any], repeats: int) -> float:
    call()  # the first call also pays for what is loaded and allocated once
    return statistics.median(_timed(call) for _ in range(repeats))


def _timed(call: Callable[[], Any]) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


# --- the cost table: a row per method -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CostRow:
    """What one method costs; ``name`` is its registered name, ``label`` what the user calls it.

    ``encoder_macs`` of all passes for an image (None: not known), ``direct`` and ``own`` MACs beside them (term by
    term; None: not known) and their sums, ``macs`` and ``own_macs``, ``server``: MACs of a sync of all clients (None:
    there is no server), ``traffic`` by precision (None: sends nothing), ``measured`` and ``relative`` where measured:
    the time of one image, all passes of the encoder included, divided by one pass.
    """

    label: str
    name: str
    augments: bool
    backprop: bool
    encoder_macs: int | None
    direct: Mapping[str, int] | None
    own: Mapping[str, int] | None
    server: Mapping[str, int] | None
    traffic: Mapping[str, Traffic] | None
    measured: Measured | None
    relative: float | None
    paper: PaperCost | None
    macs: int | None
    own_macs: int | None


def cost_rows(
    methods: Sequence[MethodConfig],
    shape: CostShape,
    encoder_macs: int | None,
    reference: Reference | None,
    clients: int = CLIENTS,
) -> list[CostRow]:
    """Return a row per method; without a ``reference`` nothing is measured. A server has so many ``clients``."""
    rows = []
    for method in methods:
        name, params = method.name, resolve(method.name, dict(method.params), method.preset)
        info = describe(name)
        known = hasattr(info.kind, "macs")
        passes = None
        if encoder_macs is not None:
            passes = passes_macs(name, encoder_macs, CLIP_TEXT.macs, shape.views, shape.classes)
        direct = direct_macs(name, params, shape) if known else None
        own = own_macs(name, params, shape) if known else None
        sent = {precision: traffic(name, params, shape, precision) for precision in PRECISIONS}
        measured = relative = None
        if reference and not info.tunes_prompt:
            measured = measure_method(name, params, shape)
            relative = (shape.views if info.uses_views else 1) + measured.seconds / reference.seconds
        rows.append(
            CostRow(
                method.label,
                name,
                info.uses_views,
                info.tunes_prompt,
                passes,
                direct,
                own,
                server_macs(name, params, shape, clients),
                {precision: found for precision, found in sent.items() if found is not None} or None,
                measured,
                relative,
                paper_costs().get(name),
                None if direct is None else sum(direct.values()),
                None if own is None else sum(own.values()),
            )
        )
    return rows


def cost_record(rows: Sequence[CostRow], shape: CostShape, reference: Reference | None) -> dict[str, Any]:
    """Return everything as plain numbers."""
    against = asdict(reference) if reference else None
    return {"shape": asdict(shape), "reference": against, "methods": [asdict(row) for row in rows]}
