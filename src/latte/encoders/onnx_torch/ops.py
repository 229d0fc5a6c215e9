"""The operators of text transformers, by torch, as ONNX defines them from opset 13 on.

An operator is a function of (torch, inputs, attributes); an optional input that is left out is None. All of them
return one tensor. Where ONNX and torch differ (whole-number division, slices backwards, negative indices, reshaping to
0), they follow ONNX.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...errors import refuse

Tensor = Any  # torch.Tensor, which is not imported here
Operands = Sequence[Tensor]
Attributes = Mapping[str, Any]
Operator = Callable[[Any, Operands, Attributes], Tensor]


def each(method: str) -> Operator:
    """Return the operator that is a method of its first input, with the others as arguments."""

    def operator(torch: Any, x: Operands, a: Attributes) -> Tensor:
        return getattr(x[0], method)(*x[1:])

    return operator


def at(x: Operands, index: int) -> Tensor | None:
    """Return an optional input."""
    return x[index] if index < len(x) else None


def axes_of(x: Operands, a: Attributes) -> list[int]:
    """Return the axes, which older opsets have as an attribute and newer ones as the second input."""
    axes = at(x, 1)
    return list(a.get("axes", ())) if axes is None else axes.tolist()


# arithmetic


def div(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Divide; whole numbers are cut towards zero."""
    return torch.div(x[0], x[1], rounding_mode=None if x[0].is_floating_point() else "trunc")


