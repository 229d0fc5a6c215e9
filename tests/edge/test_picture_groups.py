"""Pictures that follow each other closely are learnt from and recorded together; nobody can tell from the answers."""

import threading

import numpy as np
import pytest

from devices import RowEncoder, rows, small_task
from latte.checks.material import same
from latte.edge.classify.classify import EmbeddedPicture, answer_picture
from latte.edge.device.device import DeviceLoop
from latte.edge.device.feeds import Arrival, PictureFeed
from latte.edge.device.record import PIECE, DeviceRecord, DiskFullError, Source, open_record, read_answers
from latte.edge.device.syncing import BackgroundSync, SyncTimes
from latte.edge.joining import new_member
from latte.encoders import BadImageError
from latte.files.tensors import safetensors_bytes

MANY = 100


class Place:
    """Rows that are read as fast as they are taken; the last one waits until ``more`` is set."""

    problem, notice, waiting = "", "", 0

    def __init__(self, arrivals):
        self.arrivals, self.more = arrivals, threading.Event()
        self.more.set()

    def __iter__(self):
        yield from self.arrivals
        self.more.wait()

    def read(self, file, prepare):
        return file


def open_device(folder, link=None, period=16):
    task = small_task()
    record = DeviceRecord(folder, task.fingerprint)
    return DeviceLoop(
        RowEncoder(task.zero_shot.dim), task, new_member(task), record, link, SyncTimes("every", period, 0, 0)
    )


def arrivals(count):
    """Return rows, of which some cannot be read and some come twice."""
    made = [Arrival(Source(f"{number}.png"), row) for number, row in enumerate(rows(count))]
    made[5:6] = [one._replace(picture=BadImageError("not a row")) for one in made[5:6]]
    return [one for number, one in enumerate(made) for _ in range(1 + (number % 10 == 3))]


def expected(count):
    """Return the answers and the memory of a device that takes one picture after the other."""
    task, answers = small_task(), []
    method = new_member(task)
    for number, row in enumerate(rows(count)):
        problem = "not a row" if number == 5 else None
        picture = EmbeddedPicture(f"{number}.png", None if problem else row, problem)
        answers.append(answer_picture(picture, task.zero_shot, method))
    return answers, method.state()


def test_groups_change_no_answer_and_no_memory(tmp_path):
    device = open_device(tmp_path)
    given = [one.answer for one in device.answers(PictureFeed(Place(arrivals(MANY)), None)) if one is not None]
    answers, memory = expected(MANY)
    assert given == answers and same(device.method.state(), memory)
    device.close()
    device.record.close()
    again = open_device(tmp_path)
    assert same(again.method.state(), memory) and again.record.number == MANY
    again.record.close()


def test_a_group_is_there_at_the_latest_after_a_moment(tmp_path):
    device, place = open_device(tmp_path), Place(arrivals(3))
    place.more.clear()  # more may come
    taken = []
    for answer in device.answers(PictureFeed(place, None)):
        taken += [answer] if answer is not None else []
        if len(taken) == 3:
            place.more.set()
    assert [one.number for one in taken] == [1, 2, 3]
    device.record.close()


def test_pictures_of_a_backlog_share_a_transaction_and_the_last_comes_at_once(tmp_path, monkeypatch):
    """However slow the model: a group is written when it is large or old enough, or when no other picture is known."""
    device, written, taken = open_device(tmp_path), [], []
    write = device.record._write

    def count(durable):
        done = write(durable)
        written.append(len(done))
        return done

    monkeypatch.setattr(device.record, "_write", count)
    place = Place([Arrival(Source(f"{n}"), row) for n, row in enumerate(rows(150))])
    place.more.clear()  # more may come, and nothing of it is known
    place.waiting = 1  # until the last one is taken
    for answer in device.answers(PictureFeed(place, None)):
        if len(taken) + (answer is not None) >= 2 * 64:
            place.waiting = 0
        if answer is not None:
            taken.append(answer.number)
        if len(taken) == 150:
            place.more.set()
    assert taken == list(range(1, 151)) and sum(size == 64 for size in written) == 2, "then one by one"
    device.record.close()


def test_pictures_of_a_group_are_not_lost_when_the_device_is_stopped(tmp_path):
    device, place = open_device(tmp_path), Place(arrivals(10))
    place.waiting = 1  # more is known
    device.record._written = float("inf")  # nothing is due, however busy the machine is
    answers = device.answers(PictureFeed(place, None))
    assert [next(answers) for _ in range(7)] == [None] * 7  # learnt from, not recorded
    assert [one.number for one in device.flush()] == [1, 2, 3, 4, 5, 6]  # one of the seven came twice
    assert device.tally.counts().pictures == 6
    device.close()
    device.record.close()


