"""Text models of ONNX folders in torch: values against ONNX Runtime, gradients, prompt tuning, refusals."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import tiny_onnx
from latte import ZeroShot
from latte.encoders import load_encoder, zero_shot
from latte.encoders.onnx_torch import OnnxPromptTuner, onnx_prompt_tuner, read_graph
from latte.encoders.tuning import make_prompt_tuner
from latte.methods.tpt import Tpt, TptParams
from waiting import run

NAMES = ("dog", "polar bear", "cat", "house")
PROMPTS = [f"a photo of a {name}." for name in NAMES]


@pytest.fixture(scope="module")
def torch():
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads that wait for each other are slow on a busy machine
    yield torch
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def exported(torch, hf, tmp_path_factory):
    """The tiny transformers model as an ONNX folder, with its smaller variants."""
    pytest.importorskip("onnxscript")
    from latte.encoders.export import export_onnx

    folder = tmp_path_factory.mktemp("exported") / "model"
    export_onnx(hf, folder)
    return folder


def by_torch(torch, encoder, texts):
    """The text model as it is, all inputs given at once."""
    ids, mask = (torch.tensor(array) for array in encoder.tokens(texts))
    known = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
    graph = read_graph(encoder.folder / encoder.model.text_file, encoder.model.text_output)
    return graph.run({name: known[name] for name in encoder.model.text_inputs}).numpy()


def test_the_real_text_model(torch, mini):
    texts = ["dog", "a photo of a dog.", "art of the electric guitar, in the style of nobody in particular", "!"]
    np.testing.assert_allclose(by_torch(torch, mini, texts), mini.texts(texts), atol=1e-5)


def test_exported_models(torch, exported):
    for folder in (exported, exported / "fp16"):
        encoder = load_encoder(f"onnx:{folder}", threads=1)
        np.testing.assert_allclose(by_torch(torch, encoder, PROMPTS), encoder.texts(PROMPTS), atol=1e-5)


def check_first_context(torch, encoder):
    tuner = OnnxPromptTuner(encoder, NAMES)
    texts = tuner.class_texts(tuner.context_init)
    np.testing.assert_allclose(texts.numpy(), encoder.texts(PROMPTS), atol=1e-5)
    np.testing.assert_allclose(texts.norm(dim=1).numpy(), 1, atol=1e-5)
    moved = tuner.class_texts(tuner.context_init * 0.5)
    assert (moved - texts).abs().max() > 1e-3
    assert tuner.context_init.dtype == texts.dtype == torch.float32
    assert (tuner.scale, tuner.classnames) == (encoder.scale, NAMES)


def test_the_first_context_gives_the_encoders_own_texts(torch, tiny):
    check_first_context(torch, tiny)


def test_the_first_context_gives_the_real_encoders_own_texts(torch, mini):
    check_first_context(torch, mini)


def test_the_context_is_four_real_tokens(torch, mini):
    tuner = make_prompt_tuner(mini, ["dog", "polar_bear"])
    onnx = pytest.importorskip("onnx")
    tensors = {t.name: t for t in onnx.load(str(mini.folder / "text.onnx")).graph.initializer}
    table = onnx.numpy_helper.to_array(tensors["embeddings.word_embeddings.weight_h"]).astype(np.float32)
    ids = [mini._tokenizer.token_to_id(word) for word in ("a", "photo", "of", "a")]
    np.testing.assert_array_equal(tuner.context_init.numpy(), table[ids])
    assert tuner.start == 1  # after [CLS]


def test_exported_model_equals_its_original_in_values_and_gradients(torch, hf, exported):
    original, copy = hf.prompt_tuner(NAMES), make_prompt_tuner(f"onnx:{exported}", NAMES)
    check_first_context(torch, load_encoder(f"onnx:{exported}"))
    np.testing.assert_array_equal(copy.context_init.numpy(), original.context_init.numpy())
    generator = torch.Generator().manual_seed(2)
    start = copy.context_init + 0.01 * torch.randn(copy.context_init.shape, generator=generator)
    weights = torch.randn((len(NAMES), hf.dim), generator=generator)
    value, gradient = value_and_gradient(torch, copy, start, weights)
    want_value, want_gradient = value_and_gradient(torch, original, start, weights)
    assert value == pytest.approx(want_value, abs=1e-5)
    np.testing.assert_allclose(gradient, want_gradient, rtol=1e-3, atol=1e-4 * np.abs(want_gradient).max())


def value_and_gradient(torch, tuner, start, weights):
    context = start.clone().requires_grad_(True)
    value = (tuner.class_texts(context) * weights).sum()
    return value.item(), torch.autograd.grad(value, context)[0].numpy()


def test_gradients_equal_finite_differences(torch, tiny):
    tuner = OnnxPromptTuner(tiny, NAMES, dtype=torch.float64)
    context = tuner.context_init.clone().requires_grad_(True)
    assert torch.autograd.gradcheck(tuner.class_texts, (context,))


def test_gradients_of_an_exported_model_equal_finite_differences(torch, exported):
    tuner = OnnxPromptTuner(load_encoder(f"onnx:{exported}"), NAMES[:2], dtype=torch.float64)
    context = tuner.context_init.clone().requires_grad_(True)
    assert torch.autograd.gradcheck(tuner.class_texts, (context,), eps=1e-6, atol=1e-5, fast_mode=True)


def test_gradients_of_the_real_model_equal_finite_differences(torch, mini):
    """Central differences in float64, along directions and along single numbers of the context."""
    tuner = OnnxPromptTuner(mini, NAMES, dtype=torch.float64)
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn((len(NAMES), mini.dim), generator=generator, dtype=torch.float64)
    _, gradient = value_and_gradient(torch, tuner, tuner.context_init, weights)
    directions = [torch.randn(gradient.shape, generator=generator, dtype=torch.float64) for _ in range(3)]
    directions += [torch.eye(gradient.size, dtype=torch.float64)[i].reshape(gradient.shape) for i in (0, 700, 1535)]
    for direction in directions:
        up, down = (
            (tuner.class_texts(tuner.context_init + step * direction) * weights).sum().item() for step in (1e-6, -1e-6)
        )
        assert (up - down) / 2e-6 == pytest.approx((gradient * direction.numpy()).sum(), rel=1e-4, abs=1e-6)


def test_tuning_works_whatever_the_caller_switched_off(torch, tiny):
    with torch.inference_mode():
        tuner = OnnxPromptTuner(tiny, NAMES)
        classifier = zero_shot(tiny, NAMES)
    views = tiny.texts(["a dog", "the dog", "a large dog", "a bad cat"])
    want = Tpt(classifier, TptParams(lr=0.1, share=0.5), text_encoder=OnnxPromptTuner(tiny, NAMES)).predict(views)
    method = Tpt(classifier, TptParams(lr=0.1, share=0.5), text_encoder=tuner)
    np.testing.assert_array_equal(method.predict(views).scores, want.scores)


def test_tpt_on_real_views(torch, mini, shared):
    with np.load(shared / "data" / "embeddings" / "views_pacs.npz") as file:
        views, names = file["views"][:20].astype(np.float32), tuple(map(str, file["classes"]))
    classifier = ZeroShot(mini.texts([f"a photo of a {name}." for name in names]), names, mini.scale)
    method, still = (
        Tpt(classifier, TptParams(steps=steps), text_encoder=make_prompt_tuner(mini, names)) for steps in (1, 0)
    )
    first = [method.predict(view) for view in views]
    again = Tpt(classifier, text_encoder=onnx_prompt_tuner(mini.folder, names))
    for view, tuned in list(zip(views, first, strict=True))[::-1]:  # no memory: the order does not matter
        np.testing.assert_array_equal(again.predict(view).scores, tuned.scores)
        untuned = still.predict(view).scores
        np.testing.assert_allclose(untuned, classifier.logits(view[0] / np.linalg.norm(view[0])), atol=1e-3)
        assert np.abs(untuned - tuned.scores).max() > 1e-2


# refusals


def write(path, nodes, inputs=("input_ids",), opset=17, domains=()):
    from onnx import TensorProto, helper, numpy_helper, save

    known = [helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "l"]) for name in inputs]
    output = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    tables = [numpy_helper.from_array(np.ones((30, 4), np.float32), name) for name in ("table", "other")]
    operators = [helper.make_node(op, *names, domain=domain) for op, domain, *names in nodes]
    graph = helper.make_graph(operators, "g", known, output, tables)
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    return path


LOOKUP = ("Gather", "", ["table", "input_ids"], ["x"])


@pytest.mark.parametrize(
    ("node", "message"),
    [
        (("Softplus", "", ["x"], ["y"]), "the operator Softplus"),
        (("Gelu", "com.microsoft", ["x"], ["y"]), r"the operator com\.microsoft\.Gelu"),
        (("Add", "com.microsoft", ["x", "x"], ["y"]), r"the operator com\.microsoft\.Add"),
        (("LayerNormalization", "", ["x", "table"], ["y", "mean"]), "LayerNormalization with 2 outputs"),
    ],
)
def test_what_it_cannot_run_is_named(torch, tmp_path, node, message):
    path = write(tmp_path / "odd.onnx", [LOOKUP, node], domains=("com.microsoft",))
    with pytest.raises(ValueError, match=message):
        read_graph(path, "y")


def test_files_that_do_not_fit(torch, tmp_path):
    lookup = [LOOKUP, ("Identity", "", ["x"], ["y"])]
    with pytest.raises(ValueError, match="opset 12, want opset 13"):
        read_graph(write(tmp_path / "old.onnx", lookup, opset=12), "y")
    path = write(tmp_path / "good.onnx", lookup)
    with pytest.raises(ValueError, match="no output 'z'"):
        read_graph(path, "z")
    with pytest.raises(ValueError, match="input_ids"):
        read_graph(path, "y").run({})
    (tmp_path / "bad.onnx").write_bytes(b"\x08not a model")
    with pytest.raises(ValueError, match="cannot be read"):
        read_graph(tmp_path / "bad.onnx", "y")
    with pytest.raises(ValueError, match="cannot be read"):
        read_graph(tmp_path / "none.onnx", "y")


def test_the_token_embeddings_must_be_unmistakable(torch, tmp_path):
    from latte.encoders.onnx_torch.tuner import token_vectors

    def named(*nodes):
        return token_vectors(read_graph(write(tmp_path / "g.onnx", nodes, ("input_ids", "token_type_ids")), "y"))

    first = ("Gather", "", ["table", "input_ids"], ["a"])
    kinds = ("Gather", "", ["other", "token_type_ids"], ["b"])
    again = ("Gather", "", ["other", "input_ids"], ["b"])
    both = ("Add", "", ["a", "b"], ["y"])
    assert named(first, kinds, both) == "a"
    with pytest.raises(ValueError, match="2 places"):
        named(first, again, both)
    with pytest.raises(ValueError, match="0 places"):
        named(kinds, ("Identity", "", ["b"], ["y"]))


def test_int8_has_no_gradients(torch, exported):
    with pytest.raises(ValueError, match=r"operator \w+, which has no gradient here.*float32 or fp16"):
        onnx_prompt_tuner(exported / "int8", NAMES)


def test_contexts_that_do_not_fit(torch, tiny):
    tuner = OnnxPromptTuner(tiny, NAMES)
    with pytest.raises(ValueError, match=r"context: got shape \(3, 8\), want shape \(4, 8\)"):
        tuner.class_texts(tuner.context_init[:3])
    with pytest.raises(ValueError, match="keeps apart"):
        OnnxPromptTuner(tiny, NAMES, context="")
    with pytest.raises(ValueError, match="twice"):
        OnnxPromptTuner(tiny, ["dog", "dog"])


def test_another_context(torch, tiny):
    tuner = make_prompt_tuner(f"onnx:{tiny_onnx.FOLDER}", NAMES, context="art of the")
    want = tiny.texts([f"art of the {name}." for name in NAMES])
    np.testing.assert_allclose(tuner.class_texts(tuner.context_init).numpy(), want, atol=1e-5)


def test_encoders_without_a_prompt_tuner_are_refused(tiny):
    class Plain:
        name = "plain"

    with pytest.raises(ValueError, match="the encoder plain, want an encoder onnx:DIR, hf:ID or openclip:MODEL"):
        make_prompt_tuner(Plain(), NAMES)


def test_nothing_heavy_at_import():
    code = "import sys, latte.encoders.tuning; print({'torch', 'onnx', 'onnxruntime'} & set(sys.modules))"
    done = run(sys.executable, "-c", code, check=True)
    assert done.stdout == "set()\n"
