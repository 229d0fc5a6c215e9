"""A torch text encoder as a differentiable function of its prompt, for prompt tuning (TPT)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..errors import refuse
from .prompts import check_classnames

if TYPE_CHECKING:
    from .torch_base import TorchEncoder

CONTEXT = "a photo of a"
TUNABLE = "onnx:DIR, hf:ID or openclip:MODEL/WEIGHTS"  # the encoders whose prompts can be tuned


class PromptTuner:
    """Text features of C classes for a prompt whose first words are free vectors.

    The prompt is [SOS][context][class name]["."][EOS], one context for all classes. ``context_init`` (n_ctx, d_tok)
    holds the token embeddings of "a photo of a"; with it, ``class_texts`` gives the encoder's own features of
    "a photo of a NAME.". Only ``context`` takes gradients: the model is frozen.

    The context replaces the embeddings of its tokens right after the lookup. Positions, mask, layers, pooling and
    projection remain the model's own code, whatever its family and version.
    """

    def __init__(self, encoder: TorchEncoder, classnames: Sequence[str], context: str = CONTEXT) -> None:
        self.torch = encoder.torch
        self.encoder = encoder
        self.classnames = tuple(classnames)
        self.scale = encoder.scale
        words = check_classnames(classnames)
        self.ids = encoder.tokens([f"{context} {word}." for word in words])  # (C, L)
        self.start, self.length = locate_context(encoder.plain_tokens(context), self.ids.cpu().numpy(), context)
        self.embedding = encoder.token_embedding
        span = self.ids[0, self.start : self.start + self.length]
        self.context_init = self.embedding.weight[span].detach().clone()

    def class_texts(self, context: Any) -> Any:
        """Return unit rows (C, D) for ``context`` (n_ctx, d_tok)."""
        if tuple(context.shape) != tuple(self.context_init.shape):
            raise refuse("context", f"shape {tuple(context.shape)}", f"shape {tuple(self.context_init.shape)}")
        with self._replace_tokens(context):
            features = self.encoder.token_features(self.ids)
        return self.torch.nn.functional.normalize(features, dim=-1)

    @contextmanager
    def _replace_tokens(self, context: Any) -> Iterator[None]:
        """Replace the embeddings of the context's tokens by ``context`` while the block runs."""
        stop = self.start + self.length

        def put(module: Any, inputs: Any, output: Any) -> Any:
            shared = context.to(output.dtype).expand(len(output), -1, -1)
            return self.torch.cat([output[:, : self.start], shared, output[:, stop:]], dim=1)

        handle = self.embedding.register_forward_hook(put)
        try:
            yield
        finally:
            handle.remove()


def locate_context(bare: Sequence[int], ids: NDArray[np.int64], context: str) -> tuple[int, int]:
    """Return where the tokens ``bare`` of the context stand in every prompt of ``ids`` (C, L), as (start, length)."""
    for start in range(ids.shape[1] - len(bare) + 1):
        if bare and bool((ids[:, start : start + len(bare)] == bare).all()):
            return start, len(bare)
    raise refuse("context", repr(context), "words that the tokenizer keeps apart from the class names")
