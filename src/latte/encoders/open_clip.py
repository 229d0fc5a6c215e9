"""Models of open_clip, through that package. Imported only when such an encoder is loaded."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Sequence
from pathlib import Path
from string import punctuation
from typing import Any

from ..core.validate import close_names
from ..errors import MissingExtra, need, pip_line, refuse
from ..files.documents import shorten
from .base import too_long
from .devices import place_torch
from .hf import TorchEncoder, is_network_failure, set_threads
from .preprocess import Preprocess, from_open_clip

CONTEXT_LENGTH = 77  # if the tokenizer does not say
_PIP = {"open_clip": "open_clip_torch", "yaml": "pyyaml"}
_SCHEMAS = ("hf-hub:", "local-dir:")


class OpenClipEncoder(TorchEncoder):
    """An open_clip model with its own tokenizer, preprocessing and logit scale."""

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
        self.context = int(getattr(tokenizer, "context_length", None) or CONTEXT_LENGTH)
        inner = getattr(tokenizer, "tokenizer", None)
        self.pad_id = 0 if inner is None else int(inner.pad_token_id)
        super().__init__(name, model, preprocess, device, precision)

    def image_features(self, pixels: Any) -> Any:
        """Return (n, D) for a tensor (n, 3, H, W)."""
        return self.model.encode_image(pixels)

    def tokens(self, texts: Sequence[str]) -> Any:
        """Return token ids (n, context); open_clip's tokenizers cut silently, so the texts are measured first."""
        inner = getattr(self.tokenizer, "tokenizer", None)  # HFTokenizer wraps one of transformers
        clean = getattr(self.tokenizer, "clean_fn", str)
        for text in texts:
            # SimpleTokenizer cleans the text itself, and adds start and end
            tokens = len(inner(clean(text))["input_ids"]) if inner is not None else len(self.tokenizer.encode(text)) + 2
            if tokens > self.context:
                raise too_long(text, tokens, self.context)
        return self.tokenizer(list(texts)).to(self.device)

    def token_features(self, ids: Any) -> Any:
        """Return (n, D) for token ids (n, context)."""
        return self.model.encode_text(ids)

    def plain_tokens(self, text: str) -> list[int]:
        """Return the token ids of a text without start, end and padding, cleaned as the tokenizer cleans it."""
        inner = getattr(self.tokenizer, "tokenizer", None)
        if inner is None:
            return list(self.tokenizer.encode(text))
        clean = getattr(self.tokenizer, "clean_fn", str)
        return list(inner(clean(text), add_special_tokens=False)["input_ids"])

    @property
    def token_embedding(self) -> Any:
        """The table of token embeddings: the model's own, that of its text tower, or that of a transformers tower."""
        tower: Any = getattr(self.model, "text", None)
        for owner in (self.model, tower):
            if hasattr(owner, "token_embedding"):
                return owner.token_embedding
        inner: Any = getattr(tower, "transformer", None)
        if not hasattr(inner, "get_input_embeddings"):
            raise refuse("prompt tuning", f"the encoder {self.name}", "a text model that embeds tokens")
        return inner.get_input_embeddings()

    def tokenizer_json(self) -> str:
        """Return the tokenizer as a tokenizer.json; what ftfy would repair in a text is left as it is there.

        The cleaning of open_clip comes first: "canonicalize" removes punctuation, it and "lower" change the case.
        """
        tokenizers = need("tokenizers", "export")
        rules = tokenizers.normalizers
        tokenizer, inner = self.tokenizer, getattr(self.tokenizer, "tokenizer", None)
        clean = getattr(getattr(tokenizer, "clean_fn", None), "__name__", "")
        odd = [name for name in ("reduction_fn", "strip_sep_token", "tokenizer_mode") if getattr(tokenizer, name, None)]
        if clean not in ("_clean_lower", "_clean_canonicalize", "_clean_whitespace") or odd:
            want = "one of the plain tokenizers of open_clip, which a tokenizer.json describes"
            raise refuse("tokenizer", f"{type(tokenizer).__name__} with {', '.join(odd) or 'another cleaning'}", want)
        steps = [rules.NFC()]
        if clean == "_clean_canonicalize":
            steps += [rules.Replace("_", " "), rules.Replace(tokenizers.Regex(f"[{re.escape(punctuation)}]"), "")]
        steps += [rules.Lowercase()] if clean != "_clean_whitespace" else []
        steps += [rules.Replace(tokenizers.Regex(r"\s+"), " "), rules.Strip()]
        if inner is not None:
            made = tokenizers.Tokenizer.from_str(inner.backend_tokenizer.to_str())
            made.no_padding()
            made.no_truncation()
            steps += [made.normalizer] if made.normalizer is not None else []
        else:
            splitters = tokenizers.pre_tokenizers
            merges = sorted(tokenizer.bpe_ranks, key=tokenizer.bpe_ranks.get)
            made = tokenizers.Tokenizer(
                tokenizers.models.BPE(
                    tokenizer.encoder, merges, end_of_word_suffix="</w>", continuing_subword_prefix=""
                )
            )
            words = splitters.Split(tokenizers.Regex(tokenizer.pat.pattern), "removed", invert=True)
            made.pre_tokenizer = splitters.Sequence([words, splitters.ByteLevel(False, use_regex=False)])
            start, end = (tokenizer.decoder[number] for number in (tokenizer.sot_token_id, tokenizer.eot_token_id))
            made.post_processor = tokenizers.processors.TemplateProcessing(
                single=f"{start} $A {end}",
                special_tokens=[(start, tokenizer.sot_token_id), (end, tokenizer.eot_token_id)],
            )
        made.normalizer = rules.Sequence(steps)
        return str(made.to_str())

    def token_rule(self) -> Any:
        """Return what the tokens of a text depend on: the kind of tokenizer, and the tokens of a sample."""
        sample = self.tokenizer(["a photo of a polar bear."]).tolist()
        return [type(self.tokenizer).__name__, self.context, sample]


