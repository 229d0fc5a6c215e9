"""Labels of a device's pictures: what they prove, whom they judge, what is asked; what happens if adapting hurts."""

import json
import sqlite3
import urllib.error
import urllib.request
from contextlib import closing
from dataclasses import replace
from fractions import Fraction
from math import comb
from threading import Thread
from unittest import mock

import numpy as np
import pytest

from devices import RowEncoder, rows, small_task, write_pictures
from latte.core.evidence import ENOUGH, MOST_LABELS, Pairs, evidence
from latte.core.types import TeachingRights
from latte.core.unknown import BINS, bin_of, mcm_of, share_below, threshold_of
from latte.edge.classify.classify import EmbeddedPicture, answer_picture
from latte.edge.device.device import DeviceLoop
from latte.edge.device.labels import (
    NONE,
    add_labels,
    compare_labels,
    count_due,
    due_lessons,
    read_pairs,
    read_questions,
    remove_labels,
)
from latte.edge.device.record import DeviceRecord, FleetKnowledge, Source, open_record, open_to_read, read_answers
from latte.edge.device.review import Review, ReviewServer
from latte.edge.device.syncing import SyncTimes
from latte.edge.device.watch import file_source
from latte.edge.joining import new_member
from latte.errors import InputError
from latte.server.hub.hub import Hub, Limits
from latte.server.store.sqlite import SqliteStore
from latte.wire.messages import DeviceReport, FleetWord, pairs_of

STRONG = small_task(alpha=30.0)  # the memory changes about every fourth answer


def open_device(folder, task=STRONG, **options):
    record = DeviceRecord(folder, task.fingerprint)
    return DeviceLoop(
        RowEncoder(task.zero_shot.dim), task, new_member(task), record, None, SyncTimes("every", 2, 0, 0), **options
    )


# --- the e-process ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wins", "losses"), [(0, 0), (10, 0), (0, 10), (19, 5), (5, 19), (7, 7), (100, 80), (400, 500)]
)
def test_evidence_is_the_exact_value(wins, losses):
    n = wins + losses
    exact = Fraction(sum(comb(n + 1, j) for j in range(wins + 1)), (n + 1) * comb(n, wins))
    assert evidence(wins, losses) == pytest.approx(float(exact), rel=1e-9)


def test_numbers_that_no_fleet_has_end_at_once():
    assert evidence(2**62, 2**61) == evidence(2**62, 0) == 1e9 and evidence(0, 2**62) < 1e-5
    assert Pairs(2**62, 2**62).more() is None
    assert pairs_of(DeviceReport(images=10, helped=11, harmed=0, neither=0)) is None, "more labels than images"
    assert pairs_of(DeviceReport(images=2**62, helped=MOST_LABELS + 1, harmed=0, neither=0)) is None
    assert pairs_of(DeviceReport(images=9, gained=2, lost=1)) == Pairs(2, 1), "as an earlier client says it"


def test_false_alarms_stay_below_one_in_twenty_however_often_one_looks():
    """Fair coins, looked at after every toss; benchmarks/robustness/help_and_harm.py has 1,000 fleets."""
    rng, known = np.random.default_rng(0), {}
    alarms = 0
    for _ in range(200):
        harmed = np.cumsum(rng.random(200) < 0.5)
        for number, h in enumerate(harmed.tolist(), 1):
            key = h, number - h
            if key not in known:
                known[key] = evidence(*key) >= ENOUGH
            if known[key]:
                alarms += 1
                break
    assert 0 < alarms <= 10


def test_the_number_of_labels_that_are_still_needed_is_enough_if_nothing_changes():
    for pairs in (Pairs(), Pairs(6, 1, 3), Pairs(1, 6, 3), Pairs(4, 0, 0)):
        more, total = pairs.more(), pairs.differing + 6
        likely = [pairs.helped + 3, pairs.harmed + 1, pairs.neither + 2]
        later = pairs + Pairs(*(round(more * share / total) for share in likely))
        assert pairs.verdict == "unknown" != later.verdict, pairs


