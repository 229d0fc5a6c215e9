"""JSON, TOML and text: everything that is not plain is refused in one line with the file's name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from latte.errors import InputError
from latte.files.documents import (
    open_file,
    parse_json,
    parse_toml,
    read_json,
    read_lines,
    read_text,
    read_toml,
    structure,
)

NOT_JSON = {
    "deep list": (b"[" * 100_000, "nesting"),
    "deep object": (b'{"a":' * 100_000, "nesting"),
    "nothing": (b"", "not JSON"),
    "half": (b'{"a": ', "not JSON"),
    "two": (b"{} {}", "not JSON"),
    "NaN": (b'{"a": NaN}', "not JSON"),
    "infinity": (b'{"a": -Infinity}', "not JSON"),
    "overflow": (b'{"a": 1e999}', "out of range"),
    "many digits": (b"9" * 5000, "out of range"),
    "latin": (b'"\xe4"', "utf-8"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "not JSON"),
    "NUL": (b'{"a": "\x00"}', "not JSON"),
    "half a pair": (b'{"a": "\\ud800"}', "not JSON"),
    "half a pair as a key": (b'{"\\udc00": 1}', "not JSON"),
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_json_that_is_not_plain(tmp_path, name):
    content, message = NOT_JSON[name]
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_json(path, dict[str, Any])
    assert type(caught.value) is InputError
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value) and len(str(caught.value)) < 400


def test_json_with_a_byte_order_mark(tmp_path):
    (tmp_path / "x.json").write_bytes(b'\xef\xbb\xbf{"a": [1, -9223372036854775808]}')
    assert read_json(tmp_path / "x.json", dict[str, Any]) == {"a": [1, -(2**63)]}
    assert parse_json('{"ä": "\\ud83d\\ude00"}', "x") == {"ä": "😀"}


NOT_TOML = {
    "deep": ("a = " + "[" * 100_000, "nesting"),
    "many digits": ("a = " + "9" * 5000, "digits"),
    "twice": ("a = 1\na = 2", "not TOML"),
    "half": ("a =", "not TOML"),
}


@pytest.mark.parametrize("name", NOT_TOML)
def test_toml_that_is_not_plain(tmp_path, name):
    content, message = NOT_TOML[name]
    (tmp_path / "x.toml").write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        read_toml(tmp_path / "x.toml")
    assert type(caught.value) is InputError and "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="here"):
        parse_toml(content, "here")


@dataclass(frozen=True, slots=True)
class Part:
    number: int

    def __post_init__(self) -> None:
        if self.number < 0:
            raise ValueError("number: negative")


@dataclass(frozen=True, slots=True)
class Whole:
    parts: tuple[Part, ...]
    share: float = 0.5
    names: tuple[str, ...] = ()
    pair: tuple[int, int] = (1, 2)
    table: dict[str, tuple[float, ...]] = field(default_factory=dict)
    anything: Mapping[str, Any] = field(default_factory=dict)
    maybe: str | None = None


def test_what_fits_the_schema():
    raw = {"parts": [{"number": 1}], "share": 1, "table": {"a": [1, 2.5]}, "anything": {"b": [None]}, "maybe": None}
    whole = structure(raw, Whole, "x")
    assert whole == Whole((Part(1),), 1.0, (), (1, 2), {"a": (1.0, 2.5)}, {"b": [None]}, None)
    assert isinstance(whole.share, float)
    assert structure({"parts": [], "new": 1}, Whole, "x", extra=True) == Whole(())


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ([], "x: got \\[\\], want keys and values"),
        (None, "keys and values"),
        ({}, "missing key 'parts'"),
        ({"parts": {}}, "a list at parts"),
        ({"parts": "ab"}, "a list at parts"),
        ({"parts": [3]}, r"keys and values at parts\[0\]"),
        ({"parts": [{"number": -1}]}, r"number: negative at parts\[0\]"),
        ({"parts": [{"number": 1.0}]}, r"got 1.0, want a whole number at parts\[0\].number"),
        ({"parts": [{"number": True}]}, "got True, want a whole number"),
        ({"parts": [], "names": "ab"}, "got 'ab', want a list at names"),
        ({"parts": [], "names": [1]}, r"want text at names\[0\]"),
        ({"parts": [], "pair": [1, 2, 3]}, "a list of length 2 at pair"),
        ({"parts": [], "table": {"a": ["1"]}}, r"want a number at table\[...\]\[0\]"),
        ({"parts": [], "anything": 3}, "keys and values at anything"),
        ({"parts": [], "maybe": 3}, "want text at maybe"),
        ({"parts": [], "nams": 3}, "no key 'nams' \\(want names"),
        ({"parts": [{}] * 1000}, "missing key 'number', want a value at parts"),
        ({"parts": [], "names": ["a", "b" * 10**6, 4]}, "want text"),
    ],
)
def test_what_does_not_fit_the_schema(raw, message):
    with pytest.raises(ValueError, match=message) as caught:
        structure(raw, Whole, "x")
    assert str(caught.value).startswith("x: ") and "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_only_regular_files_are_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name, message in [
        ("pipe", "a FIFO"), ("folder", "a folder"), ("dangling", "not there"), ("nothing", "not there"),
        ("folder/x", "not there"), ("a\0b", "cannot be opened"), ("a" * 300, "cannot be opened"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=message) as caught:
            open_file(tmp_path / name, "thing")
        assert str(caught.value).startswith("thing: got ")
    with pytest.raises(ValueError, match="a device"):
        open_file("/dev/zero")


def test_text_files(tmp_path):
    path = tmp_path / "x.txt"
    path.write_bytes(b"\xef\xbb\xbf one \r\n\n two\n")
    assert read_lines(path) == ["one", "two"]
    for content, message in ((b"a\0b", "a NUL byte"), (b"\xff\xfea\0", "not UTF-8")):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read_lines(path)
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a terabyte of nothing
    with pytest.raises(ValueError, match="at most"):
        read_text(path)
