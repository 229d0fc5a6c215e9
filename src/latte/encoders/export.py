"""Export a torch model to ONNX folders that need no torch: ``export_onnx("hf:…", "OUT")``, or "openclip:…".

OUT holds the float32 model; OUT/fp16 and OUT/int8 are complete folders of their own, so that a small device needs
only one of them. The agreement of each variant with the original is measured and written into its model.json.
Imported only when something is exported.
"""

from __future__ import annotations

import json
import logging
import secrets
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.types import Vectors
from ..core.validate import choice
from ..errors import need, refuse
from ..files.atomic import write_text
from ..files.documents import checksum
from . import load_encoder, split_spec
from .hf import TorchEncoder
from .onnx import OnnxEncoder
from .prompts import DEFAULT, read_templates

EXPORT_VARIANTS = ("fp32", "fp16", "int8")
EXPORT_PACKAGES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")
LARGEST_DIFFERENCE = 1e-4  # of any number in a unit row, float32 against the original
MODEL_FILES = ("image.onnx", "text.onnx")
OPSET = 18
OUTPUT = "unit_row"  # "embedding" would clash with the name of an operator's result
PROBE_NAMES = ("dog", "polar bear", "airplane", "electric guitar", "person riding a bicycle")
SMALL = 1024  # numbers: a shorter tensor is not worth a cast
INT8_OPS = ["MatMul", "Gemm", "Gather"]


@dataclass(frozen=True, slots=True)
class Agreement:
    """One variant compared with the original: cosines, the largest difference in a row, and the size of its files."""

    variant: str
    folder: str
    image_mean: float
    image_min: float
    text_mean: float
    text_min: float
    largest: float
    bytes: int


def export_onnx(
    spec: str | TorchEncoder,
    out: str | Path,
    variants: Sequence[str] = EXPORT_VARIANTS,
    images: Sequence[Any] | None = None,
) -> tuple[Agreement, ...]:
    """Write the encoder ``spec`` to the folder ``out`` and return how well each variant agrees with it.

    ``images`` are the pictures to compare on (any that an encoder takes); without them, synthetic ones.
    """
    out = Path(out)
    for variant in variants:
        choice("variant", variant, EXPORT_VARIANTS)
    if not isinstance(spec, TorchEncoder) and split_spec(spec)[0] == "onnx":
        raise refuse("export", f"{spec!r}", "a model in torch: hf:ID, hf:DIR or openclip:MODEL/WEIGHTS")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise refuse("out", f"{out}, which is not empty", "a folder that is new or empty")
    for package in EXPORT_PACKAGES:  # before a model is loaded
        need(package, "export")
    encoder = spec if isinstance(spec, TorchEncoder) else load_encoder(spec)
    assert isinstance(encoder, TorchEncoder)
    probe = images or synthetic_pictures(16, encoder.preprocess.size)
    description = _description(encoder)
    with _whole_folder(out) as folder:
        _write_float32(encoder, folder)
        _write_model_json(folder, description)
        agreements = [compare(encoder, "fp32", folder, out, probe)]
        if agreements[0].largest > LARGEST_DIFFERENCE:
            raise refuse("export", f"a difference of {agreements[0].largest:.1e}", f"at most {LARGEST_DIFFERENCE:.0e}")
        for variant in [name for name in variants if name != "fp32"]:
            (folder / variant).mkdir()
            shutil.copyfile(folder / "tokenizer.json", folder / variant / "tokenizer.json")
            shrink = {"fp16": _to_fp16, "int8": _to_int8}[variant]
            for name in MODEL_FILES:
                with _quiet():
                    shrink(folder / name, folder / variant / name)
            smaller = description | {"name": f"{encoder.name} ({variant})"}
            _write_model_json(folder / variant, smaller)
            agreements.append(compare(encoder, variant, folder / variant, out / variant, probe))
            _write_model_json(folder / variant, smaller | _measured(encoder, agreements[-1:]))
        _write_model_json(folder, description | _measured(encoder, agreements))
    return tuple(agreements)


def compare(encoder: TorchEncoder, variant: str, folder: Path, place: Path, images: Sequence[Any]) -> Agreement:
    """Measure ``folder``, later ``place``, against the original on ``images`` and the default prompts."""
    copy = OnnxEncoder(folder)
    texts = [template.replace("{}", name) for template in read_templates(DEFAULT) for name in PROBE_NAMES]
    if not np.array_equal(copy.tokens(texts)[0], encoder.tokens(texts).cpu().numpy()):
        raise refuse("tokenizer", "other tokens from tokenizer.json", "a tokenizer that tokenizer.json describes")
    image = encoder.images(images), copy.images(images)
    text = encoder.texts(texts), copy.texts(texts)
    cosines = [(a.astype(np.float64) * b).sum(axis=1) for a, b in (image, text)]
    return Agreement(
        variant=variant,
        folder=str(place),
        image_mean=float(cosines[0].mean()),
        image_min=float(cosines[0].min()),
        text_mean=float(cosines[1].mean()),
        text_min=float(cosines[1].min()),
        largest=max(float(np.abs(a - b).max()) for a, b in (image, text)),
        bytes=sum((folder / name).stat().st_size for name in MODEL_FILES),
    )


