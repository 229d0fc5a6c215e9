"""What an encoder costs: closed forms for transformers, and torch's own counter for any torch model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..core.extras import need
from ..core.validate import choice
from ..methods import describe


@dataclass(frozen=True, slots=True)
class Tower:
    """A transformer: tokens, width, layers, what comes before (``stem``) and the projection to ``dim``.

    The hidden layer of each block is four times as wide as the block.
    """

    tokens: int
    width: int
    layers: int
    dim: int
    stem: int = 0

    @property
    def macs(self) -> int:
        """MACs of one pass: per token and layer 12 w² (q, k, v, out, two of 4 w) and 2 n w of attention.

        >>> VIT_B_16.macs    # the paper: 17.6 G
        17563453440
        """
        block = self.tokens * (12 * self.width**2 + 2 * self.tokens * self.width)
        return self.stem + self.layers * block + self.width * self.dim


def vit(image: int, patch: int, width: int, layers: int, dim: int) -> Tower:
    """Return a vision transformer with a class token; its stem multiplies each patch by a (3 p², w) matrix."""
    patches = (image // patch) ** 2
    return Tower(patches + 1, width, layers, dim, patches * 3 * patch**2 * width)


VIT_B_16 = vit(224, 16, 768, 12, 512)
CLIP_TEXT = Tower(77, 512, 12, 512)  # the text encoder of the same model
# weights of the image encoders of OpenAI's CLIP, layer by layer: the tests add them up again
PARAMETERS = {"ViT-B/16": 86_192_640, "RN50": 38_316_896}


def encoder_bytes(backbone: str) -> int:
    """Return the size of CLIP's image encoder with 2 bytes per weight: what a client downloads once.

    >>> encoder_bytes("ViT-B/16")    # the paper's Table 3: (172M)
    172385280
    """
    choice("backbone", backbone, tuple(PARAMETERS))
    return 2 * PARAMETERS[backbone]


def passes_macs(method: str, image: int, text: int, views: int, classes: int) -> int:
    """Return the MACs of all encoder passes for one image.

    Methods that augment encode every view. TPT also runs the text encoder on every class twice, before and after its
    step; the backward pass is not counted, as in the paper.

    >>> round(passes_macs("tpt", VIT_B_16.macs, CLIP_TEXT.macs, 64, 100) / 1e12, 2)    # the paper: 1.72 T
    1.72
    """
    info = describe(method)
    prompts = 2 * classes * text if info.tunes_prompt else 0
    return (views if info.uses_views else 1) * image + prompts


def counted_macs(forward: Callable[[], Any]) -> int:
    """Return the MACs that torch counts while ``forward`` runs (it counts two operations for each).

    Attention runs as plain matrix products meanwhile: torch does not count the fused kernel of the processor.
    """
    counting = need("torch.utils.flop_counter", "torch")
    attention = need("torch.nn.attention", "torch")
    plain = attention.sdpa_kernel(attention.SDPBackend.MATH)
    with plain, counting.FlopCounterMode(display=False) as counter:
        forward()
    return int(counter.get_total_flops()) // 2
