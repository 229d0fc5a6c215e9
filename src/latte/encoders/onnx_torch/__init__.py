"""ONNX text encoders in torch, with gradients: for prompt tuning if there is no torch model.

ONNX Runtime computes forward only. Here torch executes the operators of a text transformer's graph one by one, so that
autograd passes through them. ``ops`` has the operators, ``graph`` reads and evaluates a file, ``tuner`` is the prompt
tuner. Needs the extra ``export`` (torch and onnx).
"""

from __future__ import annotations

from .graph import Graph, Node, read_graph
from .tuner import OnnxPromptTuner, onnx_prompt_tuner

__all__ = ["Graph", "Node", "OnnxPromptTuner", "onnx_prompt_tuner", "read_graph"]
