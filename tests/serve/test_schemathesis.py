"""Schemathesis against a running server and its OpenAPI document: no 500, no answer that the document does not have.

The long form is the same command with more examples.
"""

import importlib.util
import shutil
import sys
from contextlib import closing
from pathlib import Path

import pytest

from latte.checks.material import a_zero_shot
from latte.edge.joining import make_task
from latte.server.store.tokens import TokenFile, new_token
from serving import serving
from waiting import ROOT, SUPPORT, run

pytestmark = pytest.mark.slow

EXAMPLES = 15
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"


@pytest.mark.parametrize("who", ["admin", "client"])
def test_every_route_keeps_its_document(who, tmp_path):
    if importlib.util.find_spec("schemathesis") is None:
        pytest.skip("needs schemathesis")
    program = Path(sys.executable).with_name("schemathesis")
    assert program.exists() or shutil.which("schemathesis")
    with closing(TokenFile(tmp_path / "data")) as file:
        token, stored = new_token(None if who == "admin" else "a")
        file.add(stored)
    task = make_task(a_zero_shot(), "latte", {"k_e": 3})
    with serving(task, tmp_path / "data") as server:
        done = run(
            program, "run", f"{server.address}/v1/openapi.json", "--header", f"Authorization: Bearer {token}",
            "--max-examples", EXAMPLES, "--seed", "1", "--generation-database", "none", "--no-color",
            "--checks", CHECKS, "--exclude-path", "/v1/fleet/events",  # a stream without an end
            cwd=tmp_path, SCHEMATHESIS_HOOKS="schemathesis_hooks", PYTHONPATH=f"{ROOT / 'src'}:{SUPPORT}",
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
