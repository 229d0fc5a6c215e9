import io
import json
import pickle
import struct
import tarfile
from typing import ClassVar

import numpy as np
import pytest

from latte.data.cifar import (
    load_classnames,
    open_cifar_c,
    read_batch,
    read_cifar,
)

CIFAR10_CLASSNAMES, CIFAR100_CLASSNAMES = load_classnames("cifar10"), load_classnames("cifar100")


def random_test_set(classes, seed=0):
    rng = np.random.default_rng(seed)
    few = rng.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
    return np.tile(few, (250, 1, 1, 1)), rng.integers(0, classes, 10_000)


def records(images, labels, front=()):
    """The binary form: label byte(s), then all red, all green, all blue."""
    flat = images.transpose(0, 3, 1, 2).reshape(len(images), -1)
    columns = [np.full(len(images), value, np.uint8) for value in front] + [labels.astype(np.uint8)]
    return np.concatenate([np.stack(columns, axis=1), flat], axis=1).tobytes()


def write_tar(path, files):
    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        for name, raw in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))


def test_class_names():
    assert len(CIFAR10_CLASSNAMES) == 10
    assert len(set(CIFAR100_CLASSNAMES)) == 100
    assert CIFAR100_CLASSNAMES[:2] == ("apple", "aquarium fish")
    assert list(CIFAR100_CLASSNAMES) == sorted(CIFAR100_CLASSNAMES)


def test_class_names_are_those_recorded(shared):
    names = json.loads((shared / "data" / "images" / "cifar_test_labels.json").read_text())
    assert [name.replace("_", " ") for name in names["cifar10"]["names"]] == list(CIFAR10_CLASSNAMES)
    assert [name.replace("_", " ") for name in names["cifar100"]["names"]] == list(CIFAR100_CLASSNAMES)


def test_binary_folder_and_archive_give_the_same(tmp_path):
    images, labels = random_test_set(10)
    raw = records(images, labels)
    (tmp_path / "a" / "cifar-10-batches-bin").mkdir(parents=True)
    (tmp_path / "a" / "cifar-10-batches-bin" / "test_batch.bin").write_bytes(raw)
    write_tar(tmp_path / "cifar-10-binary.tar.gz", {"cifar-10-batches-bin/test_batch.bin": raw})
    places = (tmp_path / "a", tmp_path / "a" / "cifar-10-batches-bin", tmp_path)
    for place in (*places, tmp_path / "cifar-10-binary.tar.gz"):
        read = read_cifar(place, "cifar10", "test")
        assert (read.images == images).all()
        assert (read.labels == labels).all()
        assert read.index[0] == 50_000
        assert read.classnames == CIFAR10_CLASSNAMES


def test_all_of_cifar10_is_train_then_test(tmp_path):
    for number in range(1, 6):
        raw = records(np.full((10_000, 32, 32, 3), number, np.uint8), np.full(10_000, number))
        (tmp_path / f"data_batch_{number}.bin").write_bytes(raw)
    (tmp_path / "test_batch.bin").write_bytes(records(*random_test_set(10)))
    everything = read_cifar(tmp_path)
    assert everything.images.shape == (60_000, 32, 32, 3)
    assert (everything.images[:50_000:10_000, 0, 0, 0] == [1, 2, 3, 4, 5]).all()
    assert (everything.index == np.arange(60_000)).all()
    assert len(read_cifar(tmp_path, split="train").labels) == 50_000


def test_cifar100_has_the_fine_label_second(tmp_path):
    images, labels = random_test_set(100)
    (tmp_path / "test.bin").write_bytes(records(images, labels, front=(7,)))
    assert (read_cifar(tmp_path, "cifar100", "test").labels == labels).all()