# --- whom a label judges ---------------------------------------------------------------------------------------


@pytest.fixture
def device(tmp_path):
    made = open_device(tmp_path / "state")
    yield made
    made.record.close()


def answer(device, count, seed=0):
    for number, row in enumerate(rows(count, seed=seed)):
        device.answer(Source(f"/in/{seed}-{number}"), row)
    return list(read_answers(device.record.database))


def differing(answers):
    return [one.answer for one in answers if one.answer.label != one.answer.zero_shot]


def test_a_label_judges_the_answer_before_it_and_chosen_pictures_make_no_accuracy(device):
    answers, database = answer(device, 60), device.record.database
    first, second, third, *_ = differing(answers)
    add_labels(database, {first.file: first.label, "/later": "class 0"}, chosen=True)
    add_labels(database, {second.file: second.zero_shot, third.file: NONE})
    assert read_pairs(database) == Pairs(1, 1, 1)
    labelled = compare_labels(database)
    assert (labelled.labelled, labelled.correct, labelled.correct_zero_shot) == (1, 0, 1), "one was not chosen"
    device.answer(Source(first.file, 7), rows(1, seed=5)[0])  # the file has changed: another picture
    assert read_pairs(database) == Pairs(1, 1, 1), "the label was of the one before"
    add_labels(database, {first.file: first.zero_shot})
    assert read_pairs(database) == Pairs(0, 2, 1), "a label that is corrected judges the same answer"
    assert remove_labels(database, [first.file, second.file]) == 2 and read_pairs(database) == Pairs(0, 0, 1)


def test_what_is_due_is_learnt_once_in_the_transaction_of_the_memory(device):
    database = device.record.database
    one, two = (answered.answer.file for answered in answer(device, 2))
    add_labels(database, {one: "class 1", two: NONE, "/later": "class 2"})
    assert [(lesson.source.name, lesson.label) for lesson in due_lessons(database)] == [(one, "class 1"), (two, NONE)]
    device.record.learn(Source(one), 1, "class 1", b"1234")
    assert len(due_lessons(database)) == count_due(database) == 2, "not before the transaction"
    device.save()
    assert count_due(database) == 1
    assert [lesson.source.name for lesson in due_lessons(database)] == [two]
    remove_labels(database, [one])
    (gone,) = [lesson for lesson in due_lessons(database) if lesson.label is None]
    assert (gone.taught, gone.row) == ("class 1", b"1234"), "to be unlearnt"
    device.record.learn(gone.source, 1, None, None)
    device.save()
    assert [lesson.source.name for lesson in due_lessons(database)] == [two]


# --- if adapting hurts -------------------------------------------------------------------------------------------


def harm(device):
    """Label answers so that zero-shot was right wherever the two differ."""
    worse = differing(answer(device, 100))
    assert len(worse) > 7, "enough for a proof"
    add_labels(device.record.database, {one.file: one.zero_shot for one in worse})


def test_a_device_that_is_harmed_answers_with_zero_shot_and_goes_on_learning(tmp_path):
    answers, states = {}, {}
    for name, fallback in (("safe", True), ("stubborn", False)):
        device = open_device(tmp_path / name, fallback=fallback)
        harm(device)
        device._labels_due = 0.0
        device.idle()
        assert device.falls_back is fallback
        answers[name] = [one.answer for one in answer(device, 60, seed=1)[100:]]
        states[name] = {key: array.tobytes() for key, array in device.method.state().items()}
        pairs = read_pairs(device.record.database)
        device.record.close()
        again = open_device(tmp_path / name, fallback=fallback)
        assert again.falls_back is fallback and again.tally.counts().changed == device.tally.counts().changed > 0
        assert again.tally.recent() == device.tally.recent()
        again.record.close()
    assert any(one.label != one.zero_shot for one in answers["stubborn"])
    assert all(one.label == one.zero_shot and one.probability == one.zero_shot_probability for one in answers["safe"])
    assert [one.adapted for one in answers["safe"]] == [one.label for one in answers["stubborn"]]
    assert states["safe"] == states["stubborn"] and pairs.harmed > 7
    with closing(open_to_read(tmp_path / "safe")) as database:
        line = json.loads(list(read_answers(database, 100))[-1].line())
    assert line["adapted"] == answers["safe"][-1].adapted and line["label"] == answers["safe"][-1].label


