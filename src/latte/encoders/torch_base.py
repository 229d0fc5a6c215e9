"""The common part of the encoders that run on torch. Imported only by them."""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.extras import need
from ..core.types import Vectors
from ..core.validate import at_least
from ..errors import refuse
from .encoder import BaseEncoder
from .preprocess import Preprocess
from .prompt_tuner import CONTEXT, PromptTuner


class TorchEncoder(BaseEncoder):
    """An encoder whose ``model`` is a torch module with a ``logit_scale``.

    A subclass implements ``image_features``, ``tokens`` and ``token_features``, and for prompt tuning ``plain_tokens``
    and ``token_embedding``.
    """

    def __init__(self, name: str, model: Any, preprocess: Preprocess, device: str = "cpu") -> None:
        self.torch = need("torch", "torch")
        self.device = self._device(device)
        self.model = model.to(self.device).float().eval().requires_grad_(False)
        dim = int(self._probe(preprocess).shape[1])
        super().__init__(name, dim, float(self.model.logit_scale.exp().item()), preprocess)

    def image_features(self, pixels: Any) -> Any:
        """Return (n, D) for a tensor (n, 3, H, W), of any length."""
        raise TypeError(f"{type(self).__name__} has no image encoder")

    def tokens(self, texts: Sequence[str]) -> Any:
        """Return token ids (n, L); a text that is too long is refused."""
        raise TypeError(f"{type(self).__name__} has no text encoder")

    def token_features(self, ids: Any) -> Any:
        """Return (n, D) for token ids (n, L), of any length."""
        raise TypeError(f"{type(self).__name__} has no text encoder")

    def plain_tokens(self, text: str) -> list[int]:
        """Return the token ids of a text without start, end and padding."""
        raise TypeError(f"{type(self).__name__} has no text encoder")

    @property
    def token_embedding(self) -> Any:
        """The module that turns token ids (n, L) into vectors (n, L, d_tok)."""
        raise TypeError(f"{type(self).__name__} has no text encoder")

    def prompt_tuner(self, classnames: Sequence[str], context: str = CONTEXT) -> PromptTuner:
        """Return the differentiable text encoder that prompt tuning (TPT) needs."""
        return PromptTuner(self, classnames, context)

    def image_batch(self, pixels: Vectors) -> NDArray[Any]:
        """Return (n, D) for (n, 3, H, W)."""
        with self.torch.inference_mode():
            tensor = self.torch.from_numpy(np.ascontiguousarray(pixels)).to(self.device)
            return self._numpy(self.image_features(tensor))

    def text_batch(self, texts: Sequence[str]) -> NDArray[Any]:
        """Return (n, D) for n texts."""
        with self.torch.inference_mode():
            return self._numpy(self.token_features(self.tokens(list(texts))))

    @cached_property
    def fingerprint(self) -> str:
        """Sha256 of every weight, the preprocessing and the tokenizer."""
        digest = hashlib.sha256(json.dumps([self.preprocess.to_json(), self.token_rule()], sort_keys=True).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)}".encode())
            digest.update(np.ascontiguousarray(self._numpy(tensor)).tobytes())
        return digest.hexdigest()

    def token_rule(self) -> Any:
        """Return everything that the tokens of a text depend on, as plain values."""
        return None

    def _numpy(self, tensor: Any) -> NDArray[Any]:
        array: NDArray[Any] = tensor.detach().cpu().numpy()
        return array

    def _probe(self, preprocess: Preprocess) -> Any:
        """Encode one black picture, to learn D."""
        with self.torch.inference_mode():
            return self.image_features(self.torch.zeros((1, 3, *preprocess.size), device=self.device))

    def _device(self, device: str) -> Any:
        try:
            target = self.torch.device(device)
            self.torch.empty(1, device=target)
        except (RuntimeError, AssertionError) as error:
            reason = str(error).splitlines()[0]
            raise refuse("device", f"{device!r} ({reason})", "'cpu', or a device that torch finds here") from None
        return target


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
