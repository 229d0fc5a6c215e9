"""A member of a fleet whose server is away, with a method that learns from an exchange: it is its own server."""

import numpy as np
import pytest

from devices import RowEncoder, rows, small_task
from latte.checks.material import same
from latte.core.privacy import Privacy
from latte.core.private_client import PrivateClient
from latte.core.sync import sync
from latte.edge import create_alone
from latte.edge.background_sync import BackgroundSync
from latte.edge.classify import EmbeddedPicture, answer_picture
from latte.edge.device import Device
from latte.edge.device_record import DeviceRecord
from latte.edge.joining import new_member
from latte.edge.sync_times import SyncTimes
from latte.methods import create, create_exchange


def stream(count=60, dim=8):
    """Return rows that lie near a few of the classes, as pictures do."""
    task = small_task("ristretto")
    rng = np.random.default_rng(0)
    made = task.zero_shot.text[rng.integers(0, 3, count)] + 0.6 * rng.normal(size=(count, dim))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def device_in(folder, task, link=None, privacy=None):
    record = DeviceRecord(folder, task.fingerprint)
    encoder = RowEncoder(task.zero_shot.dim)
    return Device(encoder, task, new_member(task, privacy), record, link, SyncTimes("every", 4, 0, 0))


def classified(task, given, near_copy=0.0):
    """Return the answers of ``latte classify``, whose method this is."""
    method = create_alone("ristretto", task.zero_shot, near_copy=near_copy)
    return [
        answer_picture(EmbeddedPicture(f"frame {number}", row), task.zero_shot, method)
        for number, row in enumerate(given, 1)
    ]


@pytest.mark.parametrize("privacy", [None, Privacy(least_images=3)])
def test_without_downloads_a_device_answers_as_classify_does(tmp_path, privacy):
    task, given = small_task("ristretto"), stream()

    def away(upload, report):
        raise ConnectionError("away")

    device = device_in(tmp_path, task, BackgroundSync(away), privacy)
    answers = [one.answer for one in device.answer_frames(given)]
    assert answers == classified(task, given)
    assert any(one.label != one.zero_shot for one in answers), "the memory changes something"
    device.close(patience=0.1)
    device.record.close()


def test_a_crash_between_two_syncs_with_itself_changes_nothing(tmp_path):
    task, given = small_task("ristretto"), stream()
    expected = [(one.label, one.probability) for one in classified(task, given)]
    answers = []
    for start in range(0, 60, 13):
        device = device_in(tmp_path, task)
        answers += [one.answer for one in device.answer_frames(given[start : start + 13])]
        if start % 2:
            device.save()
        device.record.close()  # without device.close(): as a kill
    assert [(one.label, one.probability) for one in answers] == expected


def test_from_the_first_download_on_the_server_decides(tmp_path):
    task, given = small_task("ristretto"), stream()
    exchange = create_exchange("ristretto", task.zero_shot)
    donor = create("ristretto", task.zero_shot)
    for row in stream(40):
        donor.predict(row)
    exchange.push("donor", donor.summary())
    member, plain, alone = new_member(task), create("ristretto", task.zero_shot), create_alone(
        "ristretto", task.zero_shot, near_copy=0.0
    )  # fmt: skip
    for number, row in enumerate(given):
        twin = plain if member.joined else alone
        assert member.predict(row).scores.tolist() == twin.predict(row).scores.tolist()
        if number in (20, 41):
            if number == 20:
                plain.load({name: array for name, array in alone.state().items() if name != "images"})
            for one in (member, plain):
                sync([("device", one)], exchange)
            again = new_member(task)
            again.load(member.state())
            assert again.joined and same(again.state(), member.state())
    assert same(plain.state(), member.method.state())


def test_the_state_of_an_earlier_version_is_continued():
    task, given = small_task("ristretto"), stream()
    old, member = create("ristretto", task.zero_shot), new_member(task)
    for row in given[:20]:
        old.predict(row)
    member.load(old.state())
    assert not member.joined, "no server has answered"
    for row in given[20:24]:
        member.predict(row)
    assert np.any(member.method.head.weights), "so it is its own server now"
    sync([("device", old)], create_exchange("ristretto", task.zero_shot))
    member.load(old.state())
    assert member.joined
    with pytest.raises(ValueError, match="joined"):
        member.load({**old.state(), "images": np.array(3)})


def test_near_copies_are_left_out_where_the_task_says_so_and_noise_needs_all(tmp_path):
    task = small_task("latte", near_copy=0.99)
    device = device_in(tmp_path, task)
    same_scene = np.repeat(rows(1), 300, axis=0)
    copies = [one.answer.near_copy for one in device.answer_frames(same_scene)]
    assert copies == [False] + [True] * 299 and device.method.memory_fill().items == 1
    assert device.tally.counts().near_copies == 299
    device.record.close()
    noisy = new_member(task, Privacy(noise=0.5))
    assert isinstance(noisy, PrivateClient) and noisy.method.params.near_copy == 0
    assert new_member(small_task("ristretto", near_copy=0.99), Privacy(noise=0.5)).epsilon(8) > 0
