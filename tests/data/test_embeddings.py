"""Embedding files: what goes in comes out, mapped; what is damaged or does not fit is refused."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import save_file

from latte.core.zero_shot import ZeroShot
from latte.data import catalogue
from latte.data.bundled import BUNDLED_FILE, bundled
from latte.data.catalogue import find_problems
from latte.data.embeddings import convert_npz, load_embeddings, load_federation, save_embeddings
from latte.data.federation import Embeddings
from latte.files.documents import checksum


def unit(*shape, seed=0):
    rows = np.random.default_rng(seed).normal(size=shape)
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float16)


def npz(path, **changes):
    arrays = {
        "emb": unit(8, 4),
        "label": np.arange(8, dtype=np.int16) % 3,
        "domain": np.repeat([0, 1], 4).astype(np.int16),
        "domains": np.array(["x", "y"]),
        "classes": np.array(["a", "b", "c"]),
        "index": np.arange(8, dtype=np.int32),
        "text": unit(3, 4, seed=1),
        "meta": np.array(json.dumps({"model": "tiny", "logit_scale": 50, "templates": ["a {}."]})),
        **changes,
    }
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


def small(**changes) -> Embeddings:
    fields = {
        "name": "small",
        "zero_shot": ZeroShot(unit(3, 4, seed=1), ("a", "b", "c"), 50.0),
        "views": unit(8, 5, 4),
        "labels": np.arange(8) % 3,
        "domain": np.repeat([0, 1], 4),
        "domains": ("x", "y"),
        "metadata": {"encoder": "tiny"},
        "index": np.arange(8) + 3,
    }
    return Embeddings(**{**fields, **changes})


def test_what_is_saved_is_read_and_mapped(tmp_path):
    path, before = tmp_path / "small.safetensors", small()
    save_embeddings(path, before)
    after = load_embeddings(path)
    assert isinstance(after.views, np.memmap) and not after.views.flags.writeable
    for name in ("views", "labels", "domain", "index"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name))
    assert after.zero_shot.fingerprint == before.zero_shot.fingerprint
    assert after.domains == before.domains and after.metadata["encoder"] == "tiny"
    assert after.client is None


def test_the_mapped_views_are_what_the_library_reads():
    from safetensors import safe_open

    with safe_open(BUNDLED_FILE, framework="np") as file:
        np.testing.assert_array_equal(load_embeddings(BUNDLED_FILE).views, file.get_tensor("views"))


def test_fixed_clients_survive_the_file(tmp_path):
    path = tmp_path / "fixed.safetensors"
    save_embeddings(path, small(client=np.repeat([1, 0], 4)))
    federation = load_federation(path)
    assert [c.samples.tolist() for c in federation.clients] == [[4, 5, 6, 7], [0, 1, 2, 3]]
    save_embeddings(path, small(), client=np.array([0, 0, 0, 0, 0, 1, 1, 1]))
    with pytest.raises(ValueError, match="client 0"):
        load_federation(path)
    save_embeddings(path, small())
    with pytest.raises(ValueError, match="no fixed clients"):
        load_federation(path)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.7, 0.999])
@pytest.mark.parametrize("suffix", [".safetensors", ".npz"])
def test_a_truncated_file_is_refused_in_one_line(tmp_path, share, suffix):
    whole, cut = tmp_path / f"whole{suffix}", tmp_path / f"cut{suffix}"
    if suffix == ".npz":
        npz(whole)
    else:
        save_embeddings(whole, small())
    content = whole.read_bytes()
    cut.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=r"cut\.(npz|safetensors): got") as caught:
        catalogue.read_benchmark(catalogue.find_benchmark(str(cut)))
    assert "\n" not in str(caught.value)


def test_a_file_of_another_kind_is_refused(tmp_path):
    path = tmp_path / "other.safetensors"
    save_file({"views": unit(1, 1, 4)}, path)
    with pytest.raises(ValueError, match="format None"):
        load_embeddings(path)
    save_file({"views": unit(1, 1, 4)}, path, metadata={"format": "latte-embeddings/1"})
    with pytest.raises(ValueError, match="no tensor labels, domain, text"):
        load_embeddings(path)
    save_embeddings(path, small(views=unit(8, 5, 4).astype(np.float64)))
    with pytest.raises(ValueError, match="views: got dtype float64"):
        load_embeddings(path)


def test_converted_single_view_and_views(tmp_path):
    one = convert_npz(npz(tmp_path / "one.npz"))
    assert (one.name, one.views.shape, one.zero_shot.scale) == ("one", (8, 1, 4), 50.0)
    assert one.metadata["encoder"] == "tiny"
    assert json.loads(one.metadata["sources"]) == {"one.npz": checksum(tmp_path / "one.npz")}
    many = convert_npz(npz(tmp_path / "many.npz", emb=None, views=unit(8, 6, 4), meta=None))
    assert many.views.shape == (8, 6, 4) and "encoder" not in many.metadata
    target = tmp_path / "many.safetensors"
    save_embeddings(target, many)
    np.testing.assert_array_equal(load_embeddings(target).views, many.views)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text": unit(3, 5)}, r"text: got shape \(3, 5\), want \(C, D\) with C = 3 as in classes, D = 4 as in "),
        (
            {"classes": np.array(["a", "b"])},
            r"text: got shape \(3, 4\), want \(C, D\) with C = 2 as in classes, D = 4 as in ",
        ),
        ({"label": np.full(8, 3)}, "labels: got values from 3"),
        ({"domain": np.full(8, -1)}, "domain: got values from -1"),
        ({"label": np.zeros(7, int)}, r"label: got shape \(7,\), want \(n\) with n = 8"),
        ({"label": np.zeros(8)}, "label: got float64, want whole numbers"),
        ({"emb": np.ones((8, 4), complex)}, "emb: got the type '<c16'"),
        ({"emb": np.array(3.0)}, r"emb: got shape \(\), want \(n, D\)"),
        ({"classes": np.array("a")}, r"classes: got shape \(\), want \(C\)"),
        ({"classes": np.array(["a", "b\0c", "d"])}, "classes: got what is no text .a text with a NUL character"),
        ({"classes": np.array(["a", "b", None], object)}, "classes: got the type '|O'"),
        ({"client": np.arange(7)}, "client: got shape"),
        ({"client": np.full(8, 8)}, "client: got values from 8"),
        ({"text": None}, "no array text"),
        ({"emb": None}, "no array emb or views"),
        ({"meta": np.array("{")}, "not JSON"),
        ({"meta": np.array("[]")}, "list"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_file(tmp_path, changes, message):
    path = npz(tmp_path / "bad.npz", **changes)
    with pytest.raises(ValueError, match=message) as caught:
        convert_npz(path)
    assert str(path) in str(caught.value)


def test_the_catalogue(tmp_path, monkeypatch):
    npz(tmp_path / "mine.npz")
    save_embeddings(tmp_path / "yours.safetensors", small())
    assert list(catalogue.list_benchmarks(tmp_path)) == ["cifar10c-mini", "pacs-demo", "mine", "yours"]
    monkeypatch.setenv("LATTE_DATA", str(tmp_path))
    assert catalogue.find_benchmark("mine").path == tmp_path / "mine.npz"
    save_embeddings(tmp_path / "mine.safetensors", small())
    assert catalogue.find_benchmark("mine").path == tmp_path / "mine.safetensors"
    with pytest.raises(ValueError, match="such as mine"):
        catalogue.find_benchmark("minne")
    with pytest.raises(ValueError, match="not there"):
        catalogue.list_benchmarks(tmp_path / "nowhere")
    monkeypatch.delenv("LATTE_DATA")
    assert catalogue.data_folder().name == "embeddings"


def test_default_clients():
    assert catalogue.default_clients(bundled().embeddings, "cifar10c-mini") is None
    assert catalogue.default_clients(small(), "pacs") == 10
    assert catalogue.default_clients(small(), "cifar100c_test") == 3
    assert catalogue.default_clients(small(), "CIFAR-100-C") == 3


def test_problems_are_found():
    assert not list(catalogue.find_problems(bundled().embeddings))
    views = unit(8, 5, 4)
    views[3, 2] *= 2
    views[5, 0, 0] = np.nan
    (problem,) = catalogue.find_problems(small(views=views))
    assert "image 3, view 2" in problem and "2 such rows" in problem
    assert "no images" in next(catalogue.find_problems(small(domains=("x", "y", "z"))))


def test_the_shared_files_open_and_have_the_stated_zero_shot_accuracy(shared):
    folder = shared / "data" / "embeddings"
    for name, want in (("pacs", 43.59), ("clip_dtd", 44.68)):
        embeddings = catalogue.read_benchmark(catalogue.find_benchmark(name, folder))
        assert not list(catalogue.find_problems(embeddings))
        logits = embeddings.zero_shot.logits(np.asarray(embeddings.views[:, 0], np.float32))
        assert abs(100 * (logits.argmax(1) == embeddings.labels).mean() - want) < 0.2


def test_domains_have_names_of_their_own():
    task = ZeroShot(np.eye(2), ("a", "b"))
    with pytest.raises(ValueError, match="domains: got 'x' twice"):
        Embeddings("e", task, np.eye(2)[:, None], np.array([0, 1]), np.array([0, 1]), ("x", "x"))


def test_clients_without_a_gap():
    task, labels = ZeroShot(np.eye(2), ("a", "b")), np.zeros(2, np.int64)
    odd = Embeddings("e", task, np.eye(2)[:, None], labels, labels, ("x",), client=np.array([0, 1]))
    assert list(find_problems(odd)) == []
    zeros = np.zeros(3, np.int64)
    gap = replace(odd, views=np.eye(2)[[0, 1, 0], None], labels=zeros, domain=zeros, client=np.array([0, 2, 2]))
    assert list(find_problems(gap)) == [
        "client: got no sample of client 1, want clients numbered from 0 on without gaps"
    ]
