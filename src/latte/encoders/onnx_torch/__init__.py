"""ONNX text encoders in torch, with gradients: what prompt tuning needs where no torch model exists.

ONNX Runtime computes forward only. Here the operators of a text transformer's graph are carried out by torch, one
after the other, so that autograd passes through them. Needs ``pip install "latte-tta[export]"`` (torch and onnx).
"""

from __future__ import annotations

from .graph import Graph, Node, read_graph
from .tuner import OnnxPromptTuner, onnx_prompt_tuner

__all__ = ["Graph", "Node", "OnnxPromptTuner", "onnx_prompt_tuner", "read_graph"]
