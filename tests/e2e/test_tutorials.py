"""The tutorials are followed: their files are written, their commands run, and what they show is compared."""

import re
import shlex
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import tiny_onnx
from waiting import ROOT, run

pytestmark = pytest.mark.slow

PAGES = ROOT / "docs"
DOMAINS = ("art_painting", "cartoon", "photo", "sketch")
CLASSES = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
PER_CLASS = 15  # pictures of a class in a domain, as the page says


class Step(NamedTuple):
    """A command of a page; ``shown`` is what the page shows of the output of the last one of a block."""

    words: list[str]
    shown: str


def steps(page: str) -> Iterator[Step]:
    """Yield the commands of a page in order."""
    text = (PAGES / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for (kind, code), (following, shown) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind == "console":
            lines = [shlex.split(line) for line in code.splitlines()]
            yield from (Step(words, "") for words in lines[:-1])
            yield Step(lines[-1], shown if following == "text" else "")


def follow(page: str, folder: Path, compare: bool = True) -> int:
    """Run the commands of a page; return how many outputs were compared."""
    compared = 0
    for words, shown in steps(page):
        if words[0] == "pip" or words[:2] in (["latte", "export"], ["latte", "serve"]):  # the reader's model; no end
            continue
        program = [sys.executable, "-m", "latte"] if words[0] == "latte" else [sys.executable]
        done = run(*program, *words[1:], cwd=folder, check=True, COLUMNS="100")
        if shown and compare:
            assert_shown(shown, done.stdout, words)
            compared += 1
    return compared


def assert_shown(shown: str, output: str, words: list[str]) -> None:
    """Compare an output with what a page shows of it; ``...`` is any number of lines."""
    parts = [re.escape(part.strip("\n")) for part in re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE)]
    pattern = r"(?:.*\n)*?".join(f"{part}\n+" if part else "" for part in parts)
    clean = "\n".join(line.rstrip() for line in output.splitlines()) + "\n"
    assert re.fullmatch(pattern, clean), f"{shlex.join(words)} printed\n{output}"


def test_a_page_is_compared_line_by_line():
    assert_shown("...\nb  1\n...\n", "a\nb  1\nc\nd\n", [])
    assert_shown("a\n...\n", "a\n", [])
    for other in ("a\nb  2\n", "b  1 2\n"):
        with pytest.raises(AssertionError):
            assert_shown("...\nb  1\n...\n", other, [])


def test_compare_methods(tmp_path):
    assert follow("tutorials/compare-methods.md", tmp_path) == 3
    assert (tmp_path / "comparison.html").read_text(encoding="utf-8").startswith("<!doctype html>")


def test_a_method_of_your_own(tmp_path):
    """The page alone is enough: its blocks are one file."""
    text = (PAGES / "own-method.md").read_text(encoding="utf-8")
    code = "\n\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    (tmp_path / "centred.py").write_text(code, encoding="utf-8")
    assert follow("own-method.md", tmp_path) == 5


def test_your_own_data_with_any_pictures(tmp_path):
    pytest.importorskip("onnxruntime")
    from PIL import Image

    rng = np.random.default_rng(0)
    for domain in DOMAINS:
        for name in CLASSES:
            place = tmp_path / "pictures" / domain / name
            place.mkdir(parents=True)
            for i in range(3):
                Image.fromarray(rng.integers(0, 256, (20, 20, 3), np.uint8)).save(place / f"{i}.png")
    (tmp_path / "model").symlink_to(tiny_onnx.FOLDER)
    follow("tutorials/your-own-data.md", tmp_path, compare=False)
    assert (tmp_path / "photo.memory").is_file()
    assert len((tmp_path / "photo.csv").read_text().splitlines()) == 1 + 3 * len(CLASSES)


def test_your_own_data_as_the_page_shows_it(tmp_path, shared):
    pytest.importorskip("onnxruntime")
    unpack_some(shared / "data" / "images" / "pacs_60pc.tar", tmp_path / "pictures")
    (tmp_path / "model").symlink_to(shared / "data" / "mini-vlm")
    assert follow("tutorials/your-own-data.md", tmp_path) == 2


def unpack_some(archive: Path, folder: Path) -> None:
    """Write the first pictures of each class and domain, by name."""
    counts = Counter[tuple[str, ...]]()
    with tarfile.open(archive) as tar:
        for member in sorted((one for one in tar.getmembers() if one.isfile()), key=lambda one: one.name):
            place = folder.joinpath(*Path(member.name).parts[-3:])
            counts[place.parts[-3:-1]] += 1
            if counts[place.parts[-3:-1]] <= PER_CLASS:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(tar.extractfile(member).read())
