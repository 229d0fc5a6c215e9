"""What the tests of a fleet without a network share."""

from contextlib import ExitStack

import pytest

from devices import small_task


@pytest.fixture
def task():
    return small_task()


@pytest.fixture
def fleet_of():
    """A function that makes a fleet of nodes, message by message in this process; its store is closed in the end."""
    from direct_grid import DirectGrid
    from latte.flower.fleet import Fleet
    from latte.flower.node import make_client_app
    from latte.flower.settings import FleetSettings
    from latte.server.hub.check import mended_hub

    with ExitStack() as stores:

        def make(task, folder, nodes, mods=(), **settings):
            options = FleetSettings(folder / "task", folder / "exchange", **{"park_seconds": 0.0, **settings})
            places = {node.number: {"state-dir": str(node.folder.path)} for node in nodes}
            hub = mended_hub(task, folder / "exchange")
            stores.callback(hub.store.close)
            return Fleet(DirectGrid(make_client_app(mods), places), hub, options)

        yield make
