"""The bundled benchmarks are what their metadata says."""

import json
import tomllib
from importlib.resources import files

import numpy as np
import pytest

from latte.data import catalogue
from latte.data.bundled import BUNDLED_FILE, DEMO_FILE, bundled, demo_embeddings
from latte.data.catalogue import BenchmarkFile, find_benchmark, published_file
from latte.data.embeddings import load_federation
from latte.errors import InputError
from small_benchmark import small_file
from waiting import ROOT

RESULTS = ROOT / "benchmarks" / "results" / "same-syncs"


def test_size_and_shape():
    federation = bundled()
    assert BUNDLED_FILE.stat().st_size < 3_000_000
    assert len(federation) == 38 and {len(client) for client in federation.clients} == {60}
    assert federation.embeddings.views.dtype == np.float16 and federation.embeddings.views.shape == (2280, 1, 256)


def test_two_clients_per_corruption_and_balanced_classes():
    federation = bundled()
    assert [client.domain for client in federation.clients] == [d for d in range(19) for _ in range(2)]
    for client in federation.clients:
        assert (np.bincount(federation.labels(client)) == 6).all()
        assert (federation.embeddings.domain[client.samples] == client.domain).all()


def test_it_says_how_it_was_made():
    metadata = bundled().embeddings.metadata
    assert "seed 0" in metadata["made"] and "it is not CLIP" in metadata["made"]
    assert len(json.loads(metadata["templates"])) == 7


def test_it_is_the_cut_that_the_script_makes(shared):
    source = np.load(shared / "data" / "embeddings" / "cifar10c.npz", allow_pickle=False)
    recorded = {row.tobytes() for row in source["emb"]}
    assert all(row.tobytes() in recorded for row in bundled().embeddings.views[:, 0])


def test_the_demo_has_all_of_pacs():
    embeddings = demo_embeddings()
    assert DEMO_FILE.stat().st_size <= 6_000_000
    assert embeddings.views.shape == (9991, 1, 256) and embeddings.client is None
    sizes = dict(zip(embeddings.domains, np.bincount(embeddings.domain).tolist(), strict=True))
    assert sizes == {"photo": 1670, "art_painting": 2048, "cartoon": 2344, "sketch": 3929}  # as published
    for words in ("it is not CLIP", "for research use", "Nothing was selected", "never saw PACS"):
        assert words in embeddings.metadata["made"]


def test_the_demo_is_what_was_embedded(shared):
    source = np.load(shared / "data" / "embeddings" / "pacs.npz", allow_pickle=False)
    embeddings = demo_embeddings()
    assert (embeddings.views[:, 0] == source["emb"]).all() and (embeddings.labels == source["label"]).all()
    assert (embeddings.domain == source["domain"]).all()
    assert np.abs(embeddings.zero_shot.text - source["text"]).max() < 1e-3  # rows of unit length, to the last bit


def test_a_damaged_file_is_refused(tmp_path):
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(BUNDLED_FILE.read_bytes()[:100_000])
    with pytest.raises(ValueError, match=r"broken\.safetensors"):
        load_federation(broken)
    with pytest.raises(ValueError, match="not there"):
        load_federation(tmp_path / "missing.safetensors")


def test_a_package_without_them_has_no_benchmark_of_their_names(monkeypatch, tmp_path):
    monkeypatch.setattr(catalogue, "BUNDLED", {"pacs-demo": tmp_path / "removed.safetensors"})
    assert "pacs-demo" not in catalogue.list_benchmarks(tmp_path)
    with pytest.raises(InputError, match="benchmark: got 'pacs-demo'"):
        find_benchmark("pacs-demo", tmp_path)


def test_a_file_is_known_as_the_one_that_was_measured(tmp_path):
    assert published_file(find_benchmark("pacs-demo")) and published_file(find_benchmark("cifar10c-mini"))
    other = small_file(tmp_path, "pacs")
    assert published_file(BenchmarkFile("pacs", other)) is False and published_file(BenchmarkFile("own", other)) is None


@pytest.mark.skipif(not RESULTS.is_dir(), reason="needs a checkout: a release has no benchmarks/")
def test_the_known_files_are_those_of_the_manifests():
    known = tomllib.loads((files("latte.data") / "measured.toml").read_text("utf-8"))
    manifests = {
        path.name.partition(".")[0]: json.loads(path.read_text("utf-8")) for path in RESULTS.glob("*.manifest.json")
    }
    assert known == {name: one["data"]["sha256"] for name, one in manifests.items()} | {"pacs-demo": known["pacs-demo"]}
