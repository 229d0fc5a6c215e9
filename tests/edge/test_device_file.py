"""What a device writes to its disk: little, nothing while it waits, and nothing of it is lost or grows for ever."""

import json
import os
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from devices import RowEncoder, rows, small_task
from latte.checks.material import same
from latte.edge.classify.classify import Answer
from latte.edge.device.device import DeviceLoop
from latte.edge.device.feeds import Arrival, PictureFeed
from latte.edge.device.labels import add_labels, compare_labels
from latte.edge.device.record import (
    DeviceRecord,
    NumberedAnswer,
    Source,
    open_record,
    open_to_read,
    read_answers,
    read_counts,
    read_course,
    retry_unreadable,
)
from latte.edge.device.report import AnswerLog
from latte.edge.device.syncing import BackgroundSync, SyncState, SyncTimes
from latte.edge.joining import new_member


class Rows:
    """Rows as files; ``waiting`` are known."""

    problem, notice = "", ""

    def __init__(self, given, first=0):
        self._given = [
            Arrival(Source(f"/in/IMG_{first + number:06}.jpg", 1, 1), row) for number, row in enumerate(given)
        ]
        self.waiting = len(given)

    def __iter__(self):
        yield from self._given

    def read(self, file, prepare):
        self.waiting -= 1
        return file


def open_device(folder, task, link=None, **options):
    record = DeviceRecord(folder, task.fingerprint, **options)
    times = SyncTimes("every", 16, 0, 0.0)
    return DeviceLoop(RowEncoder(task.zero_shot.dim), task, new_member(task), record, link, times)


def answer(device, given, first=0):
    return [one for one in device.answers(PictureFeed(Rows(given, first), None)) if one is not None]


def written():
    about = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(about["write_bytes"]), int(about["wchar"])


# --- flash ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux")
@pytest.mark.parametrize("synced", [False, True])
def test_a_picture_of_a_backlog_costs_less_than_4_kb(tmp_path, synced):
    """Embeddings of CLIP's 512 dimensions, ten classes; with a server, a download after every 16 pictures."""
    task = small_task(classes=10, dim=512)
    given = rows(1500, dim=512)
    donor = new_member(task)
    for row in rows(50, dim=512, seed=1):
        donor.predict(row)
    from latte.methods import create_exchange

    exchange = create_exchange("latte", task.zero_shot)
    exchange.push("donor", donor.summary())

    def trip(upload, report):
        exchange.push("device", upload)
        return exchange.pull("device")

    device = open_device(tmp_path, task, BackgroundSync(trip) if synced else None)
    before = written()
    assert len(answer(device, given)) == 1500
    disk, handed = ((late - early) / 1500 for early, late in zip(before, written(), strict=True))
    assert handed < 4096 and disk < 4096, (disk, handed)
    memory = device.method.state()
    device.record.close()
    again = open_device(tmp_path, task)
    assert same(again.method.state(), memory), "and it is all there"
    again.record.close()


@pytest.mark.skipif(not Path("/proc/self/io").exists(), reason="needs Linux")
def test_a_device_that_waits_writes_nothing(tmp_path, monkeypatch):
    clock = [time.monotonic()]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    device = open_device(tmp_path, small_task())
    answer(device, rows(5))
    for _ in range(5):
        clock[0] += 1.1
        device.idle()
    before = device.record._database.total_changes
    for _ in range(3600):
        clock[0] += 1.1
        device.idle()
    assert device.record._database.total_changes == before
    states = [SyncState(problem="refused"), SyncState(problem="timed out")]
    monkeypatch.setattr(device, "current_status", lambda: replace(device.status, sync_problem=states[0].problem))
    for _ in range(3600):  # a problem that is another one at every look
        clock[0] += 1.1
        states.reverse()
        device.idle()
    changes = device.record._database.total_changes - before
    assert 10 < changes < 100, "said at once, and then ever more seldom"
    device.record.close()


# --- retention -----------------------------------------------------------------------------------------------------


def test_old_answers_go_and_their_pictures_stay_known(tmp_path):
    task = small_task()
    device = open_device(tmp_path, task, history=1500)
    given = list(rows(4500))
    given[10] = "unreadable"
    given[4400] = "unreadable"
    answer(device, given[:1000])
    with closing(open_record(tmp_path)) as database:
        assert add_labels(database, {"/in/IMG_000003.jpg": "class 1"}) == 1
    answer(device, given[1000:], 1000)
    counts = device.tally.counts()
    with closing(open_record(tmp_path)) as database:
        numbers = [one.number for one in read_answers(database)]
        assert numbers[0] == 4 and numbers[1] == 4000 - 1500 + 1 and numbers[-1] == 4500, "labelled pictures stay"
        assert replace(read_counts(database), seconds=0.0) == replace(counts, seconds=0.0)
        assert counts.pictures == 4500 and counts.unreadable == 2
        assert compare_labels(database).labelled == 1
        assert sum(part.images for part in read_course(database)) <= 4500 and len(read_course(database)) <= 9
    size = sum(path.stat().st_size for path in tmp_path.iterdir())
    memory = device.method.state()
    device.record.close()
    again = open_device(tmp_path, task, history=1500)
    assert answer(again, given) == [], "none is classified twice"
    assert again.tally.counts().pictures == 4500 and same(again.method.state(), memory)
    answer(again, list(rows(4500, seed=3)), 4500)
    again.record.close()
    assert sum(path.stat().st_size for path in tmp_path.iterdir()) < size + 4500 * 30 + (1 << 20)


