"""The model.json of an ONNX folder: what the three other files are and how to feed them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ..core.validate import at_least, choice, real, refuse
from .preprocess import INTERPOLATIONS, Preprocess, from_json

TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """The parts of a model.json that matter."""

    name: str
    dim: int
    scale: float
    preprocess: Preprocess
    image_file: str
    image_input: str
    image_output: str
    layout: str
    text_file: str
    text_inputs: tuple[str, ...]
    text_output: str
    context: int
    pad_id: int
    pad_to_context: bool
    tokenizer_file: str
    sha256: Mapping[str, str] = field(default_factory=dict)

    @property
    def files(self) -> tuple[str, str, str]:
        """The names of the three other files."""
        return self.image_file, self.text_file, self.tokenizer_file

    def essence(self) -> dict[str, Any]:
        """Return what changes an embedding: everything but the name and the checksums."""
        return {key: value for key, value in asdict(self).items() if key not in ("name", "sha256")}


def read_model_json(folder: Path) -> ModelFile:
    """Read and check the model.json of ``folder``."""
    path = folder / "model.json"
    if not folder.is_dir():
        raise refuse("model folder", f"{folder}, which does not exist", "a folder with model.json in it")
    if not path.is_file():
        raise refuse(f"model folder {folder}", "no model.json", "image.onnx, text.onnx, tokenizer.json and model.json")
    try:
        return parse(json.loads(path.read_text(encoding="utf-8")))
    except KeyError as error:
        raise refuse(str(path), f"no field {error}", "the fields that `latte export` writes") from None
    except (UnicodeDecodeError, json.JSONDecodeError, AttributeError, TypeError) as error:
        raise refuse(
            str(path), f"a file that cannot be understood ({error})", "a model.json of `latte export`"
        ) from None


def parse(config: dict[str, Any]) -> ModelFile:
    """Return the checked contents of a model.json."""
    image, text = config["image"], config["text"]
    inputs = tuple(text["inputs"])
    for name in inputs:
        choice("text inputs", name, TEXT_INPUTS)
    layout = image.get("layout", "NCHW")
    choice("layout", layout, ("NCHW", "NHWC"))
    return ModelFile(
        name=str(config["name"]),
        dim=at_least("dim", config["dim"], 1),
        scale=real("logit_scale", config["logit_scale"]),
        preprocess=image_rule(image),
        image_file=_inside(image["file"]),
        image_input=image["input"],
        image_output=image["output"],
        layout=layout,
        text_file=_inside(text["file"]),
        text_inputs=inputs,
        text_output=text["output"],
        context=at_least("context_length", text["context_length"], 1),
        pad_id=at_least("pad_id", text.get("pad_id", 0), 0),
        pad_to_context=text.get("padding", "longest") == "context",
        tokenizer_file=_inside(text["tokenizer"]),
        sha256=dict(config.get("sha256", {})),
    )


def image_rule(image: Mapping[str, Any]) -> Preprocess:
    """Return the preprocessing: the field ``preprocess``, or sizes with a rule in words.

    >>> words = "bicubic, short side to input_size, centre crop"
    >>> image_rule({"input_size": 160, "resize": words, "mean": [0.5] * 3, "std": [0.5] * 3}).size
    (160, 160)
    """
    if "preprocess" in image:
        return from_json(image["preprocess"])
    side = at_least("input_size", image["input_size"], 1)
    rule = str(image.get("resize", "bicubic, short side")).lower()
    kinds = [kind for kind in INTERPOLATIONS if kind in rule]
    if len(kinds) != 1 or ("short side" in rule) == ("squash" in rule):
        raise refuse("resize", repr(rule), f"one of {', '.join(INTERPOLATIONS)}, and 'short side' or 'squash'")
    return Preprocess(
        size=(side, side),
        short_side=side if "short side" in rule else None,
        interpolation=kinds[0],
        mean=tuple(image["mean"]),
        std=tuple(image["std"]),
        low_res=_low_res(image),
        low_res_size=image.get("input_size_low_res", 0),
    )


def _low_res(image: Mapping[str, Any]) -> int:
    if "low_res_rule" not in image:
        return 0
    found = re.fullmatch(r"source short side <= (\d+) px", image["low_res_rule"])
    if found is None:
        raise refuse("low_res_rule", repr(image["low_res_rule"]), "'source short side <= N px'")
    return int(found[1])


def _inside(file: Any) -> str:
    """Refuse a file name that leads out of the folder."""
    path = PurePosixPath(str(file))
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in str(file):
        raise refuse("model.json", f"file {file!r}", "the name of a file inside the model folder")
    return str(path)
