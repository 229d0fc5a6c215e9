"""Data in the layouts of the field, in miniature: CoOp's splits, ImageNet's folders, feature caches of other code."""

import json
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import numpy as np
import pytest

from latte.data.caches import read_cache
from latte.data.embeddings import load_embeddings
from latte.data.images import open_images, read_folders, read_imagenet, read_split
from waiting import latte

# --- CoOp's splits


def write_split(root, inside="", name="OxfordPets"):
    """Write pictures and a split whose labels are neither sorted by name nor by place."""
    rows = [["pug/1.jpg", 1, "pug"], ["Abyssinian_2.jpg", 0, "abyssinian_cat"], ["pug/3.jpg", 1, "pug"]]
    for picture, _, _ in rows:
        (root / inside / picture).parent.mkdir(parents=True, exist_ok=True)
        (root / inside / picture).write_text(picture)
    file = root / f"split_zhou_{name}.json"
    file.write_text(json.dumps({"train": rows[:1], "val": rows[1:2], "test": rows[1:]}))
    return file


@pytest.mark.parametrize("inside", ["", "images", "101_ObjectCategories"])
def test_a_split_and_its_pictures(tmp_path, inside):
    """In the folder of the split as for Cars, or in one beside it as for Pets, DTD, Caltech and the others."""
    file = write_split(tmp_path, inside)
    (tmp_path / "annotations").mkdir()
    for place in (file, tmp_path):
        listed = read_split(place)
        assert listed.classnames == ("abyssinian_cat", "pug") and listed.labels.tolist() == [0, 1]
        assert [path.read_text() for path in listed.paths] == ["Abyssinian_2.jpg", "pug/3.jpg"]
    images = open_images(f"coop:{tmp_path}")
    assert images.domains == ("OxfordPets",) and images.keys == ("Abyssinian_2.jpg", "pug/3.jpg")
    assert len(open_images(f"coop-train:{file}")) == 1 and len(open_images(f"coop-val:{file}")) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows["test"].append(["gone.jpg", 0, "abyssinian_cat"]), "1 of 3 pictures missing, such as"),
        (lambda rows: rows["test"].append(["../pug/1.jpg", 1, "pug"]), "paths below the folder"),
        (lambda rows: rows["train"].append(["pug/1.jpg", 1, "beagle"]), "label 1 for 'pug' and 'beagle'"),
        (lambda rows: rows["train"].append(["pug/1.jpg", 7, "beagle"]), "labels from 0 on"),
        (lambda rows: rows.update(test=[]), "0 pictures for test"),
        (lambda rows: rows.update(test=[["pug/1.jpg", "1", "pug"]]), "test"),
    ],
)
def test_a_split_that_does_not_fit_is_refused(tmp_path, change, message):
    file = write_split(tmp_path)
    rows = json.loads(file.read_text())
    change(rows)
    file.write_text(json.dumps(rows))
    with pytest.raises(ValueError, match=message) as error:
        read_split(file)
    assert "\n" not in str(error.value)


def test_a_folder_with_two_splits_is_refused(tmp_path):
    write_split(tmp_path)
    write_split(tmp_path, name="Other")
    with pytest.raises(ValueError, match="2 files split_zhou"):
        read_split(tmp_path)


# --- class folders


def plant(root, *pictures):
    for picture in pictures:
        (root / picture).parent.mkdir(parents=True, exist_ok=True)
        (root / picture).touch()


def test_imagenet_by_wordnet_id_and_by_number(tmp_path):
    """A variant with some classes (ImageNet-A, -R), and ImageNetV2, whose folders sort as 0, 1, 10, 2."""
    plant(tmp_path / "a", "n15075141/x.jpg", "n01440764/b.JPEG", "n01440764/a.JPEG", "n02012849/c.jpg")
    listed = read_imagenet(tmp_path / "a")
    assert listed.classnames == ("tench", "crane bird", "toilet paper")
    assert listed.labels.tolist() == [0, 0, 1, 2] and listed.paths[0].name == "a.JPEG"
    plant(tmp_path / "v2", "10/x.jpeg", "2/x.jpeg", "0/x.jpeg")
    assert open_images(f"imagenet:{tmp_path / 'v2'}").classnames == ("tench", "great white shark", "brambling")
    plant(tmp_path / "v2", "dog/x.jpeg")
    with pytest.raises(ValueError, match="the folder dog, want folders named n01440764"):
        read_imagenet(tmp_path / "v2")


def test_the_names_of_imagenet_are_a_thousand_different_ones():
    from importlib.resources import files

    from latte.encoders.prompts import check_classnames

    lines = (files("latte.data") / "classes" / "imagenet.txt").read_text("utf-8").splitlines()
    synsets, names = zip(*(line.split(" ", 1) for line in lines), strict=True)
    assert len(check_classnames(names)) == 1000 and list(synsets) == sorted(set(synsets))


def test_domainnet_and_office_home_and_numbered_classes(tmp_path):
    plant(
        tmp_path / "home",
        "Real World/Alarm_Clock/1.jpg",
        "Real World/Bed/1.jpg",
        "Art/Alarm_Clock/2.jpg",
        "Art/Bed/2.jpg",
    )
    plant(tmp_path / "birds", "all/001.Laysan_Albatross/1.jpg", "all/010.Red_winged_Blackbird/1.jpg")
    assert read_folders(tmp_path / "home").domains == ("Art", "Real World")
    assert read_folders(tmp_path / "home").classnames == ("Alarm_Clock", "Bed")
    assert read_folders(tmp_path / "birds").classnames == ("Laysan_Albatross", "Red_winged_Blackbird")


# --- feature caches


