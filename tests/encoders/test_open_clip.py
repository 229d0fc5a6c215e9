"""open_clip through its own package: small models of random weights in its own folders, and its own preprocessing."""

import shutil
import socket
import sys
import urllib.error

import numpy as np
import pytest

import tiny_open_clip
from latte.encoders import Encoder, check_encoder_spec, load_encoder, zero_shot
from latte.encoders.open_clip import split_target
from latte.errors import InputError, MissingExtra
from tiny_models import make_photo

TEXTS = ["a photo of a dog.", "a photo of a polar bear, in a video game!", "The Quick-brown  fox", "art"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    pytest.importorskip("open_clip")
    home = tmp_path_factory.mktemp("open_clip")
    return {form: tiny_open_clip.save(home / form, form) for form in tiny_open_clip.FORMS}


@pytest.fixture(params=tiny_open_clip.FORMS)
def folder(request, folders):
    return folders[request.param]


def test_rows_are_the_models_own(folder):
    """Against open_clip's own transform and forward pass."""
    import open_clip
    import torch

    encoder = load_encoder(f"local:{folder}")
    model, _, transform = open_clip.create_model_and_transforms(f"local-dir:{folder}")
    pictures = [make_photo(70, 50), make_photo(41, 99)]
    with torch.no_grad():
        images = model.eval().encode_image(torch.stack([transform(one) for one in pictures]), normalize=True)
        texts = model.encode_text(open_clip.get_tokenizer(f"local-dir:{folder}")(TEXTS), normalize=True)
    assert isinstance(encoder, Encoder) and encoder.dim == tiny_open_clip.DIM
    assert np.allclose(encoder.images(pictures), images.numpy(), atol=2e-5)
    assert np.allclose(encoder.texts(TEXTS), texts.numpy(), atol=2e-5)
    assert encoder.scale == pytest.approx(float(model.logit_scale.detach().exp()), rel=1e-6)
    assert encoder.bias == (-10 if folder.name == "siglip" else None)
    assert zero_shot(encoder, ["dog", "cat"]).text.shape == (2, tiny_open_clip.DIM)


def test_a_name_and_a_fingerprint_know_nothing_of_the_place(folder, tmp_path):
    encoder = load_encoder(f"local:{folder}")
    moved = load_encoder(f"openclip:local-dir:{shutil.copytree(folder, tmp_path / folder.name)}")
    assert encoder.name == moved.name == f"openclip:{folder.name}" and encoder.fingerprint == moved.fingerprint


def test_a_text_that_does_not_fit_is_refused(folder):
    encoder = load_encoder(f"local:{folder}")
    with pytest.raises(ValueError, match=rf"tokens, want at most {encoder.context}"):
        encoder.texts(["dog " * 80])


def test_weights_that_are_not_there_are_not_made_up(folders, tmp_path):
    """open_clip warns and goes on with random ones."""
    copy = shutil.copytree(folders["clip"], tmp_path / "clip")
    (copy / "open_clip_pytorch_model.bin").unlink()
    with pytest.raises(ValueError, match="a model that cannot be loaded") as error:
        load_encoder(f"local:{copy}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("weights", "activation"), [("RN50/openai", "QuickGELU"), ("ViT-B-32/laion2b_s34b_b79k", "GELU")]
)
def test_weights_get_the_activation_they_were_trained_with(folders, monkeypatch, weights, activation):
    """open_clip 3 builds RN50 with GELU, and only warns when it loads OpenAI's weights into it."""
    import open_clip

    made, create = [], open_clip.create_model

    def small(name, pretrained, force_quick_gelu, require_pretrained):
        assert (f"{name}/{pretrained}", require_pretrained) == (weights, True)
        made.append(create(f"local-dir:{folders['clip']}", force_quick_gelu=force_quick_gelu))
        return made[0]

    monkeypatch.setattr(open_clip, "create_model", small)
    load_encoder(f"openclip:{weights}")
    assert {type(block.mlp.gelu).__name__ for block in made[0].transformer.resblocks} == {activation}


def test_unknown_models_are_refused_with_one_line():
    pytest.importorskip("open_clip")
    with pytest.raises(ValueError, match=r"no such model and weights .*want a pair: ViT-B-16/openai") as error:
        load_encoder("openclip:ViT-B-16/opnai")
    assert "\n" not in str(error.value)


def test_a_missing_network_is_told_from_a_pair_that_does_not_exist(monkeypatch):
    module = pytest.importorskip("open_clip")

    def fail(error):
        def create(*_, **__):
            raise RuntimeError("Failed to download weights") from error

        monkeypatch.setattr(module, "create_model", create)
        with pytest.raises(InputError) as refused:
            load_encoder("openclip:ViT-B-16/openai")
        return str(refused.value)

    for error in (ConnectionResetError("reset"), urllib.error.URLError("no name"), socket.gaierror(-2, "no name")):
        said = fail(error)
        assert "no connection to the weights" in said and "want a network connection" in said and "pair" not in said
    assert "a model that cannot be loaded (Failed to download" in fail(KeyError("size"))


@pytest.mark.parametrize("target", ["ViT-B-16", "ViT-B-16/"])
def test_weights_must_be_named(target):
    with pytest.raises(ValueError, match="MODEL/PRETRAINED"):
        split_target(target)
    assert split_target("hf-hub:apple/MobileCLIP-S1-OpenCLIP") == ("hf-hub:apple/MobileCLIP-S1-OpenCLIP", None)


def test_without_the_package_the_error_gives_the_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "open_clip", None)
    for load in (load_encoder, check_encoder_spec):
        with pytest.raises(MissingExtra) as error:
            load("openclip:ViT-B-16/openai")
        assert str(error.value).startswith("open_clip is not installed; run: pip install open_clip_torch")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import torchvision", "run: pip install torchvision"),
        ("raise RuntimeError('operator torchvision::nms does not exist')", "install torch and torchvision together"),
    ],
)
def test_what_is_wrong_with_torchvision_is_said(monkeypatch, tmp_path, body, words):
    (tmp_path / "open_clip").mkdir()
    (tmp_path / "open_clip" / "__init__.py").write_text(body)
    for name in [name for name in sys.modules if name.split(".")[0] == "open_clip"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MissingExtra, match=words):
        load_encoder("openclip:ViT-B-16/openai")
    sys.modules.pop("open_clip", None)


@pytest.mark.slow
def test_export_gives_the_same_rows_and_tokens(folder, tmp_path):
    pytest.importorskip("onnxscript")
    from latte.encoders.export import export_onnx

    encoder = load_encoder(f"local:{folder}")
    (agreement,) = export_onnx(f"local:{folder}", tmp_path / "out", ("fp32",))
    copy = load_encoder(f"onnx:{tmp_path / 'out'}")
    assert agreement.largest < 1e-4 and (copy.scale, copy.bias) == (encoder.scale, encoder.bias)
    texts = [*TEXTS, "a café in Zürich", "it's 50% off, don't wait", "ice_cream", "  two  spaces ", "日本語"]
    assert np.array_equal(copy.tokens(texts)[0], encoder.tokens(texts).numpy())
    assert np.allclose(copy.texts(texts), encoder.texts(texts), atol=1e-4)
    pictures = [make_photo(50 + 7 * number, 90 - 9 * number) for number in range(5)]
    assert np.allclose(copy.images(pictures, batch_size=3), encoder.images(pictures), atol=1e-4)
    with pytest.raises(ValueError, match=f"at most {encoder.context} tokens"):
        copy.texts(["dog " * 80])
