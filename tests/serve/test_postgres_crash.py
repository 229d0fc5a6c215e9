"""PostgreSQL is killed under load: nothing that was acknowledged is lost, and servers go on by themselves."""

from contextlib import closing

import httpx2
import numpy as np
import pytest

from crash_load import CrashLoad
from latte.checks.material import a_zero_shot
from latte.server.store.base import Record, StoreFullError, StoreUnavailableError
from latte.server.store.postgres import PostgresStore, PostgresTokens
from latte.server.store.tokens import new_token
from postgres import running_postgres, small_disk
from serving import server_process, task_file
from waiting import wait_until

pytestmark = pytest.mark.slow

KILLS = 2  # benchmarks/server/postgres_kills.py does more


@pytest.fixture(scope="module")
def mortal():
    """A PostgreSQL of its own."""
    with running_postgres() as server:
        yield server


def test_postgres_is_killed_under_load(mortal, tmp_path):
    url, path = mortal.new_database(), task_file(tmp_path, a_zero_shot(), k_e=3)
    options = ("--store", url, "--rate", 0)
    with (
        server_process(path, tmp_path / "1", *options) as (one, first),
        server_process(path, tmp_path / "2", *options) as (two, second),
    ):
        load = CrashLoad((one, two), url, clients=8)
        for _ in range(KILLS):
            before = load.acknowledged
            load.start()
            wait_until(lambda before=before: load.acknowledged > before + 40, "some uploads", first, second)
            mortal.kill()
            load.join()  # each client has met a refusal
            for server in (one, two):
                check_refusal(server)
            mortal.start()
            load.check_store()
            load.check_answers()  # with the same connections, and no server was restarted
        load.exchange.close()
        for process in (first, second):
            assert process.alive()
            assert "Traceback" not in process.so_far().stderr


def check_refusal(server):
    """The server says that it cannot answer now, and when to come back; it lives."""
    removal = httpx2.request("DELETE", f"{server}/v1/clients", params={"client": "client 0"})
    assert removal.status_code == 503
    assert removal.json()["code"] == "store_unavailable"
    assert int(removal.headers["retry-after"]) >= 1
    assert httpx2.get(f"{server}/livez").status_code == 200


def test_nobody_is_let_in_while_tokens_cannot_be_read(mortal):
    url = mortal.new_database()
    _, token = new_token("a")
    tokens = PostgresTokens(url)
    tokens.add(token)
    assert tokens.tokens() == {token.id: token}
    mortal.kill()
    wait_until(lambda: tokens.at_hand() is None, "what is known to be too old")
    for _ in range(2):
        with pytest.raises(OSError, match=r"refused|did not answer"):
            tokens.tokens()
    mortal.start()
    wait_until(lambda: _answer(tokens) == {token.id: token}, "the tokens to be known again")
    tokens.close()


def _answer(tokens):
    try:
        return tokens.tokens()
    except OSError:
        return None


def test_a_full_disk_is_reported_and_overcome():
    """PostgreSQL that cannot extend its log ends and starts again by itself; it stays down until there is room."""
    with small_disk(120) as disk, running_postgres(disk) as server:
        (disk / "ballast").write_bytes(bytes(30 << 20))
        with closing(PostgresStore(server.new_database())) as store:
            version, error = fill(store)
            assert isinstance(error, (StoreFullError, StoreUnavailableError))  # which process has met it first
            (disk / "ballast").unlink()
            wait_until(lambda: can_write(store, version + 1), "room, and PostgreSQL to recover")
            records = store.read(NAMES)
            assert {record.version for record in records.values()} == {version + 1}
            assert records.keys() == set(NAMES)


NAMES = [f"client {i}" for i in range(8)]


def fill(store):
    """Write until that fails; return the last version that was acknowledged, and why."""
    version = 0
    while True:
        try:
            store.write([a_large_record(name, version + 1) for name in NAMES])
        except OSError as error:
            return version, error
        version += 1


def can_write(store, version):
    """Return whether the store can be written; what it holds is the version before, or one that was on its way."""
    try:
        stored = {record.version for record in store.read(NAMES).values()}
        assert stored in ({version - 1}, {version})
        store.write([a_large_record(name, version) for name in NAMES])
    except OSError:
        return False
    return True


def a_large_record(name, version):
    return Record(name, version, b"", np.random.default_rng(version).bytes(100_000), 0.0)
