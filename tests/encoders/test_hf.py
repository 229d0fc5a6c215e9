"""The transformers backend on real models of random weights; LATTE_HF_CHECKPOINT adds a real one."""

import json
import os
import shutil
import sys

import numpy as np
import pytest

from latte.encoders import Encoder, load_encoder, make_prompt_tuner, zero_shot
from latte.methods.tpt import Tpt, TptParams
from tiny_models import make_photo
from waiting import run

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
NAMES = ["dog", "polar_bear", "giraffe"]
PROMPTS = ["a photo of a dog.", "a photo of a polar bear.", "a photo of a giraffe."]


def test_is_an_encoder(hf):
    assert isinstance(hf, Encoder)
    assert hf.scale == pytest.approx(float(hf.model.logit_scale.exp()))


def test_images_are_the_models_own(hf, hf_folder):
    """Against the model's plain forward pass on transformers' own preprocessing."""
    pictures = [make_photo(70, 50), make_photo(41, 99)]
    name = {"clip": "CLIPImageProcessor", "siglip": "SiglipImageProcessor"}[hf.family]
    kind = getattr(transformers, f"{name}Pil", None) or getattr(transformers, name)
    pixels = kind.from_pretrained(hf_folder)(pictures, return_tensors="pt")["pixel_values"]
    ids = hf.tokens(PROMPTS)
    with torch.no_grad():
        output = hf.model(input_ids=ids, pixel_values=pixels)
    assert np.allclose(hf.images(pictures), output.image_embeds.numpy(), atol=2e-5)
    assert np.allclose(hf.texts(PROMPTS), output.text_embeds.numpy(), atol=2e-5)


def test_rows_do_not_depend_on_the_batch(hf):
    texts = [*PROMPTS, "art of the large horse in a video game."]
    assert np.allclose(hf.texts(texts, batch_size=1), hf.texts(texts), atol=1e-5)
    pictures = [make_photo(40 + number, 50) for number in range(5)]
    assert np.allclose(hf.images(pictures, batch_size=2), hf.images(pictures), atol=1e-5)
    assert np.allclose(np.linalg.norm(hf.images(pictures), axis=1), 1, atol=1e-6)


def test_a_text_that_does_not_fit_is_refused(hf):
    with pytest.raises(ValueError, match=r"giraffe .* tokens, want at most"):
        hf.texts(["giraffe " * 100])
    with pytest.raises(ValueError, match="giraffe"):
        zero_shot(hf, ["dog", "giraffe " * 100])


def test_fingerprint_is_of_the_contents_only(hf, hf_folder, tmp_path):
    moved = shutil.copytree(hf_folder, tmp_path / hf_folder.name)
    assert load_encoder(f"local:{moved}").fingerprint == hf.fingerprint
    other = load_encoder(f"hf:{moved}")
    with torch.no_grad():
        next(other.model.parameters()).flatten()[0] += 1
    assert other.fingerprint != hf.fingerprint


def test_the_tuner_starts_at_the_plain_prompt(hf):
    tuner = make_prompt_tuner(hf, NAMES)
    assert tuner.classnames == tuple(NAMES) and tuner.scale == hf.scale
    assert tuner.context_init.shape[0] == 4 and not tuner.context_init.requires_grad
    with torch.no_grad():
        rows = tuner.class_texts(tuner.context_init).cpu().numpy()
    assert np.allclose(rows, hf.texts(PROMPTS), atol=1e-5)
    table = tuner.embedding.weight
    words = hf.tokenizer("a photo of a", add_special_tokens=False)["input_ids"]
    assert torch.equal(tuner.context_init, table[words])


def test_the_tuners_gradient_is_the_slope(hf):
    """Against finite differences, in float64 so that they mean something."""
    encoder = hf.model.double()
    try:
        tuner = make_prompt_tuner(hf, NAMES)
        context = tuner.context_init.clone().requires_grad_(True)
        weights = torch.linspace(-1, 1, 3 * hf.dim, dtype=torch.float64).reshape(3, hf.dim)

        def value(vectors):
            return (tuner.class_texts(vectors) * weights).sum()

        value(context).backward()
        rng = np.random.default_rng(0)
        for _ in range(4):
            direction = torch.from_numpy(rng.normal(size=tuple(context.shape)))
            step = 1e-5
            with torch.no_grad():
                slope = (value(context + step * direction) - value(context - step * direction)) / (2 * step)
            assert float(slope) == pytest.approx(float((context.grad * direction).sum()), rel=1e-4, abs=1e-7)
        assert all(parameter.grad is None for parameter in encoder.parameters())
    finally:
        hf.model.float()


