"""The commands of docs/protocol.md run one after the other, as they are written, and every route has one."""

import re
import shutil
import sys

import msgspec
import pytest

from latte.checks.material import a_zero_shot
from latte.coordination.problems import CODES
from latte.serve.routes import PAGE_SPECS, SPECS
from latte.wire.messages import SyncReply, unpack
from serving import server_process, task_file
from waiting import ROOT, run

PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8420"
# An answer that is a refusal ends the script; a stream is ended by curl's own limit, which it reports as error 28.
BEGINNING = r"""
set -eu
latte() { "$PYTHON" -m latte "$@"; }
python() { "$PYTHON" "$@"; }
curl() { command curl --fail-with-body "$@" || { code=$?; [ $code = 28 ] || exit $code; }; }
"""


def commands():
    return re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.skipif(shutil.which("curl") is None, reason="runs curl")
def test_the_commands_run_in_order(tmp_path):
    path = task_file(tmp_path, a_zero_shot())
    with server_process(path, tmp_path / "data") as (address, _):
        script = BEGINNING + "".join(commands()).replace(ADDRESS, address)
        done = run("bash", "-c", script, cwd=tmp_path, PYTHON=sys.executable)
        assert done.returncode == 0, (done.stdout, done.stderr)
    first, again = (unpack((tmp_path / f"{name}.msgpack").read_bytes(), SyncReply) for name in ("reply", "version"))
    assert first.version == again.version == 1 and first.download is not None and again.download is None
    assert unpack((tmp_path / "download.msgpack").read_bytes(), SyncReply).download == first.download
    assert msgspec.json.decode((tmp_path / "openapi.json").read_bytes())["openapi"]
    for part in ("ok", '"client":"camera 7"', '"removed":true', "latte_requests_total", "event: beat"):
        assert part in done.stdout


def test_every_route_of_the_api_has_an_example():
    script = "".join(commands())
    for spec in (spec for spec in SPECS if spec not in PAGE_SPECS):
        assert re.search(rf"{re.escape(ADDRESS + spec.path)}[\s?\"]", script), spec.path


def test_the_table_of_problems_is_the_code():
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (.*) \|$", PAGE, re.MULTILINE)
    assert {code: (int(status), title) for code, status, title in rows} == CODES
