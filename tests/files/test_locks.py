"""The lock of a file: one process at a time, the others are told who."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from latte.files.atomic import lock
from waiting import output_of

HOLD = """
import sys
from pathlib import Path
from latte.files.atomic import lock
with lock(Path(sys.argv[1]), "thing"):
    print("held", flush=True)
    sys.stdin.readline()
print("free", flush=True)
"""


def holder(path):
    pipe = subprocess.PIPE
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdin=pipe, stdout=pipe, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def refusal(path):
    with pytest.raises(ValueError) as refused, lock(path, "thing"):
        pass
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_another_process_is_told_who_has_it_since_when_and_what_for(tmp_path):
    path = tmp_path / "lock"
    process = holder(path)
    words = refusal(path)
    since = json.loads(path.read_text())["since"]
    assert words.startswith("thing: got another process") and since in words
    assert f"pid {process.pid}," in words and "-c" in words and str(path) in words
    process.communicate("\n")
    with lock(path, "thing"):
        assert json.loads(path.read_text())["pid"] == os.getpid()
    assert not path.exists()


@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_a_killed_holder_locks_nobody_out(tmp_path):
    path = tmp_path / "lock"
    process = holder(path)
    process.send_signal(signal.SIGKILL)
    output_of(process)
    assert path.exists()
    with lock(path, "thing"):
        pass
    assert not path.exists()


def test_it_holds_within_a_process_and_after_an_error(tmp_path):
    path = tmp_path / "lock"
    with pytest.raises(KeyError), lock(path, "thing"):
        assert f"pid {os.getpid()}," in refusal(path)
        raise KeyError
    with lock(path, "thing"):
        pass


def test_a_file_that_its_holder_removed_is_no_lock(tmp_path, monkeypatch):
    """A process opens the file, its holder lets go and removes it, a third makes it anew: only one may have it."""
    import latte.files.atomic as module

    path = tmp_path / "lock"
    take, third = module._take, []

    def slow(descriptor):
        if not third:
            path.unlink()
            third.append(holder(path))
        return take(descriptor)

    monkeypatch.setattr(module, "_take", slow)
    words = refusal(path)
    assert f"pid {third[0].pid}," in words
    third[0].communicate("\n")


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"pid": "x"}', b"\xff" * 9000, b"[" * 4000, b'{"pid": 1e999}'])
def test_a_lock_file_with_anything_in_it_still_locks(tmp_path, content):
    path = tmp_path / "lock"
    process = holder(path)
    path.write_bytes(content)
    assert "another process" in refusal(path)
    process.communicate("\n")


def test_control_characters_of_another_command_are_not_shown(tmp_path):
    path = tmp_path / "lock"
    process = holder(path)
    path.write_text(json.dumps({"pid": 1, "host": "\x1b[31mh", "since": "now\n", "command": "\x1b]0;title\x07"}))
    assert refusal(path).isprintable()
    process.communicate("\n")


def test_where_no_lock_can_be_the_refusal_says_why(tmp_path):
    assert "No such file" in refusal(tmp_path / "nowhere" / "lock")
    (tmp_path / "folder").mkdir()
    assert "folder" in refusal(tmp_path / "folder")
    os.mkfifo(tmp_path / "fifo")
    assert "no regular file" in refusal(tmp_path / "fifo")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    refusal(tmp_path / "link")
    assert not (tmp_path / "target").exists(), "a link that somebody laid is not followed"


def test_a_folder_that_may_not_be_written(tmp_path, monkeypatch):
    def denied(*arguments):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", denied)
    assert "Permission denied" in refusal(Path(tmp_path / "lock"))
