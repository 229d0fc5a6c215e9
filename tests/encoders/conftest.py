"""Fixtures of the encoder tests: the small ONNX folder that is committed, and the shared real one."""

import os
import shutil
import tarfile
from pathlib import Path

import pytest

import tiny_models
import tiny_onnx


@pytest.fixture
def folder(tmp_path) -> Path:
    """A copy of the small ONNX folder, to be damaged at will."""
    return Path(shutil.copytree(tiny_onnx.FOLDER, tmp_path / "model"))


@pytest.fixture(scope="session")
def tiny():
    pytest.importorskip("onnxruntime")
    from latte.encoders import load_encoder

    return load_encoder(f"onnx:{tiny_onnx.FOLDER}", threads=1)


@pytest.fixture(scope="session")
def mini(shared):
    """The small real vision-language model."""
    pytest.importorskip("onnxruntime")
    from latte.encoders import load_encoder

    return load_encoder(f"onnx:{shared / 'data' / 'mini-vlm'}", threads=1)  # more wait for each other when it is busy


@pytest.fixture(scope="session")
def pictures(shared, tmp_path_factory) -> Path:
    """Real JPEG files: PACS and a mini VLCS."""
    target = tmp_path_factory.mktemp("pictures")
    for archive in ("pacs_60pc.tar", "vlcs_mini_LSC.tar"):
        with tarfile.open(shared / "data" / "images" / archive) as tar:
            tar.extractall(target, filter="data")
    return target


@pytest.fixture
def photo():
    """A smooth colourful RGB picture, 100 wide and 75 high."""
    return tiny_models.make_photo(100, 75)


FAMILIES = ["clip", "siglip"]
CHECKPOINT = os.environ.get("LATTE_HF_CHECKPOINT")  # a folder with a real CLIP or SigLIP


@pytest.fixture(scope="session", params=[*FAMILIES, *(["checkpoint"] if CHECKPOINT else [])])
def hf_folder(request, tmp_path_factory) -> Path:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    if request.param == "checkpoint":
        return Path(CHECKPOINT)
    save = {"clip": tiny_models.save_clip, "siglip": tiny_models.save_siglip}[request.param]
    return save(tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="session")
def hf(hf_folder):
    from latte.encoders import load_encoder

    return load_encoder(f"hf:{hf_folder}")
