"""The open_clip adapter against a small stand-in of that package: the same calls, a real torch model behind them.

The package itself needs torchvision; where it can be imported, the last test runs it.
"""

import importlib
import socket
import sys
import types
import urllib.error

import numpy as np
import pytest

from latte.encoders import Encoder, check_encoder_spec, load_encoder, zero_shot
from latte.encoders.open_clip import split_target
from latte.errors import InputError, MissingExtra
from tiny_models import make_photo

torch = pytest.importorskip("torch")
CONFIG = {
    "size": (32, 32),
    "mode": "RGB",
    "mean": (0.5,) * 3,
    "std": (0.25,) * 3,
    "interpolation": "bilinear",
}


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.visual = torch.nn.Conv2d(3, 12, 8, 8)
        self.visual.preprocess_cfg = CONFIG | {"resize_mode": "squash", "fill_color": 0}
        self.words = torch.nn.Embedding(128, 12)
        self.logit_scale = torch.nn.Parameter(torch.tensor(3.0))

    def encode_image(self, image, normalize=False):
        return self.visual(image).mean(dim=(2, 3))

    def encode_text(self, text, normalize=False):
        return self.words(text).sum(dim=1)


class SimpleTokenizer:
    """A token per letter, cut at the context's length without a word, as open_clip's does."""

    context_length = 30

    def encode(self, text):
        return [ord(letter) % 126 for letter in text]

    def __call__(self, texts, context_length=None):
        rows = [[126, *self.encode(text), 127][: self.context_length] for text in texts]
        return torch.tensor([row + [0] * (self.context_length - len(row)) for row in rows])


class WrappingTokenizer(SimpleTokenizer):
    """The other kind: it holds a tokenizer of transformers."""

    def tokenizer(self, text):
        return {"input_ids": [126, *self.encode(text), 127]}


@pytest.fixture(params=[SimpleTokenizer, WrappingTokenizer])
def stand_in(request, monkeypatch):
    module = types.ModuleType("open_clip")

    def create(name, pretrained=None, force_quick_gelu=False):
        if name != "ViT-B-16" and not name.startswith("local-dir:"):
            raise RuntimeError(f"Model config for {name} not found.\nAvailable models: many")
        return Model(), None, None

    module.create_model_and_transforms = create
    module.get_pretrained_cfg = lambda name, tag: {}
    module.get_tokenizer = lambda name: request.param()
    module.get_model_preprocess_cfg = lambda model: model.visual.preprocess_cfg
    monkeypatch.setitem(sys.modules, "open_clip", module)


def test_an_encoder_with_its_own_rules(stand_in):
    encoder = load_encoder("openclip:ViT-B-16/openai")
    assert isinstance(encoder, Encoder) and encoder.dim == 12
    assert encoder.scale == pytest.approx(np.exp(3), rel=1e-6)
    assert encoder.preprocess.short_side is None and encoder.preprocess.interpolation == "bilinear"
    pixels = np.stack([encoder.preprocess(make_photo(50, 40))])
    want = Model().encode_image(torch.from_numpy(pixels)).detach().numpy()
    assert np.allclose(encoder.images(pixels), want / np.linalg.norm(want), atol=1e-6)
    assert encoder.fingerprint == load_encoder("openclip:ViT-B-16/openai").fingerprint


def test_texts_and_their_length(stand_in):
    encoder = load_encoder("openclip:ViT-B-16/openai")
    assert zero_shot(encoder, ["dog", "cat"]).text.shape == (2, 12)
    assert encoder.texts(["x" * 28]).shape == (1, 12)
    with pytest.raises(ValueError, match="of 31 tokens, want at most 30"):
        encoder.texts(["x" * 29])


def test_a_local_folder(stand_in, tmp_path):
    (tmp_path / "open_clip_config.json").write_text("{}")
    assert load_encoder(f"local:{tmp_path}").name == f"openclip:local-dir:{tmp_path}"


def test_unknown_models_are_refused_with_one_line(stand_in):
    with pytest.raises(ValueError, match="ViT-X/openai") as error:
        load_encoder("openclip:ViT-X/openai")
    assert "\n" not in str(error.value)


def test_a_missing_network_is_told_from_a_pair_that_does_not_exist(stand_in, monkeypatch):
    module = sys.modules["open_clip"]
    module.list_pretrained = lambda: [("ViT-B-16", "openai"), ("ViT-L-14", "openai")]

    def fail(error):
        def create(*_, **__):
            raise RuntimeError("Failed to download weights") from error

        monkeypatch.setattr(module, "create_model_and_transforms", create)
        with pytest.raises(InputError) as refused:
            load_encoder("openclip:ViT-B-16/openai")
        return str(refused.value)

    for error in (ConnectionResetError("reset"), urllib.error.URLError("no name"), socket.gaierror(-2, "no name")):
        said = fail(error)
        assert "no connection to the weights" in said and "want a network connection" in said and "pair" not in said
    assert "a model that cannot be loaded (Failed to download" in fail(KeyError("size"))
    with pytest.raises(InputError, match=r"no such model and weights .*want a pair: ViT-B-16/openai"):
        load_encoder("openclip:ViT-B-16/opnai")


@pytest.mark.parametrize("target", ["ViT-B-16", "ViT-B-16/"])
def test_weights_must_be_named(target):
    with pytest.raises(ValueError, match="MODEL/PRETRAINED"):
        split_target(target)


def test_without_the_package_the_error_gives_the_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "open_clip", None)
    for load in (load_encoder, check_encoder_spec):
        with pytest.raises(MissingExtra) as error:
            load("openclip:ViT-B-16/openai")
        assert str(error.value) == "open_clip is not installed; run: pip install open_clip_torch"


def test_the_package_itself_has_what_the_adapter_calls():
    try:
        package = importlib.import_module("open_clip")
    except ImportError:
        pytest.skip("open_clip cannot be imported here")
    model, _, _ = package.create_model_and_transforms("RN50", pretrained=None)
    assert package.get_model_preprocess_cfg(model)["size"]
    assert package.get_tokenizer("RN50").context_length == 77