def test_a_sync_comes_after_its_picture_and_not_after_the_group(tmp_path):
    reports = []
    link = BackgroundSync(lambda upload, report: reports.append(report.images))
    device = open_device(tmp_path, link, period=4)
    for _ in device.answers(PictureFeed(Place(arrivals(12)), None)):
        link.drain(60)  # otherwise a later summary takes the place of one that waits
    assert reports == [4, 8]  # of 11 that can be read
    device.close()
    assert reports == [4, 8, 11]
    device.record.close()


def test_what_cannot_be_recorded_is_forgotten_with_its_group(tmp_path):
    device = open_device(tmp_path)
    list(device.answers(PictureFeed(Place(arrivals(3)), None)))
    before = device.method.state()
    pages = device.record._database.execute("PRAGMA page_count").fetchone()[0]
    device.record._database.execute(f"PRAGMA max_page_count={pages}")
    long = [Arrival(Source(f"{number}" * 5000), row) for number, row in enumerate(rows(20, seed=2))]
    with pytest.raises(DiskFullError, match="3 images are recorded"):
        list(device.answers(PictureFeed(Place(long), None)))
    assert same(device.method.state(), before) and device.record.number == 3 and device.flush() == []
    device.record.close()


def test_a_snapshot_leaves_out_what_it_covers(tmp_path):
    device = open_device(tmp_path)
    for number, row in enumerate(rows(6)):
        source = Source(f"{number}")
        device._learn(source, device._encode(source, row))
        if number in (1, 3):
            device._save()
    written = []
    device.record._database.set_trace_callback(written.append)
    device.flush()
    device.record._database.set_trace_callback(None)
    state = len(safetensors_bytes(device.method.state(), {}))
    assert sum("INTO snapshot" in statement for statement in written) == -(-state // PIECE)  # of the last one
    assert sum("INTO embeddings" in statement for statement in written) == 1  # one row for both pictures after it
    memory = device.method.state()
    device.record.close()
    again = open_device(tmp_path)
    assert again.restored == 2 and same(again.method.state(), memory)
    again.record.close()
    database = open_record(tmp_path)
    assert [one.number for one in read_answers(database)] == [1, 2, 3, 4, 5, 6]
    database.close()


def test_a_snapshot_of_a_group_that_failed_stays_before_what_followed_it(tmp_path):
    """The rows of pictures that came after a snapshot survive it, whichever transactions they are written in."""
    task = small_task()
    record = DeviceRecord(tmp_path, task.fingerprint)
    method = new_member(task)
    device = DeviceLoop(RowEncoder(task.zero_shot.dim), task, method, record)
    device.answer(Source("a"), rows(2)[0])
    device._save()
    database = record._database
    pages = database.execute("PRAGMA page_count").fetchone()[0]
    database.execute(f"PRAGMA max_page_count={pages}")
    record._on_full = lambda error: database.execute("PRAGMA max_page_count=100000")
    device.answer(Source("b" * 5000), rows(2)[1])
    record.close()
    again = open_device(tmp_path)
    assert again.restored == 1 and same(again.method.state(), method.state())
    again.record.close()


class Saved:
    """A method whose memory is a few bytes."""

    def __init__(self, content):
        self.content = content

    def state(self):
        return {"memory": np.frombuffer(self.content, np.uint8)}


def test_only_pieces_of_the_memory_that_changed_are_written(tmp_path):
    record = DeviceRecord(tmp_path, "task")
    state = bytearray(rows(100, dim=64).tobytes())
    for length, changed, most in ((25600, 0, 28), (25600, 5000, 1), (25600, 5000, 0), (30, 3, 1), (25600, 7, 28)):
        state[changed] ^= 1 if most else 0
        written = []
        record._database.set_trace_callback(written.append)
        record.save(Saved(bytes(state[:length])))
        record.flush()
        record._database.set_trace_callback(None)
        assert most // 2 <= sum("INTO snapshot" in statement for statement in written) <= most
        assert snapshot_of(record._database) == safetensors_bytes(Saved(bytes(state[:length])).state(), {})
    record.close()
    again = DeviceRecord(tmp_path, "task")
    before = again._database.total_changes
    again.save(Saved(bytes(state)))
    again.flush()
    assert again._database.total_changes == before, "after a restart, too"
    again.close()


def snapshot_of(database):
    return b"".join(piece for (piece,) in database.execute("SELECT piece FROM snapshot ORDER BY place"))
