"""``latte reproduce`` on small files that are named and labelled as the real ones, and without them."""

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from latte.cli.reproduce import reproduce
from latte.core.zero_shot import ZeroShot
from latte.data.benchmark import Embeddings
from latte.data.embeddings import save
from latte.report.reproduce import plans, sources

CLASSES = ("bird", "car", "chair", "dog", "person")
DOMAINS = ("Caltech101", "LabelMe", "SUN09", "VOC2007")


def embeddings(views=1, encoder="openclip:ViT-B-16/openai", text_seed=0):
    """Random clusters: 4 domains of 50 images in 5 classes; the first view is the same whatever ``views`` is."""
    text = np.random.default_rng(text_seed).normal(size=(5, 16))
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    labels, domain = np.tile(np.arange(5), 40), np.repeat(np.arange(4), 50)
    noise = np.random.default_rng(1).normal(size=(64, 200, 16)).transpose(1, 0, 2)[:, :views]
    rows = text[labels][:, None] + 0.35 * noise
    rows /= np.linalg.norm(rows, axis=2, keepdims=True)
    metadata = {"encoder": encoder} if encoder else {}
    zero_shot = ZeroShot(text, CLASSES, 100.0)
    return Embeddings("vlcs", zero_shot, rows.astype(np.float32), labels, domain, DOMAINS, metadata)


def invoke(data, *more):
    arguments = ["vlcs", "--data", data, "--runs", data / "runs", "--seeds", "0-1", *more]
    return CliRunner().invoke(reproduce, list(map(str, arguments)))


def test_a_missing_file_is_named_with_the_command_that_makes_it(tmp_path):
    shown = invoke(tmp_path)
    assert isinstance(shown.exception, ValueError)
    message = str(shown.exception)
    assert str(tmp_path / "vlcs-vit-b-16.safetensors") in message
    assert "latte embed vlcs:IMAGES --encoder openclip:ViT-B-16/openai --out " in message
    assert "\n" not in message
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(ValueError, match="is not there"):
        plans(sources("vlcs", "RN50", tmp_path), [0])


def test_the_whole_table(tmp_path):
    save(tmp_path / "vlcs-vit-b-16.safetensors", embeddings())
    save(tmp_path / "vlcs-vit-b-16-views64.safetensors", embeddings(64))
    shown = invoke(tmp_path, "--format", "json")
    assert shown.exit_code == 0, shown.output
    (table,) = json.loads(shown.stdout)
    rows = {row["label"]: row for row in table["rows"]}
    assert list(rows) == [
        "CLIP", "VTE", "Zero", "TDA (local)", "TDA (global)", "DMN-ZS (local)", "DMN-ZS (global)", "Latte",
        "Latte [variant=released]",
    ]  # fmt: skip
    assert rows["Latte"]["cells"]["paper"]["mean"] == 82.57
    assert rows["TDA (global)"]["cells"]["domain:SUN09"]["paper"] == 76.95
    assert {rows[name]["setting"] for name in ("Latte", "Latte [variant=released]", "Zero")} == {"preset"}
    assert all(row["seeds"] == [0, 1] for row in rows.values())
    assert (table["benchmark"], table["backbone"]) == ("vlcs", "ViT-B/16")
    assert "The paper has 10,729 samples; these results have 200." in table["notes"]
    assert "left out: TPT" in shown.stderr

    again = invoke(tmp_path, "--format", "json")
    assert again.stdout == shown.stdout


def test_without_the_views_the_other_rows_are_shown(tmp_path):
    save(tmp_path / "vlcs-vit-b-16.safetensors", embeddings())
    shown = invoke(tmp_path)
    assert shown.exit_code == 0, shown.output
    assert "vlcs-vit-b-16-views64.safetensors is not there (for VTE, TPT, Zero)" in shown.stderr
    assert "--views 63" in shown.stderr
    assert "Latte − TDA (local)" in shown.stdout


@pytest.mark.parametrize("encoder", ["mini-VLM", "openclip:RN50/openai"])
def test_another_encoder_is_refused_before_anything_runs(tmp_path, encoder):
    save(tmp_path / "vlcs-vit-b-16.safetensors", embeddings(encoder=encoder))
    shown = invoke(tmp_path)
    assert isinstance(shown.exception, ValueError)
    assert encoder in str(shown.exception)
    assert not (tmp_path / "runs").exists()


def test_files_of_two_classifiers_are_refused(tmp_path):
    save(tmp_path / "vlcs-vit-b-16.safetensors", embeddings())
    save(tmp_path / "vlcs-vit-b-16-views64.safetensors", embeddings(64, text_seed=5))
    with pytest.raises(ValueError, match="one encoder per comparison"):
        plans(sources("vlcs", "ViT-B/16", tmp_path), [0])


def test_names_of_files():
    names = {source.path.name for name in ("terra", "cifar100c") for source in sources(name, "RN50", Path())}
    assert names == {
        "terra-rn50.safetensors", "terra-rn50-views64.safetensors",
        "cifar100c-rn50.safetensors", "cifar100c-rn50-views64.safetensors",
    }  # fmt: skip
