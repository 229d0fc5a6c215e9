"""Latte: a local memory, an external memory of prototypes from similar clients, and a readout over both.

Where the paper and the authors' released code disagree, the decision is named B1 to B17;
benchmarks/results/variants.md lists them.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np
from numpy.typing import ArrayLike

from ...core import validate
from ...core.maths import entropy_of_one, match_entropy, normalised
from ...core.memory import NAMES, PROTOTYPE_KINDS, REPLACEMENTS, LocalMemory, check_near_copy, near_copy_field
from ...core.privacy import NoisyRows, Privacy, refuse_near_copies
from ...core.types import Arrays, External, MemoryFill, Prediction, Prototypes, Reals, State, Vectors
from ...core.zero_shot import ZeroShot, places_of
from ...errors import refuse
from ..base import BaseMethod, Given, Origin
from ..classes import move_labels, move_rows
from ..labels import LabelledImages, split_state
from ..traffic import Content, CostShape, Messages, Terms
from .donors import EMPTY_QUERIES, Routing
from .readout import EVERY, GATE, MergedItems, MergedMemory, items_of, merge_memories
from .server import GlobalMemory

if TYPE_CHECKING:
    from ..options import LatteOptions

LARGEST_LABEL_WEIGHT = 1e100  # no product of it with an embedding overflows
TAUGHT = ("external.weights", "external.bias", "images.sum", "images.count")  # in a state, once the fleet has a label


@dataclass(frozen=True, slots=True)
class LatteParams:
    """Parameters of Latte; the names are the paper's, the letters B refer to docs/how-latte-works.md.

    The defaults are one setting for all datasets: a good mean over nine sets of real embeddings, on a partition that no
    report uses. The published settings are in ``PRESETS``.

    Parameters
    ----------
    variant
        "paper": the paper's formulas. "released": the released code to the letter; they differ in B1 to B4.
    k_l
        Local slots per class.
    k_e
        Prototypes per class from other clients.
    alpha
        Weight of the memory's logits.
    beta
        Weight of similarity; 0 switches it off.
    gamma
        Weight of certainty; 0 switches it off.
    gamma_prototype
        Gamma of the prototypes; None: the same (B14).
    prototype
        Mean of a class that is uploaded: "exp_weighted" (eq. 1), "mean", or "min_entropy" (the most certain image).
    memory
        What is read: "both", "local" or "external".
    empty_query
        What comes back for a class that the client has not seen, see :class:`Routing` (B3); None: "client" for the
        paper's variant, "released" for the released one.
    entropy
        Unit of the entropies that gamma is meant for: "normalised", divided by ln C, as the published gammas assume;
        or "nats", to the letter of the paper (B6).
    replace
        When a full class replaces its highest entropy: for a "lower" one, as the paper's Lemma assumes; or "always",
        to the letter of the paper (B7).
    near_copy
        Cosine from which an image counts as a copy of a stored one of its class and is not stored; 0: copies are
        stored, as in the paper.
    """

    variant: str = "paper"
    k_l: int = 8
    k_e: int = 9
    alpha: float = 1.0
    beta: float = 12.0
    gamma: float = 1.5
    gamma_prototype: float | None = None
    prototype: str = "exp_weighted"
    memory: str = "both"
    empty_query: str | None = None
    entropy: str = "normalised"
    replace: str = "lower"
    near_copy: float = near_copy_field()

    def __post_init__(self) -> None:
        validate.choice("variant", self.variant, ("paper", "released"))
        validate.choice("memory", self.memory, ("both", "local", "external"))
        validate.choice("prototype", self.prototype, PROTOTYPE_KINDS)
        validate.choice("entropy", self.entropy, ("normalised", "nats"))
        validate.choice("replace", self.replace, REPLACEMENTS)
        check_near_copy(self.near_copy)
        validate.at_least("k_l", self.k_l, 1, validate.MOST_SLOTS)
        for name in ("alpha", "beta", "gamma"):
            validate.factor(name, getattr(self, name))
        if self.gamma_prototype is not None:
            validate.factor("gamma_prototype", self.gamma_prototype)
        if self.empty_query is not None:
            validate.choice("empty_query", self.empty_query, EMPTY_QUERIES)
        self.routing  # noqa: B018  refuses a k_e or a combination that cannot be

    @property
    def gate(self) -> float | None:
        """The length of a weighted sum up to which its class gets no memory logit; None in the paper's variant (B1)."""
        return GATE if self.variant == "released" else None

    @property
    def routing(self) -> Routing:
        """The rules by which clients get prototypes of others (B3, B4, B10)."""
        released = self.variant == "released"
        return Routing(self.k_e, self.empty_query or ("released" if released else "client"), drop_first_rank=released)

    @property
    def prototype_gamma(self) -> float:
        """The gamma of the prototypes (B14)."""
        return self.gamma if self.gamma_prototype is None else self.gamma_prototype

    def readout_rate(self, classes: int) -> float:
        """Return what multiplies an entropy divided by ln C in eq. 4."""
        return self.gamma * (math.log(classes) if self.entropy == "nats" else 1.0)  # B6

    def prototype_rate(self, classes: int) -> float:
        """Return what multiplies an entropy divided by ln C in eq. 1."""
        return self.prototype_gamma * (math.log(classes) if self.entropy == "nats" else 1.0)  # B6


