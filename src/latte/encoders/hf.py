"""CLIP and SigLIP of transformers, from the hub or from a folder. Imported only when such an encoder is loaded."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Vectors
from ..core.validate import at_least
from ..errors import need, refuse
from ..files.documents import read_json, shorten
from .base import BaseEncoder, too_long
from .devices import place_torch
from .preprocess import Preprocess, from_hf


class TorchEncoder(BaseEncoder):
    """An encoder whose ``model`` is a torch module with a ``logit_scale``.

    A subclass implements ``image_features``, ``tokens``, ``token_features`` and ``token_rule``, for prompt tuning
    ``plain_tokens`` and ``token_embedding``, and for export ``tokenizer_json`` and ``pad_id``. ``context`` is the most
    tokens of a text; ``pad_to_context``: every text is filled up to it.
    """

    context: int
    pad_to_context = True
    pad_id: int

    def __init__(
        self, name: str, model: Any, preprocess: Preprocess, device: str = "cpu", precision: str = "fp32"
    ) -> None:
        self.torch = need("torch", "torch")
        self.device, self.dtype, self.placement = place_torch(self.torch, device, precision)
        scale = float(model.logit_scale.detach().float().exp())  # before it is rounded
        bias = getattr(model, "logit_bias", None)  # of SigLIP
        bias = None if bias is None else float(bias.detach().float())
        self.model = model.to(self.device, self.dtype).eval().requires_grad_(False)
        with self.torch.inference_mode():  # one black picture, to learn D
            black = self.torch.zeros((1, 3, *preprocess.size), device=self.device, dtype=self.dtype)
            dim = int(self.image_features(black).shape[1])
        super().__init__(name, dim, scale, preprocess, bias)

    def image_features(self, pixels: Any) -> Any:
        """Return (n, D) for a tensor (n, 3, H, W), of any length."""
        raise TypeError(f"{type(self).__name__} has no image encoder")

    def tokens(self, texts: Sequence[str]) -> Any:
        """Return token ids (n, L); a text that is too long is refused."""
        raise TypeError(f"{type(self).__name__} has no text encoder")

    def token_features(self, ids: Any) -> Any:
        """Return (n, D) for token ids (n, L), of any length."""
        raise TypeError(f"{type(self).__name__} has no text encoder")

    def image_batch(self, pixels: Vectors) -> NDArray[Any]:
        """Return (n, D) for (n, 3, H, W)."""
        with self.torch.inference_mode():
            tensor = self.torch.from_numpy(np.ascontiguousarray(pixels)).to(self.device, self.dtype)
            return self._numpy(self.image_features(tensor))

    def text_batch(self, texts: Sequence[str]) -> NDArray[Any]:
        """Return (n, D) for n texts."""
        with self.torch.inference_mode():
            return self._numpy(self.token_features(self.tokens(list(texts))))

    @cached_property
    def fingerprint(self) -> str:
        """Sha256 of every weight, the preprocessing, the tokenizer and, unless it is fp32, the precision."""
        rules = [self.preprocess.to_json(), self.token_rule()]
        rules += [] if self.placement.precision == "fp32" else [self.placement.precision]
        digest = hashlib.sha256(json.dumps(rules, sort_keys=True).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)}".encode())
            digest.update(np.ascontiguousarray(self._numpy(tensor)).tobytes())
        return digest.hexdigest()

    def token_rule(self) -> Any:
        """Return everything that the tokens of a text depend on, as plain values."""
        return None

    def tokenizer_json(self) -> str:
        """Return the tokenizer as a tokenizer.json of the package tokenizers, without padding and cutting."""
        raise TypeError(f"{type(self).__name__} has no tokenizer.json")

    def _numpy(self, tensor: Any) -> NDArray[Any]:
        if tensor.dtype is self.torch.bfloat16:  # which numpy does not have
            tensor = tensor.float()
        array: NDArray[Any] = tensor.detach().cpu().numpy()
        return array


def set_threads(threads: int) -> None:
    """Let torch use ``threads`` cores; 0 leaves its own choice."""
    if at_least("threads", threads, 0):
        need("torch", "torch").set_num_threads(threads)


_NO_NETWORK = (  # by name, because they belong to packages that may not be installed
    "ConnectError", "ConnectTimeout", "ReadTimeout", "ConnectTimeoutError", "MaxRetryError", "NameResolutionError",
    "NewConnectionError", "ProxyError", "URLError", "LocalEntryNotFoundError", "OfflineModeIsEnabled",
)  # fmt: skip


def is_network_failure(error: BaseException | None) -> bool:
    """Return whether what failed is the network, and not what was asked for."""
    while error is not None:
        if isinstance(error, (ConnectionError, TimeoutError, socket.gaierror)) or type(error).__name__ in _NO_NETWORK:
            return True
        if "couldn't connect" in str(error):  # of transformers, whose error has no cause
            return True
        error = error.__cause__ or error.__context__
    return False


FAMILIES = {"clip": "CLIPModel", "siglip": "SiglipModel"}  # the fixed-size checkpoints of SigLIP 2 are "siglip" too
_FILES = "config.json, preprocessor_config.json, tokenizer files and weights"


class HfEncoder(TorchEncoder):
    """A transformers model with its own tokenizer, preprocessing and logit scale."""

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Any,
        preprocess: Preprocess,
        device: str = "cpu",
        precision: str = "fp32",
    ) -> None:
        self.tokenizer = tokenizer
        self.family: str = model.config.model_type
        self.context = model.config.text_config.max_position_embeddings
        # SigLIP was trained on texts padded to the full context and reads its last token; CLIP does not care
        self.pad_to_context = self.family != "clip"
        pad = tokenizer.pad_token_id
        self.pad_id = int(tokenizer.eos_token_id if pad is None else pad)
        super().__init__(name, model, preprocess, device, precision)

    def image_features(self, pixels: Any) -> Any:
        """Return (n, D) for a tensor (n, 3, H, W)."""
        return pooled(self.model.get_image_features(pixel_values=pixels))

    def token_features(self, ids: Any) -> Any:
        """Return (n, D) for token ids (n, L); padding needs no mask in either family."""
        return pooled(self.model.get_text_features(input_ids=ids))

    def tokens(self, texts: Sequence[str]) -> Any:
        """Return token ids (n, L); a text that is too long is refused."""
        rows = self.tokenizer(list(texts), truncation=False, padding=False, verbose=False)["input_ids"]
        for text, row in zip(texts, rows, strict=True):
            if len(row) > self.context:
                raise too_long(text, len(row), self.context)
        length = self.context if self.pad_to_context else max(map(len, rows))
        padded = [row + [self.pad_id] * (length - len(row)) for row in rows]
        return self.torch.tensor(padded, dtype=self.torch.int64, device=self.device)

    def token_rule(self) -> Any:
        """Return everything that the tokens of a text depend on: the tokenizer itself, if it can be serialised."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        rule = backend.to_str() if backend is not None else sorted(self.tokenizer.get_vocab().items())
        return [rule, self.pad_id, self.context]

    def tokenizer_json(self) -> str:
        """Return the tokenizer.json of the model's folder."""
        backend = getattr(self.tokenizer, "backend_tokenizer", None)
        if backend is None:
            raise refuse("tokenizer", type(self.tokenizer).__name__, "a model whose folder has a tokenizer.json")
        return str(backend.to_str())

    def plain_tokens(self, text: str) -> list[int]:
        """Return the token ids of a text without start, end and padding."""
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    @property
    def token_embedding(self) -> Any:
        """The module that turns token ids (n, L) into vectors (n, L, d_tok)."""
        return self.model.text_model.embeddings.token_embedding


