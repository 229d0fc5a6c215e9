"""The prompt tuner: a torch text encoder as a differentiable function of its prompt, for TPT."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from ..errors import refuse
from . import check_encoder_spec, load_encoder, split_spec
from .base import Encoder
from .hf import HfEncoder, set_threads
from .open_clip import OpenClipEncoder
from .prompts import check_classnames

CONTEXT = "a photo of a"
DEVICE = "LATTE_DEVICE"  # environment variable, because worker processes inherit it; a run is the same without
TUNABLE = "hf:ID, hf:DIR or openclip:MODEL/WEIGHTS"  # the encoders whose prompts can be tuned


def check_tunable(spec: str) -> None:
    """Refuse the name of an encoder whose prompts cannot be tuned."""
    if spec.startswith("onnx:") or split_spec(spec)[0] == "onnx":
        raise refuse("text_encoder", repr(spec), f"{TUNABLE}: a model in torch, because ONNX has no gradients")


def check_prompt_tuner(spec: str) -> None:
    """Refuse an encoder whose prompts cannot be tuned, or whose packages are missing."""
    check_tunable(spec)
    check_encoder_spec(spec)


def make_prompt_tuner(
    encoder: str | Encoder, classnames: Sequence[str], context: str = CONTEXT, threads: int = 0
) -> PromptTuner:
    """Return the differentiable text encoder of ``encoder``: its name, such as "openclip:RN50/openai", or itself.

    ``threads`` limits torch's cores (0: its own choice). The device is that of ``encoder``; one that is loaded by its
    name runs where LATTE_DEVICE says, without it on the processor.
    """
    if isinstance(encoder, str):
        check_tunable(encoder)
        encoder = load_encoder(encoder, threads, os.environ.get(DEVICE, "cpu"))
    if not isinstance(encoder, HfEncoder | OpenClipEncoder):
        raise refuse("prompt tuning", f"the encoder {encoder.name}", f"an encoder {TUNABLE}")
    set_threads(threads)
    return PromptTuner(encoder, classnames, context)


class PromptTuner:
    """Text features of C classes for a prompt whose first words are free vectors.

    The prompt is [SOS][context][class name]["."][EOS], one context for all classes. ``context_init`` (n_ctx, d_tok)
    holds the token embeddings of "a photo of a"; with it, ``class_texts`` gives the encoder's own features of
    "a photo of a NAME.". Only ``context`` takes gradients: the model is frozen.

    The context replaces the embeddings of its tokens right after the lookup. Positions, mask, layers, pooling and
    projection remain the model's own code, whatever its family and version.
    """

    def __init__(self, encoder: HfEncoder | OpenClipEncoder, classnames: Sequence[str], context: str = CONTEXT) -> None:
        self.torch = encoder.torch
        self.encoder = encoder
        self.classnames = tuple(classnames)
        self.scale = encoder.scale
        self.ids = encoder.tokens([f"{context} {word}." for word in check_classnames(classnames)])  # (C, L)
        bare = encoder.plain_tokens(context)
        ids, size = self.ids.cpu().numpy(), len(bare)
        starts = [at for at in range(ids.shape[1] - size + 1) if (ids[:, at : at + size] == bare).all()]
        if not bare or not starts:
            raise refuse("context", repr(context), "words that the tokenizer keeps apart from the class names")
        self.start, self.stop = starts[0], starts[0] + size
        self.embedding = encoder.token_embedding
        self.context_init = self.embedding.weight[self.ids[0, self.start : self.stop]].detach().clone()

    def class_texts(self, context: Any) -> Any:
        """Return unit rows (C, D) for ``context`` (n_ctx, d_tok)."""
        if tuple(context.shape) != tuple(self.context_init.shape):
            raise refuse("context", f"shape {tuple(context.shape)}", f"shape {tuple(self.context_init.shape)}")

        def put(module: Any, inputs: Any, output: Any) -> Any:
            shared = context.to(output.dtype).expand(len(output), -1, -1)
            return self.torch.cat([output[:, : self.start], shared, output[:, self.stop :]], dim=1)

        handle = self.embedding.register_forward_hook(put)
        try:
            features = self.encoder.token_features(self.ids)
        finally:
            handle.remove()
        return self.torch.nn.functional.normalize(features, dim=-1)