def test_where_the_memory_helps_again_after_the_fallback_answers_adapt_again(device):
    harm(device)
    device._labels_due = 0.0
    device.idle()
    assert device.falls_back
    better = [one.answer for one in answer(device, 200, seed=2)[100:] if one.answer.adapted != one.answer.zero_shot]
    add_labels(device.record.database, {one.file: one.adapted for one in better})
    device._labels_due = 0.0
    device.idle()
    assert not device.falls_back


def test_the_labels_of_a_fleet_add_up_and_reach_every_device(device, tmp_path):
    with closing(SqliteStore(tmp_path / "store")) as store:
        hub = Hub(STRONG, store)
        assert hub._fleet_word() != FleetWord(), "nothing is sent where nobody has a label"
        for name, harmed in (("a", 3), ("b", 4), ("b", 5)):  # the last report of a client counts
            hub.reports.note(name, DeviceReport(images=50, helped=0, harmed=harmed, neither=2))
        word = hub._fleet_word()
        assert word == FleetWord((0, 8, 4))
        device._hear(word)
        assert device.falls_back, "no client of these could know it alone"
        hub.grant(TeachingRights(frozenset({"a"})))
        assert hub._fleet_word() == FleetWord((0, 3, 2)), "once somebody has the right to teach, only those count"
        hub.grant(TeachingRights(frozenset(), muted=frozenset({"a"})))
        assert hub._fleet_word() == FleetWord((0, 5, 2))
        hub.grant(TeachingRights(frozenset()))
        assert hub._fleet_word() == word
        hub.reports.forget("b")
        assert hub._fleet_word() == FleetWord((0, 3, 2))
        device._hear(hub._fleet_word())
        assert not device.falls_back


# --- none of these -----------------------------------------------------------------------------------------------


