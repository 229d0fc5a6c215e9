"""Names of encoders: what is found, what is near, what is missing."""

import sys

import pytest

import tiny_onnx
from latte.encoders import load_encoder, split_spec
from latte.errors import need
from waiting import run


@pytest.mark.parametrize(
    "spec, near",
    [
        ("onx:model", "onnx:"),
        ("open_clip:ViT-B-16/openai", "openclip:"),
        ("hugging", "local:"),
        ("", "onnx:"),
        (":x", "hf:"),
    ],
)
def test_an_unknown_kind_names_the_near_ones(spec, near):
    with pytest.raises(ValueError, match=near):
        load_encoder(spec)


@pytest.mark.parametrize("kind", ["onnx", "hf", "openclip", "local"])
def test_a_kind_without_a_model_is_refused(kind):
    with pytest.raises(ValueError, match=f"{kind}: followed by"):
        load_encoder(f"{kind}:")


def test_a_folder_without_its_kind_is_recognised(tmp_path):
    with pytest.raises(ValueError, match="did you mean onnx:"):
        load_encoder(str(tiny_onnx.FOLDER))
    with pytest.raises(ValueError, match="did you mean local:"):
        load_encoder(str(tmp_path))


def test_a_missing_folder_names_the_near_ones():
    with pytest.raises(ValueError, match="near it: tiny-onnx"):
        load_encoder(f"onnx:{tiny_onnx.FOLDER.with_name('tiny-onx')}")


def test_local_recognises_the_kind(tmp_path):
    assert split_spec(f"local:{tiny_onnx.FOLDER}") == ("onnx", str(tiny_onnx.FOLDER))
    (tmp_path / "config.json").write_text("{}")
    assert split_spec(f"local:{tmp_path}") == ("hf", str(tmp_path))
    (tmp_path / "open_clip_config.json").write_text("{}")
    assert split_spec(f"local:{tmp_path}") == ("openclip", f"local-dir:{tmp_path}")


def test_local_refuses_a_folder_that_is_no_model(tmp_path):
    with pytest.raises(ValueError, match=r"model\.json \(ONNX\)"):
        load_encoder(f"local:{tmp_path}")


def test_a_name_inside_the_models_folder(monkeypatch):
    pytest.importorskip("onnxruntime")
    monkeypatch.setenv("LATTE_MODELS", str(tiny_onnx.FOLDER.parent))
    assert load_encoder("onnx:tiny-onnx").name == "tiny"


def test_threads(tiny):
    with pytest.raises(ValueError, match="threads"):
        load_encoder(f"onnx:{tiny_onnx.FOLDER}", threads=-1)


def test_a_missing_package_names_its_pip_line():
    with pytest.raises(ModuleNotFoundError, match=r'pip install "onnxruntime>=.*\(the extra onnx\)'):
        need("no_such_package", "onnx")


@pytest.mark.parametrize("blocked, spec, extra", [("onnxruntime", "onnx", "onnx"), ("torch", "hf", "torch")])
def test_a_backend_without_its_package_names_its_pip_line(blocked, spec, extra):
    pytest.importorskip("transformers" if spec == "hf" else "onnxruntime")
    code = f"""
import sys
sys.modules[{blocked!r}] = None
from latte.encoders import load_encoder
try:
    load_encoder({f"{spec}:{tiny_onnx.FOLDER}"!r})
except ModuleNotFoundError as error:
    print(error)
"""
    done = run(sys.executable, "-c", code, check=True)
    assert f'"{blocked}>=' in done.stdout and f"(the extra {extra}" in done.stdout


def test_importing_the_encoders_imports_nothing_heavy():
    heavy = ["torch", "transformers", "onnxruntime", "tokenizers", "PIL", "onnx", "open_clip"]
    code = f"import sys, latte.encoders, latte.encoders.views; print([name for name in {heavy} if name in sys.modules])"
    done = run(sys.executable, "-c", code, check=True)
    assert done.stdout.strip() == "[]"
