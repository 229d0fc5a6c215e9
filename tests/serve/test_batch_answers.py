"""The answers of a batch are, byte for byte, those that each request gets alone."""

import numpy as np
import pytest

from latte import Prototypes, ZeroShot
from latte.coordination.hub import Hub
from latte.coordination.sqlite_store import SqliteStore
from latte.edge.make_task import make_task
from latte.wire.array_blocks import complete, encode, encoded_rows
from latte.wire.expected_arrays import AtMost
from latte.wire.messages import HeldRows, SyncReply, SyncRequest, have_of, pack, unpack
from latte.wire.rows import PRECISIONS

CLASSES, DIM = 5, 32


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


@pytest.fixture
def hub(tmp_path):
    text = unit(np.random.default_rng(0).normal(size=(CLASSES, DIM)))
    task = make_task(ZeroShot(text, [f"class {y}" for y in range(CLASSES)]), "latte", {"k_e": 3})
    hub = Hub(task, SqliteStore(tmp_path))
    yield hub
    hub.store.close()


def upload(hub, rng, precision="fp32", share=0.8):
    text = hub.task.zero_shot.text
    vectors = unit(text + 0.02 * rng.normal(size=text.shape))
    seen = rng.random(CLASSES) < share
    message = Prototypes(np.where(seen[:, None], vectors, np.float32(0)), seen, hub.task.zero_shot.fingerprint)
    return encode(message, precision, DIM)


def request(hub, client, version, blocks, **more):
    return SyncRequest(hub.task.fingerprint, client, version=version, key=b"%d" % version, upload=blocks, **more)


def test_a_batch_answers_what_each_pull_would_be(hub):
    rng = np.random.default_rng(1)
    for version in (1, 2, 3):
        asked = [
            request(hub, f"client {i}", version, upload(hub, rng, up), precision=down)
            for i, (up, down) in enumerate(zip(PRECISIONS * 4, PRECISIONS[::-1] * 4, strict=True))
        ]
        answers = hub.run(asked)
        for one, answer in zip(asked, answers, strict=True):
            want = encode(hub.exchange.pull(one.client), one.precision, DIM)
            assert pack(answer) == pack(SyncReply(hub.task.fingerprint, version, download=want))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_rows_that_a_client_has_are_left_out(hub, precision):
    rng = np.random.default_rng(2)
    hub.run([request(hub, f"client {i}", 1, upload(hub, rng)) for i in range(12)])
    first = unpack(pack(hub.run([request(hub, "client 0", 2, upload(hub, rng), precision=precision)])[0]), SyncReply)
    have = have_of(encoded_rows(complete(first.download, AtMost(10**6), {})), 7)
    (again,) = hub.run([request(hub, "client 0", 3, upload(hub, rng), precision=precision, have=have)])
    want = encode(hub.exchange.pull("client 0"), precision, DIM, HeldRows(have))
    assert pack(again) == pack(SyncReply(hub.task.fingerprint, 3, download=want))
    assert len(pack(again)) < len(pack(first))


def test_one_bad_upload_does_not_touch_the_others(hub):
    rng = np.random.default_rng(3)
    asked = [request(hub, f"client {i}", 1, upload(hub, rng, share=1.0)) for i in range(6)]
    swapped = Prototypes(
        hub.task.zero_shot.text[::-1].copy(), np.ones(CLASSES, np.bool_), hub.task.zero_shot.fingerprint
    )
    asked[3] = request(hub, "client 3", 1, encode(swapped, "fp32", DIM))
    answers = hub.run(asked)
    assert [getattr(answer, "code", "ok") for answer in answers] == ["ok"] * 3 + ["bad_upload"] + ["ok"] * 2
    assert "zero-shot classifies" in answers[3].detail
    assert sorted(hub.versions) == [f"client {i}" for i in (0, 1, 2, 4, 5)]


def test_a_repeated_and_a_stale_upload_are_known_without_the_store(hub, monkeypatch):
    rng = np.random.default_rng(4)
    first = request(hub, "a", 5, upload(hub, rng))
    hub.run([first])
    monkeypatch.setattr(hub.store, "read", lambda clients: pytest.fail("the store was asked"))
    repeated, stale = hub.run([first, request(hub, "a", 4, upload(hub, rng))])
    assert repeated.version == 5 and stale.code == "stale_version"
