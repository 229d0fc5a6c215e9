"""The file of --out follows the record, whatever was left behind."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devices import RowEncoder, rows, small_task
from latte.edge.device.device import DeviceLoop
from latte.edge.device.record import DeviceRecord
from latte.edge.device.report import AnswerLog
from latte.edge.joining import new_member


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    folder, task = tmp_path_factory.mktemp("state"), small_task()
    record = DeviceRecord(folder, task.fingerprint)
    list(DeviceLoop(RowEncoder(8), task, new_member(task), record).answer_frames([*rows(5), "bad", *rows(2, seed=2)]))
    record.close()
    return folder


@pytest.fixture(scope="module")
def whole(state):
    path = state / "whole.jsonl"
    AnswerLog(path, state).close()
    content = path.read_bytes()
    assert content.count(b"\n") == 8
    return content


@given(st.data())
def test_a_file_that_ends_anywhere_becomes_whole(tmp_path_factory, state, whole, data):
    end = data.draw(st.integers(0, len(whole)))
    beyond = data.draw(st.sampled_from([b"", b'{"number": 9, "time"', b'{"number": 9}\n', b'{"number": 9}\n{"nu']))
    path = tmp_path_factory.mktemp("log") / "out.jsonl"
    path.write_bytes(whole[:end] + (beyond if whole[:end].endswith(b"\n") or not end else b""))
    AnswerLog(path, state).close()
    assert path.read_bytes() == whole


def test_a_file_of_something_else_is_refused_and_not_touched(tmp_path, state):
    path = tmp_path / "notes.txt"
    path.write_text("my notes\nmore\n")
    with pytest.raises(ValueError, match="no answer of a device"):
        AnswerLog(path, state)
    assert path.read_text() == "my notes\nmore\n"
