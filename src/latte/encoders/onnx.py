"""Encoders in ONNX Runtime with a ``tokenizers`` file: no torch, runs on an edge box.

A model folder holds image.onnx, text.onnx, tokenizer.json and model.json (sizes, scale, sha256 of the others).
Imported only when an ONNX encoder is loaded.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.extras import need
from ..core.types import Vectors
from ..core.validate import at_least
from ..errors import refuse
from ..files.checksums import checksum
from ..files.schema import shorten
from .encoder import BaseEncoder, too_long
from .model_json import ModelFile, read_model_json

PROVIDERS = ["CPUExecutionProvider"]
_AGAIN = "the file as it was exported: copy or export the folder again"


class OnnxEncoder(BaseEncoder):
    """An encoder read from an ONNX folder.

    ``threads`` is the number of cores ONNX Runtime may use, 0 for all. ``verify`` compares every file with the
    sha256 in model.json, once, while loading.
    """

    def __init__(self, folder: str | Path, threads: int = 0, verify: bool = True) -> None:
        self.folder = Path(folder)
        self.model = read_model_json(self.folder)
        self.threads = at_least("threads", threads, 0)
        if verify:
            verify_files(self.folder, self.model)
        super().__init__(self.model.name, self.model.dim, self.model.scale, self.model.preprocess)
        self._image = self._session(self.model.image_file)
        self._check(self._image, self.model.image_file, (self.model.image_input,), self.model.image_output)

    @cached_property
    def _text(self) -> Any:
        session = self._session(self.model.text_file)
        self._check(session, self.model.text_file, self.model.text_inputs, self.model.text_output)
        return session

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizers = need("tokenizers", "onnx")
        path = existing_file(self.folder, self.model.tokenizer_file)
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
        files = {name: checksum(existing_file(self.folder, name)) for name in self.model.files}
        return hashlib.sha256(json.dumps([files, self.model.dependencies()], sort_keys=True).encode()).hexdigest()

    def image_batch(self, pixels: Vectors) -> NDArray[Any]:
        """Return (n, D) for (n, 3, H, W)."""
        feed = pixels if self.model.layout == "NCHW" else pixels.transpose(0, 2, 3, 1)
        return self._run(self._image, self.model.image_output, {self.model.image_input: feed})

    def text_batch(self, texts: Sequence[str]) -> NDArray[Any]:
        """Return (n, D) for n texts."""
        ids, mask = self.tokens(texts)
        known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        feed = {name: known[name] for name in self.model.text_inputs}
        return self._run(self._text, self.model.text_output, feed)

    def tokens(self, texts: Sequence[str]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return token ids and mask (n, L), padded as the model wants it."""
        encoded = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        for text, row in zip(texts, encoded, strict=True):
            if len(row) > self.model.context:
                raise too_long(text, len(row), self.model.context)
        length = self.model.context if self.model.pad_to_context else max(map(len, encoded))
        ids = np.full((len(encoded), length), self.model.pad_id, np.int64)
        mask = np.zeros_like(ids)
        for index, row in enumerate(encoded):
            ids[index, : len(row)], mask[index, : len(row)] = row, 1
        return ids, mask

    def _session(self, file: str) -> Any:
        runtime = need("onnxruntime", "onnx")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.log_severity_level = 3  # errors only
        path = existing_file(self.folder, file)
        try:
            return runtime.InferenceSession(str(path), options, providers=PROVIDERS)
        except Exception as error:  # ONNX Runtime has its own exception per status code
            raise refuse(str(path), f"a model that cannot be loaded ({shorten(error, 200)})", _AGAIN) from None

    def _check(self, session: Any, file: str, inputs: tuple[str, ...], output: str) -> None:
        has = {value.name for value in (*session.get_inputs(), *session.get_outputs())}
        missing = sorted({*inputs, output} - has)
        if missing:
            raise refuse(
                f"{self.folder / file}",
                f"no {', '.join(missing)}",
                f"the names that model.json gives; it has {sorted(has)}",
            )

    def _run(self, session: Any, output: str, feed: dict[str, Any]) -> NDArray[Any]:
        try:
            rows: NDArray[Any] = session.run([output], feed)[0]
        except Exception as error:
            fault = f"what the model does not take ({shorten(error, 200)})"
            raise refuse(f"input of {self.name}", fault, "arrays of the sizes in model.json") from None
        return rows


def existing_file(folder: Path, file: str) -> Path:
    """Return the path of a model file; a missing one is refused."""
    path = folder / file
    if not path.is_file():
        raise refuse(f"model folder {folder}", f"no {file}", "image.onnx, text.onnx, tokenizer.json and model.json")
    return path


def verify_files(folder: Path, model: ModelFile) -> None:
    """Refuse a folder where a file is missing or differs from its sha256 in model.json."""
    for file in model.files:
        path = existing_file(folder, file)
        want = model.sha256.get(file)
        if want is not None and checksum(path) != want:
            raise refuse(str(path), "a damaged file (its sha256 is not the one in model.json)", _AGAIN)


def load_onnx(target: str, threads: int, device: str) -> OnnxEncoder:
    """Return the encoder in the folder ``target``; ONNX Runtime runs on the CPU here."""
    if device != "cpu":
        raise refuse("device", repr(device), "'cpu' for an ONNX encoder")
    return OnnxEncoder(target, threads)
