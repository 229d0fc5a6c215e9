"""What ``latte serve`` and ``latte task`` refuse before they do anything."""

import json
import shutil

import numpy as np
import pytest

from latte.checks.material import a_zero_shot
from latte.edge.joining import make_task
from latte.files.tensors import parse_safetensors, safetensors_bytes
from latte.wire.task import parse_task
from serving import task_file
from waiting import latte, run


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl")
def test_files_of_tls_that_cannot_be_used_are_named_before_the_server_is_announced(tmp_path):
    path = task_file(tmp_path, a_zero_shot())
    new = ("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-x509", "-days", "2")
    for name in ("one", "other"):
        names = ("-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
        run("openssl", *new, *names, cwd=tmp_path, check=True)
    (tmp_path / "junk.pem").write_text("junk")
    for options, words in (
        (("--cert", "one.pem", "--key", "other.key"), "--cert and --key: got one.pem and other.key"),
        (("--cert", "junk.pem", "--key", "one.key"), "--cert and --key: got junk.pem and one.key"),
        (
            ("--cert", "one.pem", "--key", "one.key", "--client-ca", "junk.pem"),
            "--client-ca: got junk.pem",
        ),
    ):
        refused = latte("serve", path, "--folder", "data", "--port", 0, *options, cwd=tmp_path)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert words in refused.stderr and "Traceback" not in refused.stderr


def test_a_rate_that_is_no_number_is_refused(tmp_path):
    refused = latte("serve", task_file(tmp_path, a_zero_shot()), "--folder", tmp_path / "data", "--rate", "nan")
    assert refused.returncode == 2 and "rate: got nan, want requests per second" in refused.stderr


# --- task files -----------------------------------------------------------------------------------------------


def changed_task(**changes):
    """Return a task file that says something else about when to sync."""
    tensors = parse_safetensors(make_task(a_zero_shot()).to_bytes(), "task")
    about = {**json.loads(tensors.metadata["task"]), **changes}
    arrays = {name: np.array(array) for name, array in tensors.arrays.items()}
    return safetensors_bytes(arrays, {**tensors.metadata, "task": json.dumps(about)})


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"sync": "never"}, "sync: got 'never', want one of 'every'"), ({"period": 0}, "period: got 0, want a whole")],
)
def test_when_a_task_says_to_sync_is_checked(changes, words):
    assert parse_task(changed_task(period=3)).period == 3
    with pytest.raises(ValueError, match=words):
        parse_task(changed_task(**changes))


@pytest.mark.parametrize("option", [("--templates", "imagenet"), ("--classes", "cat,dog")])
def test_a_benchmark_has_its_own_texts(tmp_path, option):
    refused = latte("task", "create", tmp_path / "a.task", "--benchmark", "pacs-demo", *option)
    assert refused.returncode == 2 and "go with --encoder" in refused.stderr


def test_a_task_in_a_folder_that_is_not_there_is_refused(tmp_path):
    refused = latte("task", "create", tmp_path / "missing" / "a.task", "--benchmark", "pacs-demo")
    assert refused.returncode == 2 and "whose folder is not there" in refused.stderr
