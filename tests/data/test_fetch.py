"""Fetching from a real server on this machine that can cut connections, lie and forget."""

import hashlib
import io
import os
import re
import tarfile
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from latte.data import fetch as download
from latte.data.fetch import DatasetSource, Sums, dataset_sources, fetch_dataset, unpack_archive
from latte.files.atomic import lock
from waiting import DEADLINE

CONTENT = bytes(range(256)) * 9_000  # 2.3 MB: more than two blocks


@dataclass
class Shelf:
    """What the server gives: files, how many bytes before it hangs up, and the requests it got."""

    files: dict = field(default_factory=lambda: {"/data.bin": CONTENT})
    cuts: list = field(default_factory=list)  # one per answer, None for a whole one
    ranges: bool = True
    requests: list = field(default_factory=list)


@pytest.fixture
def shelf():
    return Shelf()


@pytest.fixture
def address(shelf, monkeypatch):
    monkeypatch.setattr(download, "TIMEOUT", DEADLINE)  # a busy machine is not a server that keeps silent

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            byte_range = self.headers.get("Range")
            shelf.requests.append((self.path, byte_range))
            if self.path not in shelf.files:
                self.send_error(404)
                return
            whole = shelf.files[self.path]
            start = int(re.fullmatch(r"bytes=(\d+)-", byte_range)[1]) if byte_range and shelf.ranges else 0
            if start and start >= len(whole):
                self.send_error(416)
                return
            self.send_response(206 if start else 200)
            if start:
                self.send_header("Content-Range", f"bytes {start}-{len(whole) - 1}/{len(whole)}")
            self.send_header("Content-Length", str(len(whole) - start))
            self.end_headers()
            cut = shelf.cuts.pop(0) if shelf.cuts else None
            self.wfile.write(whole[start:] if cut is None else whole[start : start + cut])
            self.close_connection = True

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def known(*urls, content=CONTENT, file="data.bin", folder=""):
    md5 = hashlib.md5(content, usedforsecurity=False).hexdigest()
    sums = Sums(len(content), md5, hashlib.sha256(content).hexdigest())
    return {"it": DatasetSource("it", "It", "https://example.org/it", file, sums, urls, folder)}


def test_a_plain_download(address, shelf, tmp_path):
    seen = []
    table = known(f"{address}/data.bin")
    path = fetch_dataset("it", tmp_path / "new", progress=lambda done, total: seen.append((done, total)), known=table)
    assert path == tmp_path / "new" / "data.bin"
    assert path.read_bytes() == CONTENT
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)
    fetch_dataset("it", tmp_path / "new", known=table)  # it is there: nothing is asked
    assert len(shelf.requests) == 1
    assert [p.name for p in path.parent.iterdir()] == ["data.bin"]


def test_a_cut_connection_is_resumed(address, shelf, tmp_path):
    shelf.cuts = [1_500_000, 300_000]
    assert fetch_dataset("it", tmp_path, known=known(f"{address}/data.bin")).read_bytes() == CONTENT
    assert [wanted for _, wanted in shelf.requests] == [None, "bytes=1500000-", "bytes=1800000-"]


def test_the_next_run_goes_on_where_the_last_one_ended(address, shelf, tmp_path):
    shelf.cuts = [1_000_000, 0, 0]
    table = known(f"{address}/data.bin")
    with pytest.raises(ConnectionError, match=r"ended after 1000000 of 2304000 bytes; get data\.bin"):
        fetch_dataset("it", tmp_path, known=table)
    assert not (tmp_path / "data.bin").exists()
    assert (tmp_path / "data.bin.part").stat().st_size == 1_000_000
    assert fetch_dataset("it", tmp_path, known=table).read_bytes() == CONTENT
    assert shelf.requests[-1] == ("/data.bin", "bytes=1000000-")


def test_a_server_without_ranges_starts_again(address, shelf, tmp_path):
    shelf.cuts, shelf.ranges = [700_000], False
    assert fetch_dataset("it", tmp_path, known=known(f"{address}/data.bin")).read_bytes() == CONTENT


def test_a_complete_part_needs_no_server(tmp_path):
    (tmp_path / "data.bin.part").write_bytes(CONTENT)
    assert fetch_dataset("it", tmp_path, known=known("http://127.0.0.1:1/data.bin")).read_bytes() == CONTENT


@pytest.mark.parametrize("stale", [b"x" * 1000, b"x" * len(CONTENT), b"x" * (len(CONTENT) + 5)])
def test_a_stale_part_is_thrown_away(address, tmp_path, stale):
    (tmp_path / "data.bin.part").write_bytes(stale)
    assert fetch_dataset("it", tmp_path, known=known(f"{address}/data.bin")).read_bytes() == CONTENT