def test_histograms_of_clients_add_up_to_the_share_that_was_asked_for():
    task = small_task(classes=7, dim=32).zero_shot
    scores = [np.array([mcm_of(row, task) for row in rows(2000, 32, seed)]) for seed in range(3)]
    counts = sum(np.bincount([bin_of(score, 7) for score in part], minlength=BINS) for part in scores)
    everything = np.concatenate(scores)
    for share in (0.01, 0.05, 0.2):
        threshold = threshold_of(counts, 7, share)
        assert (everything < threshold).mean() == pytest.approx(share, abs=0.004)
        assert share_below(counts, 7, threshold) == pytest.approx(share, abs=1e-9)
    assert threshold_of(counts // 1000, 7, 0.05) == 0.0, "too few to say"


def test_a_device_flags_what_its_server_asks_for_and_says_nothing_otherwise(device, tmp_path):
    plain = answer(device, 60)
    assert all(one.answer.mcm is None and "mcm" not in json.loads(one.line()) for one in plain)
    device._hear(FleetWord(share=0.1, threshold=0.0))
    answer(device, 100, seed=1)
    with closing(SqliteStore(tmp_path / "store")) as store:
        hub = Hub(STRONG, store, Limits(flag=0.1))
        hub.reports.note("me", device.summary_report())
        device._hear(hub._fleet_word())
    flagged = [one.answer for one in answer(device, 200, seed=2)[160:]]
    assert 0.03 < np.mean([one.unlike for one in flagged]) < 0.2
    assert all(one.unlike == (one.mcm < device._fleet.threshold) for one in flagged)
    device.record.flush()
    again = replace(FleetKnowledge(), share=0.1, threshold=device._fleet.threshold)
    counts = device._mcm.copy()
    device.record.close()
    device = open_device(tmp_path / "state")
    assert device._fleet == again and (device._mcm == counts).all(), "a restart changes nothing"
    device.record.close()


def test_without_a_share_an_answer_is_what_it_was():
    method, row = new_member(STRONG), rows(1)[0]
    usual = answer_picture(EmbeddedPicture("a", row), STRONG.zero_shot, method)
    assert (usual.adapted, usual.mcm, usual.unlike, usual.margin, usual.soft_label) == (None, None, False, None, None)


# --- the page ------------------------------------------------------------------------------------------------------


@pytest.fixture
def reviewed(device, tmp_path):
    """A device that has answered pictures in files; what it sees in them is made."""
    for path, row in zip(write_pictures(tmp_path / "in", 40), rows(40), strict=True):
        device.answer(file_source(path), row)
    return device


def test_the_page_asks_where_answers_differ_first_and_then_where_the_margin_is_small(reviewed):
    questions = list(read_questions(reviewed.record.database))
    changes = [question.differs for question in questions]
    assert changes == sorted(changes, reverse=True) and 0 < sum(changes) < len(changes)
    certain = {one.number: one.answer.probability for one in read_answers(reviewed.record.database)}
    rest = [certain[question.number] for question in questions if not question.differs]
    assert rest == sorted(rest)


def test_answers_on_the_page_are_labels_undo_asks_again_and_nothing_moves_under_a_finger(reviewed, tmp_path):
    database, names = reviewed.record.database, STRONG.zero_shot.classnames
    with closing(Review(tmp_path / "state", names)) as review:
        shown = review.state()["question"]
        assert sorted(shown["answers"]) == shown["answers"] and shown["why"] == "differ"
        assert review.picture(shown["number"])[:2] == b"\xff\xd8"
        for number in range(40, 80):  # pictures come in, and their answers differ, too
            path = write_pictures(tmp_path / "in", 1, first=number)[0]
            reviewed.answer(file_source(path), rows(80)[number])
        review._due = 0.0
        assert review.state()["question"] == shown, "the one somebody looks at stays"
        review.label(shown["number"], names[1])
        second = review.state()["question"]
        review.label(second["number"], NONE)
        assert read_pairs(database).differing == 2 and compare_labels(database).labelled == 0
        review.undo()
        assert review.state()["question"] == second and read_pairs(database).differing == 1
        review.skip(second["number"])
        third = review.state()["question"]
        assert third["number"] not in (shown["number"], second["number"])
        (tmp_path / "in" / third["name"]).unlink()
        review._ahead.clear()
        assert review.state()["question"]["number"] != third["number"], "its file is gone"
        for number, label in (
            (shown["number"], names[0]),
            (999, names[0]),
            (review.state()["question"]["number"], "x"),
        ):
            with pytest.raises(InputError):
                review.label(number, label)


def test_only_the_whole_address_on_this_machine_is_answered(reviewed, tmp_path):
    server = ReviewServer(tmp_path / "state", STRONG.zero_shot.classnames)
    Thread(target=server.serve, daemon=True).start()
    try:
        page, root = server.address, server.address.rsplit("/", 2)[0]

        def status(address, body=None, **headers):
            request = urllib.request.Request(address, body, {name.replace("_", "-"): v for name, v in headers.items()})
            try:
                with urllib.request.urlopen(request) as response:
                    return response.status
            except urllib.error.HTTPError as error:
                return error.code

        assert page.startswith("http://127.0.0.1:") and status(page) == status(page + "state") == 200
        assert status(page + "state", Host="attacker.example") == 403
        assert status(root + "/") == status(root + "/state") == status(page + "../../etc/passwd") == 404
        assert status(page + "picture/999") == status(page + "page/review.html") == 404
        json_body, wrong = b'{"number": 1, "label": 5}', b'{"number": 999, "label": "class 1"}'
        assert status(page + "label", json_body, Content_Type="application/json") == 400
        assert status(page + "label", wrong, Content_Type="application/json") == 400
        assert status(page + "undo", b"{}", Content_Type="text/plain") == 400, "what a form of another page can send"
        with closing(open_record(tmp_path / "state")) as database:
            assert read_pairs(database) == Pairs()
    finally:
        server._server.shutdown()
        server.close()


# --- learning ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["latte", "ristretto"])
def test_a_device_that_is_killed_at_any_moment_has_learnt_every_label_once(method, tmp_path):
    """Labels come while it answers; it is compared with a method that was told the same in the same order."""
    task, images = small_task(method), rows(30)
    names = task.zero_shot.classnames
    device, reference = open_device(tmp_path / "state", task), new_member(task)
    soft = {}
    for number, row in enumerate(images):
        name = f"frame {number}"
        device.answer(Source(name), row)
        answered = reference.predict(row[None])
        soft[name] = answered.learnt if number > 10 else None  # before the first label nobody keeps it
        if number % 10 == 9:
            for other in range(number - 5, number, 2):
                device.correct(f"frame {other}", names[other % 3], images[other])
                learnt = soft[f"frame {other}"]
                reference.correct(images[other], other % 3, None if learnt is None else learnt.astype(np.float32))
        if number % 4 == 3:  # killed: nothing is closed in an orderly way
            device.record.close()
            device = open_device(tmp_path / "state", task)
            device._teach()
            assert state_of(device.method) == state_of(reference)
    device.correct("frame 4", names[0], images[4])  # another class after all
    reference.correct(images[4], 0)
    device.withdraw("frame 6")
    reference.withdraw(images[6])
    assert state_of(device.method) == state_of(reference) and device.method.labels == reference.labels == 8
    device.correct("frame 14", NONE)
    reference.withdraw(images[14])
    device.record.close()
    device = open_device(tmp_path / "state", task)
    assert state_of(device.method) == state_of(reference), "none of these is not learnt"
    device.record.close()


def state_of(method):
    return {name: array.tobytes() for name, array in method.state().items()}


def test_a_running_device_learns_what_another_process_labels_and_leaves_alone_what_is_gone(reviewed, tmp_path):
    reviewed.read = lambda path: rows(40)[int(path.stem)]
    folder = tmp_path / "in"
    (folder / "00003.png").unlink()
    (folder / "00004.png").write_bytes(b"another picture")
    with closing(open_record(tmp_path / "state")) as other:
        add_labels(other, {str(folder / f"{number:05}.png"): "class 1" for number in range(6)})
    for _ in range(3):
        reviewed._labels_due = 0.0
        reviewed.idle()
    expected = new_member(STRONG)
    for row in rows(40):
        expected.predict(row[None])
    for number in (0, 1, 2, 5):
        expected.correct(rows(40)[number], 1)
    assert state_of(reviewed.method) == state_of(expected) and reviewed._unshared_lessons == 4
    assert {lesson.source.name for lesson in due_lessons(reviewed.record.database)} == {
        str(folder / "00003.png"),
        str(folder / "00004.png"),
    }


def test_a_method_that_cannot_be_taught_keeps_its_labels_for_the_proof(tmp_path, monkeypatch):
    monkeypatch.setattr("latte.edge.device.device.can_be_taught", lambda method: False)
    device = open_device(tmp_path / "state")
    harm(device)
    device._labels_due = 0.0
    device.idle()
    assert device.falls_back and device._unshared_lessons == 0
    device.record.close()


def test_the_record_of_an_earlier_version_goes_on(reviewed, tmp_path):
    folder = tmp_path / "state"
    reviewed.record.close()
    with closing(open_record(folder)) as database:
        database.execute("DROP TABLE extras")
        database.execute("DROP TABLE lessons")
    address = f"{(folder / 'device.db').absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(address, uri=True)) as before:
        assert before.execute("SELECT count(*) FROM pictures").fetchone() == (40,)
    refusing = mock.patch("latte.edge.device.record.open_record", side_effect=InputError("it may only be read"))
    with refusing, closing(open_to_read(folder)) as database:
        assert len(list(read_answers(database))) == 40 and read_pairs(database) == Pairs()
    device = open_device(folder)
    assert len(list(read_questions(device.record.database))) == 40
    device.correct(str(tmp_path / "in" / "00000.png"), "class 1", rows(1)[0])
    assert device.method.labels == 1
    device.record.close()
