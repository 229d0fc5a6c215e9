"""A device without others: it syncs with itself when its method would, and a restart changes no bit."""

import numpy as np
import pytest

import small_tasks
from latte import sync
from latte.edge import create_alone, load_memory, save_memory
from latte.edge.classify.classify import Alone
from latte.files.tensors import write_safetensors
from latte.methods.ristretto.client import Ristretto

CLASSES, DIM = 4, 12


@pytest.fixture
def task():
    return small_tasks.a_task(CLASSES, DIM)


@pytest.fixture
def stream():
    rows = np.random.default_rng(3).standard_normal((90, DIM))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_device_alone_answers_as_one_client_of_an_exchange(task, stream):
    device, client = create_alone("ristretto", task), Ristretto(task)
    exchange = Ristretto.exchange_for(task)
    for images, row in enumerate(stream, 1):
        assert np.array_equal(device.predict(row).scores, client.predict(row).scores)
        if images in (1, 2, 4, 8, 16, 32, 48, 64, 80):
            sync([("anybody", client)], exchange)
    assert device.method.head.trust > 0 and np.array_equal(device.method.head.weights, client.head.weights)


@pytest.mark.parametrize("stop", [0, 1, 5, 16, 31, 70])
def test_a_restart_goes_on_bit_for_bit(task, stream, tmp_path, stop):
    whole, first = create_alone("ristretto", task), create_alone("ristretto", task)
    scores = [whole.predict(row).scores for row in stream]
    for row in stream[:stop]:
        first.predict(row)
    save_memory(tmp_path / "m.safetensors", first, task)
    second = create_alone("ristretto", task)
    load_memory(tmp_path / "m.safetensors", second, task)
    for row, expected in zip(stream[stop:], scores[stop:], strict=True):
        assert np.array_equal(second.predict(row).scores, expected)
    assert second.images == len(stream)


def test_a_dry_run_and_a_reset_count_nothing(task, stream):
    device = create_alone("ristretto", task)
    device.predict(stream[0], remember=False)
    assert device.images == 0
    device.predict(stream[0])
    device.reset()
    assert device.images == 0 and device.method.head.trust == 0


@pytest.mark.parametrize("images", [None, np.array(-1), np.array(1.0), np.array([1])])
def test_a_bad_count_is_refused_and_changes_nothing(task, stream, images):
    device = create_alone("ristretto", task)
    for row in stream[:5]:
        device.predict(row)
    before = device.state()
    bad = {name: array for name, array in before.items() if name != "images"}
    if images is not None:
        bad["images"] = images
    with pytest.raises(ValueError, match="images"):
        device.load(bad)
    assert all(np.array_equal(array, before[name]) for name, array in device.state().items())


def test_the_memory_of_another_method_is_refused(task, stream, tmp_path):
    device = create_alone("ristretto", task)
    device.predict(stream[0])
    save_memory(tmp_path / "m.safetensors", device, task)
    with pytest.raises(ValueError, match=r"got the memory of Ristretto, want that of Latte: name another file"):
        load_memory(tmp_path / "m.safetensors", create_alone("latte", task), task)


def test_a_memory_of_an_earlier_version_names_no_method_and_is_read(task, stream, tmp_path):
    first, second = create_alone("ristretto", task), create_alone("ristretto", task)
    first.predict(stream[0])
    about = {"format": "latte-memory/1", "fingerprint": task.fingerprint}
    write_safetensors(tmp_path / "m.safetensors", first.state(), about)
    load_memory(tmp_path / "m.safetensors", second, task)
    assert all(np.array_equal(array, second.state()[name]) for name, array in first.state().items())


def test_a_method_that_gains_nothing_from_itself_has_no_exchange(task):
    assert not isinstance(create_alone("latte", task), Alone)
    for name in ("vte", "tpt"):
        with pytest.raises(ValueError, match="method"):
            create_alone(name, task)