# --- retry ---------------------------------------------------------------------------------------------------------


def test_unreadable_pictures_are_tried_again_when_somebody_asks(tmp_path):
    task = small_task()
    device = open_device(tmp_path, task)
    forgotten = []
    device._forget = forgotten.append
    answer(device, [rows(3)[0], "bad", rows(3)[2]])
    assert answer(device, rows(3)) == []
    with closing(open_record(tmp_path)) as database:
        assert retry_unreadable(database) == 1 and retry_unreadable(database) == 0
    device._looked = 0.0
    device._forget = forgotten.append
    device.idle()
    assert forgotten == ["/in/IMG_000001.jpg"]
    (again,) = answer(device, rows(3))
    assert again.number == 4 and again.answer.file == "/in/IMG_000001.jpg" and again.answer.problem is None
    assert (device.tally.counts().pictures, device.tally.counts().unreadable) == (3, 0)
    device.record.close()
    device = open_device(tmp_path, task)
    assert answer(device, rows(3)) == []
    assert (device.tally.counts().pictures, device.tally.counts().unreadable) == (3, 0)
    device.record.close()


# --- a file that is not there any more, or may not be written ---------------------------------------------------------


@pytest.mark.parametrize("way", ["removed", "replaced"])
def test_a_record_that_is_removed_under_a_device_ends_it(tmp_path, way):
    state = tmp_path / "state"
    device = open_device(state, small_task())
    answer(device, rows(2))
    device.idle()
    state.rename(tmp_path / "elsewhere")
    if way == "replaced":
        open_record(make(state), create=True).close()
    device._looked = 0.0
    with pytest.raises(OSError, match=r"device\.db has been removed or replaced"):
        device.idle()
    with pytest.raises(OSError, match="removed or replaced"):
        answer(device, rows(3)[2:], 2)
    device.record.close()


def make(folder):
    folder.mkdir()
    return folder


def test_a_record_that_cannot_be_written_is_one_clear_error(tmp_path, monkeypatch):
    device = open_device(tmp_path, small_task())
    device.record._database.execute("PRAGMA query_only=1")  # as a disk that was mounted again to be read only
    with pytest.raises(OSError, match=r"device\.db cannot be written: attempt to write a readonly database"):
        answer(device, rows(2))
    device.record.close()
    with closing(open_record(tmp_path)) as database:
        database.execute("PRAGMA query_only=1")
        with pytest.raises(OSError, match="cannot be written"):
            add_labels(database, {"/in/a.jpg": "cat"})
        with pytest.raises(OSError, match="cannot be written"):
            retry_unreadable(database)
    with closing(open_to_read(tmp_path)) as database:
        assert list(read_answers(database)) == []


# --- the file of answers -----------------------------------------------------------------------------------------


def numbers_in(path):
    return [json.loads(line)["number"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("way", ["renamed", "emptied"])
@pytest.mark.parametrize("running", [True, False])
def test_a_log_that_was_rotated_goes_on_and_repeats_nothing(tmp_path, way, running):
    task, path = small_task(), tmp_path / "out.jsonl"
    device = open_device(tmp_path / "state", task)
    log = AnswerLog(path, tmp_path / "state")
    whole = b""
    for turn in range(3):
        for one in answer(device, rows(30)[10 * turn : 10 * turn + 10], 10 * turn):
            log.add(one)
            device.log = log.name, log.number
        assert numbers_in(path) == list(range(10 * turn + 1, 10 * turn + 11))
        whole += path.read_bytes()
        if way == "renamed":
            path.rename(tmp_path / f"out.jsonl.{turn}")
        else:
            os.truncate(path, 0)
        if not running:
            log.close()
            device.close()
            device.record.close()
            device = open_device(tmp_path / "state", task)
            log = AnswerLog(path, tmp_path / "state")
            assert path.read_bytes() == b""
    log.close()
    device.record.close()
    assert [json.loads(line)["number"] for line in whole.splitlines()] == list(range(1, 31))
    other = tmp_path / "other.jsonl"
    AnswerLog(other, tmp_path / "state").close()
    assert numbers_in(other) == list(range(1, 31)), "a file of another name gets all"


def test_names_that_are_no_utf8_are_json_all_the_same(tmp_path):
    name = os.fsdecode(b"/in/caf\xe9 \xf0\x9f\x98\x80.jpg")
    line = NumberedAnswer(1, 0.0, Answer(name, "😀", problem=f"{name}: no")).line()
    line.encode("utf-8")
    read = json.loads(line)
    json.dumps(read, ensure_ascii=False).encode("utf-8")  # no lone surrogate
    assert read["file"] == "/in/caf\\xe9 😀.jpg" and read["label"] == "😀" and "\\xe9" in read["problem"]


def test_of_a_million_digests_none_is_missed(tmp_path):
    record = DeviceRecord(tmp_path, small_task().fingerprint)
    from latte.edge.device import record as device_record

    known = [Source(f"{n}", n, n) for n in range(2000)]
    record._older = np.sort(np.array([device_record._digest(one) for one in known], "<u8"))
    assert all(map(record.is_done, known)) and not any(record.is_done(Source(f"{n}", n, 1)) for n in range(2, 2000))
    record.close()
