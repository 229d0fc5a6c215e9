"""A server is killed under load, its power is cut, its disk fills up: nothing that was acknowledged is lost.

benchmarks/server/server_kills.py is the long form of the first two.
"""

import httpx2
import pytest

from crash_load import CrashLoad
from latte.checks.material import a_zero_shot, an_upload
from latte.edge.joining import make_task
from latte.wire.blocks import encode
from latte.wire.messages import MEDIA_TYPE, SyncRequest, pack
from lossy_disk import lossy_disk
from mortal_server import mortal_server
from postgres import small_disk
from waiting import wait_until

pytestmark = pytest.mark.slow

KILLS, CUTS = 4, 2


@pytest.fixture(scope="module")
def task():
    return make_task(a_zero_shot(), "latte", {"k_e": 3})


def test_a_server_is_killed_under_load(task, tmp_path):
    with mortal_server(task, tmp_path) as server:
        load = CrashLoad((server.address,), tmp_path, clients=12)
        for _ in range(KILLS):
            before = load.acknowledged
            load.start()
            wait_until(lambda before=before: load.acknowledged > before + 30, "some uploads")
            server.kill()
            load.join()
            load.check_store()
            server.start()
            load.check_answers()
        load.exchange.close()


def test_power_cuts_under_load(task, tmp_path, shared):
    tool = shared / "tools/lossyfs.py"
    if not tool.exists():
        pytest.skip("needs the file system that loses what was not synced")
    with lossy_disk(tool, tmp_path) as disk:
        data = disk.mount / "data"
        with mortal_server(task, data) as server:
            load = CrashLoad((server.address,), data, clients=6)
            for cut in range(CUTS):
                before = load.acknowledged
                load.start()
                wait_until(lambda before=before: load.acknowledged > before + 10, "some uploads")
                server.kill()
                load.join()
                disk.cut_power()
                disk.start(cut + 2)
                load.check_store()
                server.start()
                load.check_answers()
            load.exchange.close()


def test_a_full_disk_is_507_and_passes_by_itself(task, tmp_path):
    with small_disk(6) as disk, mortal_server(task, disk / "data") as server:
        load = CrashLoad((server.address,), disk / "data", clients=4)
        for sender in load.senders:
            sender.upload()
        ballast = disk / "ballast"
        ballast.touch()
        with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space"):
            while file.write(bytes(4096)):
                pass
        load.start()
        load.join()  # each client has met a refusal
        check_refusal(server.address, task)
        assert httpx2.get(f"{server.address}/readyz").status_code == 200
        ballast.unlink()
        load.check_answers()  # no restart
        server.kill()
        load.check_store()
        load.exchange.close()


def check_refusal(server, task):
    """The server says that its disk is full, and when to come back."""
    blocks = encode(an_upload(1), "fp32", task.zero_shot.dim)
    body = pack(SyncRequest(task.fingerprint, "client 0", version=1 << 40, upload=blocks))
    answer = httpx2.post(f"{server}/v1/sync", content=body, headers={"Content-Type": MEDIA_TYPE})
    assert (answer.status_code, answer.json()["code"]) == (507, "store_full")
    assert int(answer.headers["retry-after"]) >= 1
