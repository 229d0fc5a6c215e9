"""An ONNX graph computed by torch: read from a file, evaluated in part or in whole, differentiable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...core.extras import need
from ...errors import refuse
from .ops import OPERATORS, Tensor

EXTRA = "export"  # the extra that brings torch and onnx
OLDEST = 13  # before it, Softmax and others had other meanings
_AGAIN = "a model as `latte export` writes it, in float32 or fp16 (int8 has no gradients)"


@dataclass(frozen=True, slots=True)
class Node:
    """One operator with the names of its inputs ("" for one left out) and of its output."""

    op: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, Any]

    def apply(self, torch: Any, known: Mapping[str, Tensor]) -> Tensor:
        """Return the output's value."""
        return OPERATORS[self.op](torch, [known[name] if name else None for name in self.inputs], self.attributes)


@dataclass(frozen=True, slots=True)
class Graph:
    """Nodes in an order in which they can be computed, the values that are known, and the inputs that are missing.

    A graph never changes: ``subgraph``, ``bind`` and ``cut`` return another one.
    """

    torch: Any
    nodes: tuple[Node, ...]
    values: Mapping[str, Tensor]
    inputs: tuple[str, ...]
    output: str

    def subgraph(self, output: str) -> Graph:
        """Return the part of the graph that computes ``output``."""
        names, nodes = {output}, []
        for node in reversed(self.nodes):
            if node.output in names:
                nodes.append(node)
                names.update(node.inputs)
        values = {name: value for name, value in self.values.items() if name in names}
        inputs = tuple(name for name in self.inputs if name in names)
        return replace(self, nodes=tuple(reversed(nodes)), values=values, inputs=inputs, output=output)

    def bind(self, values: Mapping[str, Tensor]) -> Graph:
        """Return the graph with ``values`` as constants, and everything computed that depends on constants only."""
        known, left = {**self.values, **values}, []
        with self.torch.no_grad():
            for node in self.nodes:
                if all(name in known for name in node.inputs if name):
                    known[node.output] = node.apply(self.torch, known)
                else:
                    left.append(node)
        inputs = tuple(name for name in self.inputs if name not in values)
        return replace(self, nodes=tuple(left), values=known, inputs=inputs).subgraph(self.output)

    def cut(self, name: str) -> Graph:
        """Return the graph with the intermediate result ``name`` as an input."""
        nodes = tuple(node for node in self.nodes if node.output != name)
        return replace(self, nodes=nodes, inputs=(*self.inputs, name)).subgraph(self.output)

    def run(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return the output for ``values`` of the inputs; gradients pass through if they are switched on."""
        missing = [name for name in self.inputs if name not in values]
        if missing:
            raise refuse("inputs", f"none of the name {missing[0]!r}", f"values of {', '.join(self.inputs)}")
        known = {**self.values, **values}
        for node in self.nodes:
            known[node.output] = node.apply(self.torch, known)
        return known[self.output]


def read_graph(path: str | Path, output: str, dtype: Any = None) -> Graph:
    """Read an ONNX file as the graph that computes ``output``.

    All floats are converted to ``dtype``, torch.float32 by default, however they are stored.
    """
    torch, onnx = need("torch", EXTRA), need("onnx", EXTRA)
    try:
        model = onnx.load(str(path))
    except Exception as error:  # protobuf's own errors, and those of the file system
        raise refuse(str(path), f"a file that cannot be read ({error})", _AGAIN) from None
    reader = GraphReader(torch, onnx, torch.float32 if dtype is None else dtype)
    return reader.graph(model, str(path), output)


@dataclass(frozen=True, slots=True)
class GraphReader:
    """Turns the parts of an ONNX file into torch's."""

    torch: Any
    onnx: Any
    dtype: Any  # of all floats

    def graph(self, model: Any, path: str, output: str) -> Graph:
        """Return the graph of a whole model, with everything computed that depends on no input."""
        source = model.graph
        check_model(model, path)
        if output not in [value.name for value in source.output]:
            raise refuse(path, f"no output {output!r}", f"one of {[value.name for value in source.output]}")
        values = {tensor.name: self.tensor(self.onnx.numpy_helper.to_array(tensor)) for tensor in source.initializer}
        values |= {node.output[0]: self.constant(node) for node in source.node if node.op_type == "Constant"}
        nodes = tuple(self.node(node) for node in source.node if node.op_type != "Constant")
        inputs = tuple(value.name for value in source.input if value.name not in values)
        return Graph(self.torch, nodes, values, inputs, output).subgraph(output).bind({})

    def tensor(self, array: Any) -> Tensor:
        """Return a numpy array, or a list of numbers, as a tensor."""
        tensor = self.torch.tensor(array)
        return tensor.to(self.dtype) if tensor.is_floating_point() else tensor

    def constant(self, node: Any) -> Tensor:
        """Return the value of a Constant."""
        value = self.onnx.helper.get_attribute_value(node.attribute[0])
        known = {"value": self.onnx.numpy_helper.to_array} | dict.fromkeys(_PLAIN, list_or_number)
        name = node.attribute[0].name
        if name not in known:
            raise refuse("Constant", f"attribute {name}", f"one of {', '.join(known)}")
        return self.tensor(known[name](value))

    def node(self, node: Any) -> Node:
        """Return a node that is not a Constant."""
        attributes = {item.name: self.onnx.helper.get_attribute_value(item) for item in node.attribute}
        if node.op_type == "Cast":
            attributes["to"] = self.type_of(attributes["to"])
        return Node(node.op_type, tuple(node.input), node.output[0], attributes)

    def type_of(self, number: int) -> Any:
        """Return torch's type for ONNX's; every float type becomes ``dtype``."""
        kind = self.onnx.helper.tensor_dtype_to_np_dtype(number)
        if self.onnx.TensorProto.DataType.Name(number) in _FLOATS:
            return self.dtype
        return getattr(self.torch, kind.name)


_PLAIN = ("value_int", "value_ints", "value_float", "value_floats")
_FLOATS = ("FLOAT", "FLOAT16", "BFLOAT16", "DOUBLE")


def list_or_number(value: Any) -> Any:
    """Return a plain value as torch.tensor takes it."""
    return list(value) if isinstance(value, Sequence) else value


def check_model(model: Any, path: str) -> None:
    """Refuse operators that are not in ``OPERATORS`` or have several outputs, and opsets that are too old."""
    for entry in model.opset_import:
        if entry.domain in ("", "ai.onnx") and entry.version < OLDEST:
            raise refuse(path, f"opset {entry.version}", f"opset {OLDEST} or newer")
    for node in model.graph.node:
        name = f"{node.domain}.{node.op_type}" if node.domain not in ("", "ai.onnx") else node.op_type
        if name not in OPERATORS and name != "Constant":
            raise refuse(path, f"the operator {name}, which has no gradient here", _AGAIN)
        if len([output for output in node.output if output]) != 1:
            raise refuse(path, f"{name} with {len(node.output)} outputs", "operators with one output")