def test_a_wrong_file_is_refused(address, shelf, tmp_path):
    shelf.files["/data.bin"] = CONTENT[:-1] + b"?"
    with pytest.raises(ConnectionError, match=r"md5 [0-9a-f]{32} instead of \w+; get data\.bin from"):
        fetch_dataset("it", tmp_path, known=known(f"{address}/data.bin"))
    assert list(tmp_path.iterdir()) == []
    shelf.files["/data.bin"] = CONTENT + b"more"
    with pytest.raises(ConnectionError, match="more than the 2304000 bytes expected"):
        fetch_dataset("it", tmp_path, known=known(f"{address}/data.bin"))


def test_mirrors_are_tried_in_order(address, shelf, tmp_path):
    shelf.files["/wrong"] = bytes(len(CONTENT))
    urls = ("http://127.0.0.1:1/closed", f"{address}/missing", f"{address}/wrong", f"{address}/data.bin")
    assert fetch_dataset("it", tmp_path, known=known(*urls)).read_bytes() == CONTENT
    assert [path for path, _ in shelf.requests] == ["/missing", "/wrong", "/data.bin"]


def test_a_part_from_one_mirror_is_continued_by_the_next(address, shelf, tmp_path):
    shelf.files["/second"] = CONTENT
    shelf.cuts = [2_000_000, 0, 0]
    table = known(f"{address}/data.bin", f"{address}/second")
    assert fetch_dataset("it", tmp_path, known=table).read_bytes() == CONTENT
    assert shelf.requests[-1] == ("/second", "bytes=2000000-")


def test_all_failures_are_told(address, tmp_path):
    with pytest.raises(ConnectionError, match=r"missing: HTTP 404 .*; .*also: HTTP 404") as caught:
        fetch_dataset("it", tmp_path, known=known(f"{address}/missing", f"{address}/also"))
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="want http:// or https://"):
        fetch_dataset("it", tmp_path, known=known("file:///etc/hostname"))


# --- from a folder ------------------------------------------------------------------------------------------


def test_from_a_folder(tmp_path):
    (tmp_path / "disk").mkdir()
    file = tmp_path / "disk" / "data.bin"
    table = known("http://127.0.0.1:1/never")
    with pytest.raises(ValueError, match=r"disk without data\.bin"):
        fetch_dataset("it", tmp_path / "data", tmp_path / "disk", known=table)
    file.write_bytes(b"wrong")
    with pytest.raises(ValueError, match=r"data\.bin: got 5 bytes instead of 2304000, want"):
        fetch_dataset("it", tmp_path / "data", tmp_path / "disk", known=table)
    file.write_bytes(CONTENT)
    assert fetch_dataset("it", tmp_path / "data", tmp_path / "disk", known=table).read_bytes() == CONTENT


def test_a_damaged_file_in_place_is_not_overwritten(tmp_path):
    (tmp_path / "data.bin").write_bytes(b"mine")
    with pytest.raises(ValueError, match="delete it and fetch again"):
        fetch_dataset("it", tmp_path, known=known("http://127.0.0.1:1/never"))
    assert (tmp_path / "data.bin").read_bytes() == b"mine"


def test_unknown_names(tmp_path):
    with pytest.raises(ValueError, match="name: got 'cifar11', want one of 'cifar10', 'cifar100'"):
        fetch_dataset("cifar11", tmp_path)


# --- unpacking ----------------------------------------------------------------------------------------------


def tar_of(entries):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for info, raw in entries:
            info.size = len(raw)
            tar.addfile(info, io.BytesIO(raw))
    return file.getvalue()


def entry(name, kind=tarfile.REGTYPE, raw=b"abc"):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, "/etc/hostname"
    return info, raw if kind == tarfile.REGTYPE else b""


def test_an_archive_with_a_folder_is_unpacked_once(address, shelf, tmp_path):
    content = tar_of([entry("Set", tarfile.DIRTYPE), entry("Set/a.npy"), entry("Set/deep/b.npy", raw=b"d")])
    shelf.files["/set.tar"] = content
    table = known(f"{address}/set.tar", content=content, file="set.tar", folder="Set")
    folder = fetch_dataset("it", tmp_path, known=table)
    assert folder == tmp_path / "Set"
    assert (folder / "a.npy").read_bytes() == b"abc"
    assert (folder / "deep" / "b.npy").read_bytes() == b"d"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Set", "set.tar"]
    (tmp_path / "set.tar").unlink()
    assert fetch_dataset("it", tmp_path, known=table) == folder  # the archive may be deleted
    assert len(shelf.requests) == 1