def synthetic_pictures(count: int, size: tuple[int, int]) -> list[Vectors]:
    """Return smooth random pictures (3, H, W), preprocessed: sums of a few waves in each channel."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0 : size[0], 0 : size[1]] / max(size)
    pictures = []
    for _ in range(count):
        waves = rng.uniform(-8, 8, (3, 5, 2, 1, 1))  # channel, wave, direction
        phase = rng.uniform(0, 2 * np.pi, (3, 5, 1, 1))
        pictures.append(np.sin(2 * np.pi * (waves[:, :, 0] * x + waves[:, :, 1] * y) + phase).mean(axis=1) * 3)
    return [picture.astype(np.float32) for picture in pictures]


@contextmanager
def _whole_folder(out: Path) -> Iterator[Path]:
    """Yield a folder beside ``out`` that becomes ``out`` when the block ends; an interrupted block leaves nothing."""
    out = out.absolute()
    part = out.with_name(f".{out.name}.{secrets.token_hex(4)}.part")
    part.mkdir(parents=True)
    try:
        yield part
        if out.exists():
            out.rmdir()  # it is empty
        part.rename(out)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def _write_float32(encoder: TorchEncoder, folder: Path) -> None:
    """Write the two models and the tokenizer."""
    write_text(folder / "tokenizer.json", encoder.tokenizer_json())
    pixels = encoder.torch.zeros((2, 3, *encoder.preprocess.size))
    _to_onnx(encoder, encoder.image_features, pixels, {0: "n"}, "image", folder / "image.onnx")
    ids = encoder.tokens([f"a photo of a {name}." for name in PROBE_NAMES[:2]])
    shape = {0: "n"} if encoder.pad_to_context else {0: "n", 1: "length"}
    _to_onnx(encoder, encoder.token_features, ids, shape, "input_ids", folder / "text.onnx")


def _to_onnx(encoder: TorchEncoder, features: Any, sample: Any, shape: dict[int, str], name: str, target: Path) -> None:
    torch, onnx = encoder.torch, need("onnx", "export")

    class UnitRows(torch.nn.Module):  # type: ignore[misc, name-defined]
        """The features as the encoder gives them: of unit length."""

        def __init__(self) -> None:
            super().__init__()
            self.model = encoder.model

        def forward(self, values: Any) -> Any:
            return torch.nn.functional.normalize(features(values), dim=-1)

    with _quiet():
        torch.onnx.export(
            UnitRows().eval(),
            (sample.to(encoder.device),),
            str(target),
            input_names=[name],
            output_names=[OUTPUT],
            dynamic_shapes=(shape,),
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
        )
    model = onnx.load(str(target))  # without the notes of the exporter: stack traces with the paths of this machine
    for part in (model, model.graph, *model.graph.node, *model.graph.initializer, *model.graph.value_info):
        del part.metadata_props[:]
    onnx.save(model, str(target))


def _to_fp16(source: Path, target: Path) -> None:
    """Store the weights as float16 and compute in float32.

    The casts are folded when the model is loaded, so a CPU runs it at the speed of float32; the file is half as long.
    """
    onnx = need("onnx", "export")
    model = onnx.load(str(source))
    casts = []
    for tensor in model.graph.initializer:
        if tensor.data_type != onnx.TensorProto.FLOAT or np.prod(tuple(tensor.dims)) < SMALL:
            continue
        values = onnx.numpy_helper.to_array(tensor)
        if np.abs(values).max() <= np.finfo(np.float16).max:
            name, half = tensor.name, f"{tensor.name}__fp16"
            tensor.CopyFrom(onnx.numpy_helper.from_array(values.astype(np.float16), half))
            casts.append(onnx.helper.make_node("Cast", [half], [name], to=onnx.TensorProto.FLOAT))
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    onnx.save(model, str(target))


def _to_int8(source: Path, target: Path) -> None:
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


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the messages of the exporter and the quantiser about their internals."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)


def _description(encoder: TorchEncoder) -> dict[str, Any]:
    text = {
        "file": "text.onnx",
        "inputs": ["input_ids"],
        "output": OUTPUT,
        "context_length": encoder.context,
        "tokenizer": "tokenizer.json",
        "pad_id": encoder.pad_id,
        "padding": "context" if encoder.pad_to_context else "longest",
    }
    image = {"file": "image.onnx", "input": "image", "output": OUTPUT, "layout": "NCHW"}
    return {
        "name": encoder.name,
        "dim": encoder.dim,
        "logit_scale": encoder.scale,
        **({} if encoder.bias is None else {"logit_bias": encoder.bias}),
        "image": image | {"preprocess": encoder.preprocess.to_json()},
        "text": text,
    }


def _measured(encoder: TorchEncoder, agreements: Sequence[Agreement]) -> dict[str, Any]:
    rows = [{key: value for key, value in asdict(item).items() if key != "folder"} for item in agreements]
    return {"agreement": {"with": encoder.name, "variants": rows}}


def _write_model_json(folder: Path, description: dict[str, Any]) -> None:
    sums = {name: checksum(folder / name) for name in (*MODEL_FILES, "tokenizer.json")}
    text = json.dumps(description | {"sha256": sums}, indent=1, ensure_ascii=False)
    write_text(folder / "model.json", text + "\n")
