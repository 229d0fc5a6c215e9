"""A method of one's own that learns from labels, with an exchange on ``BaseExchange``: nothing else is needed."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from latte import BaseExchange, BaseMethod, Latte, Ristretto, check_exchange, check_method, refuse
from latte.checks.material import a_zero_shot
from latte.core.maths import entropy_of_one, softmax
from latte.core.validate import finite_array, positive
from latte.methods.labels import LabelledImages, split_state
from latte.wire.blocks import decode, encode


@dataclass(frozen=True)
class Votes:
    """Upload and download: the probabilities of each class, summed over images (C,), and the labels of each (C,)."""

    mass: Any
    task: str = ""
    votes: Any = None


class VotesExchange(BaseExchange):
    Upload: ClassVar = Votes

    def verify(self, upload):
        positive("mass", upload.mass, (self.zero_shot.classes,))
        if upload.votes is not None and finite_array("votes", upload.votes, upload.mass.shape).min() < 0:
            raise refuse("votes", "a value below 0", "numbers of labels")

    def answer(self, client, uploads):
        mass = np.sum([upload.mass for upload in uploads.values()], axis=0)
        votes = [upload.votes for upload in uploads.values() if upload.votes is not None]
        return Votes(mass, self.task, np.sum(votes, axis=0) if votes else None)


class Voting(BaseMethod):
    Exchange: ClassVar = VotesExchange

    def predict_rows(self, views):
        logits = self.zero_shot.logits(views[0])
        self.mass += softmax(logits)
        return self.prediction(logits + np.log1p(self.others), entropy_of_one(logits))

    @property
    def labels(self):
        return len(self.labelled)

    def correct(self, image, label, learnt=None):
        self.labelled.give(self.check(image)[0], label, learnt)

    def withdraw(self, image):
        self.labelled.take_back(self.check(image)[0])

    def summary(self):
        votes = np.bincount(self.labelled.classes, minlength=len(self.mass)).astype(float)
        return Votes(self.mass.copy(), self.zero_shot.fingerprint, votes if self.labels else None)

    def receive(self, download):
        self.check_download(download)
        positive("mass", download.mass, self.mass.shape)
        none = np.zeros(self.mass.shape)
        self.others = none if download.votes is None else finite_array("votes", download.votes, self.mass.shape)

    def reset(self):
        self.mass, self.others = np.ones(self.zero_shot.classes), np.zeros(self.zero_shot.classes)
        self.labelled = LabelledImages(self.zero_shot)

    def state(self):
        return {"mass": self.mass.copy(), "others": self.others.copy(), **self.labelled.state()}

    def load(self, arrays):
        own, labels = split_state(arrays, "labels.")
        if set(own) != {"mass", "others"}:
            raise refuse("state", f"the arrays {sorted(own)}", "mass and others")
        mass = positive("mass", own["mass"], self.mass.shape)
        others, labelled = finite_array("others", own["others"], self.mass.shape), self.labelled.checked(labels)
        self.mass, self.others, self.labelled = mass, others, labelled


def test_it_keeps_the_contract():
    assert "a withdrawn label was never given" in check_method(Voting)
    assert "withdrawn labels leave nothing" in check_exchange(Voting.exchange_for, Voting)


def test_its_messages_travel_with_and_without_labels():
    method = Voting(a_zero_shot())
    image = a_zero_shot().text[1]
    method.predict(image)
    plain = encode(method.summary(), "fp16", 8)
    assert [block.name for block in plain] == ["mass"]
    method.correct(image, 1)
    blocks = encode(method.summary(), "fp16", 8)
    assert [block.name for block in blocks] == ["mass", "votes"]
    assert decode(blocks, Votes, method.zero_shot.fingerprint).votes.tolist() == [0, 1, 0, 0]
    assert decode(plain, Votes, method.zero_shot.fingerprint).votes is None


@pytest.mark.parametrize("name", ["votes", "votes.sent"])
def test_a_state_with_half_of_an_optional_array_is_refused(name):
    exchange = VotesExchange(a_zero_shot())
    for client, labels in (("ann", 0), ("bob", 1)):
        method = Voting(a_zero_shot())
        if labels:
            method.correct(a_zero_shot().text[0], 0)
        exchange.push(client, method.summary())
    state = exchange.state()
    assert state["votes"].shape == (1, 4) and state["votes.sent"].tolist() == [False, True]
    del state[name]
    with pytest.raises(ValueError, match="votes"):
        VotesExchange(a_zero_shot()).load(state)


class KeepsWhatItRead(Latte):
    def withdraw(self, image):
        self._labelled.take_back(self.check(image)[0])


class CountsTwice(Latte):
    given = 0

    def correct(self, image, label, learnt=None):
        super().correct(image, label, learnt)
        self.given += 1

    def summary(self):
        upload = super().summary()
        return upload if upload.labels is None else replace(upload, label_sums=upload.label_sums * self.given)


class ForgetsAtRestart(Ristretto):
    def state(self):
        return {name: array for name, array in super().state().items() if not name.startswith("labels.")}


class WithdrawsNothing(Ristretto):
    def withdraw(self, image):
        self.check(image)


class LaterLabelsCountMore(Ristretto):
    given = 0

    def correct(self, image, label, learnt=None):
        super().correct(image, label, learnt)
        self.given += 1
        self._sums = self._sums._replace(counts=self._sums.counts + 1e-3 * self.given * label)


BROKEN = {
    KeepsWhatItRead: "a withdrawn label was never given|predictions",
    CountsTwice: "replaces another one",
    ForgetsAtRestart: "state",
    WithdrawsNothing: "withdrawn",
    LaterLabelsCountMore: "counts",
}


@pytest.mark.parametrize("method", BROKEN)
def test_a_method_that_breaks_the_contract_of_labels_is_found(method):
    with pytest.raises(AssertionError, match=BROKEN[method]):
        check_method(method)
