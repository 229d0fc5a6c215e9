"""The answers of a batch are, byte for byte, those that each request gets alone."""

import msgspec
import numpy as np
import pytest

from latte import Prototypes, ZeroShot
from latte.edge.joining import make_task
from latte.errors import InputError
from latte.server.hub.hub import Hub
from latte.server.store.base import Record
from latte.server.store.sqlite import SqliteStore
from latte.wire.blocks import AtMost, complete, encode, encoded_rows
from latte.wire.messages import HeldRows, Problem, SyncReply, SyncRequest, have_of, pack, unpack
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


def test_a_new_and_a_stale_upload_are_known_without_the_store(hub, monkeypatch):
    rng = np.random.default_rng(4)
    hub.run([request(hub, "a", 5, upload(hub, rng))])
    monkeypatch.setattr(hub.store, "read", lambda clients: pytest.fail("the store was asked"))
    stale, new = hub.run([request(hub, "a", 4, upload(hub, rng)), request(hub, "a", 6, upload(hub, rng))])
    assert stale.code == "stale_version" and stale.more == {"stored_version": 5} and new.version == 6


def codes(answers):
    return [getattr(answer, "code", "ok") for answer in answers]


def a_part(blocks, places):
    """Return an upload that leaves out all rows: they are those at ``places`` of the upload before."""
    source = np.array(places, "<i4").tobytes()
    return tuple(msgspec.structs.replace(b, data=b"", source=source) if b.name == "vectors" else b for b in blocks)


def test_a_whole_upload_and_a_part_of_one_client_in_one_batch(hub):
    """Two connections of one client at once: what is stored is read for the part, whatever comes beside it."""
    rng = np.random.default_rng(5)
    blocks = upload(hub, rng, share=1.0)
    hub.run([request(hub, "a", 1, blocks)])
    part = request(hub, "a", 2, a_part(blocks, range(CLASSES)), base=1)
    batch = [request(hub, "b", 1, upload(hub, rng)), part, request(hub, "a", 3, blocks)]
    assert codes(hub.run(batch)) == ["ok"] * 3
    assert hub.versions == {"a": 3, "b": 1}


@pytest.mark.parametrize(("error", "code"), [(InputError, "bad_upload"), (ValueError, "internal")])
def test_what_one_request_raises_is_its_own_refusal(hub, monkeypatch, error, code):
    rng = np.random.default_rng(6)
    read = hub.reader.read

    def odd(request, before, checked=None):
        if request.client == "odd":
            raise error("client: got something odd, want something else")
        return read(request, before, checked)

    monkeypatch.setattr(hub.reader, "read", odd)
    answers = hub.run([request(hub, name, 1, upload(hub, rng)) for name in ("a", "odd", "b")])
    assert codes(answers) == ["ok", code, "ok"]


def test_a_part_of_an_upload_that_cannot_be_read_is_asked_for_whole(hub, monkeypatch):
    blocks = upload(hub, np.random.default_rng(7), share=1.0)
    hub.run([request(hub, "a", 1, blocks)])
    monkeypatch.setattr(hub.store, "read", lambda clients: {"a": Record("a", 1, b"1", b"", 0.0)})
    (answer,) = hub.run([request(hub, "a", 2, a_part(blocks, range(CLASSES)), base=1)])
    assert answer.code == "unknown_base" and answer.more == {"stored_version": 1}


def test_a_key_belongs_to_one_upload(hub):
    """A repetition is the same upload, whole or as the part that it was; anything else under its key is refused."""
    rng = np.random.default_rng(8)
    first, other = upload(hub, rng, share=1.0), upload(hub, rng, share=1.0)
    hub.run([request(hub, "a", 1, first)])
    assert codes(hub.run([request(hub, "a", 1, first), request(hub, "a", 1, other)])) == ["ok", "key_reused"]
    turned = request(hub, "a", 2, a_part(first, [0, 1, 2, 3, 3]), base=1)  # refused: class 4 with the row of class 3
    assert codes(hub.run([turned])) == ["bad_upload"]
    part = request(hub, "a", 2, a_part(first, range(CLASSES)), base=1)
    assert codes(hub.run([part, part])) == codes(hub.run([part])) * 2 == ["ok", "ok"]
    for odd in (other, (), with_source(part.upload, b"123"), with_source(part.upload, bytes(8))):
        assert codes(hub.run([request(hub, "a", 2, odd, base=1)])) == ["key_reused"]


def with_source(blocks, source):
    return tuple(msgspec.structs.replace(b, source=source) if b.name == "vectors" else b for b in blocks)


def test_a_client_that_another_server_was_faster_for_learns_the_stored_version(hub, monkeypatch):
    rng = np.random.default_rng(9)
    hub.run([request(hub, "a", 1, upload(hub, rng))])
    stored = Record("a", 7, b"7", b"", 0.0)
    monkeypatch.setattr(hub.store, "write", lambda records: frozenset(["a"]))
    monkeypatch.setattr(hub.store, "read", lambda clients: {"a": stored})
    (answer,) = hub.run([request(hub, "a", 2, upload(hub, rng))])
    assert answer.code == "stale_version" and answer.more == {"stored_version": 7}


@pytest.mark.parametrize("precision", PRECISIONS)
def test_uploads_checked_together_are_stored_as_those_checked_alone(hub, tmp_path, precision):
    """Bit for bit; parts of an earlier upload, odd rows, one class only and two uploads of one client included."""
    rng = np.random.default_rng(3)
    alone = Hub(hub.task, SqliteStore(tmp_path / "alone"))
    first = [request(hub, f"client {i}", 1, upload(hub, rng, precision, share=1.0)) for i in range(8)]
    second = []
    for i in range(16):
        blocks = upload(hub, rng, precision, share=(0.2, 0.8, 1.0)[i % 3])
        if i % 4 == 3:  # of another class than it says
            text = hub.task.zero_shot.text[::-1].copy()
            odd = Prototypes(text, np.ones(CLASSES, np.bool_), hub.task.zero_shot.fingerprint)
            blocks = encode(odd, precision, DIM)
        second.append(request(hub, f"client {i // 2 if i < 8 else i}", 2 + i % 2, blocks))
    for asked in (first, second):
        together = hub.run(asked)
        for one, answer in zip(asked, together, strict=True):
            (want,) = alone.run([one])
            assert type(answer) is type(want)  # of two uploads of one client, both are answered with the later version
            if isinstance(want, Problem):
                assert (answer.code, answer.detail) == (want.code, want.detail)
    assert any(isinstance(answer, Problem) for answer in together)
    assert hub.exchange.clients == alone.exchange.clients
    assert hub.reader.read_many(first, {}).keys() == set(range(8))  # this path is taken
    for name, array in alone.exchange.state().items():
        assert np.array_equal(hub.exchange.state()[name], array), name
    alone.store.close()
