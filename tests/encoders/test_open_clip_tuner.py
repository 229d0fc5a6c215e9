"""Prompt tuning through open_clip models (the only way to CLIP's RN50): small ones of random weights."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("open_clip")

import tiny_open_clip  # noqa: E402
from latte import ZeroShot  # noqa: E402
from latte.data.embeddings import save_embeddings  # noqa: E402
from latte.data.federation import Embeddings  # noqa: E402
from latte.encoders import load_encoder, zero_shot  # noqa: E402
from latte.encoders.tuning import make_prompt_tuner  # noqa: E402
from latte.methods.tpt import Tpt, TptParams  # noqa: E402
from waiting import latte  # noqa: E402

NAMES = ["dog", "polar_bear", "giraffe"]
PROMPTS = ["a photo of a dog.", "a photo of a polar bear.", "a photo of a giraffe."]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    home = tmp_path_factory.mktemp("open_clip")
    return {form: tiny_open_clip.save(home / form, form) for form in tiny_open_clip.FORMS}


@pytest.fixture(params=tiny_open_clip.FORMS)
def spec(request, folders):
    return f"openclip:local-dir:{folders[request.param]}"


@pytest.fixture
def encoder(spec):
    return load_encoder(spec)


def by_hand(model, vectors, ids):
    """Return unit rows (C, D) of token vectors (C, L, d): open_clip's encode_text step by step."""
    text = getattr(model, "text", model)
    x = vectors + text.positional_embedding
    mask = 0 if text.attn_mask is None else text.attn_mask
    for block in text.transformer.resblocks:
        y, heads = block.ln_1(x), block.attn.num_heads
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in (
            y @ block.attn.in_proj_weight.T + block.attn.in_proj_bias
        ).chunk(3, dim=-1))  # fmt: skip
        weights = (q @ k.transpose(-1, -2) / k.shape[-1] ** 0.5 + mask).softmax(-1)
        x = x + block.attn.out_proj((weights @ v).transpose(1, 2).flatten(2))
        x = x + block.mlp(block.ln_2(x))
    last = torch.full((len(ids),), -1) if text.attn_mask is None else ids.argmax(-1)  # SigLIP pools the last place
    x = text.ln_final(x)[torch.arange(len(ids)), last]
    projection = text.text_projection
    x = projection(x) if isinstance(projection, torch.nn.Linear) else x @ projection
    return torch.nn.functional.normalize(x, dim=-1)


def test_the_tuner_starts_at_the_plain_prompt(encoder):
    tuner = make_prompt_tuner(encoder, NAMES)
    assert tuner.classnames == tuple(NAMES) and tuner.scale == encoder.scale
    assert tuner.context_init.shape == (4, tiny_open_clip.WIDTH) and not tuner.context_init.requires_grad
    with torch.no_grad():
        rows = tuner.class_texts(tuner.context_init).numpy()
    assert np.allclose(rows, encoder.texts(PROMPTS), atol=1e-6)
    words = encoder.plain_tokens("a photo of a")
    assert torch.equal(tuner.context_init, encoder.token_embedding.weight[words])


def test_another_context_takes_the_place_of_its_tokens_and_of_nothing_else(encoder, spec):
    """Against the text encoder written out: positions, causal mask, layers, norm, end token, projection."""
    tuner = make_prompt_tuner(encoder, NAMES)
    context = tuner.context_init + torch.linspace(-1, 1, 4 * tiny_open_clip.WIDTH).reshape(4, -1)
    ids = encoder.tokens(PROMPTS)
    assert torch.equal(ids[0, tuner.start : tuner.stop], torch.tensor(encoder.plain_tokens("a photo of a")))
    vectors = encoder.token_embedding.weight[ids].clone()
    vectors[:, tuner.start : tuner.stop] = context
    with torch.no_grad():
        rows, expected = tuner.class_texts(context), by_hand(encoder.model, vectors, ids)
    assert torch.allclose(rows, expected, atol=1e-6)
    assert not np.allclose(rows.numpy(), encoder.texts(PROMPTS), atol=1e-3)
    assert np.array_equal(encoder.texts(PROMPTS), load_encoder(spec).texts(PROMPTS))  # the model is as it was


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
    with pytest.raises(ValueError, match=f"tokens, want at most {encoder.context}"):
        make_prompt_tuner(encoder, ["dog", "giraffe " * 80])


def test_a_text_model_without_token_embeddings_is_refused(folders):
    encoder = load_encoder(f"openclip:local-dir:{folders['clip']}")
    table = encoder.model.token_embedding
    del encoder.model.token_embedding
    with pytest.raises(ValueError, match="prompt tuning: got the encoder openclip:clip"):
        make_prompt_tuner(encoder, NAMES)
    encoder.model.text = torch.nn.Module()  # a tower of transformers, as open_clip wraps it
    encoder.model.text.transformer = torch.nn.Module()
    encoder.model.text.transformer.get_input_embeddings = lambda: table
    assert encoder.token_embedding is table


# --- the command --------------------------------------------------------------------------------------------


@pytest.fixture
def benchmark(folders, tmp_path):
    """Two clients, eight views of every image."""
    encoder = load_encoder(f"openclip:local-dir:{folders['clip']}")
    classifier = zero_shot(encoder, NAMES, ["a photo of a {}."])
    rng = np.random.default_rng(0)
    labels = np.arange(12) % 3
    views = rng.normal(size=(12, 8, encoder.dim)) + 2 * classifier.text[labels][:, None]
    views = (views / np.linalg.norm(views, axis=-1, keepdims=True)).astype(np.float32)
    classifier = ZeroShot(classifier.text, tuple(NAMES), encoder.scale)
    save_embeddings(
        tmp_path / "seen.safetensors",
        Embeddings("seen", classifier, views, labels, labels * 0, ("here",), {"encoder": encoder.name}, np.arange(12)),
    )
    return tmp_path / "seen.safetensors"


def run(benchmark, folder, *arguments):
    return latte(
        "run", "--benchmark", benchmark, "--seeds", "0", "--set", "clients_per_domain=2", "--jobs", "serial",
        "--runs", folder / "runs", *arguments,
    )  # fmt: skip


def test_run_tunes_the_prompts_of_an_open_clip_model(benchmark, folders, tmp_path):
    text_encoder = f"text_encoder=openclip:local-dir:{folders['clip']}"
    answer = run(benchmark, tmp_path, "--methods", "clip,tpt+lr=0.1", "--set", text_encoder, "--json")
    assert answer.returncode == 0, answer.stderr
    assert [row["method"] for row in json.loads(answer.stdout)] == ["clip", "tpt+lr=0.1"]


@pytest.mark.parametrize(
    ("encoder", "message", "code"),
    [
        ("opnclip:RN50/openai", "did you mean openclip:RN50/openai?", 2),
        ("openclip:RN51/openai", "Model config for 'RN51' not found", 1),
    ],
)
def test_a_text_encoder_that_is_not_there_is_named(benchmark, tmp_path, encoder, message, code):
    answer = run(benchmark, tmp_path, "--methods", "tpt", "--set", f"text_encoder={encoder}")
    assert answer.returncode == code and message in answer.stderr and "Traceback" not in answer.stderr


def test_a_run_without_one_names_the_encoders_that_can(benchmark, tmp_path):
    answer = run(benchmark, tmp_path, "--methods", "tpt")
    assert answer.returncode == 2 and "openclip:MODEL/WEIGHTS" in answer.stderr
