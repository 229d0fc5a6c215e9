"""Tables of other versions, servers that make them at once, and databases that cannot be used."""

import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest

from latte.server.store import postgres_link as postgres_tables
from latte.server.store import sqlite as sqlite_store
from latte.server.store.base import Record, StoreUnavailableError, open_store
from latte.server.store.postgres import PostgresStore, PostgresTokens
from latte.server.store.postgres_link import Link
from latte.server.store.sqlite import SqliteStore

RECORD = Record("a", 1, b"key", b"body", 0.0)


# --- SQLite -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [1, 3])
def test_sqlite_of_another_version_is_refused(tmp_path, version):
    SqliteStore(tmp_path).close()
    with closing(sqlite3.connect(tmp_path / "clients.db")) as database:
        database.execute(f"PRAGMA user_version = {version}")
    with pytest.raises(ValueError, match=f"version {version}, want version 2: another latte wrote it"):
        SqliteStore(tmp_path)


def test_tables_of_sqlite_are_made_all_or_none(tmp_path, monkeypatch):
    with monkeypatch.context() as later:
        later.setattr(sqlite_store, "_TABLES", (*sqlite_store._TABLES, "NO SQL"))
        with pytest.raises((OSError, ValueError)):
            SqliteStore(tmp_path)
    with closing(SqliteStore(tmp_path)) as store:
        store.write([RECORD])
        assert store.read(["a"]) == {"a": RECORD}


# --- PostgreSQL ---------------------------------------------------------------------------------------------


def open_many(url, count=6):
    """Open so many connections at once, and close them."""
    with ThreadPoolExecutor(count) as pool:
        for link in pool.map(lambda _: Link(url), range(count)):
            link.close()


def test_tables_are_made_once(postgres):
    for _ in range(5):
        url = postgres.new_schema()
        open_many(url)
        assert postgres.execute("SELECT value FROM latte_about WHERE name = 'schema'", url) == [("1",)]


def test_tables_of_postgres_are_made_all_or_none(postgres, monkeypatch):
    url = postgres.new_schema()
    with monkeypatch.context() as later:
        later.setattr(postgres_tables, "_TABLES", (*postgres_tables._TABLES, "NO SQL"))
        with pytest.raises(ValueError, match="syntax error"):
            PostgresStore(url)
    with closing(PostgresStore(url)) as store:
        store.write([RECORD])
        assert store.read(["a"]) == {"a": RECORD}


def test_postgres_of_another_version_is_refused(postgres):
    url = postgres.new_schema()
    PostgresStore(url).close()
    postgres.execute("UPDATE latte_about SET value = '2' WHERE name = 'schema'", url)
    for kind in (PostgresStore, PostgresTokens):
        with pytest.raises(ValueError, match=r"version 2, want version 1: another latte wrote it"):
            kind(url)


# --- databases that cannot be used --------------------------------------------------------------------------


def test_a_server_that_does_not_wait_for_the_disk_is_refused(postgres):
    url = postgres.new_schema()
    postgres.execute("ALTER SYSTEM SET fsync = off")
    try:
        postgres.execute("SELECT pg_reload_conf()")
        postgres.wait_for("SHOW fsync", "off")
        with pytest.raises(ValueError, match="fsync=off, want fsync=on"):
            PostgresStore(url)
    finally:
        postgres.execute("ALTER SYSTEM RESET fsync")
        postgres.execute("SELECT pg_reload_conf()")
        postgres.wait_for("SHOW fsync", "on")


@pytest.mark.parametrize(("asked", "used"), [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")])
def test_commits_wait_for_the_disk_whatever_the_address_says(postgres, asked, used):
    with closing(PostgresStore(f"{postgres.new_schema()}%20-csynchronous_commit%3D{asked}")) as store:
        setting = store._link.run(lambda database: database.execute("SHOW synchronous_commit").fetchone())
        assert setting == (used,)


def test_a_database_that_cannot_be_written_is_not_available_now(postgres):
    """As a standby is, until it takes over."""
    with pytest.raises(StoreUnavailableError, match="read-only"):
        PostgresStore(f"{postgres.new_schema()}%20-cdefault_transaction_read_only%3Don")


def test_a_role_that_may_not_make_tables_is_told_so(postgres):
    name = postgres.new_database().rpartition("/")[2]
    postgres.execute("DROP ROLE IF EXISTS guest")
    postgres.execute("CREATE ROLE guest LOGIN")
    postgres.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC", postgres.url(name))
    with pytest.raises(ValueError, match="permission denied for schema public, want a role that may create tables"):
        PostgresStore(postgres.url(name).replace("latte@", "guest@"))


def test_a_schema_that_is_not_there_is_refused(postgres):
    with pytest.raises(ValueError, match="no schema to put tables into"):
        PostgresStore(postgres.url(options="-csearch_path%3Dnowhere"))


@pytest.mark.parametrize(
    "address", ["postgresql://me:secret@host/x?bad=1", "postgresql://me:secret@[half", "mysql://x"]
)
def test_an_address_that_cannot_be_one_is_refused_without_its_password(address):
    with pytest.raises(ValueError, match="store: got") as caught:
        open_store(address)
    assert "secret" not in str(caught.value)


def test_a_password_is_in_no_message(postgres):
    with pytest.raises(StoreUnavailableError) as caught:
        PostgresStore("postgresql://me:secret@127.0.0.1:9/x")
    assert "secret" not in str(caught.value)
