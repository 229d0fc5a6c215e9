"""The commands of docs/protocol.md run one after the other, as they are written, and every route has one."""

import hashlib
import re
import shutil
import struct
import sys

import msgspec
import numpy as np
import pytest

from latte import create
from latte.checks.material import a_zero_shot
from latte.core.types import array_fields
from latte.server.http.app import PAGE_SPECS, SPECS
from latte.wire.blocks import code_of
from latte.wire.messages import CODES, SyncReply, have_of, unpack
from latte.wire.rows import RowFormat
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


def test_the_rows_of_the_page_are_those_of_the_code():
    rows = re.findall(
        r"^\| (`exact`, `fp32`|`\w+`) \| `([0-9a-f]+)` \| `([0-9a-f]{16})` \| (.*) \|$", PAGE, re.MULTILINE
    )
    vector = np.array([[0.6, 0, 0, -0.8, 0, 0]], np.float32)
    for names, content, row_id, decoded in rows:
        for name in re.findall(r"\w+", names):
            form = RowFormat.of(name, 6, vector.dtype)
            encoded = form.encode(vector)
            assert encoded.tobytes().hex() == content
            assert hashlib.sha256(struct.pack("<Q", 7) + encoded.tobytes()).digest()[:8].hex() == row_id
            assert have_of({"vectors": encoded}, 7)[0].ids.hex() == row_id
            assert form.decode(encoded)[0].tolist() == [float(number) for number in decoded.split(", ")]
    assert len(rows) == 4


def test_the_arrays_of_the_page_are_those_of_the_methods():
    """Method and message stand in the first row of a group only."""
    found, method, kind = {}, "", ""
    for row in re.findall(
        r"^\| (`\w+`)? ?\| (upload|download)? ?\| `(\w+)` \| `(\w\d)` \| ([^|]+) \|", PAGE, re.MULTILINE
    ):
        method, kind = row[0].strip("`") or method, row[1] or kind
        found.setdefault((method, kind), {})[row[2]] = (row[3], row[4].strip())
    classes, dim = a_zero_shot().text.shape
    sizes = {"C": classes, "D": dim, "E": 1}
    for method in ("latte", "ristretto"):
        zero_shot = a_zero_shot()
        clients = [create(method, zero_shot, {}) for _ in range(2)]
        exchange = type(clients[0]).exchange_for(zero_shot, clients[0].params)
        for name, client in zip("ab", clients, strict=True):
            client.predict(zero_shot.text[0])
            exchange.push(name, client.summary())
        for kind, message in (("upload", clients[0].summary()), ("download", exchange.pull("a"))):
            arrays = {name: getattr(message, name) for name in array_fields(type(message))}
            assert list(arrays) == list(found[method, kind])
            for name, array in arrays.items():
                dtype, shape = found[method, kind][name]
                assert code_of(array.dtype) == dtype
                assert array.shape == tuple(sizes[axis] for axis in shape.split(", ") if axis != "none")
