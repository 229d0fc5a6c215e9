"""Export a transformers model to ONNX folders that need no torch: ``export_onnx("hf:…", "OUT")``.

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
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ..core.extras import need
from ..core.validate import choice
from ..errors import refuse
from ..files.atomic import replacing, write_bytes, write_text
from ..files.checksums import checksum
from ..files.documents import read_json
from ..files.reading import read_bytes
from . import load_encoder, split_spec
from .export_check import MODEL_FILES, PROBE_NAMES, Agreement, compare, synthetic_pictures
from .hf import HfEncoder
from .shrink import EXPORT_VARIANTS, shrink, strip

LARGEST_DIFFERENCE = 1e-4  # of any number in a unit row, float32 against the original
OPSET = 18
OUTPUT = "unit_row"  # "embedding" would clash with the name of an operator's result
EXPORT_PACKAGES = ("torch", "transformers", "onnx", "onnxscript", "onnxruntime")


def export_onnx(
    spec: str | HfEncoder,
    out: str | Path,
    variants: Sequence[str] = EXPORT_VARIANTS,
    images: Sequence[Any] | None = None,
) -> tuple[Agreement, ...]:
    """Write the encoder ``spec`` to the folder ``out`` and return how well each variant agrees with it.

    ``images`` are the pictures to compare on (any that an encoder takes); without them, synthetic ones.
    """
    for variant in variants:
        choice("variant", variant, EXPORT_VARIANTS)
    if not isinstance(spec, HfEncoder) and split_spec(spec)[0] != "hf":
        raise refuse("export", f"{spec!r}", "a transformers model, hf:ID or hf:DIR")
    _check_empty(Path(out))
    for package in EXPORT_PACKAGES:  # before a model is loaded
        need(package, "export")
    encoder = spec if isinstance(spec, HfEncoder) else load_encoder(spec)
    assert isinstance(encoder, HfEncoder)
    with _whole_folder(Path(out)) as folder:
        agreements = _export(encoder, folder, variants, images)
    places = [str(out) if a.variant == "fp32" else str(Path(out) / a.variant) for a in agreements]
    return tuple(replace(a, folder=place) for a, place in zip(agreements, places, strict=True))


def _export(encoder: HfEncoder, folder: Path, variants: Sequence[str], images: Sequence[Any] | None) -> list[Agreement]:
    """Fill ``folder``, which gets its name only when it is complete."""
    _write_float32(encoder, folder)
    probe = images or synthetic_pictures(16, encoder.preprocess.size)
    agreements = [compare(encoder, "fp32", folder, probe)]
    if agreements[0].largest > LARGEST_DIFFERENCE:
        raise refuse("export", f"a difference of {agreements[0].largest:.1e}", f"at most {LARGEST_DIFFERENCE:.0e}")
    for variant in [name for name in variants if name != "fp32"]:
        _write_variant(folder, variant)
        agreements.append(compare(encoder, variant, folder / variant, probe))
    _record(encoder, folder, agreements)
    return agreements


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


def _check_empty(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise refuse("out", f"{folder}, which is not empty", "a folder that is new or empty")


def _write_float32(encoder: HfEncoder, folder: Path) -> None:
    """Write the two models, the tokenizer, and last the model.json that makes them a folder to load."""
    torch = encoder.torch
    _write_tokenizer(encoder, folder)
    pixels = torch.zeros((2, 3, *encoder.preprocess.size))
    _to_onnx(encoder, encoder.image_features, pixels, {0: "n"}, ("image", folder / "image.onnx"))
    ids = encoder.tokens([f"a photo of a {name}." for name in PROBE_NAMES[:2]])
    shape = {0: "n"} if encoder.pad_to_context else {0: "n", 1: "length"}
    _to_onnx(encoder, encoder.token_features, ids, shape, ("input_ids", folder / "text.onnx"))
    for name in MODEL_FILES:
        strip(folder / name)
    _write_model_json(folder, _description(encoder))


def _write_tokenizer(encoder: HfEncoder, folder: Path) -> None:
    backend = getattr(encoder.tokenizer, "backend_tokenizer", None)
    if backend is None or not hasattr(backend, "to_str"):
        raise refuse("tokenizer", type(encoder.tokenizer).__name__, "a model whose folder has a tokenizer.json")
    write_text(folder / "tokenizer.json", backend.to_str())


def _to_onnx(encoder: HfEncoder, features: Any, sample: Any, shape: dict[int, str], target: tuple[str, Path]) -> None:
    torch = encoder.torch
    need("onnxscript", "export")

    class UnitRows(torch.nn.Module):  # type: ignore[misc, name-defined]
        """The features as the encoder gives them: of unit length."""

        def __init__(self) -> None:
            super().__init__()
            self.model = encoder.model

        def forward(self, values: Any) -> Any:
            return torch.nn.functional.normalize(features(values), dim=-1)

    with _quiet(), replacing(target[1]) as part:
        torch.onnx.export(
            UnitRows().eval(),
            (sample.to(encoder.device),),
            str(part),
            input_names=[target[0]],
            output_names=[OUTPUT],
            dynamic_shapes=(shape,),
            opset_version=OPSET,
            dynamo=True,
            external_data=False,
            verbose=False,
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


def _description(encoder: HfEncoder) -> dict[str, Any]:
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
        "image": image | {"preprocess": encoder.preprocess.to_json()},
        "text": text,
    }


def _write_model_json(folder: Path, description: dict[str, Any]) -> None:
    sums = {name: checksum(folder / name) for name in (*MODEL_FILES, "tokenizer.json")}
    text = json.dumps(description | {"sha256": sums}, indent=1, ensure_ascii=False)
    write_text(folder / "model.json", text + "\n")


def _write_variant(folder: Path, variant: str) -> None:
    target = folder / variant
    target.mkdir()
    write_bytes(target / "tokenizer.json", read_bytes(folder / "tokenizer.json"))
    for name in MODEL_FILES:
        with _quiet(), replacing(target / name) as part:
            shrink(folder / name, part, variant)
    description = read_json(folder / "model.json", dict[str, Any])
    _write_model_json(target, description | {"name": f"{description['name']} ({variant})"})


def _record(encoder: HfEncoder, folder: Path, agreements: Sequence[Agreement]) -> None:
    """Write each measurement into its own model.json, and all of them into the first."""
    for agreement in agreements:
        place = Path(agreement.folder)
        description = read_json(place / "model.json", dict[str, Any])
        shown = agreements if place == folder else [agreement]
        rows = [{key: value for key, value in asdict(item).items() if key != "folder"} for item in shown]
        _write_model_json(place, description | {"agreement": {"with": encoder.name, "variants": rows}})