def pooled(output: Any) -> Any:
    """Return the features: newer transformers wrap them in an output object."""
    return getattr(output, "pooler_output", output)


def load_hf(target: str, threads: int = 0, device: str = "cpu", precision: str = "fp32") -> HfEncoder:
    """Return the encoder ``target``: a folder, or the name of a repository on the hub."""
    transformers = need("transformers", "torch")
    place_torch(need("torch", "torch"), device, precision)  # refused before anything is loaded
    set_threads(threads)
    config = _read(target, transformers.AutoConfig)
    if config.model_type not in FAMILIES:
        raise refuse(f"hf:{target}", f"a model of type {config.model_type!r}", f"one of {', '.join(FAMILIES)}")
    model = _read(target, getattr(transformers, FAMILIES[config.model_type]))
    tokenizer = _read(target, transformers.AutoTokenizer)
    name = Path(target).resolve().name if Path(target).is_dir() else target  # where it lies does not matter
    return HfEncoder(f"hf:{name}", model, tokenizer, from_hf(_preprocessor(target)), device, precision)


def _read(target: str, reader: Any) -> Any:
    logging = need("transformers.utils.logging", "torch")
    bars = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # to draw is up to the caller
    try:
        return reader.from_pretrained(target)
    except Exception as error:  # OSError, safetensors' own, KeyError for an unknown type, and more
        if not Path(target).is_dir() and is_network_failure(error):
            want = f"a network connection for the first time, or hf:DIR: a folder with {_FILES}"
            raise refuse(f"hf:{target}", f"no connection to the model hub ({shorten(error, 120)})", want) from None
        fault = f"a model that cannot be loaded ({reader.__name__}: {shorten(error, 200)})"
        raise refuse(f"hf:{target}", fault, _want(target)) from None
    finally:
        if bars:
            logging.enable_progress_bar()


def _preprocessor(target: str) -> dict[str, Any]:
    """Read preprocessor_config.json (or the newer processor_config.json) without needing torchvision."""
    for name, key in (("preprocessor_config.json", None), ("processor_config.json", "image_processor")):
        try:
            path = Path(need("transformers.utils", "torch").cached_file(target, name))
        except OSError:  # it has no such file
            continue
        config = read_json(path, dict[str, Any])
        if key is not None and not isinstance(config.get(key), dict):
            raise refuse(str(path), f"no {key}", _want(target))
        return config if key is None else config[key]
    raise refuse(f"hf:{target}", "no preprocessor_config.json", _want(target))


def _want(target: str) -> str:
    if Path(target).is_dir():
        return f"a folder with {_FILES}"
    return f"a model name of the hub, or a folder with {_FILES}"