def power(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Raise to a power; the type is the base's."""
    return x[0].pow(x[1]).to(x[0].dtype)


def clip(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Limit from below, from above, or both."""
    low, high = at(x, 1), at(x, 2)
    return x[0] if low is None and high is None else x[0].clamp(min=low, max=high)


def gemm(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Return alpha · A B + beta · C."""
    left = x[0].T if a.get("transA", 0) else x[0]
    right = x[1].T if a.get("transB", 0) else x[1]
    product = a.get("alpha", 1.0) * (left @ right)
    bias = at(x, 2)
    return product if bias is None else product + a.get("beta", 1.0) * bias


def layer_normalisation(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Normalise over the axes from ``axis`` on."""
    shape = x[0].shape[a.get("axis", -1) :]
    return torch.nn.functional.layer_norm(x[0], shape, x[1], at(x, 2), a.get("epsilon", 1e-5))


def softmax(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Softmax along one axis."""
    return x[0].softmax(a.get("axis", -1))


def reduce(method: str) -> Operator:
    """Return the operator that reduces over axes; without axes over all, unless an attribute forbids it."""

    def operator(torch: Any, x: Operands, a: Attributes) -> Tensor:
        axes = axes_of(x, a)
        if not axes and a.get("noop_with_empty_axes", 0):
            return x[0]
        function = torch.linalg.vector_norm if method == "norm" else getattr(torch, method)
        return function(x[0], dim=axes or list(range(x[0].ndim)), keepdim=bool(a.get("keepdims", 1)))

    return operator


def argmax(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Return where the largest value is: the first of equal ones, or the last."""
    axis, keep = a.get("axis", 0), bool(a.get("keepdims", 1))
    if a.get("select_last_index", 0):
        return x[0].shape[axis] - 1 - x[0].flip(axis).argmax(axis, keepdim=keep)
    return x[0].argmax(axis, keepdim=keep)


# shapes


def shape(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Return the shape, or a part of it, as whole numbers."""
    return torch.tensor(x[0].shape[a.get("start", 0) : a.get("end")], dtype=torch.int64)


def reshape(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Reshape; -1 is what remains, 0 keeps the size that is there (unless allowzero)."""
    target = x[1].tolist()
    if not a.get("allowzero", 0):
        target = [x[0].shape[i] if size == 0 else size for i, size in enumerate(target)]
    return x[0].reshape(target)


def flatten(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Return a matrix: the axes before ``axis`` are its rows."""
    sizes = x[0].shape
    axis = a.get("axis", 1)
    return x[0].reshape(math.prod(sizes[:axis]), math.prod(sizes[axis:]))


def unsqueeze(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Insert axes of size 1; they count in the result."""
    axes = axes_of(x, a)
    result = x[0]
    for axis in sorted(axis % (x[0].ndim + len(axes)) for axis in axes):
        result = result.unsqueeze(axis)
    return result


def squeeze(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Remove axes of size 1: the listed ones, or all."""
    axes = axes_of(x, a)
    return x[0].squeeze(tuple(axes)) if axes else x[0].squeeze()


def transpose(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Permute the axes; without a permutation, reverse them."""
    return x[0].permute(a.get("perm", tuple(reversed(range(x[0].ndim)))))


def expand(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Broadcast against a shape, both ways."""
    return x[0].expand(torch.broadcast_shapes(x[0].shape, tuple(x[1].tolist())))


# selections


def gather(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Select along one axis; a negative index counts from the end."""
    data, index = x[0], x[1].long()
    axis = a.get("axis", 0) % data.ndim
    index = torch.where(index < 0, index + data.shape[axis], index)
    rows = data.index_select(axis, index.reshape(-1))
    return rows.reshape(data.shape[:axis] + index.shape + data.shape[axis + 1 :])


def gather_nd(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Select by whole coordinates, which stand in the last axis of the second input."""
    if a.get("batch_dims", 0):
        raise refuse("GatherND", f"batch_dims {a['batch_dims']}", "batch_dims 0: export the model with another opset")
    return x[0][tuple(x[1].unbind(-1))]


def slices(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Cut along axes, with steps of either sign."""
    starts, ends = x[1].tolist(), x[2].tolist()
    axes, steps = (at(x, index) for index in (3, 4))
    result = x[0]
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        axis = i if axes is None else int(axes[i])
        step = 1 if steps is None else int(steps[i])
        positions = range(*slice(start, end, step).indices(result.shape[axis]))
        result = result.index_select(axis, torch.tensor(positions, dtype=torch.int64))
    return result


def concat(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Join along an axis."""
    return torch.cat(list(x), dim=a["axis"])


def where(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Take from the second input where the first is true, else from the third."""
    return torch.where(x[0], x[1], x[2])


def arange(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Return start, start + step, … below the limit."""
    return torch.arange(x[0].item(), x[1].item(), x[2].item(), dtype=x[0].dtype)


def cast(torch: Any, x: Operands, a: Attributes) -> Tensor:
    """Convert to the type ``to``, which is torch's."""
    return x[0].to(a["to"])


TENSOR_METHODS: dict[str, str] = {
    "Abs": "abs", "Add": "add", "And": "logical_and", "Equal": "eq", "Erf": "erf", "Exp": "exp", "Greater": "gt",
    "GreaterOrEqual": "ge", "Identity": "clone", "IsNaN": "isnan", "Less": "lt", "LessOrEqual": "le", "Log": "log",
    "MatMul": "matmul", "Mul": "mul", "Neg": "neg", "Not": "logical_not", "Or": "logical_or", "Relu": "relu",
    "Sigmoid": "sigmoid", "Sqrt": "sqrt", "Sub": "sub", "Tanh": "tanh",
}  # fmt: skip

OPERATORS: dict[str, Operator] = {
    **{name: each(method) for name, method in TENSOR_METHODS.items()},
    "ArgMax": argmax,
    "Cast": cast,
    "Clip": clip,
    "Concat": concat,
    "Div": div,
    "Expand": expand,
    "Flatten": flatten,
    "Gather": gather,
    "GatherND": gather_nd,
    "Gemm": gemm,
    "LayerNormalization": layer_normalisation,
    "Pow": power,
    "Range": arange,
    "ReduceL2": reduce("norm"),
    "ReduceMax": reduce("amax"),
    "ReduceMean": reduce("mean"),
    "ReduceSum": reduce("sum"),
    "Reshape": reshape,
    "Shape": shape,
    "Slice": slices,
    "Softmax": softmax,
    "Squeeze": squeeze,
    "Transpose": transpose,
    "Unsqueeze": unsqueeze,
    "Where": where,
}
