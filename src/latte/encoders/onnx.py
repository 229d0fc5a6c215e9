"""Encoders in ONNX Runtime with a ``tokenizers`` file: no torch, runs on an edge box.

A model folder holds image.onnx, text.onnx, tokenizer.json and model.json (sizes, scale, sha256 of the others).
Imported only when an ONNX encoder is loaded.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Vectors
from ..core.validate import at_least, choice, real
from ..errors import InputError, need, refuse
from ..files.documents import checksum, read_json, shorten
from .base import BaseEncoder, too_long
from .devices import CPU, Placement, open_session
from .preprocess import INTERPOLATIONS, Preprocess, from_json

LARGEST_SIZE = 1 << 16  # dimensions, and tokens: no model is near it
TEXT_INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_FILES = "image.onnx, text.onnx, tokenizer.json and model.json"
_AGAIN = "the file as it was exported: copy or export the folder again"


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
        image_rule(self)


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
        at_least("context_length", self.context_length, 1, LARGEST_SIZE)
        at_least("pad_id", self.pad_id, 0)
        choice("padding", self.padding, ("longest", "context"))
        _inside(self.file, self.tokenizer)


@dataclass(frozen=True, slots=True)
class Description:
    """A model.json as it is written; other keys are ignored."""

    name: str
    dim: int
    logit_scale: float
    image: ImagePart
    text: TextPart
    sha256: dict[str, str] = field(default_factory=dict)
    logit_bias: float | None = None

    def __post_init__(self) -> None:
        at_least("dim", self.dim, 1, LARGEST_SIZE)
        real("logit_scale", self.logit_scale)


def read_model_json(folder: Path) -> Description:
    """Read and check the model.json of ``folder``."""
    return read_json(existing_file(folder, "model.json"), Description, extra=True)


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
    low_res = re.fullmatch(r"source short side <= ([0-9]{1,5}) px", image.low_res_rule or "source short side <= 0 px")
    if low_res is None:
        raise refuse("low_res_rule", shorten(repr(image.low_res_rule)), "'source short side <= N px'")
    return Preprocess(
        size=(side, side),
        short_side=side if "short side" in rule else None,
        interpolation=kinds[0],
        mean=image.mean,
        std=image.std,
        low_res=int(low_res[1]),
        low_res_size=image.input_size_low_res,
    )


def _inside(*files: str) -> None:
    """Refuse a file name that leads out of the folder."""
    for file in files:
        path = PurePosixPath(file)
        if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in file:
            raise refuse("model.json", f"file {shorten(repr(file))}", "the name of a file inside the model folder")


def existing_file(folder: Path, file: str) -> Path:
    """Return the path of a model file; a missing one is refused."""
    if not (folder / file).is_file():
        raise refuse(f"model folder {folder}", f"no {file}", _FILES)
    return folder / file


class OnnxEncoder(BaseEncoder):
    """An encoder read from an ONNX folder; ``threads`` is the number of cores ONNX Runtime may use, 0 for all.

    ``device`` is an execution provider, see :mod:`.devices`.

    Every file is compared with its sha256 in model.json, where it has one, while loading.
    """

    def __init__(self, folder: str | Path, threads: int = 0, device: str = "cpu") -> None:
        self.folder, self._device = Path(folder), device
        self.model = model = read_model_json(self.folder)
        self.threads = at_least("threads", threads, 0)
        files = (model.image.file, model.text.file, model.text.tokenizer)
        self.files = tuple(str(PurePosixPath(file)) for file in files)
        for file in self.files:
            path, want = existing_file(self.folder, file), model.sha256.get(file)
            if want is not None and checksum(path) != want:
                raise refuse(str(path), "a damaged file (its sha256 is not the one in model.json)", _AGAIN)
        super().__init__(model.name, model.dim, model.logit_scale, image_rule(model.image), model.logit_bias)
        self._image = self._session(self.files[0], (model.image.input,), model.image.output)
        provider, card = self._image.get_providers()[0], device.partition(":")[2]
        self.placement = Placement(f"{provider}:{card}" if card and provider != CPU else provider)

    @cached_property
    def _text(self) -> Any:
        return self._session(self.files[1], self.model.text.inputs, self.model.text.output)

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizers = need("tokenizers", "onnx")
        path = existing_file(self.folder, self.files[2])
        try:
            tokenizer = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises a bare Exception
            raise refuse(str(path), f"a tokenizer that cannot be read ({shorten(error, 200)})", _AGAIN) from None
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @cached_property
    def fingerprint(self) -> str:
        """Sha256 of the three files and of their use according to model.json."""
        image, text = self.model.image, self.model.text
        use = {
            "dim": self.dim, "scale": self.scale, "preprocess": asdict(self.preprocess),
            "image_file": self.files[0], "image_input": image.input, "image_output": image.output,
            "layout": image.layout,
            "text_file": self.files[1], "text_inputs": text.inputs, "text_output": text.output,
            "context": text.context_length, "pad_id": text.pad_id, "pad_to_context": text.padding == "context",
            "tokenizer_file": self.files[2],
        }  # fmt: skip
        sums = {name: checksum(existing_file(self.folder, name)) for name in self.files}
        return hashlib.sha256(json.dumps([sums, use], sort_keys=True).encode()).hexdigest()

    def image_batch(self, pixels: Vectors) -> NDArray[Any]:
        """Return (n, D) for (n, 3, H, W)."""
        image = self.model.image
        feed = pixels if image.layout == "NCHW" else pixels.transpose(0, 2, 3, 1)
        return self._run(self._image, image.output, {image.input: feed})

    def text_batch(self, texts: Sequence[str]) -> NDArray[Any]:
        """Return (n, D) for n texts."""
        ids, mask = self.tokens(texts)
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        feed = {name: known[name] for name in self.model.text.inputs}
        return self._run(self._text, self.model.text.output, feed)

    def tokens(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return token ids and mask (n, L), padded as the model wants it."""
        encoded = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        context = self.model.text.context_length
        for text, row in zip(texts, encoded, strict=True):
            if len(row) > context:
                raise too_long(text, len(row), context)
        length = context if self.model.text.padding == "context" else max(map(len, encoded))
        ids = np.full((len(encoded), length), self.model.text.pad_id, np.int64)
        mask = np.zeros_like(ids)
        for index, row in enumerate(encoded):
            ids[index, : len(row)], mask[index, : len(row)] = row, 1
        return ids, mask

    def _session(self, file: str, inputs: tuple[str, ...], output: str) -> Any:
        runtime = need("onnxruntime", "onnx")
        path = existing_file(self.folder, file)
        try:
            session = open_session(runtime, str(path), self._device, self.threads)
        except InputError:
            raise
        except Exception as error:  # ONNX Runtime has its own exception per status code
            raise refuse(str(path), f"a model that cannot be loaded ({shorten(error, 200)})", _AGAIN) from None
        has = {value.name for value in (*session.get_inputs(), *session.get_outputs())}
        if missing := sorted({*inputs, output} - has):
            want = f"the names that model.json gives; it has {sorted(has)}"
            raise refuse(str(path), f"no {', '.join(missing)}", want)
        return session

    def _run(self, session: Any, output: str, feed: dict[str, Any]) -> NDArray[Any]:
        try:
            rows: NDArray[Any] = session.run([output], feed)[0]
        except Exception as error:
            if "allocate memory" in str(error):  # of a GPU: ONNX Runtime has no exception of its own for it
                raise MemoryError from None
            fault = f"what the model does not take ({shorten(error, 200)})"
            raise refuse(f"input of {self.name}", fault, "arrays of the sizes in model.json") from None
        return rows


def load_onnx(target: str, threads: int, device: str, precision: str) -> OnnxEncoder:
    """Return the encoder in the folder ``target``; the precision is that of its files."""
    if precision != "fp32":
        raise refuse(
            "precision (--compute)",
            repr(precision),
            "fp32: an ONNX folder computes in the numbers of its files (latte export --variants)",
        )
    return OnnxEncoder(target, threads, device)