# The published hyper-parameters; both backbones share them.
PRESETS = {
    "vlcs": LatteParams(k_l=15, k_e=12, alpha=0.3, beta=6.0, gamma=6.0),
    "terra": LatteParams(k_l=2, k_e=20, alpha=1.5, beta=35.0, gamma=10.0),
    "cifar10c": LatteParams(k_l=12, k_e=9, alpha=1.0, beta=60.0, gamma=1.5),
    "cifar100c": LatteParams(k_l=8, k_e=5, alpha=0.7, beta=60.0, gamma=1.5),
}


class Latte(BaseMethod[LatteParams]):
    """One client.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> client = Latte(ZeroShot(np.eye(2), ("cat", "dog")))
    >>> client.predict([[0.6, 0.8]]).label
    1
    >>> client.summary().seen
    array([False,  True])
    """

    Params: ClassVar = LatteParams
    engine: ClassVar = "latte.engine.latte:LatteEngine"
    presets: ClassVar[dict[str, LatteParams]] = PRESETS
    _image_sum: Reals
    Upload: ClassVar = Prototypes
    Download: ClassVar = External
    title: ClassVar = "Latte"
    origin: ClassVar = Origin(
        paper="Latte: Collaborative Test-Time Adaptation of Vision-Language Models in Federated Learning",
        venue="ICCV 2025",
        code="the authors' release",
        licence="none",
        constants="this project: one setting for all data",
        per_dataset="yes",
    )
    colours: ClassVar = ("#c8420a", "#ff8d5c", "")
    # the published values span alpha 0.3 to 1.5 and beta 6 to 60; the grid reaches one step beyond both ends
    tuning: ClassVar = {"alpha": (0.1, 0.3, 0.7, 1.0, 1.5, 3.0), "beta": (3.0, 6.0, 15.0, 35.0, 60.0, 100.0)}

    if TYPE_CHECKING:

        def __init__(
            self, zero_shot: ZeroShot, params: Given[LatteParams] = None, **options: Unpack[LatteOptions]
        ) -> None: ...

    @staticmethod
    def messages(params: LatteParams, classes: int) -> Messages:
        """Return what is sent: a prototype per class up, k_e of others with their entropies down."""
        others = classes * params.k_e
        return Content(classes, flags=classes), Content(others, entropies=others, flags=others)

    @staticmethod
    def macs(params: LatteParams, sizes: CostShape) -> Terms:
        """Count similarities, one exponent per slot (gamma · h is known when stored), eq. 5 without its norm, eq. 6."""
        c, k, d = sizes.classes, params.k_l, sizes.dim
        return {"similarity": c * k * d, "weights": c * k, "weighted sum": c * k * d, "product": c * d}

    @staticmethod
    def own_macs(params: LatteParams, sizes: CostShape) -> Terms:
        """Return similarities, weights, Σ w s, wᵀ G w, alpha; gamma · h and G of the class that changed."""
        c, k, d = sizes.classes, params.k_l, sizes.dim
        read = {"similarity": c * k * d, "weights": c * k, "sum": c * k, "norm": c * k * k + c * k, "mix": c}
        return {**read, "class update": k * k * d + k}

    @staticmethod
    def server_macs(params: LatteParams, sizes: CostShape, clients: int) -> Terms:
        """Return the products of every prototype with every other of its class."""
        return {"similarity": clients * clients * sizes.classes * sizes.dim}

    @classmethod
    def exchange_for(
        cls, zero_shot: ZeroShot, params: LatteParams | None = None, clients: Iterable[str] = ()
    ) -> GlobalMemory:
        """Return the global memory that serves clients with these parameters.

        The released code knows every client from the start: name them in ``clients`` to reproduce its row order.
        """
        return GlobalMemory(zero_shot, (params or LatteParams()).routing, clients)

    # --- one image ----------------------------------------------------------------------------------------

    def predict_rows(self, views: Vectors) -> Prediction:
        """Remember the plain view, then predict from the memory (which may already hold it, B9)."""
        vector, p = views[0], self.params
        logits = self.zero_shot.logits(vector)
        pseudo, uncertainty = int(logits.argmax()), entropy_of_one(logits)
        copied = self.local.has_copy(pseudo, vector)
        if not copied and self.local.store(pseudo, vector, uncertainty) >= 0 and p.memory != "external":
            self._merge(slice(pseudo, pseudo + 1))
        logits += (p.alpha * self.zero_shot.scale) * self.merged.cosines(vector, p.beta, p.gate)  # eq. 7
        if self.external.weights is not None:  # somebody in the fleet has given a label
            logits += (1 + p.alpha) * (self.external.weights @ vector + self.external.bias)
            self._image_sum += vector
            self._images += 1
        # cosines between images spread far more than those with text, and the image may meet itself in the memory: its
        # probabilities are as certain as the zero-shot prediction, which changes no answer and needs no label
        temperature = partial(match_entropy, logits, uncertainty)
        return self.prediction(logits, uncertainty, temperature=temperature, near_copy=copied)

    def _merge(self, classes: slice = EVERY) -> None:
        """Merge anew what is read for some classes: an insertion changes one, a download all."""
        own: LocalMemory | MergedItems = self.local
        external: External | MergedItems = self.external
        which = classes
        if self._labelled:
            own, external, which = self._labelled_first(classes), items_of(external, classes), EVERY
        if self.params.memory == "both":
            items = merge_memories(own, external, which)
        else:  # one memory alone, read without a cut
            items = items_of(own if self.params.memory == "local" else external, which)
        self.merged.replace(*items[:3], classes)

    def _build(self) -> None:
        """Make room for what is read, whose slots may have changed, and merge every class."""
        slots = self.external.valid.shape[1] if self.params.memory == "external" else self.params.k_l
        (classes, dim), p = self.zero_shot.text.shape, self.params
        self.merged = MergedMemory(classes, slots, dim, p.readout_rate(classes))
        self._merge()

    # --- labels -------------------------------------------------------------------------------------------

    @property
    def labels(self) -> int:
        """How many images have a label."""
        return len(self._labelled)

    def correct(self, image: ArrayLike, label: int, learnt: ArrayLike | None = None) -> None:
        """Learn that ``image`` is of the class ``label``: see :class:`latte.core.types.Teachable`.

        It is read with the local memory, as one that is as certain as can be, and no longer where zero-shot put it.
        """
        self._labelled.give(self.check(image)[0], label, learnt)
        self._merge()

    def withdraw(self, image: ArrayLike) -> None:
        """Forget the label of ``image``."""
        self._labelled.take_back(self.check(image)[0])
        self._merge()

    def _unlabelled(self) -> LocalMemory:
        """Return the local memory without images with a label: what zero-shot found, from which prototypes are made."""
        local = copy.copy(self.local)
        local.valid[local.valid] = ~self._labelled.find(local.vectors[local.valid])
        return local

    def _labelled_first(self, classes: slice) -> MergedItems:
        """Return what a client has of its own in some classes: images with a label, at entropy 0, before the others."""
        own = items_of(self.local, classes)
        valid = own.valid.copy()
        valid[valid] = ~self._labelled.find(own.vectors[valid])
        labels, vectors = self._labelled.classes, self._labelled.vectors
        taught = External.empty(self.zero_shot, self.params.k_l)
        for label in np.unique(labels):
            mine = vectors[labels == label][: self.params.k_l]
            taught.vectors[label, : len(mine)], taught.valid[label, : len(mine)] = mine, True
            taught.entropy[label, : len(mine)] = 0.0
        return merge_memories(items_of(taught, classes), own._replace(valid=valid))

    # --- one sync -----------------------------------------------------------------------------------------

    def summary(self) -> Prototypes:
        """Return one prototype per class (eq. 1), and what labels add up to."""
        rate = self.params.prototype_rate(self.zero_shot.classes)
        local = self._unlabelled() if self.labels else self.local
        vectors, seen = local.prototypes(self.params.prototype, rate)
        return Prototypes(vectors, seen, self.zero_shot.fingerprint, **self._label_arrays())

    def _label_arrays(self, privacy: Privacy | None = None) -> dict[str, Reals]:
        """Return the arrays of an upload that are there for labels, as far as ``privacy`` lets them go."""
        arrays, least = dict[str, Reals](), privacy.least_images if privacy else 1
        if self._labelled.are_shared(privacy):
            labels, vectors = self._labelled.classes, self._labelled.vectors
            counts = np.bincount(labels, minlength=self.zero_shot.classes).astype(np.float64)
            counts = np.where(counts >= least, counts, 0.0)
            sums = (np.arange(len(counts))[:, None] == labels) @ vectors
            sums[counts == 0] = 0.0
            arrays |= {**self._labelled.sums()._asdict(), "label_counts": counts, "label_sums": sums}
        noisy = privacy is not None and privacy.noise and not privacy.labels
        if self.external.weights is not None and self._images >= least and not noisy:
            arrays |= {"image_sum": self._image_sum.copy(), "images": np.array(float(self._images))}
        return arrays

    def private_summary(self, privacy: Privacy, noise: NoisyRows) -> Prototypes:
        """Return prototypes of classes with enough images, made of means with noise.

        Noise can carry a mean out of its class: such a class is left out, because the exchange would refuse it.
        """
        local = self._unlabelled() if self._labelled.are_shared(privacy) else self.local
        more = self._label_arrays(privacy)
        shared = privacy.shares(local.valid.sum(axis=1))
        if not privacy.noise:
            rate = self.params.prototype_rate(self.zero_shot.classes)
            vectors, seen = local.prototypes(self.params.prototype, rate)
            shared &= seen
            return Prototypes(np.where(shared[:, None], vectors, 0), shared, self.zero_shot.fingerprint, **more)
        classes, dim = self.zero_shot.text.shape
        means = local.means(self.params.prototype, self.params.prototype_rate(classes))
        means = noise.of(means, privacy.deviation(dim))
        shared &= self.zero_shot.logits(normalised(means)).argmax(axis=1) == np.arange(classes)
        return Prototypes(normalised(means * shared[:, None]), shared, self.zero_shot.fingerprint, **more)

    @property
    def most_images(self) -> int:
        """How many images of a class it remembers at most."""
        return self.params.k_l

    def sensitivity(self, privacy: Privacy) -> float:
        """Return how far one image can move the means of two classes: that which it leaves and that which it joins.

        A class mean of m images with weights between exp(-gamma) and 1 moves by at most 2 / (1 + (m - 1) exp(-gamma)).
        """
        refuse_near_copies(self.params.near_copy)
        if self.params.replace == "always":
            raise refuse("noise", "replace='always'", "replace='lower': otherwise no epsilon can be stated")
        others = 0 if self.params.prototype == "min_entropy" else privacy.least_images - 1
        rate = 0.0 if self.params.prototype == "mean" else self.params.prototype_rate(self.zero_shot.classes)
        return 2 * math.sqrt(2) / (1 + others * math.exp(-rate))

    def receive(self, download: External) -> None:
        """Replace the external memory; any number of slots is accepted."""
        validate.message("external", download, External, self.zero_shot.fingerprint)
        shape = self._external_shape(download.valid)
        valid = validate.boolean("external.valid", download.valid, shape)
        uncertainty = validate.entropies("external.entropy", download.entropy, valid)
        vectors = validate.unit_where("external.vectors", download.vectors, valid, (*shape, self.zero_shot.dim))
        weights, bias = self._checked_label_head("external.", download.weights, download.bias)
        self.external = External(vectors, uncertainty, valid, download.task, weights, bias)
        self._start_counting()
        if self.params.memory != "local":
            self._build()

    def _checked_label_head(self, prefix: str, weights: Any, bias: Any) -> tuple[Reals | None, Reals | None]:
        if weights is None and bias is None:
            return None, None
        shape = self.zero_shot.text.shape
        pair = (
            validate.finite_array(f"{prefix}weights", weights, shape),
            validate.finite_array(f"{prefix}bias", bias, shape[:1]),
        )
        if max(np.abs(array).max() for array in pair) > LARGEST_LABEL_WEIGHT:
            raise refuse(f"{prefix}weights", "a value that is too large", f"values up to {LARGEST_LABEL_WEIGHT:g}")
        return pair

    def _start_counting(self) -> None:
        """Count images while the fleet has labels, for the mean of all images; what is stored is a beginning."""
        if self.external.weights is None:
            self._image_sum, self._images = np.zeros(self.zero_shot.dim), 0
        elif not self._images:
            stored = self.local.vectors[self.local.valid].astype(np.float64)
            self._image_sum, self._images = stored.sum(axis=0), len(stored)

    def _external_shape(self, valid: Any) -> tuple[int, int]:
        """Return (C, E) of a mask. If ``valid`` is no such mask, E is k_e, for the message of the refusal."""
        slots = int(np.shape(valid)[1]) if np.ndim(valid) == 2 else self.params.k_e
        return self.zero_shot.classes, validate.at_least("external.valid: slots", slots, 0, validate.MOST_SLOTS)

    # --- state --------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget everything."""
        (classes, dim), p = self.zero_shot.text.shape, self.params
        self.local = LocalMemory(classes, p.k_l, dim, p.replace, p.near_copy)
        self.external = External.empty(self.zero_shot)
        self._labelled = LabelledImages(self.zero_shot)
        self._image_sum = np.zeros(dim)  # while the fleet has labels: of all embeddings,
        self._images = 0  # and of how many
        self._build()

    def memory_fill(self) -> MemoryFill:
        """Return how full the local memory is."""
        return self.local.fill()

    def state(self) -> State:
        """Return both memories as arrays, named ``local.*`` and ``external.*``; and what labels add."""
        parts = {"local": self.local, "external": self.external}
        state = {f"{part}.{name}": getattr(parts[part], name).copy() for part in parts for name in NAMES}
        if self.external.weights is not None and self.external.bias is not None:
            head = self.external.weights.copy(), self.external.bias.copy()
            counted = self._image_sum.copy(), np.array(self._images, np.int64)
            state |= dict(zip(TAUGHT, (*head, *counted), strict=True))
        return {**state, **self._labelled.state()}

    def take_over(self, earlier: Latte) -> None:
        """Go on with what a client of an earlier version of the task has learnt.

        What zero-shot puts into another class by now is dropped: a server would refuse a prototype with it.
        """
        places = places_of(self.zero_shot.classnames, earlier.zero_shot.classnames)
        state = move_labels(earlier.state(), places)
        rows = [name for name in state if name.startswith(("local.", "external."))]
        state |= {name: move_rows(state[name], places) for name in rows}
        found = self.zero_shot.logits(state["local.vectors"]).argmax(axis=2)
        state["local.valid"] &= found == np.arange(self.zero_shot.classes)[:, None]
        order = np.argsort(~state["local.valid"], axis=1, kind="stable")  # slots are filled from the first on
        at = np.arange(len(order))[:, None], order
        state |= {f"local.{name}": state[f"local.{name}"][at] for name in NAMES}
        self.load(state)

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        arrays, labels = split_state(arrays, "labels.")
        arrays, taught = split_state(arrays, *TAUGHT)
        validate.require(arrays, [f"{part}.{name}" for part in ("local", "external") for name in NAMES])
        labelled, (weights, bias, image_sum, images) = self._labelled.checked(labels), self._checked_taught(taught)
        valid = arrays["external.valid"]
        valid = validate.stored_mask("external.valid", valid, self._external_shape(valid))
        uncertainty = validate.stored_entropies("external.entropy", arrays["external.entropy"], valid)
        vectors = validate.stored_vectors("external.vectors", arrays["external.vectors"], valid, self.zero_shot.dim)
        self.local.load({name: arrays[f"local.{name}"] for name in NAMES})
        self.external = External(vectors, uncertainty, valid, self.zero_shot.fingerprint, weights, bias)
        self._labelled, self._image_sum, self._images = labelled, image_sum, images
        self._build()

    def _checked_taught(self, arrays: Arrays) -> tuple[Reals | None, Reals | None, Reals, int]:
        """Return the label head of a state, and the sum and number of its images."""
        (classes, dim), none = self.zero_shot.text.shape, np.zeros(self.zero_shot.dim)
        if not arrays:
            return None, None, none, 0
        validate.require(arrays, TAUGHT)
        shapes, types = ((classes, dim), (classes,), (dim,), ()), (np.float64, np.float64, np.float64, np.int64)
        parts = zip(TAUGHT, types, shapes, strict=True)
        weights, bias, total, images = (
            validate.exactly(name, arrays[name], dtype, shape) for name, dtype, shape in parts
        )
        count = validate.at_least("images.count", int(images), 0)
        if np.sqrt((total**2).sum()) > count * (1 + validate.NORM_TOLERANCE) or not np.isfinite(total).all():
            raise refuse("images.sum", "a sum that is too long", f"one of {count} unit vectors")
        return *self._checked_label_head("external.", weights, bias), total.copy(), count
