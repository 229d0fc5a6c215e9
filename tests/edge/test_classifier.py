"""The classifier of three lines: what users of other libraries expect, alone and in a fleet."""

import logging
import pickle
import threading

import numpy as np
import pytest

from colours import NAMES, colours, frames, rows
from devices import ENCODER, write_pictures
from latte import BadImageError, Classifier, InputError, Membership, Privacy, ZeroShot, create, load_encoder
from latte.edge.classify.classify import create_alone
from latte.edge.joining import identify, make_task
from latte.encoders import zero_shot
from serving import serving
from waiting import latte, wait_until


def own(**more):
    return Classifier(NAMES, encoder=colours, text=2 * np.eye(3), scale=10.0, **more)


# --- what others expect ---------------------------------------------------------------------------------------


def test_answers_are_those_of_the_method(tmp_path):
    pictures = frames(30)
    method = create_alone("latte", ZeroShot(np.eye(3), NAMES, 10.0))
    expected = [method.predict(row[None]) for row in rows(pictures)]
    assert own().predict(pictures).tolist() == [one.classname for one in expected]
    assert np.array_equal(own().predict_proba(pictures), [one.probabilities for one in expected])
    ranked = own()(pictures, top_k=2)
    assert [best[0]["label"] for best in ranked] == [one.classname for one in expected]
    assert all(first["score"] >= second["score"] for first, second in ranked)


def test_one_picture_or_several():
    one, several = frames(1)[0], frames(3)
    for given in (several, tuple(several), np.stack(several)):
        assert own().predict(given).shape == (3,) and own().predict_proba(given).shape == (3, 3)
    assert isinstance(own().predict(one), str) and own().predict_proba(one).shape == (3,)
    assert [len(own()(one)), own().predict([]).shape, own().predict_proba([]).shape] == [3, (0,), (0, 3)]
    assert own().classes_.tolist() == NAMES
    assert own().predict(row for row in several).tolist() == own().predict(several).tolist()


def test_to_look_is_not_to_learn():
    classifier, pictures = own(), frames(20)
    plain = [classifier.predict_proba(picture, remember=False) for picture in pictures]
    assert np.array_equal(own().predict_proba(pictures[0]), plain[0]) and not classifier.method.memory_fill().items
    classifier.predict(pictures)
    assert not np.array_equal([classifier.predict_proba(one, remember=False) for one in pictures], plain)


def test_a_model_by_its_name(tmp_path):
    pictures = write_pictures(tmp_path / "in", 6)
    classifier = Classifier(["cat", "dog", "horse"], encoder=ENCODER, method="ristretto", params={"trust": "fleet"})
    encoder = load_encoder(ENCODER)
    method = create_alone("ristretto", zero_shot(encoder, ["cat", "dog", "horse"]), {"trust": "fleet"})
    labels = [method.predict(encoder.images([path])[0]).classname for path in pictures]
    assert classifier.predict(pictures[0]) == labels[0]
    assert classifier.predict([str(path) for path in pictures[1:]]).tolist() == labels[1:]
    assert "OnnxEncoder('tiny'" in repr(classifier) and "Ristretto" in repr(classifier.method.method)


def test_an_unreadable_picture_teaches_nothing(tmp_path):
    pictures = write_pictures(tmp_path / "in", 3)
    (tmp_path / "in" / "00001.png").write_bytes(b"no picture")
    classifier = Classifier(["cat", "dog"], encoder=ENCODER)
    with pytest.raises(BadImageError, match="00001"):
        classifier.predict(pictures)
    assert classifier.method.memory_fill().items == 0
    answers = list(classifier.classify(tmp_path / "in"))
    assert [answer.label is None for answer in answers] == [False, True, False] and answers[1].problem


def test_what_was_learnt_is_saved(tmp_path):
    first, again = own(), frames(10, seed=1)
    first.predict(frames(20))
    first.save(tmp_path / "memory")
    assert np.array_equal(own().load(tmp_path / "memory").predict_proba(again), first.predict_proba(again))
    with pytest.raises(InputError, match="the memory of another task"):
        Classifier(NAMES[:2], encoder=colours, text=np.eye(3)[:2]).load(tmp_path / "memory")
    with pytest.raises(TypeError, match=r"save\(path\)"):
        pickle.dumps(first)
    with pytest.raises(InputError, match="the memory of Latte"):
        own(method="tda").load(tmp_path / "memory")


def test_its_file_is_that_of_the_command(tmp_path):
    pictures = write_pictures(tmp_path / "in", 8)
    classifier = Classifier(["cat", "dog"], encoder=ENCODER)
    classifier.predict(pictures)
    classifier.save(tmp_path / "mine")
    model = ("--classes", "cat,dog", "--encoder", ENCODER)
    latte("classify", tmp_path / "in", *model, "--memory", tmp_path / "its", check=True)
    theirs = Classifier(["cat", "dog"], encoder=ENCODER).load(tmp_path / "its").method.state()
    mine = Classifier(["cat", "dog"], encoder=ENCODER).load(tmp_path / "mine").method.state()
    assert mine.keys() == theirs.keys()
    for name in mine:
        assert np.allclose(mine[name], theirs[name], atol=1e-6), name


