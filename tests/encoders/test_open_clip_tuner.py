"""Prompt tuning through open_clip models (the only way to CLIP's RN50), on a stand-in with open_clip's text encoder.

Where the package itself can be imported, the last test runs it.
"""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import open_clip_stand_in as stand_in  # noqa: E402
from latte import ZeroShot  # noqa: E402
from latte.data.embeddings import save_embeddings  # noqa: E402
from latte.data.federation import Embeddings  # noqa: E402
from latte.encoders import load_encoder, zero_shot  # noqa: E402
from latte.encoders.tuning import make_prompt_tuner  # noqa: E402
from latte.methods.tpt import Tpt, TptParams  # noqa: E402

NAMES = ["dog", "polar_bear", "giraffe"]
PROMPTS = ["a photo of a dog.", "a photo of a polar bear.", "a photo of a giraffe."]
SPEC = "openclip:RN50/openai"


@pytest.fixture
def open_clip(monkeypatch):
    monkeypatch.setitem(sys.modules, "open_clip", stand_in)


@pytest.fixture(params=[(form, kind) for form in stand_in.LAYOUTS for kind in ("SimpleTokenizer", "HFTokenizer")])
def encoder(request, open_clip, monkeypatch):
    monkeypatch.setattr(stand_in, "layout", request.param[0])
    monkeypatch.setattr(stand_in, "tokenizer_kind", getattr(stand_in, request.param[1]))
    return load_encoder(SPEC)


def by_hand(model, vectors, ids):
    """Return unit rows (C, D) of token vectors (C, L, d): open_clip's encode_text step by step, batch first."""
    text = getattr(model, "text", model)
    x = vectors + text.positional_embedding
    for block in text.blocks:
        y = block.ln_1(x)
        heads = stand_in.HEADS
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (
            y @ block.attn.in_proj_weight.T + block.attn.in_proj_bias
        ).chunk(3, dim=-1))  # fmt: skip
        weights = (q @ k.transpose(-1, -2) / k.shape[-1] ** 0.5 + text.attn_mask).softmax(-1)
        x = x + block.attn.out_proj((weights @ v).transpose(1, 2).flatten(2))
        x = x + block.mlp(block.ln_2(x))
    x = text.ln_final(x)[torch.arange(len(ids)), ids.argmax(-1)]
    projection = text.text_projection
    x = projection(x) if isinstance(projection, torch.nn.Linear) else x @ projection
    return torch.nn.functional.normalize(x, dim=-1)


def test_the_tuner_starts_at_the_plain_prompt(encoder):
    tuner = make_prompt_tuner(encoder, NAMES)
    assert tuner.classnames == tuple(NAMES) and tuner.scale == encoder.scale
    assert tuner.context_init.shape == (4, stand_in.WIDTH) and not tuner.context_init.requires_grad
    with torch.no_grad():
        rows = tuner.class_texts(tuner.context_init).numpy()
    assert np.allclose(rows, encoder.texts(PROMPTS), atol=1e-6)
    words = encoder.plain_tokens("a photo of a")
    assert torch.equal(tuner.context_init, encoder.token_embedding.weight[words])


def test_another_context_takes_the_place_of_its_tokens_and_of_nothing_else(encoder):
    """Against the text encoder written out: positions, causal mask, layers, norm, end token, projection."""
    tuner = make_prompt_tuner(encoder, NAMES)
    context = tuner.context_init + torch.linspace(-1, 1, 4 * stand_in.WIDTH).reshape(4, -1)
    ids = encoder.tokens(PROMPTS)
    vectors = encoder.token_embedding.weight[ids].clone()
    vectors[:, 1:5] = context  # behind the start token
    with torch.no_grad():
        rows, expected = tuner.class_texts(context), by_hand(encoder.model, vectors, ids)
    assert torch.allclose(rows, expected, atol=1e-6)
    assert not np.allclose(rows.numpy(), encoder.texts(PROMPTS), atol=1e-3)
    assert np.array_equal(encoder.texts(PROMPTS), load_encoder(SPEC).texts(PROMPTS))  # the model is as it was


def test_the_gradient_is_the_slope(encoder):
    """Against finite differences, in float64 so that they mean something; nothing but the context gets any."""
    encoder.model.double()
    tuner = make_prompt_tuner(encoder, NAMES)
    context = tuner.context_init.clone().requires_grad_(True)
    weights = torch.linspace(-1, 1, 3 * encoder.dim, dtype=torch.float64).reshape(3, -1)

    def value(vectors):
        return (tuner.class_texts(vectors) * weights).sum()

    value(context).backward()
    direction = torch.from_numpy(np.random.default_rng(0).normal(size=tuple(context.shape)))
    with torch.no_grad():
        slope = (value(context + 1e-5 * direction) - value(context - 1e-5 * direction)) / 2e-5
    assert float(slope) == pytest.approx(float((context.grad * direction).sum()), rel=1e-5)
    assert all(parameter.grad is None for parameter in encoder.model.parameters())


def test_tpt_learns_through_it(encoder):
    classifier = zero_shot(encoder, NAMES, ["a photo of a {}."])
    views = encoder.images(list(np.random.default_rng(0).integers(0, 256, (8, 32, 32, 3), np.uint8)))
    still, moved = (
        Tpt(classifier, TptParams(lr=0.1, share=0.5, steps=steps), text_encoder=make_prompt_tuner(encoder, NAMES))
        for steps in (0, 1)
    )
    assert np.allclose(still.predict(views).scores, classifier.logits(views[0]), atol=1e-4)
    assert not np.allclose(moved.predict(views).scores, still.predict(views).scores, atol=1e-3)


