"""Export to ONNX folders: the same embeddings without torch, and the measured agreement of the smaller variants."""

import json
from pathlib import Path

import numpy as np
import pytest

from latte.encoders import load_encoder
from tiny_models import make_photo

pytest.importorskip("torch")
pytest.importorskip("onnx")
pytest.importorskip("onnxscript")
pytest.importorskip("onnxruntime")
TEXTS = ["a photo of a dog.", "a polar bear in a video game.", "art"]


@pytest.fixture(scope="module")
def exported(hf, tmp_path_factory):
    from latte.encoders.export import export_onnx

    out = tmp_path_factory.mktemp("export") / "out"
    variants = ("fp32",) if hf.family == "siglip" else ("fp32", "fp16", "int8")
    return out, export_onnx(hf, out, variants)


def test_the_folder_gives_the_originals_embeddings(hf, exported):
    copy = load_encoder(f"local:{exported[0]}")
    pictures = [make_photo(50 + 7 * number, 90 - 9 * number) for number in range(7)]
    assert np.abs(copy.images(pictures, batch_size=3) - hf.images(pictures)).max() < 1e-4
    assert np.abs(copy.texts(TEXTS) - hf.texts(TEXTS)).max() < 1e-4
    assert (copy.dim, copy.scale, copy.preprocess) == (hf.dim, hf.scale, hf.preprocess)


def test_a_text_that_does_not_fit_is_refused_there_too(hf, exported):
    copy = load_encoder(f"onnx:{exported[0]}")
    with pytest.raises(ValueError, match=f"at most {hf.context} tokens"):
        copy.texts(["giraffe " * 100])


def test_the_agreement_is_measured_returned_and_written(hf, exported):
    out, agreements = exported
    assert agreements[0].variant == "fp32" and agreements[0].largest < 1e-4 and agreements[0].image_min > 0.99999
    written = json.loads((out / "model.json").read_text())["agreement"]
    assert written["with"] == hf.name and len(written["variants"]) == len(agreements)
    for row, one in zip(written["variants"], agreements, strict=True):
        assert row["image_min"] == one.image_min and row["bytes"] == one.bytes


@pytest.mark.slow
def test_the_command_prints_digits_that_say_something(hf, hf_folder, tmp_path):
    from waiting import latte

    done = latte("export", f"hf:{hf_folder}", tmp_path / "out", check=True)
    header, row = (line.split() for line in done.stdout.splitlines())
    facts = dict(zip(header, row, strict=True))
    assert 1e-9 < float(facts["largest"]) < 1e-4 and float(facts["image_min"]) > 0.999999
    assert len(facts["image_min"]) == 9


def test_the_smaller_variants(hf, exported):
    out, agreements = exported
    if len(agreements) == 1:
        pytest.skip("only float32 was asked for")
    sizes = [one.bytes for one in agreements]
    assert sizes == sorted(sizes, reverse=True)
    least = {"fp16": 0.9999, "int8": 0.97}
    pictures = [make_photo(64, 48 + number) for number in range(4)]
    for one in agreements[1:]:
        copy = load_encoder(f"onnx:{out / one.variant}")
        for mine, original in (
            (copy.images(pictures), hf.images(pictures)),
            (copy.texts(TEXTS), hf.texts(TEXTS)),
        ):
            assert (mine * original).sum(axis=1).min() > least[one.variant]
        assert min(one.image_min, one.text_min) > least[one.variant]
        assert one.largest > agreements[0].largest  # it is another model, not a copy of the first


def test_the_files_know_nothing_of_this_machine(exported):
    home = str(Path(__file__).parent.parent).encode()
    for path in exported[0].rglob("*.onnx"):
        assert b"site-packages" not in path.read_bytes() and home not in path.read_bytes()


def test_what_cannot_be_exported_is_refused(tmp_path, folder, hf):
    from latte.encoders.export import export_onnx

    with pytest.raises(ValueError, match="a model in torch"):
        export_onnx(f"onnx:{folder}", tmp_path / "a")
    with pytest.raises(ValueError, match="not empty"):
        export_onnx(hf, folder)
    with pytest.raises(ValueError, match="'int4'"):
        export_onnx(hf, tmp_path / "b", ("int4",))
