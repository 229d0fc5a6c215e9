"""Frost from pictures of one's own: what a folder must hold, what comes of it, and that an embedding knows it."""

import json
import os

import numpy as np
import pytest

import tiny_onnx
from latte.cli import main
from latte.data import images as image_set
from latte.data.cifar import CifarImages, load_classnames
from latte.data.corruptions import CORRUPTIONS, corrupt, load_textures
from latte.data.embeddings import load_embeddings
from latte.data.images import CorruptionPlan, from_corrupted_cifar, open_images
from latte.errors import InputError

Image = pytest.importorskip("PIL.Image")
FROST = CORRUPTIONS.index("frost")


@pytest.fixture
def cifar():
    """Two images of every class."""
    rng = np.random.default_rng(0)
    labels = np.arange(20) % 10
    return CifarImages(
        rng.integers(0, 256, (20, 32, 32, 3), np.uint8), labels, np.arange(20), load_classnames("cifar10")
    )


def save_pictures(folder, levels, names="{}.png", size=(200, 240)):
    folder.mkdir(exist_ok=True)
    for number, level in enumerate(levels):
        Image.fromarray(np.full((*size, 3), level, np.uint8)).save(folder / names.format(number))
    return folder


def frosted(textures, n=60):
    return corrupt(np.zeros((n, 32, 32, 3), np.uint8), "frost", 5, textures=textures)


def test_any_pictures_of_a_folder_are_textures(tmp_path):
    folder = save_pictures(tmp_path / "mine", (20, 120, 220))
    (folder / "notes.txt").write_text("not a picture, and not called one")
    textures = load_textures(folder)
    assert [texture.shape for texture in textures] == [(40, 48, 3)] * 3
    assert {int(level) for level in frosted(textures)[:, 0, 0, 0]} == {int(0.45 * v) for v in (20, 120, 220)}


def test_every_fifth_pixel_is_used_from_the_third_on(tmp_path):
    tmp_path.joinpath("mine").mkdir()
    ramp = np.broadcast_to(np.arange(200, dtype=np.uint8)[:, None, None], (200, 200, 3))
    Image.fromarray(np.ascontiguousarray(ramp)).save(tmp_path / "mine" / "ramp.png")
    (texture,) = load_textures(tmp_path / "mine")
    assert texture[:, 0, 0].tolist() == list(range(2, 200, 5))


def test_a_picture_has_edges_whatever_its_size(tmp_path):
    """Only the drawn textures tile; a picture that happens to be as large as they are does not."""
    tmp_path.joinpath("mine").mkdir()
    ramp = np.broadcast_to(np.linspace(0, 255, 960)[:, None, None], (960, 960, 3)).astype(np.uint8)
    Image.fromarray(np.ascontiguousarray(ramp)).save(tmp_path / "mine" / "ramp.png")
    rows = frosted(load_textures(tmp_path / "mine"), n=200)[:, :, 0, 0].astype(int)
    assert (np.diff(rows, axis=1) >= 0).all()


def test_the_published_folder_is_used_as_published(tmp_path):
    folder = save_pictures(tmp_path / "frost", (10, 20, 30), "frost{}.png")
    (folder / "frost0.png").rename(folder / "frost3.png")
    for name in ("frost4.jpg", "frost5.jpg", "frost6.jpg"):
        Image.fromarray(np.full((200, 200, 3), 200, np.uint8)).save(folder / name)
    assert len(load_textures(folder)) == 5  # the sixth was never drawn
    (folder / "frost5.jpg").unlink()
    with pytest.raises(ValueError, match=r"without frost5\.jpg"):
        load_textures(folder)


def test_what_is_no_folder_of_pictures_is_refused(tmp_path):
    folder = tmp_path / "mine"
    with pytest.raises(ValueError, match=r"frost: got .*mine, which is no folder"):
        load_textures(folder)
    folder.mkdir()
    with pytest.raises(ValueError, match=r"without a picture, want files that end in"):
        load_textures(folder)
    (folder / "a.png").write_text("not a picture")
    with pytest.raises(ValueError, match=r"frost: got .*a\.png: not an image.*want pictures only"):
        load_textures(folder)
    (folder / "a.png").unlink()
    save_pictures(folder, (5,), size=(159, 400))
    with pytest.raises(ValueError, match=r"0\.png of 400 x 159 pixels, want at least 160 x 160"):
        load_textures(folder)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(ValueError, match="no regular file"):
        load_textures(tmp_path)