def test_tensors_are_rows():
    class Tensor:  # as torch's: numpy refuses one with a gradient, or on another device
        def __init__(self, values):
            self.values = values

        def detach(self):
            return self

        def cpu(self):
            return self.values

    classifier = Classifier(NAMES, encoder=lambda given: Tensor(rows(given)), text=Tensor(np.eye(3)), scale=10.0)
    assert classifier.predict(frames(5)).tolist() == own().predict(frames(5)).tolist()


@pytest.mark.slow  # for what it imports
def test_scikit_learn_reads_its_answers():
    metrics = pytest.importorskip("sklearn.metrics")
    classifier, pictures = own(method="clip"), frames(30)
    labels = np.array(NAMES)[rows(pictures).argmax(axis=1)]
    assert metrics.accuracy_score(labels, classifier.predict(pictures)) == 1
    loss = metrics.log_loss(labels, classifier.predict_proba(pictures)[:, np.argsort(classifier.classes_)])
    assert 0 < loss < 1


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"encoder": colours}, "text: got none, want rows"),
        ({"encoder": 7, "text": np.eye(3)}, "encoder: got a int, want a name such as"),
        ({"encoder": lambda frames: np.ones((1, 3)), "text": np.eye(3)}, r"shape \(1, 3\) from <lambda>"),
        ({"encoder": colours, "text": np.eye(4)}, "want 4 strings, one per row|classnames"),
        ({"encoder": colours, "text": np.eye(3), "method": "latt"}, "a known one, such as latte"),
        ({"encoder": colours, "server": "http://127.0.0.1:9", "method": "tda"}, "none: with a server"),
    ],
)
def test_what_cannot_be_meant_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        Classifier(NAMES, **given).predict(frames(2))


# --- in a fleet -----------------------------------------------------------------------------------------------


@pytest.fixture
def task():
    return make_task(ZeroShot(np.eye(3), NAMES, 10.0), "latte", period=4)


@pytest.fixture
def server(task, tmp_path):
    with serving(task, tmp_path / "data") as running:
        yield running


def test_members_learn_from_each_other(server):
    one, two = frames(12), frames(12, seed=1)
    with Classifier(encoder=colours, server=server.address, name="one") as classifier:
        assert classifier.classes_.tolist() == NAMES and classifier.name == "one"
        classifier.predict(one)
    assert classifier.sync_state.problem == ""
    with Classifier(NAMES, encoder=colours, server=server.address, name="two") as classifier:
        classifier.predict(two[:4])
        wait_until(lambda: classifier.sync_state.images, "the first sync")
        wait_until(lambda: classifier.predict(two[4]) and classifier.method.external.valid.any(), "what one has learnt")
    assert server.service.hub.exchange.clients == ("one", "two")


def test_a_server_that_ends_is_one_line_and_no_wait(task, tmp_path, caplog):
    with serving(task, tmp_path / "data") as running:
        classifier = Classifier(encoder=colours, server=running.address, name="one")
    caplog.set_level(logging.DEBUG)
    alone = create("latte", task.zero_shot, task.params)
    expected = [alone.predict(row).classname for row in rows(frames(40))]
    assert classifier.predict(frames(40)).tolist() == expected
    wait_until(lambda: classifier.sync_state.problem, "the failure")
    classifier.close()
    said = [record for record in caplog.records if record.name not in ("asyncio", "latte.server")]  # the server's own
    assert [record.name for record in said] == ["latte.sync"] and "connection refused" in said[0].getMessage()
    assert isinstance(classifier.predict(frames(1)[0]), str)  # alone


def test_other_classes_and_other_encoders_than_the_servers_are_refused(server, tmp_path):
    with pytest.raises(InputError, match="classes: got red, blue, want none, or those of"):
        Classifier(["red", "blue"], encoder=colours, server=server.address)
    private = Membership(server.address, name="x", privacy=Privacy(noise=0.1))
    with pytest.raises(InputError, match="a Device, which stores the noise"):
        Classifier(encoder=colours, server=private)
    encoder = load_encoder(ENCODER)
    known = make_task(zero_shot(encoder, ["cat", "dog"]), encoder=identify(encoder))
    with serving(known, tmp_path / "known") as running, Classifier(encoder=ENCODER, server=running.address) as one:
        assert one.zero_shot.fingerprint == known.zero_shot.fingerprint
        with Classifier(encoder=encoder.images, server=running.address) as other:  # a function is taken at its word
            assert other.encoder.name == "images"


def test_threads_share_a_classifier(server):
    with Classifier(encoder=colours, server=server.address, name="one") as classifier:
        work = [threading.Thread(target=classifier.predict, args=(frames(25, seed),)) for seed in range(4)]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
        assert classifier._tally.counts().answered == 100
