import tarfile

import numpy as np
import pytest

from latte.data.images import layouts, plain_name, read_classes, read_folders, read_layout


def plant(root, tree):
    """Write empty files: {"domain/class": ["a.jpg", ...]}."""
    for folder, names in tree.items():
        (root / folder).mkdir(parents=True, exist_ok=True)
        for name in names:
            (root / folder / name).parent.mkdir(parents=True, exist_ok=True)
            (root / folder / name).touch()


def test_known_layouts():
    known = layouts()
    assert known["vlcs"].domains == ("Caltech101", "LabelMe", "SUN09", "VOC2007")
    assert known["vlcs"].classnames == ("bird", "car", "chair", "dog", "person")
    assert known["terra"].domains == ("location_100", "location_38", "location_43", "location_46")
    assert len(known["terra"].classnames) == 10
    assert known["pacs"].domains == ("art_painting", "cartoon", "photo", "sketch")
    assert len(known["pacs"].classnames) == 7
    for layout in known.values():  # the numbering is that of sorted folders
        assert list(layout.domains) == sorted(layout.domains)
        assert list(layout.classnames) == sorted(layout.classnames)


def test_lists_are_sorted_and_labelled(tmp_path):
    files = ["b.JPG", "a.png", "10.jpeg", "notes.txt", ".hidden.jpg", "sub/c.webp", ".cache/d.jpg"]
    plant(tmp_path, {"two/dog": files, "two/cat": ["x.jpg"], "one/cat": ["y.jpg"], "one/dog": ["z.jpg"]})
    plant(tmp_path, {".git/cat": ["no.jpg"], "__MACOSX/cat": ["no.jpg"]})
    (tmp_path / "README").touch()
    listed = read_folders(tmp_path)
    assert listed.domains == ("one", "two")
    assert listed.classnames == ("cat", "dog")
    assert listed.relative() == (
        *("one/cat/y.jpg", "one/dog/z.jpg", "two/cat/x.jpg", "two/dog/10.jpeg", "two/dog/a.png"),
        *("two/dog/b.JPG", "two/dog/sub/c.webp"),
    )
    assert listed.labels.tolist() == [0, 1, 0, 1, 1, 1, 1]
    assert listed.domain.tolist() == [0, 0, 1, 1, 1, 1, 1]
    assert len(listed) == 7
    assert all(path.is_file() for path in listed.paths)


def test_domains_and_classes_keep_the_order_given(tmp_path):
    plant(tmp_path, {f"{d}/{c}": ["i.png"] for d in ("a", "b", "c") for c in ("x", "y_z")})
    listed = read_folders(tmp_path, ["c", "a"], ["Y z", "x"])
    assert listed.relative() == ("c/y_z/i.png", "c/x/i.png", "a/y_z/i.png", "a/x/i.png")
    assert listed.classnames == ("Y z", "x")


def test_a_missing_class_is_refused_unless_allowed(tmp_path):
    plant(tmp_path, {"a/cat": ["i.png"], "a/dog": ["i.png"], "b/dog": ["i.png"]})
    with pytest.raises(ValueError, match=r"no cat in .*b, want every class"):
        read_folders(tmp_path)
    listed = read_folders(tmp_path, allow_missing=True)
    assert listed.labels.tolist() == [0, 1, 1]  # dog is 1 in both domains
    plant(tmp_path, {"b/cat": []})
    with pytest.raises(ValueError, match=r"b/cat without images"):
        read_folders(tmp_path)
    assert read_folders(tmp_path, allow_missing=True).labels.tolist() == [0, 1, 1]


def test_an_unknown_class_is_refused_always(tmp_path):
    plant(tmp_path, {"a/cat": ["i.png"], "a/cow": ["i.png"]})
    for allow in (False, True):
        with pytest.raises(ValueError, match=r"unknown cow in .*a, want only cat, dog"):
            read_folders(tmp_path, classnames=["cat", "dog"], allow_missing=allow)


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        ({}, "without folders"),
        ({"a": []}, "a without images, want at least one image per domain"),
        ({"a/cat": ["notes.txt"]}, "cat without images"),
        ({"a/Sea_Lion": ["i.png"], "a/sea lion": ["i.png"]}, "'Sea_Lion' and 'sea lion', want"),
        ({"a/cat": ["i.png"], "b/Cat": ["i.png"]}, "classes: got 'Cat' and 'cat'"),
    ],
)
def test_bad_folders_are_refused(tmp_path, tree, message):
    plant(tmp_path, tree)
    with pytest.raises(ValueError, match=message):
        read_folders(tmp_path)


def test_what_is_not_there_is_refused(tmp_path):
    with pytest.raises(ValueError, match="which is not there"):
        read_folders(tmp_path / "nowhere")
    plant(tmp_path, {"Caltech101/bird": ["i.png"]})
    with pytest.raises(ValueError, match="LabelMe, which is not there"):
        read_layout(tmp_path, "vlcs")
    with pytest.raises(ValueError, match="layout: got 'vlsc', want one of 'vlcs'"):
        read_layout(tmp_path, "vlsc")
    with pytest.raises(ValueError, match="classes: got 'cat' and 'CAT'"):
        read_folders(tmp_path, classnames=["cat", "CAT"])


def test_one_folder_of_classes(tmp_path):
    plant(tmp_path, {"pets/cat": ["1.png", "0.png"], "pets/dog": ["0.png"]})
    listed = read_classes(tmp_path / "pets")
    assert (listed.domains, listed.classnames) == (("pets",), ("cat", "dog"))
    assert listed.relative() == ("cat/0.png", "cat/1.png", "dog/0.png")
    (tmp_path / "void").mkdir()
    with pytest.raises(ValueError, match="without folders"):
        read_classes(tmp_path / "void")


@pytest.mark.parametrize("name", ["sea lion", "Sea_Lion", "SEA  LION", " sea_lion_"])
def test_names_that_read_alike_are_one(name):
    assert plain_name(name) == "sea lion"


def test_real_pacs(shared, tmp_path):
    with tarfile.open(shared / "data" / "images" / "pacs_60pc.tar") as tar:
        names = [member.name for member in tar if member.isfile()]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    listed = read_layout(tmp_path / "PACS", "pacs")
    assert len(listed) == 1680
    assert (np.bincount(listed.domain * 7 + listed.labels) == 60).all()
    assert [f"PACS/{path}" for path in listed.relative()] == sorted(names)


def test_real_vlcs_with_missing_parts(shared, tmp_path):
    with tarfile.open(shared / "data" / "images" / "vlcs_mini_LSC.tar") as tar:
        names = [member.name for member in tar if member.isfile()]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    listed = read_folders(tmp_path, classnames=layouts()["vlcs"].classnames, allow_missing=True)
    assert len(listed) == len(names)
    of = [listed.classnames[label] for label in listed.labels]
    assert of == [path.split("/")[1] for path in listed.relative()]
