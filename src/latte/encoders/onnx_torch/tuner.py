"""The text encoder of an ONNX folder as a differentiable function of its prompt, for TPT."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...core.extras import need
from ...errors import refuse
from ..onnx import OnnxEncoder, existing_file
from ..prompt_tuner import CONTEXT, locate_context
from ..prompts import check_classnames
from .graph import EXTRA, Graph, Node, read_graph
from .ops import Tensor

_SAME = ("Cast", "Identity", "Reshape", "Squeeze", "Unsqueeze")  # operators that pass token ids on


class OnnxPromptTuner:
    """Text features of C classes for a prompt whose first words are free vectors.

    The prompt is ``[start][context][class name]["."][end]``, one context for all classes. ``context_init``
    (n_ctx, d_tok) holds the token embeddings of "a photo of a"; with it, ``class_texts`` gives the encoder's own
    features of "a photo of a NAME.". Positions, token types and mask stay those of that prompt. Only ``context`` takes
    gradients.

    Everything that does not depend on the context is computed once, here. ``dtype`` is torch.float32 by default.
    """

    def __init__(
        self, encoder: OnnxEncoder, classnames: Sequence[str], context: str = CONTEXT, dtype: Any = None
    ) -> None:
        self.torch = need("torch", EXTRA)
        self.classnames = tuple(classnames)
        self.scale = encoder.scale
        ids, mask = encoder.tokens([f"{context} {word}." for word in check_classnames(classnames)])  # (C, L)
        self.start, length = locate_context(
            encoder._tokenizer.encode(context, add_special_tokens=False).ids, ids, context
        )
        with self.torch.inference_mode(False):  # even if the caller is in it: autograd needs some of these tensors
            graph = read_graph(existing_file(encoder.folder, encoder.model.text_file), encoder.model.text_output, dtype)
            feed = self._feed(encoder, ids, mask)
            self.site = token_vectors(graph)
            self.tokens = self._look_up(graph, feed, ids.shape)  # (C, L, d_tok)
            self.rest = graph.cut(self.site).bind(feed)
            self.context_init = self.tokens[0, self.start : self.start + length].clone()

    def _feed(self, encoder: OnnxEncoder, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> dict[str, Tensor]:
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return {name: self.torch.tensor(known[name]) for name in encoder.model.text_inputs}

    def _look_up(self, graph: Graph, feed: dict[str, Tensor], shape: tuple[int, ...]) -> Tensor:
        tokens = graph.subgraph(self.site).bind(feed).values[self.site]
        if tuple(tokens.shape[:-1]) != shape:
            raise refuse("token embeddings", f"shape {tuple(tokens.shape)}", f"shape ({shape[0]}, {shape[1]}, d)")
        return tokens

    def class_texts(self, context: Tensor) -> Tensor:
        """Return unit rows (C, D) for ``context`` (n_ctx, d_tok)."""
        want = tuple(self.context_init.shape)
        if tuple(context.shape) != want:
            raise refuse("context", f"shape {tuple(context.shape)}", f"shape {want}")
        before, after = self.tokens[:, : self.start], self.tokens[:, self.start + len(context) :]
        shared = context.to(self.tokens.dtype).expand(len(self.tokens), -1, -1)
        rows = self.rest.run({self.site: self.torch.cat([before, shared, after], dim=1)})
        return self.torch.nn.functional.normalize(rows, dim=-1)


def token_vectors(graph: Graph) -> str:
    """Return the name of the token embeddings: the rows of a table that the token ids pick.

    Tables of positions and token types are distinguished from it by the index that picks their rows.
    """
    makers = {node.output: node for node in graph.nodes}
    lookups = [node.output for node in graph.nodes if is_lookup(node, graph, makers)]
    if len(lookups) != 1:
        got = f"{len(lookups)} places where input_ids pick rows of a table"
        raise refuse("text model", got, "one such place: a text transformer with token embeddings")
    return lookups[0]


def is_lookup(node: Node, graph: Graph, makers: dict[str, Node]) -> bool:
    """Return whether a node picks rows of a constant table of floats by the token ids."""
    if node.op != "Gather" or node.attributes.get("axis", 0) != 0:
        return False
    table = graph.values.get(node.inputs[0])
    return table is not None and table.ndim == 2 and table.is_floating_point() and origin(node, makers) == "input_ids"


def origin(node: Node, makers: dict[str, Node]) -> str:
    """Return the origin of a Gather's index, looking through operators that only change its shape or type."""
    name = node.inputs[1]
    while name in makers and makers[name].op in _SAME:
        name = makers[name].inputs[0]
    return name


def onnx_prompt_tuner(folder: str | Path, classnames: Sequence[str], context: str = CONTEXT) -> OnnxPromptTuner:
    """Return the prompt tuner of an ONNX folder."""
    return OnnxPromptTuner(OnnxEncoder(folder), classnames, context)