def test_a_prompt_that_does_not_fit_is_refused(encoder):
    with pytest.raises(ValueError, match="tokens, want at most 14"):
        make_prompt_tuner(encoder, ["dog", "giraffe " * 20])


def test_a_text_model_without_token_embeddings_is_refused(open_clip, monkeypatch):
    encoder = load_encoder(SPEC)
    table = encoder.model.token_embedding
    del encoder.model.token_embedding
    with pytest.raises(ValueError, match="prompt tuning: got the encoder openclip:RN50/openai"):
        make_prompt_tuner(encoder, NAMES)
    encoder.model.text = torch.nn.Module()  # a tower of transformers, as open_clip wraps it
    encoder.model.text.transformer = torch.nn.Module()
    encoder.model.text.transformer.get_input_embeddings = lambda: table
    assert encoder.token_embedding is table


@pytest.mark.parametrize(("weights", "kind"), [("openai", stand_in.QuickGELU), ("cc12m", torch.nn.GELU)])
def test_weights_get_the_activation_they_were_trained_with(open_clip, weights, kind):
    """open_clip 3 builds RN50 with GELU, and only warns when it loads OpenAI's weights into it."""
    model = load_encoder(f"openclip:RN50/{weights}").model
    assert all(isinstance(block.mlp[1], kind) for block in model.blocks)


# --- the command --------------------------------------------------------------------------------------------


@pytest.fixture
def benchmark(open_clip, tmp_path):
    """Two clients, eight views of every image."""
    encoder = load_encoder(SPEC)
    classifier = zero_shot(encoder, NAMES, ["a photo of a {}."])
    rng = np.random.default_rng(0)
    labels = np.arange(12) % 3
    views = rng.normal(size=(12, 8, encoder.dim)) + 2 * classifier.text[labels][:, None]
    views = (views / np.linalg.norm(views, axis=-1, keepdims=True)).astype(np.float32)
    classifier = ZeroShot(classifier.text, tuple(NAMES), encoder.scale)
    save_embeddings(
        tmp_path / "seen.safetensors",
        Embeddings("seen", classifier, views, labels, labels * 0, ("here",), {"encoder": SPEC}, np.arange(12)),
    )
    return tmp_path / "seen.safetensors"


def latte(folder, *arguments):
    """Run a command in a process that finds the stand-in where the package would be."""
    (folder / "site" / "open_clip").mkdir(parents=True, exist_ok=True)
    (folder / "site" / "open_clip" / "__init__.py").write_text("from open_clip_stand_in import *\n")
    places = [folder / "site", Path(stand_in.__file__).parent, *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(place) for place in places if str(place))}
    command = [sys.executable, "-m", "latte", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder, check=False)


def test_run_tunes_the_prompts_of_an_open_clip_model(benchmark, tmp_path):
    answer = latte(
        tmp_path, "run", "--benchmark", benchmark, "--methods", "clip,tpt+lr=0.1", "--seeds", "0",
        "--set", "clients_per_domain=2", "--set", f"text_encoder={SPEC}", "--runs", tmp_path / "runs", "--json",
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert [row["method"] for row in json.loads(answer.stdout)] == ["clip", "tpt+lr=0.1"]


@pytest.mark.parametrize(
    ("encoder", "message", "code"),
    [
        ("opnclip:RN50/openai", "did you mean openclip:RN50/openai?", 2),
        ("openclip:RN51/openai", "Model config for RN51 not found", 1),
    ],
)
def test_a_text_encoder_that_is_not_there_is_named(benchmark, tmp_path, encoder, message, code):
    answer = latte(
        tmp_path, "run", "--benchmark", benchmark, "--methods", "tpt", "--seeds", "0",
        "--set", "clients_per_domain=2", "--set", f"text_encoder={encoder}", "--runs", tmp_path / "runs",
    )  # fmt: skip
    assert answer.returncode == code and message in answer.stderr and "Traceback" not in answer.stderr


def test_a_run_without_one_names_the_encoders_that_can(benchmark, tmp_path):
    answer = latte(tmp_path, "run", "--benchmark", benchmark, "--methods", "tpt", "--runs", tmp_path / "runs")
    assert answer.returncode == 2 and "openclip:MODEL/WEIGHTS" in answer.stderr


def test_the_package_itself():
    try:
        package = importlib.import_module("open_clip")
    except ImportError:
        pytest.skip("open_clip cannot be imported here")
    from latte.encoders.open_clip import OpenClipEncoder, _preprocess

    model, _, _ = package.create_model_and_transforms("RN50", pretrained=None, force_quick_gelu=True)
    encoder = OpenClipEncoder("openclip:RN50/random", model, package.get_tokenizer("RN50"), _preprocess(package, model))
    tuner = make_prompt_tuner(encoder, NAMES)
    with torch.no_grad():
        rows = tuner.class_texts(tuner.context_init).numpy()
    assert tuner.context_init.shape == (4, 512) and np.allclose(rows, encoder.texts(PROMPTS), atol=1e-5)
