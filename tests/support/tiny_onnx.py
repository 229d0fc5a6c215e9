"""Writes the small ONNX folder in tests/data/tiny-onnx: a real model of 30 kB, so that its backend is tested anywhere.

The image side pools colours and mixes them, the text side averages word vectors: small, but sensitive to every
step before it. Run ``python tests/support/tiny_onnx.py`` (needs the package onnx) to write it again, byte for byte.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parent.parent / "data" / "tiny-onnx"
DIM = 8
WORDS = "[PAD] [UNK] a an the photo of dog cat horse house polar bear large small bad art in video game origami itap ."


def main() -> None:
    from onnx import TensorProto, checker, helper, numpy_helper, save

    FOLDER.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(7)

    def constant(name, values):
        return numpy_helper.from_array(np.asarray(values), name)

    def write(file, nodes, inputs, constants):
        output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", DIM])
        graph = helper.make_graph(nodes, file, inputs, [output], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        checker.check_model(model)
        save(model, str(FOLDER / file))

    node = helper.make_node
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["n", 3, "h", "w"])
    pixels = [
        node("Conv", ["image", "kernel"], ["edges"], strides=[4, 4]),
        node("Tanh", ["edges"], ["bent"]),
        node("GlobalAveragePool", ["bent"], ["pooled"]),
        node("Flatten", ["pooled"], ["embedding"]),
    ]
    write(
        "image.onnx",
        pixels,
        [image],
        [constant("kernel", rng.normal(size=(DIM, 3, 8, 8)).astype(np.float32))],
    )

    vocabulary = {word: number for number, word in enumerate(WORDS.split())}
    ids, mask = (
        helper.make_tensor_value_info(n, TensorProto.INT64, ["n", "l"]) for n in ("input_ids", "attention_mask")
    )
    words = [
        node("Gather", ["table", "input_ids"], ["vectors"]),
        node("Cast", ["attention_mask"], ["kept"], to=TensorProto.FLOAT),
        node("Unsqueeze", ["kept", "last"], ["column"]),
        node("Mul", ["vectors", "column"], ["masked"]),
        node("ReduceSum", ["masked", "middle"], ["embedding"], keepdims=0),
    ]
    table = rng.normal(size=(len(vocabulary), DIM)).astype(np.float32)
    axes = [constant("last", np.array([2])), constant("middle", np.array([1]))]
    write("text.onnx", words, [ids, mask], [constant("table", table), *axes])
    write_tokenizer(vocabulary)
    write_model_json()


def write_tokenizer(vocabulary: dict[str, int]) -> None:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.enable_truncation(8)  # which the encoder must switch off: it refuses, it does not cut
    tokenizer.save(str(FOLDER / "tokenizer.json"))


def write_model_json() -> None:
    rule = {"input_size": 32, "input_size_low_res": 16, "low_res_rule": "source short side <= 12 px"}
    image = {
        "file": "image.onnx",
        "input": "image",
        "output": "embedding",
        "layout": "NCHW",
        "mean": [0.5] * 3,
    }
    text = {"file": "text.onnx", "inputs": ["input_ids", "attention_mask"], "output": "embedding"}
    names = ("image.onnx", "text.onnx", "tokenizer.json")
    model = {
        "name": "tiny",
        "dim": DIM,
        "logit_scale": 20.0,
        "image": image | rule | {"resize": "bicubic, short side to input_size, centre crop", "std": [0.25] * 3},
        "text": text | {"context_length": 16, "tokenizer": "tokenizer.json", "pad_id": 0},
        "sha256": {name: hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() for name in names},
    }
    (FOLDER / "model.json").write_text(json.dumps(model, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
