"""A member of a fleet whose server is away, with a method that learns from an exchange: it is its own server."""

from random import Random

import numpy as np
import pytest

from devices import RowEncoder, rows, small_task
from latte.checks.material import same
from latte.core.privacy import Privacy, PrivateClient
from latte.core.sync import sync
from latte.edge import create_alone
from latte.edge.classify.classify import EmbeddedPicture, answer_picture
from latte.edge.classify.masked import Masked
from latte.edge.device.device import DeviceLoop
from latte.edge.device.record import DeviceRecord
from latte.edge.device.syncing import BackgroundSync, SyncTimes
from latte.edge.joining import new_member
from latte.errors import InputError
from latte.methods import create, create_exchange


def stream(count=60, dim=8):
    """Return rows that lie near a few of the classes, as pictures do."""
    task = small_task("ristretto")
    rng = np.random.default_rng(0)
    made = task.zero_shot.text[rng.integers(0, 3, count)] + 0.6 * rng.normal(size=(count, dim))
    return (made / np.linalg.norm(made, axis=1, keepdims=True)).astype(np.float32)


def device_in(folder, task, link=None, privacy=None, without=()):
    record = DeviceRecord(folder, task.fingerprint)
    encoder = RowEncoder(task.zero_shot.dim)
    return DeviceLoop(encoder, task, new_member(task, privacy, without), record, link, SyncTimes("every", 4, 0, 0))


def classified(task, given, near_copy=0.0):
    """Return the answers of ``latte classify``, whose method this is."""
    method = create_alone("ristretto", task.zero_shot, near_copy=near_copy)
    return [
        answer_picture(EmbeddedPicture(f"frame {number}", row), task.zero_shot, method)
        for number, row in enumerate(given, 1)
    ]


@pytest.mark.parametrize("privacy", [None, Privacy(least_images=3)])
@pytest.mark.parametrize("trust", ["fleet", "open"])
def test_without_downloads_a_device_answers_as_classify_does(tmp_path, privacy, trust):
    task, given = small_task("ristretto", trust=trust), stream()

    def away(upload, report):
        raise ConnectionError("away")

    device = device_in(tmp_path, task, BackgroundSync(away), privacy)
    answers = [one.answer for one in device.answer_frames(given)]
    assert answers == classified(task, given)
    assert any(one.label != one.zero_shot for one in answers), "the memory changes something"
    device.close(patience=0.1)
    device.record.close()


@pytest.mark.parametrize("trust", ["fleet", "open"])
def test_a_crash_between_two_syncs_with_itself_changes_nothing(tmp_path, trust):
    task, given = small_task("ristretto", trust=trust), stream()
    expected = [(one.label, one.probability) for one in classified(task, given)]
    answers = []
    for start in range(0, 60, 13):
        device = device_in(tmp_path, task)
        answers += [one.answer for one in device.answer_frames(given[start : start + 13])]
        if start % 2:
            device.save()
        device.record.close()  # without device.close(): as a kill
    assert [(one.label, one.probability) for one in answers] == expected


@pytest.mark.parametrize("trust", ["fleet", "open"])
def test_from_the_first_download_on_the_server_decides(tmp_path, trust):
    task, given = small_task("ristretto", trust=trust), stream()
    exchange = create_exchange("ristretto", task.zero_shot, task.params)
    donor = create("ristretto", task.zero_shot, task.params)
    for row in stream(40):
        donor.predict(row)
    exchange.push("donor", donor.summary())
    member, plain, alone = new_member(task), create("ristretto", task.zero_shot, task.params), create_alone(
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
            assert again.method.params.trust == member.method.params.trust == trust
    assert same(plain.state(), member.method.state())
    member.reset()
    assert (
        not member.joined
        and member.predict(given[0]).scores.tolist() == new_member(task).predict(given[0]).scores.tolist()
    )


@pytest.mark.parametrize(
    ("params", "privacy", "without", "donated", "stands_in"),
    [
        ({"trust": "fleet"}, None, 0, 0, True),
        ({"trust": "open"}, None, 0, 0, True),
        ({"trust": "fleet"}, Privacy(least_images=2), 0, 0, True),
        ({"trust": "fleet"}, Privacy(least_images=2), 1, 0, True),
        ({"trust": "fleet"}, Privacy(noise=0.5), 0, 0, False),
        ({"trust": "fleet", "routing": "everyone"}, None, 0, 400, False),
    ],
)
def test_a_server_that_goes_away_again_is_stood_in_for(tmp_path, params, privacy, without, donated, stands_in):
    """A head of its own images takes the place of a download that rests on fewer; a crash changes nothing of that."""
    task, given = small_task("ristretto", **params), stream(120)
    exchange = create_exchange("ristretto", task.zero_shot, task.params)
    if donated:
        donor = create("ristretto", task.zero_shot, task.params)
        for row in stream(donated):
            donor.predict(row)
        exchange.push("donor", donor.summary())
    served = []

    def trip(upload, report):
        if served:
            raise ConnectionError("away")
        served.append(upload)
        exchange.push("device", upload)
        return exchange.pull("device")

    device = device_in(
        tmp_path, task, BackgroundSync(trip, rng=Random(0)), privacy, task.zero_shot.classnames[:without]
    )
    frames = device.answer_frames(given)
    while not (_member(device).joined and device.link.state.problem):
        next(frames)
        device.link.drain(0.05)
    before = _member(device).method.head.trust
    for _ in range(20):
        next(frames)
    assert (_member(device).method.head.trust > before) == stands_in
    state = device.method.state()
    device.record.close()  # without device.close(): as a kill
    again = device_in(tmp_path, task, None, privacy, task.zero_shot.classnames[:without])
    assert same(again.method.state(), state)
    again.record.close()
    device.link.stop()


def _member(device):
    method = device.method
    while isinstance(method, PrivateClient | Masked):
        method = method.method
    return method


def test_a_state_or_a_download_that_does_not_fit_changes_nothing():
    task, given = small_task("ristretto", trust="open"), stream()
    member, other = new_member(task), new_member(small_task("ristretto", classes=4, trust="open"))
    for row in given[:20]:
        member.predict(row)
        other.predict(row)
    exchange = create_exchange("ristretto", other.method.zero_shot, task.params)
    exchange.push("other", other.summary())
    before = member.state()
    with pytest.raises(InputError):
        member.receive(exchange.pull("other"))
    sync([("other", other)], exchange)
    assert other.joined
    with pytest.raises(InputError):
        member.load(other.state())
    assert same(member.state(), before) and not member.joined and member.method.params.trust == "fleet"


@pytest.mark.parametrize("trust", ["fleet", "open"])
def test_with_noise_no_image_has_a_part_in_the_labels_of_others(trust):
    """The guarantee says that one image moves the sums by its own label and row, and by nothing else."""
    task, given = small_task("ristretto", trust=trust), stream()
    one, other = (new_member(task, Privacy(noise=0.5)) for _ in range(2))
    for row in given[1:]:
        one.predict(row)
    for row in given:
        other.predict(row)
    alone = new_member(task)
    alone.predict(given[0])
    parts = [client.summary().counts for client in (one.method, alone, other.method)]
    np.testing.assert_allclose(parts[0] + parts[1], parts[2], rtol=0, atol=1e-12)
    assert other.method.method.head.trust > 0, "it learns from itself nevertheless"


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