def load_open_clip(target: str, threads: int = 0, device: str = "cpu", precision: str = "fp32") -> OpenClipEncoder:
    """Return the model ``target``: MODEL/PRETRAINED, or hf-hub:… or local-dir:… as open_clip writes them."""
    open_clip = open_clip_package()
    place_torch(need("torch", "torch"), device, precision)  # refused before anything is loaded
    set_threads(threads)
    name, pretrained = split_target(target)
    try:
        # Since version 3 open_clip builds "RN50" with GELU, loads weights that were trained with QuickGELU (all of
        # OpenAI's) into it, and only warns: the embeddings would be wrong.
        quick = pretrained is not None and bool(open_clip.get_pretrained_cfg(name, pretrained).get("quick_gelu", False))
        # Without require_pretrained, weights that are not there would be random ones, with a warning.
        model = open_clip.create_model(name, pretrained, force_quick_gelu=quick, require_pretrained=True)
        tokenizer = open_clip.get_tokenizer(name)
    except Exception as error:  # RuntimeError, FileNotFoundError, hub errors
        got, want = f"a model that cannot be loaded ({shorten(error, 200)})", "a sound model"
        pairs = ["/".join(pair) for pair in getattr(open_clip, "list_pretrained", list)()]
        if is_network_failure(error):
            got = f"no connection to the weights ({shorten(error, 120)})"
            want = "a network connection for the first time, or openclip:local-dir:DIR"
        elif not target.startswith(_SCHEMAS) and target not in pairs:
            got = f"no such model and weights ({shorten(error, 120)})"
            want = f"a pair: {', '.join(close_names(target, pairs)) or 'open_clip.list_pretrained() names them all'}"
        raise refuse(f"openclip:{target}", got, want) from None
    place = target.removeprefix("local-dir:")
    shown = target if place == target else Path(place).resolve().name  # where it lies does not matter
    return OpenClipEncoder(f"openclip:{shown}", model, tokenizer, _preprocess(open_clip, model), device, precision)


def split_target(target: str) -> tuple[str, str | None]:
    """Return (model, pretrained).

    >>> split_target("ViT-B-16/openai")
    ('ViT-B-16', 'openai')
    """
    if target.startswith(_SCHEMAS):
        return target, None
    name, slash, pretrained = target.partition("/")
    if not slash or not pretrained:
        raise refuse(f"openclip:{target}", "no weights", "MODEL/PRETRAINED, such as openclip:ViT-B-16/openai")
    return name, pretrained


def _preprocess(open_clip: Any, model: Any) -> Preprocess:
    config = open_clip.get_model_preprocess_cfg(model)
    if not config:
        raise refuse("open_clip model", "no preprocess_cfg", "a model of open_clip >= 2.24")
    return from_open_clip(config)


def open_clip_package() -> Any:
    """Return the imported open_clip, or say how to get it."""
    try:
        return importlib.import_module("open_clip")
    except ImportError as error:
        torch = "" if importlib.util.find_spec("torch") else f", after torch: {pip_line('torch')}"
        advice = f"open_clip is not installed; run: pip install open_clip_torch{torch}"
        if error.name != "open_clip":
            advice = (
                f"open_clip cannot be imported ({error}); run: pip install {_PIP.get(error.name or '', error.name)}"
            )
        raise MissingExtra(advice, name="open_clip") from None
    except RuntimeError as error:  # torchvision.nms does not exist: it was built for another torch
        want = "install torch and torchvision together, both for the processor or both for the same CUDA"
        raise MissingExtra(
            f"open_clip cannot be imported ({shorten(error, 120)}): {want}", name="torchvision"
        ) from None