def test_damage_is_refused(tmp_path):
    images, labels = random_test_set(10)
    raw = records(images, labels)
    file = tmp_path / "test_batch.bin"
    for bad, message in (
        (raw[:-1], "whole number of records of 3073 bytes"),
        (b"", "got 0 bytes"),
        (raw[:3073], "got 1 images, want the 10000"),
        (b"\x0b" + raw[1:], "got label 11, want labels below 10"),
    ):
        file.write_bytes(bad)
        with pytest.raises(ValueError, match=message):
            read_cifar(tmp_path, "cifar10", "test")
    with pytest.raises(ValueError, match=r"without cifar10, want cifar-10-binary\.tar\.gz or"):
        read_cifar(tmp_path, "cifar10", "all")
    archive = tmp_path / "cifar-10-binary.tar.gz"
    write_tar(archive, {"cifar-10-batches-bin/test_batch.bin": raw[: 3073 * 2000]})
    whole = archive.read_bytes()
    for cut in (whole[: len(whole) // 2], b"not an archive"):
        archive.write_bytes(cut)
        with pytest.raises(ValueError, match="a damaged archive"):
            read_cifar(archive, "cifar10", "test")
    write_tar(archive, {"elsewhere/test_batch.bin": raw[:3073]})
    with pytest.raises(ValueError, match=r"without test_batch\.bin"):
        read_cifar(archive, "cifar10", "test")


@pytest.mark.parametrize("change", [{"name": "cifar20"}, {"split": "val"}])
def test_unknown_names_are_refused(tmp_path, change):
    with pytest.raises(ValueError, match="want one of"):
        read_cifar(tmp_path, **change)


# --- the python form ----------------------------------------------------------------------------------------


class Python2Pickler(pickle._Pickler):
    """Write byte strings and arrays the way Python 2 wrote the official files."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, value):
        short = len(value) < 256
        head = b"U" + bytes([len(value)]) if short else b"T" + struct.pack("<i", len(value))
        self.write(head + value)
        self.memoize(value)

    dispatch[bytes] = save_string

    def save_array(self, array):
        self.write(b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\nt")
        self.save_string(b"b")
        self.write(b"tR(I1\n(")
        for side in array.shape:
            self.save(side)
        self.write(b"tcnumpy\ndtype\n(")
        self.save_string(b"u1")
        self.write(b"I0\nI1\ntR(I3\n")
        self.save_string(b"|")
        self.write(b"NNNI-1\nI-1\nI0\ntbI00\n")
        self.save_string(array.tobytes())
        self.write(b"tb")

    dispatch[np.ndarray] = save_array


def python2(value):
    file = io.BytesIO()
    Python2Pickler(file, 2).dump(value)
    return file.getvalue()


def test_the_python_form(tmp_path):
    images, labels = random_test_set(10)
    flat = images.transpose(0, 3, 1, 2).reshape(10_000, -1)
    raw = python2({b"batch_label": b"testing batch 1 of 1", b"labels": labels.tolist(), b"data": flat})
    write_tar(tmp_path / "cifar-10-python.tar.gz", {"cifar-10-batches-py/test_batch": raw})
    read = read_cifar(tmp_path, "cifar10", "test")
    assert (read.images == images).all()
    assert (read.labels == labels).all()
    # the same values written by this Python and this numpy
    again = pickle.dumps({b"data": flat, b"labels": [1] * 10_000})
    assert (read_batch(again, b"labels", "x")[0] == flat).all()


class Evil:
    def __reduce__(self):
        return print, ("executed",)


@pytest.mark.parametrize(
    "raw",
    [
        pickle.dumps({b"data": Evil(), b"labels": []}),
        b"cos\nsystem\n(S'echo executed'\ntR.",
        b"cnumpy.testing._private.utils\nrunstring\n(S'print(1)'\nttR.",
        b"cnumpy\nload\n(S'x'\ntR.",
        pickle.dumps({b"data": np.array([object()]), b"labels": [0]}),
        pickle.dumps({b"data": np.zeros((1, 3072)), b"labels": [0]}),
        pickle.dumps({b"labels": [0]}),
        pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}),
        pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [-1]}),
        pickle.dumps([1, 2]),
        b"",
        b"\x80\x02",
    ],
)
def test_other_pickles_are_refused_and_not_run(raw, capsys):
    with pytest.raises(ValueError, match=r"x: got .*want an official batch with data and labels"):
        read_batch(raw, b"labels", "x")
    assert "executed" not in capsys.readouterr().out


# --- the published CIFAR-C ----------------------------------------------------------------------------------


def test_published_arrays_are_mapped(tmp_path):
    whole = np.lib.format.open_memmap(tmp_path / "fog.npy", "w+", np.uint8, (50_000, 32, 32, 3))
    whole[::10_000] = np.arange(1, 6, dtype=np.uint8)[:, None, None, None]
    whole.flush()
    np.save(tmp_path / "labels.npy", (np.arange(50_000) % 10).astype(np.uint8))
    for severity in (1, 5):
        images, labels = open_cifar_c(tmp_path, "fog", severity)
        assert isinstance(images, np.memmap)
        assert images.shape == (10_000, 32, 32, 3)
        assert (images[0] == severity).all()
        assert (images[1] == 0).all()
        assert (labels == np.arange(10_000) % 10).all()


def test_other_arrays_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"fog\.npy: got no such file, want the published"):
        open_cifar_c(tmp_path, "fog", 5)
    np.save(tmp_path / "fog.npy", np.zeros((10, 32, 32, 3), np.uint8))
    with pytest.raises(ValueError, match=r"uint8 of shape \(10, 32, 32, 3\)"):
        open_cifar_c(tmp_path, "fog", 5)
    np.save(tmp_path / "fog.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(ValueError, match="an unreadable file"):
        open_cifar_c(tmp_path, "fog", 5)
    (tmp_path / "fog.npy").write_bytes(b"")
    with pytest.raises(ValueError, match="an unreadable file"):
        open_cifar_c(tmp_path, "fog", 5)
    with pytest.raises(ValueError, match="severity: got 6"):
        open_cifar_c(tmp_path, "fog", 6)
