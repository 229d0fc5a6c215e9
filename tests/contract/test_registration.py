"""What passes check_method works in create, in create_exchange and in latte run; what does not, it refuses."""

from __future__ import annotations

import copy
import pickle
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from latte import Clip, Latte, Prediction, ZeroShot, check_method, create, create_exchange, create_federation
from latte.checks import method_checks
from latte.core.maths import entropy_of_one
from latte.core.validate import require, unit_rows
from latte.errors import refuse
from latte.methods import METHODS
from latte.methods.plugins import load_plugin
from latte.methods.registry import Registration
from waiting import ROOT, run

CENSUS = load_plugin(ROOT / "examples" / "own_exchange.py").Census
ZERO_SHOT = ZeroShot(np.eye(3, 4), ("a", "b", "c"))


@dataclass(frozen=True)
class TupleParams:
    sizes: tuple = (1, 2)


@dataclass(frozen=True)
class NanParams:
    limit: float = float("nan")


@dataclass(frozen=True)
class PlainParams:
    size: int = 1


class Tupled(Clip):
    Params: ClassVar = TupleParams


class Boundless(Clip):
    Params: ClassVar = NanParams


class Unnamable(Clip):
    Params: ClassVar = PlainParams
    presets: ClassVar = {"a:b": PlainParams()}


class Sometimes(CENSUS):
    sync = "sometimes"


class Seven(CENSUS):
    @staticmethod
    def messages(params, classes):
        return 7


class Numbers(CENSUS):
    @staticmethod
    def messages(params, classes):
        return 7, 8


class Unnamed(CENSUS):
    @classmethod
    def exchange_for(cls, zero_shot, params=None):
        return super().exchange_for(zero_shot, params)


class Tuning(Clip):
    tunes_prompt = True


class Engineless(Clip):
    engine = "latte.engine.queues:NoSuchEngine"


class Bare:
    """The four calls of the contract, and nothing else."""

    def __init__(self, zero_shot, *, normalise=False):
        self.zero_shot, self.normalise, self.count = zero_shot, normalise, np.zeros(1)

    def predict(self, views, *, remember=True):
        rows = np.asarray(views)
        rows = unit_rows("views", rows[None] if rows.ndim == 1 else rows, self.zero_shot.dim, self.normalise)
        logits = self.zero_shot.logits(rows[0])
        self.count += remember
        return Prediction(int(logits.argmax()), logits, entropy_of_one(logits))

    def reset(self):
        self.count = np.zeros(1)

    def state(self):
        return {"count": self.count.copy()}

    def load(self, arrays):
        require(arrays, ["count"])
        if not isinstance(arrays["count"], np.ndarray) or arrays["count"].shape != (1,):
            raise refuse("count", "another shape", "(1,)")
        if arrays["count"].dtype != np.float64 or not np.isfinite(arrays["count"]).all():
            raise refuse("count", "no count", "one")
        self.count = arrays["count"].copy()


class Strict(Bare):
    def __init__(self, zero_shot):
        super().__init__(zero_shot)


FAULTS = [
    (Tupled, "can be registered", "Params.sizes is a number, a word, a bool or None"),
    (Boundless, "can be registered", "Params.limit is a number"),
    (Unnamable, "can be registered", "the name of a preset"),
    (Sometimes, "can be registered", "sync is one of 'every'"),
    (Seven, "can be registered", "returns two Contents"),
    (Numbers, "can be registered", "returns two Contents"),
    (Tuning, "can be registered", "takes text_encoder"),
    (Engineless, "can be registered", "engine is the 'module:Name'"),
    (Strict, "can be registered", "normalise=True"),
    (Unnamed, "syncs with its exchange", r"exchange_for takes \(zero_shot, params, clients\)"),
]


@pytest.mark.parametrize(("kind", "check", "words"), FAULTS, ids=[kind.__name__ for kind, _, _ in FAULTS])
def test_a_class_that_would_fail_later_is_refused(kind, check, words):
    with pytest.raises(AssertionError, match=words):
        method_checks()[check](kind)


@pytest.mark.parametrize("kind", [Clip, Latte, CENSUS, Bare])
def test_a_class_that_passes_can_be_created(kind, monkeypatch):
    check_method(kind)
    monkeypatch.setitem(METHODS, "mine", Registration(f"{kind.__module__}:{kind.__name__}"))
    label = create("mine", ZERO_SHOT).predict(np.eye(3, 4)[1]).label
    assert create("mine", ZERO_SHOT, normalise=True).predict(3 * np.eye(3, 4)[1]).label == label
    if hasattr(kind, "summary"):
        assert create_exchange("mine", ZERO_SHOT, clients=["ann", "bob"]).task == ZERO_SHOT.fingerprint


# --- predict_many ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in METHODS if name != "tpt"])
def test_every_created_method_predicts_many(name):
    images = np.eye(3, 4)
    many, single = create(name, ZERO_SHOT), create(name, ZERO_SHOT)
    assert [p.label for p in many.predict_many(images)] == [single.predict(image).label for image in images]
    for client in create_federation(name, ZERO_SHOT, clients=2):
        assert len(client.predict_many(images[:, None])) == 3


def test_a_bare_class_predicts_many_and_remembers_nothing_of_a_bad_batch(monkeypatch):
    monkeypatch.setitem(METHODS, "bare", Registration(f"{__name__}:Bare"))
    method = create("bare", ZERO_SHOT)
    assert [p.label for p in method.predict_many(np.eye(3, 4))] == [0, 1, 2] and method.state()["count"] == 3
    with pytest.raises(ValueError, match="length 2"):
        method.predict_many(np.eye(3, 4) * [[1], [1], [2]])
    with pytest.raises(ValueError, match="images"):
        method.predict_many(np.zeros(4))
    assert method.state()["count"] == 3
    for duplicate in (copy.deepcopy(method), pickle.loads(pickle.dumps(method))):
        assert len(duplicate.predict_many(np.eye(3, 4))) == 3 and duplicate.state()["count"] == 6
    assert method.state()["count"] == 3


@pytest.mark.slow
def test_user_code_with_predict_many_passes_a_type_checker(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "user.py").write_text(
        "import numpy as np\n"
        "from latte import ZeroShot, create, create_federation\n"
        'zero_shot = ZeroShot(np.eye(2), ("cat", "dog"))\n'
        'labels: list[int] = [p.label for p in create("latte", zero_shot).predict_many(np.eye(2))]\n'
        'create_federation("tda-global", zero_shot, clients=2)[0].predict_many(np.eye(2))\n'
    )
    done = run("python", "-m", "mypy", "--strict", "--no-incremental", "user.py", cwd=tmp_path)
    assert done.returncode == 0, done.stdout


# --- an exchange that the class names -------------------------------------------------------------------------------


def test_the_messages_of_a_class_are_those_of_its_exchange():
    assert CENSUS.Upload is CENSUS.Download is CENSUS.Exchange.Upload
    assert isinstance(CENSUS.exchange_for(ZERO_SHOT, None, ("ann",)), CENSUS.Exchange)
    with pytest.raises(ValueError, match="names an Exchange"):
        Clip.exchange_for(ZERO_SHOT)


def test_a_class_may_name_other_messages_than_its_exchange():
    class Other(CENSUS):
        Exchange = CENSUS.Exchange
        Download = dict

    assert Other.Upload is CENSUS.Upload and Other.Download is dict


def test_the_example_is_short():
    assert len((ROOT / "examples" / "own_exchange.py").read_text().splitlines()) <= 60
