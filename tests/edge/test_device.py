"""A device in one process: whatever happens between two pictures, its record restores it to the last bit."""

import threading
from contextlib import closing
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices import RowEncoder, rows, small_task
from latte.checks.material import same
from latte.core.privacy import Privacy
from latte.core.types import External
from latte.edge.classify.evidence import Labelled
from latte.edge.device.device import DeviceLoop
from latte.edge.device.feeds import LatestFrames
from latte.edge.device.labels import add_labels, compare_labels
from latte.edge.device.record import (
    DeviceRecord,
    DiskFullError,
    Source,
    open_record,
    read_answers,
    read_course,
)
from latte.edge.device.syncing import BackgroundSync, SyncTimes
from latte.edge.joining import new_member
from latte.methods import create_exchange
from waiting import wait_until

METHODS = st.sampled_from(["latte", "ristretto"])


def open_device(folder, task, link=None, privacy=None, **options):
    record, method = DeviceRecord(folder, task.fingerprint, **options), new_member(task, privacy)
    return DeviceLoop(RowEncoder(task.zero_shot.dim), task, method, record, link, SyncTimes("every", 2, 0, 0))


def state_of(device):
    return {name: array.tobytes() for name, array in device.method.state().items()}


@given(method=METHODS, steps=st.lists(st.sampled_from(["picture", "bad", "download", "save", "crash"]), max_size=40))
def test_after_a_crash_a_device_is_what_it_was(tmp_path_factory, method, steps):
    folder, task = tmp_path_factory.mktemp("device"), small_task(method)
    exchange = create_exchange(method, task.zero_shot, task.params)
    donor = new_member(task)
    for row in rows(20, seed=1):
        donor.predict(row[None])
    exchange.push("donor", donor.summary())
    device, seen = open_device(folder, task), 0
    for number, step in enumerate(steps):
        if step == "picture":
            device.answer(Source(f"{number}"), rows(1, seed=number)[0])
        elif step == "bad":
            assert device.answer(Source(f"{number}"), "no row").answer.problem
        elif step == "download" and device.tally.answered:
            exchange.push("me", device.method.summary())
            device.method.receive(exchange.pull("me"))
            device.save()  # as the device does after every download
        elif step == "save":
            device.save()
        seen += step in ("picture", "bad")
        before, counts = state_of(device), device.tally.counts()
        if step == "crash":
            device.record.close()  # nothing is saved on the way
            device = open_device(folder, task)
            assert state_of(device) == before
            after = device.tally.counts()
            assert (after.pictures, after.changed, after.unreadable) == (
                counts.pictures, counts.changed, counts.unreadable
            )  # fmt: skip
    assert device.record.number == seen
    device.record.close()


def test_a_picture_that_cannot_be_recorded_has_not_been_learnt(tmp_path):
    task = small_task()
    device = open_device(tmp_path, task)
    device.answer(Source("a"), rows(1)[0])
    before = state_of(device)
    pages = device.record._database.execute("PRAGMA page_count").fetchone()[0]
    device.record._database.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(DiskFullError, match="images are recorded"):
        for number in range(100):
            device.answer(Source(f"b{number}" * 100), rows(1, seed=number)[0])
            before = state_of(device)
    assert state_of(device) == before
    recorded = device.record.number
    device.record._database.execute("PRAGMA max_page_count=100000")
    device.answer(Source("c"), rows(1, seed=999)[0])
    assert device.record.number == recorded + 1
    device.record.close()


def test_a_full_disk_can_be_waited_for(tmp_path):
    task, complaints = small_task(), []

    def make_room(error):
        complaints.append(str(error))
        if len(complaints) == 3:
            device.record._database.execute("PRAGMA max_page_count=100000")

    device = open_device(tmp_path, task, on_full=make_room)
    twin = new_member(task)
    device.record._database.execute("PRAGMA max_page_count=1")  # it is never below what is used
    for number in range(300):
        device.answer(Source(f"{number}"), rows(1, seed=number)[0])
        twin.predict(rows(1, seed=number))
    assert len(complaints) == 3 and "device.db cannot be written" in complaints[0]
    assert same(device.method.state(), twin.state()) and device.record.number == 300
    device.record.close()


def test_answers_do_not_wait_for_a_server_that_hangs(tmp_path):
    hanging, entered = threading.Event(), threading.Event()

    def trip(upload, report):
        entered.set()
        hanging.wait()
        raise OSError("gone")

    link = BackgroundSync(trip)
    device = open_device(tmp_path, small_task(), link)
    answers = list(device.answer_frames(rows(50)))
    assert [answer.number for answer in answers] == list(range(1, 51)) and entered.is_set()
    hanging.set()
    device.close(patience=0.1)
    device.record.close()


def test_a_download_is_taken_over_and_survives_a_crash(tmp_path):
    task = small_task()
    exchange = create_exchange("latte", task.zero_shot, task.params)
    donor = new_member(task)
    for row in rows(50, seed=5):
        donor.predict(row[None])
    exchange.push("donor", donor.summary())
    reports = []

    def trip(upload, report):
        exchange.push("me", upload)
        reports.append(report)
        return exchange.pull("me")

    device = open_device(tmp_path, task, BackgroundSync(trip))
    list(device.answer_frames(rows(4)))
    device.link.drain(60)
    device.idle()
    assert device.method.state()["external.valid"].any()
    before = state_of(device)
    device.record.close()
    again = open_device(tmp_path, task)
    assert state_of(again) == before
    again.record.close()
    assert reports[-1].images == 4 and reports[-1].classes >= 1 and reports[-1].software.startswith("latte ")
    assert 0 <= reports[-1].agreement <= 1 and 0 <= reports[-1].entropy <= 1


