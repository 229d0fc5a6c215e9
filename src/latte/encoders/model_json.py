"""The model.json of an ONNX folder: the names, inputs and outputs of the other three files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from ..core.validate import at_least, choice, real
from ..errors import InputError, refuse
from ..files.documents import read_json
from ..files.schema import refuse_inside, shorten
from .preprocess import INTERPOLATIONS, Preprocess, from_json

LARGEST_SIZE = 1 << 16  # dimensions, and tokens: no model is near it
TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")


@dataclass(frozen=True, slots=True)
class ModelFile:
    """The contents of a model.json that the encoder uses."""

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

    def dependencies(self) -> dict[str, Any]:
        """Return everything that the embeddings depend on: all but the name and the checksums."""
        return {key: value for key, value in asdict(self).items() if key not in ("name", "sha256")}


@dataclass(frozen=True, slots=True)
class ImagePart:
    """The field ``image``: the preprocessing is ``preprocess``, or sizes with a rule in words."""

    file: str
    input: str
    output: str
    layout: str = "NCHW"
    preprocess: Mapping[str, Any] | None = None
    input_size: int | None = None
    resize: str = "bicubic, short side"
    mean: tuple[float, float, float] | None = None
    std: tuple[float, float, float] | None = None
    input_size_low_res: int = 0
    low_res_rule: str | None = None

    def __post_init__(self) -> None:
        _inside(self.file)
        choice("layout", self.layout, ("NCHW", "NHWC"))


@dataclass(frozen=True, slots=True)
class TextPart:
    """The field ``text``."""

    file: str
    inputs: tuple[str, ...]
    output: str
    context_length: int
    tokenizer: str
    pad_id: int = 0
    padding: str = "longest"

    def __post_init__(self) -> None:
        for name in self.inputs:
            choice("text inputs", name, TEXT_INPUTS)
        _between("context_length", self.context_length, 1)
        at_least("pad_id", self.pad_id, 0)
        choice("padding", self.padding, ("longest", "context"))
        _inside(self.file)
        _inside(self.tokenizer)


@dataclass(frozen=True, slots=True)
class Description:
    """A model.json as it is written; other keys are ignored."""

    name: str
    dim: int
    logit_scale: float
    image: ImagePart
    text: TextPart
    sha256: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        _between("dim", self.dim, 1)
        real("logit_scale", self.logit_scale)


def read_model_json(folder: Path) -> ModelFile:
    """Read and check the model.json of ``folder``."""
    path = folder / "model.json"
    if not folder.is_dir():
        raise refuse("model folder", f"{folder}, which does not exist", "a folder with model.json in it")
    if not path.is_file():
        raise refuse(f"model folder {folder}", "no model.json", "image.onnx, text.onnx, tokenizer.json and model.json")
    description = read_json(path, Description, extra=True)
    try:
        rule = image_rule(description.image)
    except InputError as error:
        raise refuse_inside(path, error) from None
    return _model_file(description, rule)


def _model_file(model: Description, rule: Preprocess) -> ModelFile:
    image, text = model.image, model.text
    return ModelFile(
        name=model.name,
        dim=model.dim,
        scale=model.logit_scale,
        preprocess=rule,
        image_file=_inside(image.file),
        image_input=image.input,
        image_output=image.output,
        layout=image.layout,
        text_file=_inside(text.file),
        text_inputs=text.inputs,
        text_output=text.output,
        context=text.context_length,
        pad_id=text.pad_id,
        pad_to_context=text.padding == "context",
        tokenizer_file=_inside(text.tokenizer),
        sha256=model.sha256,
    )


def image_rule(image: ImagePart) -> Preprocess:
    """Return the preprocessing: the field ``preprocess``, or sizes with a rule in words.

    >>> words = "bicubic, short side to input_size, centre crop"
    >>> half = (0.5, 0.5, 0.5)
    >>> image_rule(ImagePart("image.onnx", "image", "row", input_size=160, resize=words, mean=half, std=half)).size
    (160, 160)
    """
    if image.preprocess is not None:
        return from_json(image.preprocess)
    if image.input_size is None or image.mean is None or image.std is None:
        raise refuse("image", "no preprocess", "the field that `latte export` writes (or input_size, mean and std)")
    side, rule = at_least("input_size", image.input_size, 1), image.resize.lower()
    kinds = [kind for kind in INTERPOLATIONS if kind in rule]
    if len(kinds) != 1 or ("short side" in rule) == ("squash" in rule):
        raise refuse("resize", shorten(repr(rule)), f"one of {', '.join(INTERPOLATIONS)}, and 'short side' or 'squash'")
    return Preprocess(
        size=(side, side),
        short_side=side if "short side" in rule else None,
        interpolation=kinds[0],
        mean=image.mean,
        std=image.std,
        low_res=_low_res(image),
        low_res_size=image.input_size_low_res,
    )


def _low_res(image: ImagePart) -> int:
    if image.low_res_rule is None:
        return 0
    match = re.fullmatch(r"source short side <= ([0-9]{1,5}) px", image.low_res_rule)
    if match is None:
        raise refuse("low_res_rule", shorten(repr(image.low_res_rule)), "'source short side <= N px'")
    return int(match[1])


def _between(name: str, value: int, least: int) -> None:
    if at_least(name, value, least) > LARGEST_SIZE:
        raise refuse(name, value, f"at most {LARGEST_SIZE}")


def _inside(file: str) -> str:
    """Refuse a file name that leads out of the folder."""
    path = PurePosixPath(file)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in file:
        raise refuse("model.json", f"file {shorten(repr(file))}", "the name of a file inside the model folder")
    return str(path)