@pytest.mark.parametrize(
    "bad",
    [
        entry("../out"),
        entry("/tmp/out"),
        entry("Set/../../out"),
        entry("Other/a"),
        entry("Set/link", tarfile.SYMTYPE),
        entry("Set/link", tarfile.LNKTYPE),
        entry("Set/pipe", tarfile.FIFOTYPE),
    ],
)
def test_archives_that_lead_elsewhere_are_refused(tmp_path, bad):
    (tmp_path / "in").mkdir()
    archive = tmp_path / "in" / "set.tar"
    archive.write_bytes(tar_of([entry("Set/a.npy"), bad]))
    with pytest.raises(ValueError, match=r"the entry .*want files and folders in Set/ only"):
        unpack_archive(archive, "Set")
    assert [path.name for path in tmp_path.rglob("*")] == ["in", "set.tar"]


def test_damaged_archives_are_refused(tmp_path):
    archive = tmp_path / "set.tar"
    whole = tar_of([entry("Set/a.npy", raw=b"x" * 50_000)])
    for bad, message in (
        (whole[:20_000], "a damaged archive"),
        (b"nonsense" * 100, "a damaged archive"),
        (tar_of([]), "an archive without Set/"),
    ):
        archive.write_bytes(bad)
        with pytest.raises(ValueError, match=message):
            unpack_archive(archive, "Set")
    assert [path.name for path in tmp_path.iterdir()] == ["set.tar"]


# --- by hand ------------------------------------------------------------------------------------------------


def plant_vlcs(root):
    for domain in ("Caltech101", "LabelMe", "SUN09", "VOC2007"):
        for name in ("bird", "car", "chair", "dog", "person"):
            (root / domain / name).mkdir(parents=True)
            (root / domain / name / "1.jpg").touch()


def test_what_wants_a_person_says_so(tmp_path):
    with pytest.raises(ValueError, match=r"vlcs has to be downloaded by hand \(https://.*Domain") as caught:
        fetch_dataset("vlcs", tmp_path)
    assert str(Path("DIR") / "VLCS" / "Caltech101" / "bird") in str(caught.value)
    assert str(caught.value).endswith("latte data fetch vlcs --from DIR")
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match=r"terra has to .*location_100.bird"):
        fetch_dataset("terra", tmp_path)


@pytest.mark.parametrize("below", ["", "VLCS"])
def test_what_a_person_has_is_linked_and_checked(tmp_path, below):
    disk = tmp_path / "disk" / below
    with pytest.raises(ValueError, match="without VLCS"):
        fetch_dataset("vlcs", tmp_path / "data", tmp_path / "disk")
    plant_vlcs(disk)
    folder = fetch_dataset("vlcs", tmp_path / "data", tmp_path / "disk")
    assert folder == tmp_path / "data" / "VLCS"
    assert (folder / "SUN09" / "dog" / "1.jpg").is_file()
    assert fetch_dataset("vlcs", tmp_path / "data") == folder
    (disk / "SUN09" / "cow").mkdir()
    with pytest.raises(ValueError, match="unknown cow"):
        fetch_dataset("vlcs", tmp_path / "data")


def test_the_list_is_complete():
    table = dataset_sources()
    assert set(table) >= {"cifar10", "cifar100", "cifar10c", "cifar100c", "vlcs", "terra", "pacs"}
    for source in table.values():
        assert source.title
        assert source.page.startswith("https://")
        assert bool(source.manual) != bool(source.urls)
        if source.urls:
            assert re.fullmatch("[0-9a-f]{32}", source.sums.md5)
            assert source.sums.size > 10**8
            assert len(source.urls) >= 2
            assert all(url.startswith("https://") for url in source.urls)
        else:
            assert source.folder


def test_one_process_at_a_time_downloads_a_file(address, tmp_path):
    """Two would write to one .part; the second is told who has it, and the first loses nothing."""
    sums = Sums(len(CONTENT), sha256=hashlib.sha256(CONTENT).hexdigest())
    target = tmp_path / "data.bin"
    with lock(tmp_path / "data.bin.lock", "download"), pytest.raises(ValueError, match=f"at work: pid {os.getpid()}"):
        download.download([f"{address}/data.bin"], target, sums)
    assert download.download([f"{address}/data.bin"], target, sums).read_bytes() == CONTENT
    assert [path.name for path in tmp_path.iterdir()] == ["data.bin"]
