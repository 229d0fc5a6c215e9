"""The prompt tuner of any encoder that has one: ``make_prompt_tuner("onnx:DIR", classnames)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..core.extras import need
from ..errors import refuse
from . import check_encoder_spec, load_encoder, split_spec
from .encoder import Encoder
from .onnx import OnnxEncoder
from .onnx_torch.graph import EXTRA
from .onnx_torch.tuner import OnnxPromptTuner
from .prompt_tuner import CONTEXT, TUNABLE
from .torch_base import set_threads


class AnyPromptTuner(Protocol):
    """A text encoder as prompt tuning needs it; ``class_texts`` is differentiable in its context."""

    context_init: Any  # torch.Tensor (n_ctx, d_tok): the token embeddings of "a photo of a"
    scale: float
    classnames: tuple[str, ...]

    def class_texts(self, context: Any) -> Any:
        """Return the embeddings of "[context] class name." as a torch.Tensor (C, D) of unit rows."""


def check_prompt_tuner(spec: str) -> None:
    """Refuse an encoder whose folder, or a package that tunes its prompts, is missing."""
    if split_spec(spec)[0] == "onnx":  # one extra brings all that is needed
        for package in ("onnxruntime", "tokenizers", "torch", "onnx"):
            need(package, EXTRA)
    check_encoder_spec(spec)


def make_prompt_tuner(
    encoder: str | Encoder, classnames: Sequence[str], context: str = CONTEXT, threads: int = 0
) -> AnyPromptTuner:
    """Return the differentiable text encoder of ``encoder``: its name, such as "openclip:RN50/openai", or itself.

    ``threads`` limits torch's cores (0: its own choice).
    """
    loaded = load_encoder(encoder, threads) if isinstance(encoder, str) else encoder
    set_threads(threads)
    if isinstance(loaded, OnnxEncoder):
        return OnnxPromptTuner(loaded, classnames, context)
    if not hasattr(loaded, "prompt_tuner"):
        raise refuse("prompt tuning", f"the encoder {loaded.name}", f"an encoder {TUNABLE}")
    tuner: AnyPromptTuner = loaded.prompt_tuner(classnames, context)
    return tuner
