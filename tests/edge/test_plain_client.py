"""The client in examples/ that knows the protocol from its page only, with a real server."""

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from latte import Prototypes, ZeroShot, create
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task
from latte.wire.messages import Have
from serving import IMPATIENT, serving
from waiting import run

EXAMPLE = Path(__file__).parents[2] / "examples" / "plain_client.py"


def unit(rows):
    return (rows / np.linalg.norm(rows, axis=-1, keepdims=True)).astype(np.float32)


def federation(dim):
    rng = np.random.default_rng(dim)
    text = unit(rng.normal(size=(5, dim)))
    labels = rng.integers(5, size=60)
    return (
        make_task(ZeroShot(text, list("abcde")), "latte"),
        labels,
        unit(text[labels] + 0.1 * rng.normal(size=(60, dim))),
    )


@pytest.mark.parametrize("dim", [16, 24])
@pytest.mark.parametrize("precision", ["exact", "fp32", "fp16", "int8", "int4"])
def test_its_downloads_are_those_of_the_exchange(tmp_path, precision, dim):
    plain = runpy.run_path(str(EXAMPLE))
    task, labels, rows = federation(dim)
    with serving(task, tmp_path) as server:
        exchange = HttpExchange(server.address, precision=precision, connection=IMPATIENT)
        for i in range(8):
            seen = np.random.default_rng(i).random(5) < 0.8
            vectors = unit(task.zero_shot.text + 0.05 * np.random.default_rng(i).normal(size=(5, dim)))
            exchange.push(
                f"other {i}", Prototypes(np.where(seen[:, None], vectors, np.float32(0)), seen, exchange.task)
            )
        client = plain["Client"](server.address, "plain", precision=precision)
        left_out, right = 0, 0
        decode_array = client.array

        def note(name, dtype, shape, coding, data, source=b""):
            nonlocal left_out
            left_out += int((np.frombuffer(source, "<i4") >= 0).sum())
            return decode_array(name, dtype, shape, coding, data, source)

        client.array = note
        for number, row in enumerate(rows):
            right += client.predict(row) == labels[number]
            if number % 15 == 14:
                got = client.sync()
                with HttpExchange(server.address, precision=precision) as fresh:
                    want = fresh.pull("plain")
                for name in ("vectors", "entropy", "valid"):
                    assert got[name].dtype == getattr(want, name).dtype
                    np.testing.assert_array_equal(got[name], getattr(want, name))
        exchange.close()
    assert left_out > 20, "rows that it has are not sent again"
    assert right > 50
    assert client.version == 4


def test_what_labels_add_to_a_download_changes_no_rows_that_it_has(tmp_path):
    plain = runpy.run_path(str(EXAMPLE))
    task, labels, rows = federation(24)
    with (
        serving(task, tmp_path) as server,
        HttpExchange(server.address, precision="fp16", connection=IMPATIENT) as exchange,
    ):
        teacher = create("latte", task.zero_shot, task.params)
        for row, label in zip(rows[:20], labels, strict=False):
            teacher.predict(row)
            teacher.correct(row, int(label))
        exchange.push("teacher", teacher.summary())
        client = plain["Client"](server.address, "plain")
        client.predict(rows[20])
        for _ in range(2):
            exchange.push("teacher", teacher.summary())
            got = client.sync()
            assert "weights" in got
            have = plain["row_ids"](client.held, client.seed)
            assert len(have) == 8 * got["vectors"].shape[0] * got["vectors"].shape[1]
            want = exchange.pull("plain")
            np.testing.assert_array_equal(got["vectors"], want.vectors)


def test_it_runs_without_latte(tmp_path):
    task, _, rows = federation(16)
    np.save(tmp_path / "rows.npy", rows)
    program = "import runpy, sys; sys.modules['latte'] = None; sys.argv[:1] = []; "
    program += "runpy.run_path(sys.argv[0], run_name='__main__')"
    with serving(task, tmp_path / "data") as server:
        command = [sys.executable, "-c", program, EXAMPLE, server.address, "plain", tmp_path / "rows.npy"]
        done = run(*command)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == len(rows)
    assert len(EXAMPLE.read_text("utf-8").splitlines()) <= 150


def test_ids_are_those_of_the_page():
    plain = runpy.run_path(str(EXAMPLE))
    rows = np.arange(20, dtype=np.uint8).reshape(2, 10)
    from latte.wire.messages import have_of

    assert have_of({"vectors": rows}, 9) == (Have("vectors", 9, plain["row_ids"](rows, 9)),)
