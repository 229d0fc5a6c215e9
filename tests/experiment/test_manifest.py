"""What a manifest says of the sources: what git said, and nothing where it did not answer."""

import subprocess

import pytest

from latte.experiment import runner as manifest


@pytest.mark.parametrize(("status", "changed"), [("", False), (" M a.py", True), (None, None)])
def test_a_git_that_does_not_answer_is_not_unchanged(tmp_path, monkeypatch, status, changed):
    def answer(command, **options):
        if command[1] == "status" and status is None:
            raise subprocess.TimeoutExpired(command, options["timeout"])
        return subprocess.CompletedProcess(command, 0, "abc" if command[1] == "rev-parse" else status)

    monkeypatch.setattr(subprocess, "run", answer)
    assert manifest.git_state(tmp_path) == {"commit": "abc", "changed": changed}
