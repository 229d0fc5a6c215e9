"""A fleet that is harmed on purpose, over HTTP: no device could prove it alone, and all fall back."""

import pytest

from devices import RowEncoder, rows, small_task
from latte.edge.device.device import DeviceLoop
from latte.edge.device.labels import add_labels
from latte.edge.device.record import DeviceRecord, Source, read_answers
from latte.edge.device.syncing import SyncTimes
from latte.edge.joining import Membership, link_to, new_member
from latte.server.hub.hub import Limits
from serving import serving
from waiting import wait_until

pytest.importorskip("starlette")
STRONG = small_task(alpha=30.0)


def member(folder, server, name):
    membership = Membership(server, name=name, precision="exact")
    record = DeviceRecord(folder / name, STRONG.fingerprint)
    link = link_to(membership, STRONG, name)
    return DeviceLoop(RowEncoder(8), STRONG, new_member(STRONG), record, link, SyncTimes("every", 10_000, 0, 0))


def label_as_harmed(device, seed, most=4):
    for number, row in enumerate(rows(100, seed=seed)):
        device.answer(Source(f"/{seed}/{number}"), row)
    found = [one.answer for one in read_answers(device.record.database)]
    worse = [one for one in found if one.label != one.zero_shot][:most]
    add_labels(device.record.database, {one.file: one.zero_shot for one in worse})


def sync(device):
    device._labels_due, before = 0.0, device.link.state.synced
    device._share(device.link)
    wait_until(lambda: device.link.state.synced > before or device.link.state.problem, "a sync")
    device.idle()
    assert not device.link.state.problem


def test_labels_of_three_devices_prove_together_that_adapting_hurts(tmp_path):
    with serving(STRONG, tmp_path / "server", limits=Limits(flag=0.1)) as server:
        fleet = [member(tmp_path, server.address, name) for name in ("a", "b", "c")]
        try:
            for seed, device in enumerate(fleet[:2]):
                label_as_harmed(device, seed)
                sync(device)
                assert device.falls_back is (seed == 1), "four labels of one device are no proof, eight of two are one"
            first, _, third = fleet
            third.answer(Source("/new/1"), rows(1, seed=7)[0])
            sync(third)
            assert third.falls_back, "it has no label of its own"
            sync(first)
            answer = first.answer(Source("/new/2"), rows(1, seed=8)[0]).answer
            assert first.falls_back and answer.label == answer.zero_shot and answer.adapted
            assert answer.mcm is not None and first._fleet.share == 0.1, "the server wants a tenth flagged"
        finally:
            for device in fleet:
                device.close()
                device.record.close()
