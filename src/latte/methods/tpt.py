"""TPT, test-time prompt tuning: one gradient step on the words of the prompt, for each image anew (torch).

The method is that of "Test-Time Prompt Tuning for Zero-Shot Generalization in Vision-Language Models", in
float32: the mixed precision and the gradient scaler of its official code are left out. Peculiarities that
are kept:

- the weight decay is 0.01, the default of torch's AdamW, which the authors did not set;
- the views that count are chosen before the first step and stay chosen;
- the tuned prompt answers for the plain view only;
- prompt and optimiser start afresh for each image: nothing is remembered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self, Unpack

import numpy as np

from ..core.maths import entropy_of_one
from ..core.types import Prediction, Vectors
from ..core.validate import at_least, real
from ..core.zero_shot import ZeroShot
from ..errors import need, refuse
from .base import BaseMethod, Given, Origin
from .traffic import CostShape, Terms
from .views import CONFIDENT, check_share, most_confident

if TYPE_CHECKING:
    from .options import TptOptions


class TextEncoder(Protocol):
    """A text encoder that gradients pass through; one context is shared by all classes."""

    context_init: Any  # torch.Tensor (n_ctx, d_tok): the token embeddings of "a photo of a"
    scale: float
    classnames: tuple[str, ...]

    def class_texts(self, context: Any) -> Any:
        """Return the embeddings of "[context] class name." as a torch.Tensor (C, D) of unit rows."""


MOST_STEPS = 10_000  # for one picture; the paper takes one


@dataclass(frozen=True, slots=True)
class TptParams:
    """Parameters of TPT.

    Parameters
    ----------
    lr
        The rate of AdamW.
    weight_decay
        Its decay.
    steps
        Its steps, for each image anew.
    share
        The share of the views with the lowest entropy, which count.
    """

    lr: float = 5e-3
    weight_decay: float = 0.01
    steps: int = 1
    share: float = CONFIDENT

    def __post_init__(self) -> None:
        real("lr", self.lr, most=1.0)  # AdamW moves every number of the context by up to lr at each step
        real("weight_decay", self.weight_decay, most=1.0)
        at_least("steps", self.steps, 0, MOST_STEPS)
        check_share("share", self.share)


class Tpt(BaseMethod[TptParams]):
    """Tunes the prompt of ``text_encoder`` on the views of one image, then classifies its plain view.

    ``zero_shot`` gives the entropy of the predictions, and the classes: they must be the text encoder's. Copies share
    the text encoder, which nothing here changes; a pickle holds it, if it can be pickled.
    """

    Params: ClassVar = TptParams
    title: ClassVar = "TPT"
    origin: ClassVar = Origin(
        paper="Test-Time Prompt Tuning for Zero-Shot Generalization in Vision-Language Models",
        venue="NeurIPS 2022",
        code="azshue/TPT",
        licence="MIT",
    )
    colours: ClassVar = ("#b02a6b", "#f48bb8", "8 3 2 3")
    uses_views: ClassVar[bool] = True
    tunes_prompt: ClassVar[bool] = True

    def __init__(
        self,
        zero_shot: ZeroShot,
        params: Given[TptParams] = None,
        *,
        text_encoder: TextEncoder | None = None,
        **options: Unpack[TptOptions],
    ) -> None:
        super().__init__(zero_shot, params, **options)
        if text_encoder is None:
            want = "a differentiable text encoder: pass text_encoder=..., with class_texts(context)"
            raise refuse("text_encoder", "none", want)
        if not all(hasattr(text_encoder, name) for name in ("classnames", "class_texts", "context_init", "scale")):
            want = "one that gradients pass through: latte.encoders.make_prompt_tuner(spec, classnames)"
            raise refuse("text_encoder", type(text_encoder).__name__, want)
        if tuple(text_encoder.classnames) != zero_shot.classnames:
            raise refuse("text_encoder", "other classes", "those of the zero-shot classifier, in its order")
        self.text_encoder = text_encoder
        import_torch()  # missing: said now, not at the first image

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return type(self)(self.zero_shot, self.params, text_encoder=self.text_encoder, normalise=self.normalise)

    @staticmethod
    def macs(params: TptParams, sizes: CostShape) -> Terms:
        """Return the head on the other views and with the tuned prompt; the gradient step is not counted."""
        return {**sizes.other_views, "head with the tuned prompt": sizes.classes * sizes.dim}

    def predict_rows(self, views: Vectors) -> Prediction:
        """Tune the prompt on the views, predict from the plain one."""
        torch = import_torch()
        with torch.inference_mode(False), torch.enable_grad():  # whatever the caller is in
            images = torch.tensor(views, device=self.text_encoder.context_init.device)
            context = self._tuned(images)
            with torch.no_grad():
                logits = self._logits(images[:1], context)[0]
        uncertainty = entropy_of_one(self.zero_shot.logits(views[0]))
        return self.prediction(logits.cpu().double().numpy(), uncertainty)

    def _tuned(self, images: Any) -> Any:
        """Return the context after the steps, from its initial value and a new optimiser."""
        torch, p = import_torch(), self.params
        context = self.text_encoder.context_init.detach().clone().requires_grad_(True)
        optimiser = torch.optim.AdamW([context], lr=p.lr, weight_decay=p.weight_decay)
        confident = None
        for _ in range(p.steps):
            logits = self._logits(images, context)
            if confident is None:
                confident = self._confident(logits)
            loss = marginal_entropy(torch, logits[confident])
            (context.grad,) = torch.autograd.grad(loss, context)  # the encoder's own weights get none
            optimiser.step()
        return context.detach()

    def _logits(self, images: Any, context: Any) -> Any:
        """Return scale · F Tᵀ (V, C), differentiable in the context."""
        texts = self.text_encoder.class_texts(context).float()
        want = (self.zero_shot.classes, self.zero_shot.dim)
        if tuple(texts.shape) != want:
            raise refuse("text_encoder.class_texts", f"shape {tuple(texts.shape)}", f"shape {want}")
        return self.text_encoder.scale * images @ texts.T

    def _confident(self, logits: Any) -> Any:
        values = logits.detach().cpu().double().numpy()  # not every device has float64
        confident = most_confident(values, self.params.share).confident
        return import_torch().tensor(np.ascontiguousarray(confident), device=logits.device)


def marginal_entropy(torch: Any, logits: Any) -> Any:
    """Return the entropy in nats of the mean probability of ``logits`` (V, C), by way of log-mean-exp."""
    each = logits.log_softmax(dim=1)
    mean = each.logsumexp(dim=0) - math.log(len(each))
    mean = mean.clamp(min=torch.finfo(mean.dtype).min)  # 0 · ln 0 = 0
    return -(mean * mean.exp()).sum()


def import_torch() -> Any:
    """Return torch, or say how to get it."""
    return need("torch", "torch")