def test_tuning_lowers_the_entropy_of_a_view(hf):
    """One picture, ten steps of the kind TPT takes: the loss goes down and nothing else changes."""
    tuner = make_prompt_tuner(hf, NAMES)
    before = hf.texts(PROMPTS)
    image = torch.from_numpy(hf.images([make_photo(60, 60)]))
    context = tuner.context_init.clone().requires_grad_(True)
    optimiser = torch.optim.AdamW([context], lr=5e-3)
    losses = []
    for _ in range(10):
        log = (tuner.scale * image @ tuner.class_texts(context).T).log_softmax(-1)
        loss = -(log.exp() * log).sum()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert np.array_equal(hf.texts(PROMPTS), before)  # the model is as it was


def test_the_tuner_refuses_what_it_cannot_do(hf):
    tuner = make_prompt_tuner(hf, NAMES)
    with pytest.raises(ValueError, match="context"):
        tuner.class_texts(tuner.context_init[:2])
    with pytest.raises(ValueError, match="twice"):
        make_prompt_tuner(hf, ["dog", "dog"])
    with pytest.raises(ValueError, match="giraffe"):
        make_prompt_tuner(hf, ["dog", "giraffe " * 100])


def test_another_context(hf):
    tuner = make_prompt_tuner(hf, NAMES, context="art of the")
    want = hf.texts([f"art of the {name}." for name in ("dog", "polar bear", "giraffe")])
    assert np.allclose(tuner.class_texts(tuner.context_init).cpu().numpy(), want, atol=1e-5)
    with pytest.raises(ValueError, match="keeps apart"):
        make_prompt_tuner(hf, NAMES, context="")


def test_tpt_learns_through_it(hf):
    classifier = zero_shot(hf, NAMES, ["a photo of a {}."])
    views = hf.images([make_photo(60 + side, 60) for side in range(8)])
    still, moved = (
        Tpt(classifier, TptParams(lr=0.1, share=0.5, steps=steps), text_encoder=make_prompt_tuner(hf, NAMES))
        for steps in (0, 1)
    )
    assert np.allclose(still.predict(views).scores, classifier.logits(views[0]), atol=1e-3)
    assert not np.allclose(moved.predict(views).scores, still.predict(views).scores, atol=1e-3)


def test_an_onnx_encoder_has_no_prompt_tuner(tiny):
    with pytest.raises(ValueError, match=r"the encoder tiny.*, want an encoder hf:ID, hf:DIR or openclip:MODEL"):
        make_prompt_tuner(tiny, NAMES)
    with pytest.raises(ValueError, match="text_encoder: got 'onnx:DIR', want hf:ID, hf:DIR or openclip:MODEL"):
        make_prompt_tuner("onnx:DIR", NAMES)


def test_nothing_heavy_at_import():
    code = "import sys, latte.encoders.tuning; print({'torch', 'transformers', 'onnxruntime'} & set(sys.modules))"
    assert run(sys.executable, "-c", code, check=True).stdout == "set()\n"


@pytest.mark.parametrize("file", ["model.safetensors", "vocab.json", "preprocessor_config.json", "config.json"])
@pytest.mark.parametrize("damage", ["missing", "damaged"])
def test_a_folder_with_a_bad_file_is_refused_with_one_line(hf_folder, tmp_path, file, damage):
    if str(hf_folder) == os.environ.get("LATTE_HF_CHECKPOINT"):
        pytest.skip("a real checkpoint may hold the same thing in two files")
    broken = shutil.copytree(hf_folder, tmp_path / "broken")
    (broken / file).unlink() if damage == "missing" else (broken / file).write_bytes(b'{"half')
    with pytest.raises(ValueError, match="want") as error:
        load_encoder(f"hf:{broken}")
    assert "\n" not in str(error.value)


def test_other_models_are_refused(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "bert"}))
    with pytest.raises(ValueError, match=r"bert.*one of clip, siglip"):
        load_encoder(f"hf:{tmp_path}")
