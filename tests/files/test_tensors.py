"""The safetensors files that are written here are what the library reads."""

import json

import numpy as np
import pytest
from safetensors import safe_open

from latte.files.tensors import read_safetensors, write_safetensors

ARRAYS = {
    "half": np.arange(6, dtype=np.float16).reshape(2, 3), "mask": np.array([True, False, True]),
    "wide": np.arange(4, dtype=np.int64), "empty": np.zeros((0, 5), np.float32), "real": np.ones((2, 2)),
    "turned": np.arange(6, dtype=np.int32).reshape(2, 3).T,
}  # fmt: skip


def test_the_library_reads_it(tmp_path):
    write_safetensors(tmp_path / "x.safetensors", ARRAYS, {"a": "ü", "b": "2"})
    with safe_open(tmp_path / "x.safetensors", framework="np") as file:
        assert file.metadata() == {"a": "ü", "b": "2"}
        for name, array in ARRAYS.items():
            tensor = file.get_tensor(name)
            assert tensor.dtype == array.dtype and np.array_equal(tensor, array)


def test_the_same_content_is_the_same_bytes(tmp_path):
    write_safetensors(tmp_path / "one", ARRAYS, {"a": "1", "b": "2"})
    write_safetensors(tmp_path / "two", dict(reversed(ARRAYS.items())), {"b": "2", "a": "1"})
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert not list(tmp_path.glob("*.part"))


def test_a_type_the_format_lacks_is_refused(tmp_path):
    with pytest.raises(ValueError, match="dtype complex128"):
        write_safetensors(tmp_path / "x", {"bad": np.ones(2, complex)}, {})


def test_an_array_that_nobody_needs_is_not_read(tmp_path):
    """A sparse file of two terabytes: kilobytes on disk, and more than any memory."""
    path, size = tmp_path / "x.safetensors", 1 << 41
    write_safetensors(path, {"small": np.arange(3)}, {})
    head = {"small": ("I64", [3], [0, 24]), "extra": ("U8", [size], [24, 24 + size])}
    entries = {name: {"dtype": d, "shape": s, "data_offsets": o} for name, (d, s, o) in head.items()}
    text = json.dumps(entries).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + np.arange(3).tobytes())
        file.truncate(8 + len(text) + 24 + size)
    assert read_safetensors(path, only=("small",)).arrays["small"].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match=r"x\.safetensors: got 2,199,023,255,552 bytes in one array, want as much"):
        read_safetensors(path)
