"""Every operator in torch against ONNX Runtime, in graphs of one node, where the two conventions could differ."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
torch = pytest.importorskip("torch")
onnxruntime = pytest.importorskip("onnxruntime")

from latte.encoders.onnx_torch import read_graph  # noqa: E402
from latte.encoders.onnx_torch.ops import OPERATORS  # noqa: E402

RNG = np.random.default_rng(3)
X = RNG.normal(size=(2, 3, 4)).astype(np.float32)
Y = RNG.normal(size=(3, 1)).astype(np.float32)
POSITIVE = np.abs(X) + 0.1
WHOLE = np.array([[-7, 7, -6], [5, -5, 3]])
TIES = np.array([[1, 3, 3, 0], [2, 2, 1, 2]], np.int32)
YES = np.array([[True, False], [True, True]])
NO = np.array([[True, True], [False, True]])
WITH_NAN = np.array([1.0, np.nan, -np.inf], np.float32)
A, B, C = (RNG.normal(size=size).astype(np.float32) for size in ((3, 4), (5, 4), (5,)))
WEIGHT, BIAS = RNG.normal(size=(2, 4)).astype(np.float32)
LOW, HIGH = np.float32(-0.5), np.float32(0.5)
FURTHEST = np.iinfo(np.int64).min

CASES = [
    *((name, [X], {}) for name in ("Abs", "Erf", "Exp", "Identity", "Neg", "Relu", "Sigmoid", "Tanh")),
    *((name, [X], {}) for name in ("Shape", "Flatten")),
    *((name, [POSITIVE], {}) for name in ("Log", "Sqrt")),
    *((name, [X, Y], {}) for name in ("Add", "Sub", "Mul", "Div", "Greater", "GreaterOrEqual", "Less", "LessOrEqual")),
    *((name, [WHOLE, np.array([2, 3, -4])], {}) for name in ("Add", "Sub", "Mul", "Div", "Equal", "Less")),
    *((name, [TIES, TIES[::-1].copy()], {}) for name in ("Equal", "GreaterOrEqual", "LessOrEqual")),
    ("And", [YES, NO], {}),
    ("Or", [YES, NO], {}),
    ("Not", [YES], {}),
    ("IsNaN", [WITH_NAN], {}),
    ("Pow", [X, np.float32(3)], {}),
    ("Pow", [X, np.int64(2)], {}),
    ("Pow", [WHOLE, np.float32(2)], {}),
    ("Clip", [X], {}),
    ("Clip", [X, LOW], {}),
    ("Clip", [X, None, HIGH], {}),
    ("Clip", [X, LOW, HIGH], {}),
    ("MatMul", [X, X.transpose(0, 2, 1).copy()], {}),
    ("MatMul", [X, A.T.copy()], {}),
    ("Gemm", [A, B, C], {"transB": 1, "alpha": 0.5, "beta": 2.0}),
    ("Gemm", [A, A], {"transA": 1}),
    ("LayerNormalization", [X, WEIGHT, BIAS], {}),
    ("LayerNormalization", [X, A], {"axis": 1, "epsilon": 0.1}),
    ("Softmax", [X], {}),
    ("Softmax", [X], {"axis": 1}),
    *(("ReduceSum", [X, np.array([-1, 0])], {"keepdims": keep}) for keep in (0, 1)),
    *((f"Reduce{kind}", [X], {"axes": [1]}) for kind in ("L2", "Max", "Mean")),
    *((f"Reduce{kind}", [X], {}) for kind in ("L2", "Max", "Mean", "Sum")),
    ("ReduceSum", [X, np.array([], np.int64)], {"noop_with_empty_axes": 1}),
    ("ReduceSum", [X, np.array([], np.int64)], {"keepdims": 0}),
    *(("ArgMax", [TIES], {"axis": -1, "select_last_index": last, "keepdims": last}) for last in (0, 1)),
    ("ArgMax", [TIES], {}),
    ("Shape", [X], {"start": 1}),
    ("Shape", [X], {"start": -2, "end": -1}),
    ("Reshape", [X, np.array([0, -1])], {}),
    ("Reshape", [np.zeros((0, 4), np.float32), np.array([3, 0])], {"allowzero": 1}),
    ("Flatten", [X], {"axis": 2}),
    ("Flatten", [X], {"axis": 0}),
    ("Flatten", [X], {"axis": -1}),
    ("Unsqueeze", [X, np.array([-1, 0])], {}),
    ("Unsqueeze", [X, np.array([3, 1])], {}),
    ("Squeeze", [X[:1, :, :1].copy()], {}),
    ("Squeeze", [X[:1, :, :1].copy(), np.array([-1])], {}),
    ("Transpose", [X], {}),
    ("Transpose", [X], {"perm": [1, 2, 0]}),
    ("Expand", [Y, np.array([2, 1, 5])], {}),
    ("Expand", [X, np.array([1, 1])], {}),
    ("Gather", [X, np.array([[0, -1], [1, 0]])], {}),
    ("Gather", [X, np.array([2, -4], np.int32)], {"axis": -1}),
    ("Gather", [X, np.int64(-1)], {"axis": 1}),
    ("GatherND", [X, np.array([[0, 2], [1, 1]])], {}),
    ("GatherND", [X, np.array([[0, 2, 3], [1, 1, 0]])], {}),
    ("Slice", [X, np.array([1]), np.array([9])], {}),
    ("Slice", [X, np.array([-3, 1]), np.array([-1, 3]), np.array([-1, 1])], {}),
    ("Slice", [X, np.array([-1]), np.array([FURTHEST]), np.array([2]), np.array([-2])], {}),
    ("Slice", [X, np.array([2]), np.array([1]), np.array([1])], {}),
    ("Concat", [X, X[:, :1].copy()], {"axis": 1}),
    ("Concat", [X, X], {"axis": -1}),
    ("Where", [X > 0, X, Y], {}),
    ("Range", [np.int64(1), np.int64(8), np.int64(3)], {}),
    ("Range", [np.float32(2), np.float32(0), np.float32(-0.5)], {}),
    ("Cast", [X * 3], {"to": onnx.TensorProto.INT64}),
    ("Cast", [WHOLE], {"to": onnx.TensorProto.FLOAT}),
    ("Cast", [X], {"to": onnx.TensorProto.BOOL}),
]


def write(path, op, inputs, attributes, opset=17):
    """Write a graph of one node and return its inputs by name; None is an input left out."""
    kind = onnx.helper.np_dtype_to_tensor_dtype
    names = ["" if value is None else f"x{i}" for i, value in enumerate(inputs)]
    values = {name: np.asarray(value) for name, value in zip(names, inputs, strict=True) if name}
    node = onnx.helper.make_node(op, names, ["y"], **attributes)
    known = [onnx.helper.make_tensor_value_info(name, kind(v.dtype), v.shape) for name, v in values.items()]
    graph = onnx.helper.make_graph([node], op, known, [onnx.helper.make_empty_tensor_value_info("y")])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)], ir_version=8)
    onnx.save(onnx.shape_inference.infer_shapes(model), str(path))
    return values


def by_runtime(path, values):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(["y"], values)[0]


@pytest.mark.parametrize(("op", "inputs", "attributes"), CASES, ids=lambda value: value if type(value) is str else "")
def test_equals_onnx_runtime(tmp_path, op, inputs, attributes):
    path = tmp_path / "one.onnx"
    values = write(path, op, inputs, attributes)
    want = by_runtime(path, values)
    got = read_graph(path, "y").run({name: torch.tensor(value) for name, value in values.items()}).numpy()
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["L2", "Max", "Mean", "Sum"])
def test_axes_as_an_input_where_opset_18_has_them(tmp_path, kind):
    path = tmp_path / "one.onnx"
    values = write(path, f"Reduce{kind}", [X, np.array([1])], {"keepdims": 0}, opset=18)
    got = read_graph(path, "y").run({name: torch.tensor(value) for name, value in values.items()}).numpy()
    np.testing.assert_allclose(got, by_runtime(path, values), rtol=2e-6, atol=1e-6)


def test_every_operator_is_tested():
    assert {op for op, _, _ in CASES} == set(OPERATORS)


def test_coordinates_per_batch_are_refused(tmp_path):
    path = tmp_path / "one.onnx"
    values = write(path, "GatherND", [X, np.array([[0], [1]])], {"batch_dims": 1})
    with pytest.raises(ValueError, match="GatherND: got batch_dims 1"):
        read_graph(path, "y").run({name: torch.tensor(value) for name, value in values.items()})
