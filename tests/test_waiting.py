"""The helper that waits: it shows what is missing, and leaves no process behind."""

import sys
import time
from pathlib import Path

import pytest

import waiting
from waiting import SUPPORT, latte, latte_process, run, running, wait_until

TALKS = "import sys, time; print('spoken', flush=True); print('muttered', file=sys.stderr, flush=True); time.sleep(1e6)"


def test_the_first_true_answer_is_returned():
    answers = iter([None, "", "there"])
    assert wait_until(lambda: next(answers), "an answer") == "there"


def test_a_wait_in_vain_shows_what_was_printed_and_leaves_no_process(monkeypatch):
    with running(sys.executable, "-c", TALKS) as process:
        wait_until(lambda: process.so_far().stderr, "its words", process)
        monkeypatch.setattr(waiting, "DEADLINE", 0.0)
        with pytest.raises(
            pytest.fail.Exception, match=r"in vain for the end of the process(.|\n)*still running"
        ) as told:
            process.finish()
    assert "stdout: spoken" in str(told.value) and "stderr: muttered" in str(told.value)
    assert not process.alive()


def test_a_wait_for_a_process_that_ended_fails_at_once():
    started = time.monotonic()
    told = pytest.raises(pytest.fail.Exception, match=r"in vain for a file(.|\n)*exit code 3")
    with running(sys.executable, "-c", "raise SystemExit(3)") as process, told:
        wait_until(lambda: False, "a file", process)
    assert time.monotonic() - started < waiting.DEADLINE


@pytest.mark.skipif(sys.platform != "linux", reason="adopting orphans is Linux's")
def test_what_a_command_leaves_behind_is_ended_with_it():
    start = f"subprocess.Popen([sys.executable, '-c', {TALKS!r}], start_new_session=True, stdout=subprocess.DEVNULL)"
    leaves = f"import subprocess, sys; print({start}.pid); sys.exit(3)"
    done = run(sys.executable, SUPPORT / "adopt.py", sys.executable, "-c", leaves)
    assert done.returncode == 3
    assert not (Path("/proc") / done.stdout.strip()).exists()


@pytest.mark.skipif(sys.platform == "win32", reason="needs flock")
def test_what_is_made_once_is_made_once_and_a_failure_is_not_tried_again(tmp_path_factory):
    from made_once import made_once

    calls = []
    folders = [made_once(tmp_path_factory, "once", calls.append) for _ in range(2)]
    assert calls == folders[:1] == folders[1:]
    with pytest.raises(ZeroDivisionError):
        made_once(tmp_path_factory, "never", lambda folder: 1 / 0)
    with pytest.raises(pytest.fail.Exception, match="never: another process"):
        made_once(tmp_path_factory, "never", calls.append)
    assert len(calls) == 1


def test_what_must_succeed_shows_why_it_did_not():
    assert run(sys.executable, "-c", "raise SystemExit(3)").returncode == 3
    with pytest.raises(AssertionError, match="the reason"):
        run(sys.executable, "-c", "raise SystemExit('the reason')", check=True)


def test_a_command_in_this_process_is_as_one_in_its_own(tmp_path):
    for words in (["--version"], ["data", "list"], ["run", "--benchmark", "nowhere"], ["--nonsense"]):
        here, there = latte(*words, cwd=tmp_path), latte_process(*words, cwd=tmp_path)
        assert (here.returncode, here.stdout, here.stderr) == (there.returncode, there.stdout, there.stderr)
    assert Path.cwd() != tmp_path
