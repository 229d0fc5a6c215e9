"""Every method and every exchange keeps its contract."""

from functools import partial

import pytest

from latte import GlobalMemory, Latte, LatteParams, Routing, create
from latte.checks import exchange_checks, method_checks
from latte.methods import METHODS

MAKERS = {name: partial(create, name) for name in METHODS if name != "tpt"}
for change in ({"variant": "released"}, {"memory": "local"}, {"memory": "external"}, {"k_l": 1, "k_e": 0}):
    MAKERS[f"latte {change}"] = lambda zero_shot, change=change: Latte(zero_shot, LatteParams(**change))

EXCHANGES = {
    empty: lambda classes, dim, k_e, empty=empty: GlobalMemory(classes, dim, Routing(k_e, empty))
    for empty in ("client", "none", "released")
}


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

    def predict(self, views):
        self.local.entropy[0, 0] *= 0.5
        return super().predict(views)


class Selfish(GlobalMemory):
    """An exchange with a fault: it returns a client's own prototypes."""

    def neighbours(self, client):
        donors, valid = super().neighbours(client)
        return donors * 0 + self.clients.index(client), valid


def test_the_checks_can_fail():
    with pytest.raises(AssertionError, match="exactly as before"):
        method_checks()["remembers nothing after bad input"](Leaky)
    with pytest.raises(AssertionError, match="not its own"):
        exchange_checks()["never returns one's own"](lambda c, d, k: Selfish(c, d, Routing(k)))
