"""A store that does not answer, or holds one row back: who is told what, and who goes on."""

import subprocess
import threading
import time
from contextlib import closing

import httpx2
import pytest

from latte.checks.material import a_zero_shot, an_upload
from latte.edge.clients.calls import Connection, UnreachableError
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task
from latte.server.hub.hub import Hub
from latte.server.store.base import Record, StoreFullError, StoreUnavailableError, open_store
from latte.server.store.postgres import PostgresStore
from latte.wire.blocks import encode
from latte.wire.messages import Problem, SyncReply, SyncRequest
from postgres import running_postgres, small_disk
from serving import serving, task_file
from waiting import DEADLINE, latte, wait_until

TASK = make_task(a_zero_shot(), "latte", {"k_e": 3})


def a_request(client, seed=1, version=1, **more):
    blocks = encode(an_upload(seed), "fp32", 8)
    return SyncRequest(TASK.fingerprint, client, version=version, upload=blocks, key=b"k" * 16, **more)


def ready(server):
    return httpx2.get(f"{server.address}/readyz", timeout=DEADLINE).status_code


def test_a_server_without_its_database_is_not_ready(tmp_path):
    with running_postgres() as postgres, serving(TASK, tmp_path / "data", store=postgres.new_schema()) as server:
        assert ready(server) == 200
        postgres.kill()
        wait_until(lambda: ready(server) == 503, "a server that is not ready")
        assert httpx2.get(f"{server.address}/livez").status_code == 200
        postgres.start()
        wait_until(lambda: ready(server) == 200, "a server that is ready again")


def test_a_row_that_somebody_holds_is_waited_for_by_nobody_else(tmp_path, postgres):
    """Neither a row that is there nor a name that is being inserted by a transaction that goes on."""
    import psycopg

    url = postgres.new_schema()
    patient = Connection(attempts=1, timeout=DEADLINE)
    with serving(TASK, tmp_path, store=url) as server, HttpExchange(server.address, connection=patient) as exchange:
        for name in ("held", "free"):
            exchange.push(name, an_upload(1))
        with psycopg.connect(url) as other:
            other.execute("UPDATE latte_clients SET updated = 0 WHERE name = 'held'")
            other.execute("INSERT INTO latte_clients (name, version, key, body, checksum, updated)"
                          " VALUES ('new', 1, '', '', 0, 0)")  # fmt: skip
            refused, longest = dict.fromkeys(("held", "new"), ""), 0.0

            def push(name):
                try:
                    exchange.push(name, an_upload(2))
                except UnreachableError as error:
                    refused[name] = str(error)

            threads = [threading.Thread(target=push, args=[name]) for name in refused]
            for thread in threads:
                thread.start()
            for seed in range(10):
                start = time.monotonic()
                exchange.push("free", an_upload(seed))
                longest = max(longest, time.monotonic() - start)
            for thread in threads:
                thread.join()
            assert longest < 8
            assert all("holds the row" in text for text in refused.values())
            other.rollback()
        exchange.push("held", an_upload(3))
        exchange.push("new", an_upload(3))


def test_a_batch_with_a_held_row_is_written_without_it(postgres):
    import psycopg

    url = postgres.new_schema()
    with closing(PostgresStore(url)) as store:
        records = [Record(f"{i}", 1, b"", b"x", 0.0) for i in range(64)]
        store.write(records)
        with psycopg.connect(url) as other:
            other.execute("SELECT FROM latte_clients WHERE name = '7' FOR UPDATE")
            start = time.monotonic()
            later = [Record(record.client, 2, b"", b"y", 0.0) for record in records]
            assert store.write(later) == {"7"}
            assert time.monotonic() - start < 5
        assert store.write(later[7:8]) == frozenset()
        assert {record.version for record in store.read([record.client for record in records]).values()} == {2}


@pytest.mark.parametrize("kind", ["full", "read only"])
def test_a_disk_that_cannot_be_written_is_a_clear_line(kind, tmp_path):
    task = task_file(tmp_path, a_zero_shot(), k_e=3)
    with small_disk(4) as disk:
        latte("token", "create", "a", "--folder", disk / "data", check=True)
        if kind == "full":
            with (disk / "ballast").open("wb", buffering=0) as ballast, pytest.raises(OSError, match="No space"):
                while ballast.write(bytes(4096)):
                    pass
        else:
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        for words in (
            ("serve", task, "--folder", disk / "data", "--port", 0),
            ("serve", task, "--folder", disk / "new", "--port", 0),
            ("token", "create", "b", "--folder", disk / "data"),
            ("store", "backup", disk / "backup", "--folder", disk / "data"),
        ):
            refused = latte(*words)
            said = refused.stderr.splitlines()[-1]
            assert refused.returncode in (1, 2) and "Errno" not in said and "Traceback" not in refused.stderr
            assert str(disk) in said and any(word in said for word in ("no room", "only", "written", "write in"))


class Failing:
    """A store whose ``changes`` or ``write`` fail."""

    def __init__(self, store):
        self.store, self.fault, self.where = store, None, ""

    def __getattr__(self, name):
        return getattr(self.store, name)

    def changes(self):
        if self.where == "changes" and self.fault:
            raise self.fault
        return self.store.changes()

    def write(self, records):
        if self.where == "write" and self.fault:
            raise self.fault
        return self.store.write(records)


def test_what_was_stored_is_not_said_to_be_lost(tmp_path):
    """After the commit, only the download is missing: an upload alone is acknowledged."""
    with closing(open_store(tmp_path)) as store:
        failing = Failing(store)
        hub = Hub(TASK, failing)
        failing.fault, failing.where = StoreUnavailableError("away"), "changes"
        asking = SyncRequest(TASK.fingerprint, "a", precision="fp32")
        alone, both, download = hub.run([a_request("a"), a_request("b", precision="fp32"), asking])
        assert isinstance(alone, SyncReply) and alone.version == 1
        assert isinstance(both, Problem) and both.code == "store_unavailable"
        assert "was stored" in both.detail and "nothing" not in both.detail
        assert isinstance(download, Problem) and download.code == "store_unavailable"
        assert store.read(["a", "b"]).keys() == {"a", "b"}
        failing.fault = None
        (again,) = hub.run([a_request("b", precision="fp32")])  # the same request once more
        assert isinstance(again, SyncReply) and again.version == 1 and again.download is not None


@pytest.mark.parametrize(
    ("fault", "says"), [(StoreUnavailableError("away"), "not known"), (StoreFullError("full"), "nothing was stored")]
)
def test_a_write_that_failed_says_what_is_known(tmp_path, fault, says):
    with closing(open_store(tmp_path)) as store:
        failing = Failing(store)
        hub = Hub(TASK, failing)
        failing.fault, failing.where = fault, "write"
        (answer,) = hub.run([a_request("a")])
        assert isinstance(answer, Problem) and says in answer.detail
