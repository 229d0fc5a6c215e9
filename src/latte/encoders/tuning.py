"""One way to the prompt tuner of any encoder that has one: ``prompt_tuner("onnx:DIR", classnames)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..core.validate import refuse
from . import load_encoder
from .base import Encoder
from .extras import need

CONTEXT = "a photo of a"


class AnyPromptTuner(Protocol):
    """What prompt tuning needs of a text encoder; ``class_texts`` takes gradients in its context."""

    context_init: Any  # torch.Tensor (n_ctx, d_tok): the token embeddings of "a photo of a"
    scale: float
    classnames: tuple[str, ...]

    def class_texts(self, context: Any) -> Any:
        """Return the embeddings of "[context] class name." as a torch.Tensor (C, D) of unit rows."""


def prompt_tuner(
    encoder: str | Encoder, classnames: Sequence[str], context: str = CONTEXT, threads: int = 0
) -> AnyPromptTuner:
    """Return the differentiable text encoder of ``encoder``: its name, such as "onnx:DIR" or "hf:ID", or itself.

    ``threads`` limits torch's cores (0: its own choice).
    """
    loaded = load_encoder(encoder, threads) if isinstance(encoder, str) else encoder
    make = getattr(loaded, "prompt_tuner", None) or _of_onnx(loaded)
    if make is None:
        raise refuse("prompt tuning", f"the encoder {loaded.name}", "an encoder onnx:DIR or hf:ID")
    if threads:
        need("torch", "torch").set_num_threads(threads)
    tuner: AnyPromptTuner = make(classnames, context)
    return tuner


def _of_onnx(encoder: Any) -> Any:
    from .onnx import OnnxEncoder
    from .onnx_torch import OnnxPromptTuner

    if not isinstance(encoder, OnnxEncoder):
        return None
    return lambda classnames, context: OnnxPromptTuner(encoder, classnames, context)
