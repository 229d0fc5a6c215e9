"""Latte: a local memory, an external memory of prototypes from similar clients, and a readout over both.

Where the paper and the authors' released code disagree, the decision is named B1 to B17; docs/variants.md lists them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..core.global_memory import GlobalMemory
from ..core.local_memory import NAMES, PROTOTYPE_KINDS, REPLACEMENTS, LocalMemory
from ..core.maths import entropy_of_one, match_entropy, normalised
from ..core.near_copies import check_near_copy, near_copy_field
from ..core.privacy import Privacy, refuse_near_copies
from ..core.readout import GATE, MergedMemory, merge_class
from ..core.routing import EMPTY_QUERIES, Routing
from ..core.stored import require, stored_entropies, stored_mask, stored_vectors
from ..core.types import Arrays, External, MemoryFill, Prediction, Prototypes, State, Vectors
from ..core.validate import MOST_SLOTS, at_least, boolean, choice, entropies, factor, message, refuse, unit_where
from ..core.zero_shot import ZeroShot
from .base import BaseMethod
from .traffic import Content, Messages

VARIANTS = ("paper", "released")
MEMORIES = ("both", "local", "external")
ENTROPIES = ("normalised", "nats")


@dataclass(frozen=True, slots=True)
class LatteParams:
    """The parameters of Latte; the names are the paper's.

    ``variant`` selects the paper's formulas or the released code to the letter: they differ in B1 to B4 of
    docs/variants.md, where every such point has a number. In two points the ``paper`` variant follows the released code
    and not the paper's text, because the published gammas and the paper's Lemma assume it: entropies are divided by ln
    C (B6), and a full class replaces its highest entropy only for a lower one (B7). ``entropy="nats"`` and
    ``replace="always"`` switch each to the letter of the text. ``k_l`` local slots per class, ``k_e`` prototypes per
    class from other clients. ``alpha`` weighs the memory's logits, ``beta`` similarity, ``gamma`` certainty; beta = 0
    or gamma = 0 switches that weight off. ``gamma_prototype`` overrides gamma in the prototypes (B14). ``memory`` is
    what is read: both, local or external. ``empty_query`` is what comes back for a class that the client has not seen
    (B3); None means ``client`` for the paper's variant and ``released`` for the released one. ``near_copy`` is the
    cosine from which an image counts as a copy of a stored one of its class and is not stored; 0, as in the paper,
    stores copies, too.

    The defaults are one setting for all datasets: a good mean over nine sets of real embeddings, on a partition that no
    report uses. The published settings are in ``PRESETS``.
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
        choice("variant", self.variant, VARIANTS)
        choice("memory", self.memory, MEMORIES)
        choice("prototype", self.prototype, PROTOTYPE_KINDS)
        choice("entropy", self.entropy, ENTROPIES)
        choice("replace", self.replace, REPLACEMENTS)
        check_near_copy(self.near_copy)
        at_least("k_l", self.k_l, 1, MOST_SLOTS)
        for name in ("alpha", "beta", "gamma"):
            factor(name, getattr(self, name))
        if self.gamma_prototype is not None:
            factor("gamma_prototype", self.gamma_prototype)
        if self.empty_query is not None:
            choice("empty_query", self.empty_query, EMPTY_QUERIES)
        self.routing  # noqa: B018  refuses a k_e or a combination that cannot be

    @property
    def released(self) -> bool:
        """Whether this is the released code to the letter."""
        return self.variant == "released"

    @property
    def gate(self) -> float | None:
        """The length at or below which a class's weighted sum is silenced; None in the paper's variant (B1)."""
        return GATE if self.released else None

    @property
    def routing(self) -> Routing:
        """Who gets which prototypes (B3, B4, B10)."""
        default = "released" if self.released else "client"
        return Routing(self.k_e, self.empty_query or default, drop_first_rank=self.released)

    @property
    def prototype_gamma(self) -> float:
        """The gamma of the prototypes (B14)."""
        return self.gamma if self.gamma_prototype is None else self.gamma_prototype

    def readout_rate(self, classes: int) -> float:
        """Return what multiplies an entropy divided by ln C in eq. 4."""
        return self.gamma * self._entropy_size(classes)

    def prototype_rate(self, classes: int) -> float:
        """Return what multiplies an entropy divided by ln C in eq. 1."""
        return self.prototype_gamma * self._entropy_size(classes)

    def _entropy_size(self, classes: int) -> float:
        """Return the largest entropy in the unit that gamma is meant for (B6)."""
        return math.log(classes) if self.entropy == "nats" else 1.0


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
    engine: ClassVar = "latte.simulation.engine.engines:LatteEngine"
    presets: ClassVar[dict[str, LatteParams]] = PRESETS
    Upload: ClassVar = Prototypes
    Download: ClassVar = External

    @staticmethod
    def messages(params: LatteParams, classes: int) -> Messages:
        """Return what is sent: a prototype per class up, k_e of others with their entropies down."""
        others = classes * params.k_e
        return Content(classes, flags=classes), Content(others, entropies=others, flags=others)

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
        vector = views[0]
        logits = self.zero_shot.logits(vector)
        pseudo, uncertainty = int(logits.argmax()), entropy_of_one(logits)
        p, copied = self.params, self.local.has_copy(pseudo, vector)
        if not copied and self.local.store(pseudo, vector, uncertainty) >= 0 and p.memory != "external":
            self._merge_class(pseudo)
        cosines = self.merged.cosines(vector, p.beta, p.gate)
        logits += (p.alpha * self.zero_shot.scale) * cosines  # eq. 7
        # cosines between images spread far more than those with text, and the image may meet itself in the memory: its
        # probabilities are as certain as the zero-shot prediction, which changes no answer and needs no label
        temperature = partial(match_entropy, logits, uncertainty)
        names = self.zero_shot.classnames
        return Prediction(int(logits.argmax()), logits, uncertainty, names, False, temperature, copied)

    # --- one sync -----------------------------------------------------------------------------------------

    def summary(self) -> Prototypes:
        """Return one prototype per class (eq. 1)."""
        p = self.params
        vectors, seen = self.local.prototypes(p.prototype, p.prototype_rate(self.zero_shot.classes))
        return Prototypes(vectors, seen, self.zero_shot.fingerprint)

    def private_summary(self, privacy: Privacy, rng: np.random.Generator) -> Prototypes:
        """Return prototypes of classes with enough images, made of means with noise.

        Noise can carry a mean out of its class: such a class is left out, because the exchange would refuse it.
        """
        p = self.params
        shared = privacy.shares(self.local.valid.sum(axis=1))
        if not privacy.noise:
            vectors, seen = self.local.prototypes(p.prototype, p.prototype_rate(self.zero_shot.classes))
            return Prototypes(np.where((seen & shared)[:, None], vectors, 0), seen & shared, self.zero_shot.fingerprint)
        means = self.local.means(p.prototype, p.prototype_rate(self.zero_shot.classes))
        means += rng.normal(0.0, privacy.deviation(self.zero_shot.dim), means.shape)
        own = self.zero_shot.logits(normalised(means)).argmax(axis=1) == np.arange(len(means))
        return Prototypes(normalised(means * (shared & own)[:, None]), shared & own, self.zero_shot.fingerprint)

    def sensitivity(self, privacy: Privacy) -> float:
        """Return how far one image can move the means of two classes: the one it leaves and the one it joins.

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
        classes, dim = self.zero_shot.text.shape
        message("external", download, External, self.zero_shot.fingerprint)
        slots = self._slots_of(download.valid)
        valid = boolean("external.valid", download.valid, (classes, slots))
        uncertainty = entropies("external.entropy", download.entropy, valid)
        vectors = unit_where("external.vectors", download.vectors, valid, (classes, slots, dim))
        self.external = External(vectors, uncertainty, valid, download.task)
        if self.params.memory != "local":
            self._build()

    def _slots_of(self, valid: Any) -> int:
        """Return E of a mask (C, E); where it is no such mask, that of the parameters, for the refusal."""
        slots = int(np.shape(valid)[1]) if np.ndim(valid) == 2 else self.params.k_e
        return at_least("external.valid: slots", slots, 0, MOST_SLOTS)

    # --- what is read -------------------------------------------------------------------------------------

    def _build(self) -> None:
        """Merge every class anew."""
        slots = self.external.valid.shape[1] if self.params.memory == "external" else self.params.k_l
        rate = self.params.readout_rate(self.zero_shot.classes)
        self.merged = MergedMemory(self.zero_shot.classes, slots, self.zero_shot.dim, rate)
        for label in range(self.zero_shot.classes):
            self._merge_class(label)

    def _merge_class(self, label: int) -> None:
        """Replace what is read for one class: an insertion changes no other."""
        if self.params.memory == "both":
            self.merged.replace_class(label, *merge_class(self.local, self.external, label))
            return
        source = self.local if self.params.memory == "local" else self.external  # read without a cut
        self.merged.replace_class(label, source.vectors[label], source.entropy[label], source.valid[label])

    # --- state --------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget everything."""
        classes, dim = self.zero_shot.text.shape
        self.local = LocalMemory(classes, self.params.k_l, dim, self.params.replace, self.params.near_copy)
        self.external = External.empty(self.zero_shot)
        self._build()

    def memory_fill(self) -> MemoryFill:
        """Return how full the local memory is."""
        return self.local.fill()

    def state(self) -> State:
        """Return both memories as arrays, named ``local.*`` and ``external.*``."""
        arrays = {f"local.{name}": array for name, array in self.local.state().items()}
        for name in NAMES:
            arrays[f"external.{name}"] = getattr(self.external, name).copy()
        return arrays

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        require(arrays, [f"{part}.{name}" for part in ("local", "external") for name in NAMES])
        external = self._stored_external(arrays)
        self.local.load({name: arrays[f"local.{name}"] for name in NAMES})
        self.external = external
        self._build()

    def _stored_external(self, arrays: Arrays) -> External:
        shape = (self.zero_shot.classes, self._slots_of(arrays["external.valid"]))
        valid = stored_mask("external.valid", arrays["external.valid"], shape)
        uncertainty = stored_entropies("external.entropy", arrays["external.entropy"], valid)
        vectors = stored_vectors("external.vectors", arrays["external.vectors"], valid, self.zero_shot.dim)
        return External(vectors, uncertainty, valid, self.zero_shot.fingerprint)