@pytest.fixture
def cache():
    rng = np.random.default_rng(0)
    return {"features": rng.normal(size=(5, 8)).astype(np.float16), "labels": np.array([0, 1, 2, 1, 0])}, rng.normal(
        size=(8, 3)
    ).astype(np.float32)


def check(target, cache):
    made = load_embeddings(target)
    rows = cache[0]["features"].astype(np.float32)
    text = cache[1].T / np.linalg.norm(cache[1].T, axis=1, keepdims=True)
    assert np.allclose(made.views[:, 0], rows / np.linalg.norm(rows, axis=1, keepdims=True), atol=1e-6)
    assert np.allclose(made.zero_shot.text, text, atol=1e-6) and made.zero_shot.classnames == ("cat", "dog", "owl")
    assert made.labels.tolist() == [0, 1, 2, 1, 0] and made.zero_shot.scale == 50


def test_an_npz_of_other_code(cache, tmp_path):
    names = {"test_features": cache[0]["features"], "Targets": cache[0]["labels"], "clip_weights": cache[1]}
    np.savez(tmp_path / "a.npz", **names, classnames=np.array(["cat", "dog", "owl"]))
    latte("data", "convert", tmp_path / "a.npz", tmp_path / "a.safetensors", "--scale", 50, check=True)
    check(tmp_path / "a.safetensors", cache)


@pytest.mark.parametrize("form", ["dictionary", "pair", "three files"])
def test_torch_files(cache, tmp_path, form):
    """Tip-Adapter's caches are three files of one tensor each."""
    torch = pytest.importorskip("torch")
    arrays, text = cache
    features, labels = (torch.from_numpy(arrays[name]) for name in ("features", "labels"))
    given = ["--classes", "cat,dog,owl", "--text", tmp_path / "text.pt"]
    torch.save(torch.from_numpy(text), tmp_path / "text.pt")
    torch.save(labels, tmp_path / "test_l.pt")
    content = {
        "dictionary": {"image_features": features, "y": labels},
        "pair": (features, labels),
        "three files": features,
    }
    torch.save(content[form], tmp_path / "test_f.pt")
    given += ["--labels", tmp_path / "test_l.pt"] if form == "three files" else []
    given += ["--scale", "50", "--encoder", "CLIP ViT-B/16"]
    latte("data", "convert", tmp_path / "test_f.pt", tmp_path / "a.safetensors", *given, check=True)
    check(tmp_path / "a.safetensors", cache)
    assert load_embeddings(tmp_path / "a.safetensors").metadata["encoder"] == "CLIP ViT-B/16"


def test_a_torch_file_that_would_run_code_is_refused(tmp_path):
    torch = pytest.importorskip("torch")

    class Trap:
        def __reduce__(self):
            return (tmp_path.joinpath("ran").touch, ())

    torch.save({"features": Trap()}, tmp_path / "a.pt")
    answer = latte("data", "convert", tmp_path / "a.pt", tmp_path / "a.safetensors", "--classes", "cat,dog")
    assert answer.returncode == 2 and "does not load safely" in answer.stderr and not (tmp_path / "ran").exists()


def test_text_embeddings_that_were_parameters(cache, tmp_path):
    torch = pytest.importorskip("torch")
    arrays = {"features": torch.from_numpy(cache[0]["features"]), "labels": torch.from_numpy(cache[0]["labels"])}
    text = torch.nn.Parameter(torch.from_numpy(cache[1]))
    torch.save({**arrays, "text": text, "classes": ["cat", "dog", "owl"]}, tmp_path / "a.pt")
    latte("data", "convert", tmp_path / "a.pt", tmp_path / "a.safetensors", "--scale", 50, check=True)
    check(tmp_path / "a.safetensors", cache)


@pytest.mark.parametrize(
    ("odd", "message"),
    [
        (lambda torch: torch.eye(5).to_sparse(), "no plain array"),
        (lambda torch: torch.empty(5, 8, device="meta"), "no plain array"),
        (lambda torch: torch.zeros(1).expand(10**6, 10**6), "1000000000000 numbers in"),
        (lambda torch: torch.zeros(10**6), "bytes that unpack to 4000"),
    ],
)
def test_a_torch_file_of_odd_tensors_is_refused(tmp_path, odd, message):
    """Also what would take terabytes: a number that is repeated, and an archive that unpacks."""
    torch = pytest.importorskip("torch")
    torch.save({"features": odd(torch), "labels": torch.arange(5)}, tmp_path / "plain.pt")
    with ZipFile(tmp_path / "plain.pt") as plain, ZipFile(tmp_path / "a.pt", "w") as target:
        for name in plain.namelist():
            target.writestr(name, plain.read(name), ZIP_DEFLATED if "unpack" in message else ZIP_STORED)
    with pytest.raises(ValueError, match=message):
        read_cache(tmp_path / "a.pt", classes=("cat", "dog"))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": None}, "an array labels (--labels FILE)"), ({"text": None}, "an array text (--text FILE)"),
        ({"classes": None}, "an array classes (--classes FILE)"), ({"labels": np.zeros(5)}, "whole numbers (n,)"),
        ({"text": np.eye(8)[:2]}, "(3, 8): as many as class names"), ({"labels": np.full(5, 3)}, "labels"),
        ({"features": np.full((5, 8), np.nan)}, "features"),
    ],
)  # fmt: skip
def test_a_cache_that_lacks_something_is_refused(cache, tmp_path, change, message):
    whole = {**cache[0], "text": cache[1], "classes": np.array(["cat", "dog", "owl"])} | change
    np.savez(tmp_path / "a.npz", **{name: value for name, value in whole.items() if value is not None})
    answer = latte("data", "convert", tmp_path / "a.npz", tmp_path / "a.safetensors")
    assert answer.returncode == 2 and message in answer.stderr and "Traceback" not in answer.stderr, answer.stderr
