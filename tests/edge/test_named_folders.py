"""Folders that are named: every picture below them, however deep, and a word on what is left out."""

import os
import subprocess

import pytest

from latte.edge.classify import classify
from latte.edge.classify.classify import find_pictures


def write(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    return path


def test_deeper_than_the_recursion_of_python(tmp_path):
    here = os.open(tmp_path, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("d", dir_fd=here)
        inner = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = inner
    os.close(here)
    pictures = [write(tmp_path / "a.png"), write(tmp_path.joinpath(*["d"] * 1050) / "b.png")]
    assert find_pictures([tmp_path]) == pictures
    subprocess.run(["rm", "-rf", tmp_path / "d"], check=True)  # shutil.rmtree of pytest would recurse


def test_pictures_are_sorted_and_hidden_ones_and_dangling_links_left_out(tmp_path):
    given = [write(tmp_path / name) for name in ("b/z.PNG", "b-c.jpg", "b/a.webp", ".h/a.png", "c/.a.png", "note.txt")]
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    (tmp_path / "loop.png").symlink_to(tmp_path / "loop.png")
    (tmp_path / "linked").symlink_to(tmp_path / "b")
    names = [str(path.relative_to(tmp_path)) for path in find_pictures([tmp_path])]
    assert names == ["b/a.webp", "b/z.PNG", "b-c.jpg", "loop.png"] and all(path.exists() for path in given)


def test_what_is_left_out_has_a_line(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(classify, "PICTURE_SUFFIXES", frozenset({".png"}))
    for name in ("a.png", "b.HEIC", "in/c.heif", "locked/d.png", ".e.heic"):
        write(tmp_path / name)
    really = os.scandir

    def scandir(folder):
        if str(folder).endswith("locked"):
            raise PermissionError(13, "Permission denied")
        return really(folder)

    monkeypatch.setattr(os, "scandir", scandir)
    assert find_pictures([tmp_path]) == [tmp_path / "a.png"]
    locked, heic = [record.getMessage() for record in caplog.records]
    assert locked == f"{tmp_path / 'locked'} is left out: Permission denied"
    assert heic.startswith(f"{tmp_path / 'b.HEIC'} and 1 more are left out: HEIC") and "pillow-heif" in heic
    with pytest.raises(PermissionError):
        find_pictures([tmp_path / "locked"])
