"""Every method and every exchange keeps its contract."""

from contextlib import nullcontext
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from latte import Clip, GlobalMemory, Latte, Routing, ZeroShot, check_exchange, create, create_exchange
from latte.checks import exchange_checks, method_checks, uploads_of
from latte.core.validate import unpack_names
from latte.methods import METHODS, LatteParams
from latte.methods.latte.server import STORED

# one global form stands for all: they differ from the local ones by the handle only
MAKERS = {name: partial(create, name) for name in METHODS if name != "tpt" and not name.endswith("-global")}
MAKERS["tda-global"] = partial(create, "tda-global")
for change in ({"variant": "released"}, {"memory": "local"}, {"memory": "external"}, {"k_l": 1, "k_e": 0}):
    MAKERS[f"latte {change}"] = lambda zero_shot, change=change: Latte(zero_shot, LatteParams(**change))

EXCHANGES = {
    empty: lambda zero_shot, empty=empty: GlobalMemory(zero_shot, Routing(2, empty))
    for empty in ("client", "none", "released")
}
EXCHANGES["to the letter"] = lambda zero_shot: GlobalMemory(zero_shot, Routing(2, "released", drop_first_rank=True))


@pytest.mark.parametrize("check", method_checks())
@pytest.mark.parametrize("maker", MAKERS)
def test_method(maker, check):
    method_checks()[check](MAKERS[maker])


@pytest.mark.parametrize("check", exchange_checks())
@pytest.mark.parametrize("maker", EXCHANGES)
def test_exchange(maker, check):
    exchange_checks()[check](EXCHANGES[maker])


class Leaky(Latte):
    """A method with a fault: it inserts before it looks."""

    def predict(self, views, *, remember=True):
        self.local.entropy[0, 0] *= 0.5
        return super().predict(views, remember=remember)


class Selfish(GlobalMemory):
    """An exchange with a fault: it returns a client's own prototypes."""

    def pick(self, clients):
        picked, own = super().pick(clients), [self.clients.index(client) for client in clients]
        return picked._replace(rows=picked.rows * 0 + np.array(own)[:, None, None])


def test_the_checks_can_fail():
    with pytest.raises(AssertionError, match="exactly as before"):
        method_checks()["remembers nothing after bad input"](Leaky)
    with pytest.raises(AssertionError, match="not its own"):
        exchange_checks()["never returns one's own"](lambda zero_shot: Selfish(zero_shot, Routing(2)))


class StoredView(Latte):
    """A method with a fault: it stores a view of its memory, which a copy detaches."""

    def reset(self):
        super().reset()
        self.view = self.local.vectors.reshape(-1, self.zero_shot.dim)

    def predict_rows(self, views):
        prediction = super().predict_rows(views)
        scores = prediction.scores + self.view.sum()
        return replace(prediction, scores=scores, label=int(scores.argmax()))


class Verbatim(Latte):
    """A method with a fault: what it loads, it takes over with all that stands in free slots."""

    def load(self, arrays):
        super().load(arrays)
        self.external.vectors[...] = arrays["external.vectors"]


class Lenient(Clip):
    """A method with a fault: it loads anything."""

    def load(self, arrays):
        pass


class Reordering(Latte):
    """A method with a fault: what it reads after it was restored is in another order, which rounding shows."""

    def load(self, arrays):
        super().load(arrays)
        order = slice(None, None, -1)
        self.merged.vectors[...] = self.merged.vectors[:, order].copy()
        self.merged.offset[...] = self.merged.offset[:, order].copy()
        self.merged.gram[...] = self.merged.gram[:, order, order].copy()


