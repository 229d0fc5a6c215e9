"""Latte: a local memory, an external memory of prototypes from similar clients, and a readout over both.

Where the paper and the authors' released code disagree, the decision is named B1 to B17; docs/variants.md lists them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import partial
from typing import Any, ClassVar

import numpy as np

from ..core.global_memory import GlobalMemory
from ..core.local_memory import NAMES, LocalMemory
from ..core.maths import entropy_of_one, match_entropy, normalised
from ..core.privacy import NoisyRows, Privacy, refuse_near_copies
from ..core.readout import MergedMemory, merge_class, merge_memories
from ..core.stored import require, stored_entropies, stored_mask, stored_vectors
from ..core.types import Arrays, External, MemoryFill, Prediction, Prototypes, State, Vectors
from ..core.validate import MOST_SLOTS, at_least, boolean, entropies, message, unit_where
from ..core.zero_shot import ZeroShot
from ..errors import refuse
from .base import BaseMethod
from .latte_params import PRESETS, LatteParams
from .traffic import Content, Messages

__all__ = ["PRESETS", "Latte", "LatteParams"]


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

    def private_summary(self, privacy: Privacy, noise: NoisyRows) -> Prototypes:
        """Return prototypes of classes with enough images, made of means with noise.

        Noise can carry a mean out of its class: such a class is left out, because the exchange would refuse it.
        """
        p = self.params
        shared = privacy.shares(self.local.valid.sum(axis=1))
        if not privacy.noise:
            vectors, seen = self.local.prototypes(p.prototype, p.prototype_rate(self.zero_shot.classes))
            return Prototypes(np.where((seen & shared)[:, None], vectors, 0), seen & shared, self.zero_shot.fingerprint)
        means = self.local.means(p.prototype, p.prototype_rate(self.zero_shot.classes))
        means = noise.of(means.astype(np.float64), privacy.deviation(self.zero_shot.dim)).astype(means.dtype)
        own = self.zero_shot.logits(normalised(means)).argmax(axis=1) == np.arange(len(means))
        return Prototypes(normalised(means * (shared & own)[:, None]), shared & own, self.zero_shot.fingerprint)

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
        """Return E of a mask (C, E). If ``valid`` is no such mask, return k_e, for the message of the refusal."""
        slots = int(np.shape(valid)[1]) if np.ndim(valid) == 2 else self.params.k_e
        return at_least("external.valid: slots", slots, 0, MOST_SLOTS)

    # --- what is read -------------------------------------------------------------------------------------

    def _build(self) -> None:
        """Merge every class anew."""
        slots = self.external.valid.shape[1] if self.params.memory == "external" else self.params.k_l
        rate = self.params.readout_rate(self.zero_shot.classes)
        self.merged = MergedMemory(self.zero_shot.classes, slots, self.zero_shot.dim, rate)
        if self.params.memory == "both":
            self.merged.replace_all(*merge_memories(self.local, self.external)[:3])
        else:
            source = self.local if self.params.memory == "local" else self.external  # read without a cut
            self.merged.replace_all(source.vectors, source.entropy, source.valid)

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
