"""One way to the prompt tuner of any encoder that has one: ``prompt_tuner("onnx:DIR", classnames)``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from ..core.extras import need
from ..core.validate import at_least, refuse
from . import load_encoder
from .encoder import Encoder
from .onnx import OnnxEncoder
from .onnx_torch.tuner import OnnxPromptTuner
from .prompt_tuner import CONTEXT, TUNABLE


class AnyPromptTuner(Protocol):
    """What prompt tuning needs of a text encoder; ``class_texts`` is differentiable in its context."""

    context_init: Any  # torch.Tensor (n_ctx, d_tok): the token embeddings of "a photo of a"
    scale: float
    classnames: tuple[str, ...]

    def class_texts(self, context: Any) -> Any:
        """Return the embeddings of "[context] class name." as a torch.Tensor (C, D) of unit rows."""


def prompt_tuner(
    encoder: str | Encoder, classnames: Sequence[str], context: str = CONTEXT, threads: int = 0
) -> AnyPromptTuner:
    """Return the differentiable text encoder of ``encoder``: its name, such as "openclip:RN50/openai", or itself.

    ``threads`` limits torch's cores (0: its own choice).
    """
    loaded = load_encoder(encoder, threads) if isinstance(encoder, str) else encoder
    if at_least("threads", threads, 0):
        need("torch", "torch").set_num_threads(threads)
    if isinstance(loaded, OnnxEncoder):
        return OnnxPromptTuner(loaded, classnames, context)
    if not hasattr(loaded, "prompt_tuner"):
        raise refuse("prompt tuning", f"the encoder {loaded.name}", f"an encoder {TUNABLE}")
    tuner: AnyPromptTuner = loaded.prompt_tuner(classnames, context)
    return tuner