class Unlocked(GlobalMemory):
    """An exchange with a fault: its lock locks nothing."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self._lock = nullcontext()


class Trimming(GlobalMemory):
    """An exchange with a fault: it stores names without what stands around them."""

    def push(self, client, upload):
        super().push(client.strip("\0 \n") if isinstance(client, str) else client, upload)

    def pull(self, client):
        return super().pull(client.strip("\0 \n") if isinstance(client, str) else client)


class Hasty(GlobalMemory):
    """An exchange with two faults: clients join before their names are checked, and loading begins with emptying."""

    def push(self, client, upload):
        self._table.set(client, 0, 1, False, 0, 0, False)
        super().push(client, upload)

    def load(self, arrays):
        self._replace(self._new_table())
        super().load(arrays)


class Sticky(Latte):
    """A method with a fault: what a label has done stays done."""

    def correct(self, image, label, learnt=None):
        super().correct(image, label, learnt)
        self.local.put(label, self.check(image)[0], 0.0)


class Sequential(Latte):
    """A method with a fault: later labels weigh more."""

    def correct(self, image, label, learnt=None):
        super().correct(image, label, learnt)
        self._images = 2 * self._images + label
        self.external = replace(self.external, weights=np.zeros(self.zero_shot.text.shape), bias=np.zeros(4))


class Hinting(Latte):
    """A method with a fault: it speaks of labels before there is one."""

    def summary(self):
        upload = super().summary()
        return upload if self.labels else replace(upload, labels=np.array(0.0))


METHOD_FAULTS = [
    (Sticky, "a withdrawn label was never given"),
    (Sequential, "labels have no order"),
    (Hinting, "says nothing of labels without one"),
    (StoredView, "a copy behaves the same"),
    (Verbatim, "free slots mean nothing"),
    (Lenient, "refuses damaged states"),
    (Reordering, "state round-trips"),
]
EXCHANGE_FAULTS = [
    (Unlocked, "serves many threads"),
    (Trimming, "tells similar names apart"),
    (Hasty, "leaves nothing of bad names"),
    (Hasty, "refuses damaged states"),
]


@pytest.mark.parametrize(("kind", "check"), METHOD_FAULTS)
def test_a_check_notices_the_fault_of_a_method(kind, check):
    with pytest.raises(AssertionError):
        method_checks()[check](kind)


@pytest.mark.parametrize(("kind", "check"), EXCHANGE_FAULTS)
def test_a_check_notices_the_fault_of_an_exchange(kind, check):
    with pytest.raises(AssertionError):
        exchange_checks()[check](lambda zero_shot: kind(zero_shot, Routing(2)))


class Stateless:
    """An exchange that cannot be saved."""

    def __init__(self, memory):
        self.task, self.push, self.pull, self.pull_many = memory.task, memory.push, memory.pull, memory.pull_many


def test_an_exchange_needs_no_state():
    check_exchange(lambda zero_shot: Stateless(GlobalMemory(zero_shot, Routing(2))))


class Remembering(GlobalMemory):
    """An exchange with a fault: labels that were withdrawn go on to count."""

    def store(self, client, prepared):
        before = self._labels._sums.get(client)
        super().store(client, prepared)
        self._labels.put(client, prepared.labels or before)


def test_an_exchange_of_latte_with_labels():  # that of Ristretto with labels: below, check by check
    checks = check_exchange(partial(create_exchange, "latte"), Latte)
    assert "withdrawn labels leave nothing" in checks


def test_the_check_of_withdrawn_labels_can_fail():
    with pytest.raises(AssertionError, match="withdrawn"):
        exchange_checks(uploads_of(Latte))["withdrawn labels leave nothing"](
            lambda zero_shot: Remembering(zero_shot, Routing(2))
        )


class AnyOrder(GlobalMemory):
    """An exchange with a fault: it believes whatever order a state has."""

    def load(self, arrays):
        self._believe(arrays, unpack_names(arrays["names"], arrays["name_lengths"]))

    def _believe(self, arrays, names):
        table = self._new_table()
        for name, *row in zip(names, *(arrays[field] for field in STORED), strict=True):
            table.set(name, *row, 0, True)
        self._replace(table)


class AnyNames(AnyOrder):
    """An exchange with a fault: it loads two clients of one name."""

    def load(self, arrays):
        ends = arrays["name_lengths"].cumsum()
        raw = arrays["names"].tobytes()
        names = [raw[start:end].decode() for start, end in zip([0, *ends], ends, strict=False)]
        self._believe(arrays, names)


@pytest.mark.parametrize("kind", [AnyOrder, AnyNames])
def test_doubled_clients_are_noticed(kind):
    with pytest.raises(AssertionError, match="should be refused, or change nothing"):
        exchange_checks()["refuses doubled clients"](lambda zero_shot: kind(zero_shot, Routing(2)))


# --- a method with messages and an exchange of its own ------------------------------------------------------------


def _census():
    from latte.methods.plugins import load_plugin
    from waiting import ROOT

    return load_plugin(ROOT / "examples" / "own_exchange.py").Census


CENSUS = _census()


@pytest.mark.parametrize("check", method_checks())
def test_a_method_with_its_own_messages(check):
    method_checks()[check](CENSUS)


@pytest.mark.parametrize("check", exchange_checks(uploads_of(CENSUS)))
def test_an_exchange_of_its_own_messages(check):
    exchange_checks(uploads_of(CENSUS))[check](CENSUS.exchange_for)


RISTRETTO = partial(create, "ristretto")


@pytest.mark.parametrize("trust", ["fleet", "open"])
@pytest.mark.parametrize("check", exchange_checks(uploads_of(RISTRETTO)))
def test_the_exchange_of_ristretto(check, trust):
    exchange_checks(uploads_of(RISTRETTO))[check](partial(create_exchange, "ristretto", trust=trust))


class Forgetful(CENSUS):
    """A method with a fault: its messages do not name their task."""

    def summary(self):
        return replace(super().summary(), task="")


class Trusting(type(CENSUS.exchange_for(ZeroShot(np.eye(2), ("a", "b"))))):
    """An exchange with a fault: it believes whatever is uploaded, and stores the client's own arrays."""

    def prepare(self, upload, rounding=None):
        return upload


def test_the_checks_of_any_messages_can_fail():
    with pytest.raises(AssertionError, match="names the task"):
        method_checks()["summaries are messages"](Forgetful)
    checks = exchange_checks(uploads_of(CENSUS))
    for name in ("serves one task", "keeps nothing of a bad upload", "keeps a copy"):
        with pytest.raises(AssertionError):
            checks[name](Trusting)
