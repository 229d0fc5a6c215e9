"""Embedding files that nobody made by accident, and a data folder with such files in it."""

from __future__ import annotations

import io
import json
import os
import resource
import zipfile

import numpy as np
import pytest

from latte.data import catalogue
from latte.data.embeddings import convert_npz, load_embeddings, save_embeddings
from latte.errors import InputError
from latte.files import arrays as arrays_module
from waiting import latte

N, D, C = 8, 4, 3


def unit(*shape):
    rows = np.random.default_rng(0).normal(size=shape)
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float16)


def arrays(**changes):
    return {
        "emb": unit(N, D), "label": np.arange(N) % C, "domain": np.repeat([0, 1], N // 2),
        "domains": np.array(["x", "y"]), "classes": np.array(["a", "b", "c"]), "text": unit(C, D), **changes,
    }  # fmt: skip


def npy(array):
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=True)
    return file.getvalue()


def write_zip(path, members, method=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def members(**changes):
    return {**{name: npy(array) for name, array in arrays().items()}, **changes}


def patched(path, offset, value):
    """Overwrite two bytes of every entry in the zip's directory and of every local header (flags or method)."""
    data = bytearray(path.read_bytes())
    for mark, at in ((b"PK\1\2", offset), (b"PK\3\4", offset - 2)):
        for start in [i for i in range(len(data)) if data.startswith(mark, i)]:
            data[start + at : start + at + 2] = value.to_bytes(2, "little")
    path.write_bytes(data)
    return path


def header(descr, shape):
    text = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text


BAD_MEMBERS = {
    "no array": (b"hello", "no array"),
    "nothing": (b"", "no array"),
    "giant shape": (header("'<f4'", "(1000000000000, 4)"), "bytes for float32"),
    "shape beyond memory": (header("'<f4'", "(999999999999999999, 999999999999999999, 0)"), "memory can hold"),
    "400 digits": (header("'<f4'", f"({'9' * 400}, 4)"), "header|shape"),
    "negative shape": (header("'<f4'", "(-1, 4)"), "lengths >= 0"),
    "many dimensions": (header("'<f4'", "(" + "1, " * 40 + ")"), "at most 8"),
    "records": (header("[('a', '<f4')]", "(8,)"), "no objects, no records"),
    "objects": (npy(np.array([None] * N, object)), r"'\|O'"),
    "no type": (header("'<q9'", "(8,)"), "descriptor: '<q9'"),
    "code": (header("__import__('os')", "(8,)"), "header"),
    "deep": (header("(" * 5000 + ")" * 5000, "(8,)"), "header"),
    "0-d": (npy(np.array(1.0)), r"shape \(\)"),
    "strings": (npy(np.array(["x"] * N)), "real numbers"),
    "too short": (npy(unit(N, D))[:-1], "bytes for float16"),
    "too long": (npy(unit(N, D)) + b"\0", "bytes for float16"),
}


@pytest.mark.parametrize("name", BAD_MEMBERS)
def test_a_member_that_is_no_embedding(tmp_path, name):
    content, message = BAD_MEMBERS[name]
    refused(write_zip(tmp_path / "x.npz", members(emb=content)), f"x.npz: emb: .*({message})")


def refused(path, message):
    for read in (catalogue.read_benchmark, catalogue.summarise_benchmark):
        with pytest.raises(InputError, match=message) as caught:
            read(catalogue.BenchmarkFile("x", path))
        assert type(caught.value) is InputError and str(path) in str(caught.value)
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


def test_zip_files_that_cannot_be_unpacked(tmp_path):
    path = tmp_path / "x.npz"
    refused(patched(write_zip(path, members()), 8, 1), "encrypted")
    refused(patched(write_zip(path, members()), 10, 99), "compression method 99")
    refused(write_zip(path, members(), zipfile.ZIP_LZMA), "compression method 14")
    path.write_bytes(b"PK\5\6" + b"\0" * 18)
    refused(path, "no array label")
    path.write_bytes(b"rubbish")
    refused(path, "damaged or truncated")
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(path, "w") as archive:
        for name, content in [*members().items(), ("emb", npy(unit(N, D)))]:
            archive.writestr(f"{name}.npy", content)
    refused(path, "emb: got 2 arrays of this name")


def peak():
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def write_zeros(archive, name, rows):
    """Add an array of zeros, ``rows`` x 4 halves, without holding it."""
    with archive.open(f"{name}.npy", "w") as file:
        file.write(header("'<f2'", f"({rows}, 4)"))
        for start in range(0, rows * 8, 1 << 20):
            file.write(bytes(min(1 << 20, rows * 8 - start)))


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    """Much in little, once as an array that nobody needs and once as the embeddings."""
    monkeypatch.setattr(arrays_module, "FREE_BYTES", 64 << 20)  # a quarter, to save time
    rows = (96 << 20) // 8
    few, many = members(), members(label=npy(np.zeros(rows, np.int8)), domain=npy(np.zeros(rows, np.int8)))
    for path, parts, name in ((tmp_path / "spare.npz", few, "unused"), (tmp_path / "bomb.npz", many, "emb")):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for other, content in parts.items():
                if other != name:
                    archive.writestr(f"{other}.npy", content)
            write_zeros(archive, name, rows)
        assert path.stat().st_size < 1 << 20
    before = peak()
    assert len(convert_npz(tmp_path / "spare.npz")) == N
    with pytest.raises(InputError, match=r"bomb\.npz: got .* bytes that unpack to .*, want at most 20 times"):
        convert_npz(tmp_path / "bomb.npz")
    assert catalogue.summarise_benchmark(catalogue.BenchmarkFile("bomb", tmp_path / "bomb.npz")).images == rows
    assert peak() - before < 48 << 20


def test_every_way_that_numpy_writes(tmp_path):
    plain = convert_npz(write_zip(tmp_path / "plain.npz", members()))
    turned = {name: np.asfortranarray(array) for name, array in arrays().items()}
    swapped = {name: array.astype(array.dtype.newbyteorder(">")) for name, array in arrays().items()}
    wide = arrays(emb=arrays()["emb"].astype(np.float64), classes=np.array([b"a", b"b", b"c"]))
    for number, other in enumerate((turned, swapped, wide)):
        np.savez(tmp_path / f"{number}.npz", **other)
        same = convert_npz(tmp_path / f"{number}.npz")
        np.testing.assert_array_equal(same.views.astype(np.float16), plain.views)
        assert same.zero_shot.fingerprint == plain.zero_shot.fingerprint and same.domains == plain.domains
        assert same.views.dtype.isnative and same.labels.tolist() == plain.labels.tolist()
        save_embeddings(tmp_path / "x.safetensors", same)
        np.testing.assert_array_equal(load_embeddings(tmp_path / "x.safetensors").views, same.views)


def test_clients_in_an_npz_file_survive_the_conversion(tmp_path):
    clients = np.array([1, 1, 0, 0, 3, 2, 2, 3], np.int16)
    np.savez(tmp_path / "x.npz", **arrays(client=clients))
    answer = latte("data", "convert", tmp_path / "x.npz", tmp_path / "y.safetensors")
    assert answer.returncode == 0, answer.stderr
    for path in (tmp_path / "x.npz", tmp_path / "y.safetensors"):
        benchmark = catalogue.read_benchmark(catalogue.find_benchmark(str(path)))
        assert benchmark.client is not None and benchmark.client.tolist() == clients.tolist()
        assert catalogue.default_clients(benchmark, "x") is None
    shown = json.loads(latte("data", "show", tmp_path / "x.npz", "--json").stdout)
    assert shown["clients"] == "fixed by the file"


# --- safetensors --------------------------------------------------------------------------------------------


def raw_file(path, header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes((len(text) if length is None else length).to_bytes(8, "little") + text + data)
    return path


def entry(dtype="F32", shape=(2,), offsets=(0, 8)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(offsets)}


BAD_HEADERS = {
    "metadata is a list": ({"__metadata__": []}, b"", "metadata: .*keys and values"),
    "metadata has a number": ({"__metadata__": {"format": 3}}, b"", "metadata: .*want text at"),
    "metadata is null": ({"__metadata__": None}, b"", "metadata: "),
    "header is a list": ([], b"", "header: got"),
    "header is deep": (b"[" * 100_000, b"", "nesting"),
    "header is no text": (b"\xff\xfe", b"", "not JSON"),
    "unknown dtype": ({"a": entry("BF16", (4,))}, bytes(8), "dtype: got 'BF16'"),
    "dtype is a number": ({"a": entry(3)}, bytes(8), "want text"),
    "negative shape": ({"a": entry(shape=(-2,))}, bytes(8), "lengths >= 0"),
    "shape is text": ({"a": {**entry(), "shape": "22"}}, bytes(8), "want a list"),
    "giant shape": ({"a": entry(shape=(2**40, 2**40))}, bytes(8), "memory can hold"),
    "giant shape with a zero": ({"a": entry(shape=(2**40, 2**40, 0), offsets=(0, 0))}, b"", "memory can hold"),
    "many dimensions": ({"a": entry(shape=(1,) * 40)}, bytes(8), "at most 8"),
    "offsets that do not fit the shape": ({"a": entry(offsets=(0, 4))}, bytes(8), "the end of 8 bytes"),
    "offsets beyond the file": ({"a": entry(shape=(4,), offsets=(0, 16))}, bytes(8), "truncated"),
    "negative offsets": ({"a": entry(offsets=(-8, 0))}, bytes(8), "data_offsets"),
    "three offsets": ({"a": entry(offsets=(0, 8, 8))}, bytes(8), "data_offsets"),
    "overlap": ({"a": entry(), "b": entry(offsets=(4, 12))}, bytes(12), "overlaps"),
    "a gap": ({"a": entry(), "b": entry(offsets=(12, 20))}, bytes(20), "gaps"),
    "more data than arrays": ({"a": entry()}, bytes(9), "wrong end"),
    "no truth value": ({"index": entry("BOOL", (2,), (0, 2))}, b"\1\2", "other than 0 and 1"),
}


@pytest.mark.parametrize("name", BAD_HEADERS)
def test_a_header_that_does_not_fit(tmp_path, name):
    header, data, message = BAD_HEADERS[name]
    refused(raw_file(tmp_path / "x.safetensors", header, data), rf"x\.safetensors: .*{message}")


@pytest.mark.parametrize("length", [1 << 20, 1 << 40, (1 << 64) - 1])
def test_a_giant_header_length(tmp_path, length):
    refused(raw_file(tmp_path / "x.safetensors", {}, length=length), "truncated")
    with (tmp_path / "x.safetensors").open("rb+") as file:
        file.truncate(min(length, 1 << 41) + 8)  # the length is there, as a hole
    refused(tmp_path / "x.safetensors", "truncated|header of|not JSON")


# --- a folder of them ---------------------------------------------------------------------------------------


def test_bad_files_do_not_hide_the_good_ones(tmp_path):
    np.savez(tmp_path / "good.npz", **arrays())
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "good.safetensors").mkdir()  # the same name: what is no file does not win
    (tmp_path / "cifar10c-mini.npz").mkdir()
    (tmp_path / "dangling.npz").symlink_to(tmp_path / "nowhere")
    (tmp_path / "empty.safetensors").write_bytes(b"")
    os.mkfifo(tmp_path / "pipe.npz")
    os.mkfifo(tmp_path / "pipe2.safetensors")
    patched(write_zip(tmp_path / "locked.npz", members()), 8, 1)
    raw_file(tmp_path / "deep.safetensors", b"[" * 100_000)
    write_zip(tmp_path / "object.npz", members(emb=BAD_MEMBERS["objects"][0]))
    with (tmp_path / "giant.safetensors").open("wb") as file:
        file.truncate(1 << 42)
    answer = latte("data", "list", "--data", tmp_path, "--json")
    assert answer.returncode == 0 and answer.stderr == ""
    rows = {row["name"]: row for row in json.loads(answer.stdout)}
    assert rows["good"]["images"] == N and rows["cifar10c-mini"]["images"] == 2280
    bad = {name for name, row in rows.items() if row["images"] is None}
    assert bad == {"folder", "dangling", "empty", "pipe", "pipe2", "locked", "deep", "object", "giant"}
    assert all(rows[name]["encoder"].startswith("cannot be read: ") for name in bad)
    checked = latte("data", "check", "--data", tmp_path)
    assert checked.returncode == 2 and "good: ok" in checked.stdout
    assert checked.stderr == "latte: 9 of 12 files are not sound\n"