def test_a_download_that_cannot_be_used_changes_nothing_but_what_is_said(tmp_path):
    task = small_task()

    def trip(upload, report):
        good = External.empty(task.zero_shot, slots=1)
        return replace(good, valid=~good.valid, entropy=good.entropy + 6)  # no entropy is 7

    device = open_device(tmp_path, task, BackgroundSync(trip))
    list(device.answer_frames(rows(4)))
    device.link.drain(60)
    device.idle()
    assert not device.method.state()["external.valid"].any()
    assert "cannot be used: external.entropy" in device.current_status().sync_problem
    assert [answer.number for answer in device.answer_frames(rows(4, seed=1))] == [5, 6, 7, 8]
    device.record.close()


def test_after_a_restart_without_a_server_the_last_sync_is_still_known(tmp_path):
    def trip(upload, report):
        return External.empty(small_task().zero_shot)

    device = open_device(tmp_path, small_task(), BackgroundSync(trip))
    list(device.answer_frames(rows(4)))
    device.close()
    synced = device.current_status().synced
    device.record.close()
    again = open_device(tmp_path, small_task(), BackgroundSync(lambda upload, report: 1 / 0))
    assert synced > 0 and (again.current_status().synced, again.current_status().sync_images) == (synced, 4)
    again.record.close()


def test_the_record_says_what_was_answered(tmp_path):
    device = open_device(tmp_path, small_task())
    answers = list(device.answer_frames([*rows(20), "bad", *rows(3, seed=3)]))
    with pytest.raises(ValueError, match="another process"):
        DeviceRecord(tmp_path, device.task.fingerprint)
    device.record.close()
    database = open_record(tmp_path)
    assert list(read_answers(database)) == answers
    assert sum(part.images for part in read_course(database)) == 23
    database.close()
    with pytest.raises(ValueError, match="another task"):
        DeviceRecord(tmp_path, "other")


def test_the_report_says_how_both_answers_compare_with_labels(tmp_path):
    task = small_task()
    device = open_device(tmp_path, task)
    for number, row in enumerate(rows(40)):
        device.answer(Source(f"{number}.png"), row)
    device.record.close()
    with closing(open_record(tmp_path)) as database:
        add_labels(database, {f"{number}.png": task.zero_shot.classnames[0] for number in range(40)})
        labelled = compare_labels(database)
    again = open_device(tmp_path, task)
    report = again.summary_report()
    again.record.close()
    assert labelled.labelled == 40
    assert Labelled(*(getattr(report, name) for name in Labelled.__slots__)) == labelled


def test_frames_that_come_too_fast_are_dropped_and_counted(tmp_path):
    device, taken = open_device(tmp_path, small_task()), threading.Event()

    def camera():
        yield from rows(100)
        taken.set()

    frames = LatestFrames(camera(), room=4)
    answers = []
    for answer in device.answer_frames(frames):
        answers.append(answer)
        wait_until(taken.is_set, "the camera to be done")  # the first answer takes that long
    assert len(answers) + frames.dropped == 100 and len(answers) <= 6
    assert device.current_status().dropped == frames.dropped
    device.record.close()


def test_memory_is_saved_now_and_then_only(tmp_path, monkeypatch):
    monkeypatch.setattr("latte.edge.device.device.SAVE_EVERY", 10)
    device = open_device(tmp_path, small_task())
    list(device.answer_frames(rows(25)))
    device.record.close()
    again = open_device(tmp_path, small_task())
    assert again.restored == 5 and np.all(again.tally.counts().pictures == 25)
    again.record.close()


@pytest.mark.parametrize("method", ["latte", "ristretto"])
def test_after_a_crash_the_noise_of_an_upload_is_the_same(tmp_path, method):
    """It is on disk before it is sent: whoever restarts a device often cannot average the noise away."""
    task, sent = small_task(method), []

    def trip(upload, report):
        sent.append((upload, report))
        raise OSError("gone")

    link = BackgroundSync(trip)
    device = open_device(tmp_path, task, link, Privacy(noise=0.5))
    for number, row in enumerate(rows(6)):
        device.answer(Source(f"{number}"), row)
    wait_until(lambda: sent and sent[-1][1].images == 6, "the upload after the last picture")
    link.stop(1.0)
    device.record.close()  # nothing is saved on the way
    again = open_device(tmp_path, task, privacy=Privacy(noise=0.5))
    upload, last = again.method.summary(), sent[-1][0]
    for name in ("vectors",) if method == "latte" else ("counts", "means"):
        np.testing.assert_array_equal(getattr(upload, name), getattr(last, name))
    again.record.close()
    plain = open_device(tmp_path, task)
    assert plain.tally.answered == 6, "without --noise, the same memory goes on"
    plain.save()
    plain.record.close()


def test_with_noise_a_report_says_nothing_of_what_pictures_show(tmp_path):
    device = open_device(tmp_path, small_task(), privacy=Privacy(noise=0.5))
    for number, row in enumerate(rows(6)):
        device.answer(Source(f"{number}"), row)
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(device.summary_report()))
    counts = {name: value for name, value in sent.items() if value and name != "software"}
    assert counts == {"images": 6} and not {"agreement", "entropy", "classes", "differing", "gained", "lost"} & set(
        sent
    )
    device.record.close()
    quiet = open_device(tmp_path / "quiet", small_task(), privacy=Privacy(least_images=2))
    quiet.answer(Source("a"), rows(1)[0])
    assert quiet.summary_report().agreement in (0.0, 1.0), "without noise there is no epsilon to spoil"
    quiet.record.close()
