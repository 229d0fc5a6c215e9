"""PTA, prototype-based test-time adaptation (ICML 2026): zero-shot plus the cosine to a soft class mean that forgets.

The image is in the memory when it is answered. What is learnt depends on the zero-shot prediction alone, never on what
was learnt before. A class that nothing has touched is answered by its text, which loses against images: 100 R f is
about 25 for a text and 70 to 95 for a mean of images. With ``gate``, an addition of ours, such classes are neutral.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

import numpy as np

from ..core.maths import entropy_of_one, normalised, softmax
from ..core.types import MemoryFill, Prediction, Reals, State, Vectors
from ..core.validate import choice, factor, real
from .addition import Adding, ClassStatistics
from .base import ArrayMethod, Given, Origin
from .traffic import Content, Messages
from .views import check_views, confident_mean

if TYPE_CHECKING:
    from ..core.zero_shot import ZeroShot
    from .options import PtaFedOptions, PtaOptions


@dataclass(frozen=True, slots=True)
class PtaParams:
    """The parameters of PTA.

    Parameters
    ----------
    alpha
        The share of the text in the refined text of a class, at every image.
    tau
        How many images of a class its prototype remembers.
    floor
        The least probability at which an image counts for a class.
    gate
        Answer by prototypes only among the classes that the image counts for, each as far as its images warrant
        (ours; the published method has False).
    kappa
        With ``gate``, the images at which a prototype counts half.
    views
        "first" reads the plain view; "confident" the mean of the tenth of the views with the lowest entropy.
    """

    alpha: float = 0.01
    tau: float = 20.0
    floor: float = 0.1
    gate: bool = False
    kappa: float = 1.0
    views: str = "first"

    def __post_init__(self) -> None:
        real("alpha", self.alpha, most=1.0)
        factor("tau", self.tau, least=1e-3)
        real("floor", self.floor, most=1.0)
        factor("kappa", self.kappa)
        check_views(self.views)


class Pta(ArrayMethod[PtaParams]):
    """One client, or, shared, all of them.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> method = Pta(ZeroShot(np.eye(2), ("cat", "dog")))
    >>> method.predict([[0.6, 0.8]]).scores.round(1)
    array([120. , 179.4])
    """

    Params: ClassVar = PtaParams
    title: ClassVar = "PTA"
    origin: ClassVar = Origin(
        paper="Prototype-Based Test-Time Adaptation of Vision-Language Models (arXiv 2604.21360)",
        venue="ICML 2026",
        code="hzhxmu/PTA",
        licence="none",
        per_dataset="Caltech101 alone",
    )
    presets: ClassVar[dict[str, PtaParams]] = {"caltech101": PtaParams(tau=50.0)}

    if TYPE_CHECKING:

        def __init__(
            self, zero_shot: ZeroShot, params: Given[PtaParams] = None, **options: Unpack[PtaOptions]
        ) -> None: ...

    @staticmethod
    def messages(params: PtaParams, classes: int) -> Messages:
        """Return what the global form sends for every image: the embedding up, prototypes and refined texts down."""
        return Content(1), Content(2 * classes)

    def fresh(self) -> State:
        """Return prototypes M (C, D) and their evidence (C,) of zero, and refined texts R (C, D) that are the texts."""
        text = self.zero_shot.text.astype(np.float64)
        return {"prototype": np.zeros_like(text), "refined": text, "evidence": np.zeros(len(text))}

    def predict_rows(self, views: Vectors) -> Prediction:
        """Learn from the image, then answer."""
        vector, logits = confident_mean(self.zero_shot, views, self.params.views)
        p, tau = softmax(logits), self.params.tau
        touched = p >= self.params.floor
        weight = np.where(touched, -np.expm1(-p / tau), 0.0)  # 1 - exp(-p / tau)
        prototype, evidence = self.memory["prototype"], self.memory["evidence"]
        prototype += weight[:, None] * (vector - prototype)
        evidence += weight * (tau - evidence)  # images, at most tau
        refined = self.params.alpha * self.memory["refined"] + (1 - self.params.alpha) * self.prototypes()
        lengths = np.linalg.norm(refined, axis=1, keepdims=True)
        np.divide(refined, lengths, out=self.memory["refined"], where=lengths > 0)  # with alpha = 0, a text stays
        if self.params.gate:
            scores = self._gated(logits, touched, vector)
        else:
            scores = logits + self.zero_shot.scale * (self.memory["refined"] @ vector)
        return self.prediction(scores, entropy_of_one(self.zero_shot.logits(views[0])))

    def prototypes(self) -> Reals:
        """Return the prototypes (C, D) that the answer goes by."""
        return self.memory["prototype"]

    def images(self) -> Reals:
        """Return the evidence for each prototype (C,), in images."""
        return self.memory["evidence"]

    def _gated(self, logits: Reals, touched: Any, vector: Reals) -> Reals:
        """Return z + g (s - b): prototypes speak among the touched classes only, and are neutral on average."""
        images = self.images()
        counted = touched & (images > 0)
        g = np.divide(images, images + self.params.kappa, out=np.zeros_like(images), where=counted)
        if not g.any():
            return logits
        s = self.zero_shot.scale * (normalised(self.prototypes()).astype(np.float64) @ vector)
        scores: Reals = logits + g * (s - (g * s).sum() / g.sum())
        return scores

    def memory_fill(self) -> MemoryFill:
        """Return how many images the prototypes stand for, and of how many classes."""
        images = self.memory["evidence"]
        return MemoryFill(round(float(images.sum())), None, int((images > 0).sum()))


@dataclass(frozen=True, slots=True)
class PtaFedParams(PtaParams):
    """The parameters of PTA by addition: those of PTA, and

    Parameters
    ----------
    weights
        "sum" counts all clients alike, "near" those most whose prototypes are like one's own.
    cap
        How many images of a class all others together count for at most; 0 sets no limit.
    """

    weights: str = "near"
    cap: float = 0.0

    def __post_init__(self) -> None:
        super(PtaFedParams, self).__post_init__()
        choice("weights", self.weights, ("sum", "near"))
        factor("cap", self.cap)


class PtaFed(Adding[PtaFedParams], Pta):
    """A client that adds the prototypes of others to its own. No client stands for more than tau images of a class.

    >>> import numpy as np
    >>> from latte import ZeroShot
    >>> client = PtaFed(ZeroShot(np.eye(2), ("cat", "dog")))
    >>> client.predict([[0.6, 0.8]]).classname, client.summary()
    ('dog', ClassStatistics(1 images, 2 classes, task='...'))
    """

    Params: ClassVar = PtaFedParams
    title: ClassVar = "PTA (by addition)"
    origin: ClassVar = replace(
        Pta.origin, constants="this project, with labels of PACS, DTD, Pets and Cars", test_labels="yes"
    )
    presets: ClassVar[dict[str, PtaParams]] = {"caltech101": PtaFedParams(tau=50.0)}

    if TYPE_CHECKING:

        def __init__(
            self, zero_shot: ZeroShot, params: Given[PtaFedParams] = None, **options: Unpack[PtaFedOptions]
        ) -> None: ...

    @staticmethod
    def messages(params: PtaParams, classes: int) -> Messages:
        """Return what is sent: prototypes and their evidence, up and down."""
        return Content(classes, numbers=classes), Content(classes, numbers=classes)

    @classmethod
    def most_images(cls, params: PtaFedParams | None) -> float:
        """Return tau: the evidence for a prototype cannot be more."""
        return (params or PtaFedParams()).tau

    def summary(self) -> ClassStatistics:
        """Return the prototypes and their evidence."""
        sums = self.params.tau * self.memory["prototype"]
        return ClassStatistics.of(
            self.memory["evidence"], sums, np.zeros((0, sums.shape[1])), self.zero_shot.fingerprint
        )

    def receive(self, download: ClassStatistics) -> None:
        """Replace what the others have learnt."""
        super().receive(download)
        if self.params.cap:
            self.others = replace(self.others, counts=np.minimum(self.others.counts, self.params.cap))

    def prototypes(self) -> Reals:
        """Return own prototypes plus those of the others."""
        both: Reals = self.memory["prototype"] + self.others.sums / self.params.tau
        return both

    def images(self) -> Reals:
        """Return the evidence of all."""
        both: Reals = self.memory["evidence"] + self.others.counts
        return both
