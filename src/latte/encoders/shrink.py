"""Smaller ONNX files: half the bytes with fp16 storage, a quarter with int8 weights. Imported only by ``export``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..core.extras import need
from ..files.atomic import replacing

EXPORT_VARIANTS = ("fp32", "fp16", "int8")
SMALL = 1024  # numbers: a shorter tensor is not worth a cast
INT8_OPS = ["MatMul", "Gemm", "Gather"]


def strip(path: Path) -> None:
    """Remove the debugging notes of the exporter: stack traces with the paths of this machine."""
    onnx = need("onnx", "export")
    model = onnx.load(str(path))
    for part in (model, model.graph, *model.graph.node, *model.graph.initializer, *model.graph.value_info):
        del part.metadata_props[:]
    with replacing(path) as part:
        onnx.save(model, str(part))


def shrink(source: Path, target: Path, variant: str) -> None:
    """Write a smaller copy of an ONNX file."""
    {"fp16": to_fp16, "int8": to_int8}[variant](source, target)


def to_fp16(source: Path, target: Path) -> None:
    """Store the weights as float16 and compute in float32.

    The casts are folded when the model is loaded, so a CPU runs it at the speed of float32; the file is half as long.
    """
    onnx = need("onnx", "export")
    model = onnx.load(str(source))
    casts = [cast for tensor in model.graph.initializer if (cast := _halve(onnx, tensor)) is not None]
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, str(target))


def _halve(onnx: Any, tensor: Any) -> Any:
    """Make a float32 tensor float16 in place and return the node that casts it back; None if it stays float32."""
    if tensor.data_type != onnx.TensorProto.FLOAT or np.prod(tuple(tensor.dims)) < SMALL:
        return None
    values = onnx.numpy_helper.to_array(tensor)
    if np.abs(values).max() > np.finfo(np.float16).max:
        return None
    name, half = tensor.name, f"{tensor.name}__fp16"
    tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float16), half))
    return onnx.helper.make_node("Cast", [half], [name], to=onnx.TensorProto.FLOAT)


def to_int8(source: Path, target: Path) -> None:
    """Quantise the weights to int8 per channel, the activations while running.

    Seven of the eight bits are used: on processors without VNNI, eight overflow.
    """
    onnx = need("onnx", "export")
    quantization = need("onnxruntime.quantization", "export")
    model = onnx.load(str(source))
    del model.graph.value_info[:]  # shapes noted by the exporter, which no longer hold once nodes are replaced
    quantization.quantize_dynamic(
        model, str(target), op_types_to_quantize=INT8_OPS, per_channel=True, reduce_range=True
    )
