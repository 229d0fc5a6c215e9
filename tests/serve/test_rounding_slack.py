"""What the check of own classes allows for rounding: nothing to rows of others, and to no row more than it can need."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte import Prototypes, Routing, ZeroShot
from latte.edge.joining import make_task
from latte.methods.latte.server import GlobalMemory
from latte.server.hub.hub import Hub
from latte.server.store.sqlite import SqliteStore
from latte.wire.blocks import decode, encode, rounding_of
from latte.wire.messages import SyncRequest
from latte.wire.rows import PRECISIONS, RowFormat, rotate
from small_tasks import a_task

CLASSES, DIM = 6, 256
FLOAT32 = np.dtype(np.float32)
WHOLE = ("int8", "int4")


def rotate_back(rows):
    return rotate(rows, back=True)


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


# --- honest rows are never refused --------------------------------------------------------------------------

SHAPES = {
    "spread": lambda rng, d: rng.normal(size=d),
    "heavy": lambda rng, d: rng.standard_t(1.5, size=d),
    "sparse": lambda rng, d: rng.normal(size=d) * (rng.random(d) < 3 / d) + 1e-3 * rng.normal(size=d),
    "one number": lambda rng, d: np.eye(d)[rng.integers(d)],
    "one number once rotated": lambda rng, d: rotate_back(np.eye(d, dtype=np.float32)[rng.integers(d)][None])[0],
    "constant": lambda rng, d: np.ones(d),
    "of a text": lambda rng, d: a_task(4, d).text[rng.integers(4)] + 0.3 * rng.normal(size=d) / np.sqrt(d),
}


@settings(max_examples=400, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from(PRECISIONS),
    st.sampled_from([1, 2, 3, 7, 16, 33, 64, 100, 255, 256, 384, 511, 512, 768, 1024]),
    st.sampled_from(sorted(SHAPES)),
)
def test_no_honest_row_is_refused(seed, precision, dim, shape):
    """What is classified as its class before it is encoded passes afterwards, also what a rotation does not spread."""
    rng, zero_shot = np.random.default_rng(seed), a_task(4, dim)
    vectors, seen = np.zeros((4, dim), np.float32), np.zeros(4, np.bool_)
    for _ in range(8):
        row = unit(SHAPES[shape](rng, dim))
        label = int(zero_shot.logits(row).argmax())
        vectors[label], seen[label] = row, True
    blocks = encode(Prototypes(vectors, seen, zero_shot.fingerprint), precision, dim)
    memory = GlobalMemory(zero_shot, Routing(3))
    decoded = decode(blocks_with_all_rows(blocks, vectors, precision), Prototypes, zero_shot.fingerprint)
    memory.prepare(decoded, rounding_of(blocks_with_all_rows(blocks, vectors, precision)))


def blocks_with_all_rows(blocks, vectors, precision):
    rows = RowFormat.of(precision, vectors.shape[1], FLOAT32).encode(vectors)
    whole = {"data": rows.tobytes(), "source": b""}
    return tuple(msgspec.structs.replace(b, **whole) if b.name == "vectors" else b for b in blocks)


@pytest.mark.parametrize("precision", WHOLE)
@pytest.mark.parametrize("dim", [1, 2, 7, 64, 384, 512])
def test_no_step_of_a_unit_row_exceeds_that_of_a_single_number(precision, dim):
    """The largest whole number is always used, so that the step of a unit row is at most 1/127 or 1/7."""
    form, steps = RowFormat.of(precision, dim, FLOAT32), {"int8": 127, "int4": 7}[precision]
    rng = np.random.default_rng(dim)
    rows = np.concatenate([unit(rng.normal(size=(50, dim))), rotate_back(np.eye(dim, dtype=np.float32))])
    scale = np.ascontiguousarray(form.encode(rows)[:, :4]).view("<f4")
    assert scale.max() <= 1.001 / steps and form.widest_step <= 1 / steps


@pytest.mark.parametrize(("dim", "most"), [(64, 5.0), (256, 4.2), (512, 4.0)])
def test_the_steps_of_spread_rows_are_allowed_for(dim, most):
    form, rng = RowFormat.of("int4", dim, FLOAT32), np.random.default_rng(dim)
    encoded = form.encode(unit(rng.normal(size=(10_000, dim))))
    sizes = np.ascontiguousarray(encoded[:, :4]).view("<f4") * 7 * np.sqrt(dim)
    assert sizes.max() < most and (sizes > 4.0).mean() < 1e-3


# --- nobody else's scale helps ------------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path):
    text = unit(np.random.default_rng(0).normal(size=(CLASSES, DIM)) + 3.0)
    hub = Hub(make_task(ZeroShot(text, [f"class {y}" for y in range(CLASSES)]), "latte"), SqliteStore(tmp_path))
    yield hub
    hub.store.close()


def uploads(hub, precision, rows, seen, scale=None):
    """Return the blocks of an upload; ``scale``: that of row 0, whatever its length is."""
    encoded = RowFormat.of(precision, DIM, FLOAT32).encode(rows).copy()
    if scale is not None:
        encoded[0, :4] = np.frombuffer(np.float32(scale).tobytes(), np.uint8)
    blocks = encode(Prototypes(rows, seen, hub.task.zero_shot.fingerprint), precision, DIM)
    return (msgspec.structs.replace(blocks[0], data=encoded.tobytes(), source=b""), *blocks[1:])


def codes(hub, several):
    """Return the answers to uploads: together, and each alone."""
    requests = [
        SyncRequest(hub.task.fingerprint, f"c{i}", version=1, upload=blocks) for i, blocks in enumerate(several)
    ]
    together = hub.run(requests)
    for request in requests:
        hub.forget(request.client)
    alone = [hub.run([request])[0] for request in requests]
    assert [getattr(a, "code", "ok") for a in together] == [getattr(a, "code", "ok") for a in alone]
    return [getattr(answer, "code", "ok") for answer in alone]


@pytest.mark.parametrize("precision", WHOLE)
def test_the_scale_of_an_unseen_row_allows_nothing_to_the_others(hub, precision):
    flipped, seen = np.roll(hub.task.zero_shot.text, 1, axis=0), np.ones(CLASSES, np.bool_)
    seen[0] = False
    honest = uploads(hub, precision, hub.task.zero_shot.text, seen, 1e30)
    liars = [uploads(hub, precision, flipped, seen, scale) for scale in (1e30, 1.0, 0.1)]
    assert codes(hub, [honest, *liars, honest]) == ["ok", *["bad_upload"] * 3, "ok"]


@pytest.mark.parametrize("precision", WHOLE)
def test_a_seen_row_of_one_number_allows_nothing_to_the_others(hub, precision):
    text, seen = hub.task.zero_shot.text, np.ones(CLASSES, np.bool_)
    rows = np.roll(text, 1, axis=0)
    spikes = rotate_back(np.eye(DIM, dtype=np.float32))
    rows[0] = spikes[(spikes @ text.T).argmax(axis=1) == 0][0]
    assert codes(hub, [uploads(hub, precision, rows, seen)] * 2) == ["bad_upload"] * 2


def test_a_row_with_one_large_number_is_allowed_what_others_are():
    form, rng = RowFormat.of("int4", DIM, FLOAT32), np.random.default_rng(3)
    spread, spike = unit(rng.normal(size=(1, DIM))), rotate_back(np.eye(1, DIM, dtype=np.float32))
    usual, most = form.roundings(form.encode(spread))[0], form.roundings(form.encode(spike))[0]
    assert usual <= most < 2 * usual
