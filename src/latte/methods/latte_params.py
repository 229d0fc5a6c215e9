"""The parameters of Latte, and the published settings."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..core.local_memory import PROTOTYPE_KINDS, REPLACEMENTS
from ..core.near_copies import check_near_copy, near_copy_field
from ..core.readout import GATE
from ..core.routing import EMPTY_QUERIES, Routing
from ..core.validate import MOST_SLOTS, at_least, choice, factor

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
        """The length of a weighted sum up to which its class gets no memory logit; None in the paper's variant (B1)."""
        return GATE if self.released else None

    @property
    def routing(self) -> Routing:
        """The rules by which clients get prototypes of others (B3, B4, B10)."""
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