def test_only_corruptions_made_here_take_textures(tmp_path):
    textures = load_textures(save_pictures(tmp_path / "mine", (5,)))
    for kind in ("folder", "cifar10", "cifar10c-npy"):
        with pytest.raises(ValueError, match=r"frost: got textures for .*want cifar10c:PATH or cifar100c:PATH"):
            open_images(f"{kind}:{tmp_path}", CorruptionPlan(textures=textures))


def test_the_textures_reach_the_pictures_and_nothing_else(cifar, tmp_path):
    textures = load_textures(save_pictures(tmp_path / "mine", (250,)))
    drawn, own = (from_corrupted_cifar(cifar, "cifar10c", CorruptionPlan(textures=t)) for t in (None, textures))
    changed = [(a != b).any() for a, b in zip(*(np.array(i.load(np.arange(20))) for i in (drawn, own)), strict=True)]
    assert any(changed) and changed == (drawn.domain == FROST).tolist()


def test_whatever_decides_the_pixels_changes_the_facts(tmp_path):
    one, two = (load_textures(save_pictures(tmp_path / name, (level,))) for name, level in (("a", 5), ("b", 6)))
    plans = [
        CorruptionPlan(),
        CorruptionPlan(severity=4),
        CorruptionPlan(seed=1),
        CorruptionPlan(textures=one),
        CorruptionPlan(textures=two),
        CorruptionPlan(textures=(*one, *two)),
        CorruptionPlan(textures=(*two, *one)),
    ]
    assert len({json.dumps(plan.facts()) for plan in plans}) == len(plans)
    assert CorruptionPlan(textures=one).facts() == CorruptionPlan(textures=load_textures(tmp_path / "a")).facts()


# --- the command --------------------------------------------------------------------------------------------


def stop_saving(*_):
    raise InputError("stopped")


@pytest.fixture
def embed(cifar, monkeypatch, tmp_path):
    """Return ``latte embed`` on a small stand-in for CIFAR-10, stopped before it is done where ``stop`` says so."""
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr(image_set, "read_cifar", lambda root, name: cifar)
    out = tmp_path / "x.safetensors"

    def run(*options, stop=False):
        with monkeypatch.context() as patch:
            if stop:
                patch.setattr("latte.data.embed.save_embeddings", stop_saving)
            with pytest.raises(SystemExit) as exit_:
                main(["embed", "cifar10c:x", "--encoder", f"onnx:{tiny_onnx.FOLDER}", "--out", str(out), *options])
        return exit_.value.code, out

    return run


def test_embed_says_how_its_pictures_were_corrupted(embed, tmp_path):
    save_pictures(tmp_path / "mine", (5, 100))
    code, out = embed("--frost", str(tmp_path / "mine"), "--severity", "4")
    textures = load_textures(tmp_path / "mine")
    assert code == 0
    assert json.loads(load_embeddings(out).metadata["corruption"]) == CorruptionPlan(4, 0, textures).facts()


@pytest.mark.parametrize("other", [("--frost", "b"), ("--severity", "4"), ("--seed", "1"), ()])
def test_an_embedding_does_not_go_on_with_other_corruptions(embed, tmp_path, capsys, other):
    for name, level in (("a", 5), ("b", 100)):
        save_pictures(tmp_path / name, (level,))
    start = ("--frost", str(tmp_path / "a"))
    assert embed(*start, stop=True)[0] == 2
    options = [str(tmp_path / word) if word in "ab" else word for word in other]
    code, out = embed(*(options if other[:1] in ((), ("--frost",)) else (*start, *options)))
    assert code == 2 and "the beginning of another embedding" in capsys.readouterr().err and not out.exists()
    assert embed(*start)[0] == 0
