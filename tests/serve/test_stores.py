"""What every store does, whichever it is: SQLite in a folder, or PostgreSQL."""

from contextlib import closing
from dataclasses import replace

import pytest

from latte.server.store.base import DamagedRecordError, Record, StoreFullError, open_store, open_tokens
from latte.server.store.tokens import check_token, new_token

ODD_NAMES = ("a", "a\0", "\0", "é", "e\u0301", "😀", "x" * 1024, "'; DROP TABLE latte_clients; --", "%s", "%b")


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """Return the place of a new store."""
    return str(tmp_path) if request.param == "sqlite" else request.getfixturevalue("postgres").new_schema()


def a_record(client: str, version: int = 1, size: int = 3000) -> Record:
    """Return a record; another version has another body."""
    return Record(client, version, bytes([version % 256]) * 16, (f"{client}{version}".encode() * size)[:size], 1.5)


def load(place) -> list[Record]:
    """Return what a process that starts now has."""
    with closing(open_store(place)) as store:
        return list(store.changes())


def test_what_is_written_is_there_after_a_restart_in_the_order_of_joining(place):
    with closing(open_store(place)) as store:
        assert store.is_empty()
        assert store.write([a_record(name) for name in "zyx"]) == frozenset()
        assert store.write([a_record("y", 2), a_record("a")]) == frozenset()
        assert not store.is_empty()
    assert load(place) == [a_record("z"), a_record("y", 2), a_record("x"), a_record("a")]


def test_names_are_any_text(place):
    with closing(open_store(place)) as store:
        store.write([a_record(name) for name in ODD_NAMES])
        assert store.read(ODD_NAMES) == {name: a_record(name) for name in ODD_NAMES}
        assert store.remove("a\0")
    assert [record.client for record in load(place)] == [name for name in ODD_NAMES if name != "a\0"]


def test_an_earlier_or_equal_version_loses_and_is_reported(place):
    with closing(open_store(place)) as store:
        store.write([a_record("a", 5), a_record("b", 5)])
        assert store.write([a_record("a", 6), replace(a_record("b", 5), body=b"other"), a_record("c")]) == {"b"}
        assert store.write([a_record("a", 4)]) == {"a"}
        assert store.read(["a", "b"]) == {"a": a_record("a", 6), "b": a_record("b", 5)}


def test_a_removed_client_may_join_again_with_any_version(place):
    with closing(open_store(place)) as store:
        store.write([a_record("a", 5)])
        assert store.remove("a")
        assert not store.remove("a")
        assert store.read(["a"]) == {}
        assert store.write([a_record("a", 1)]) == frozenset()
        assert store.read(["a"]) == {"a": a_record("a", 1)}
    assert load(place) == [a_record("a", 1)]


def test_it_belongs_to_the_first_task(place):
    with closing(open_store(place)) as store:
        assert store.claim("one") == "one"
        assert store.claim("two") == "one"
    with closing(open_store(place)) as store:
        assert store.claim("two") == "one"


def test_reading_nobody_and_writing_nothing(place):
    with closing(open_store(place)) as store:
        assert store.read([]) == {}
        assert store.read(["a"]) == {}
        assert store.write([]) == frozenset()


def test_many_are_read_at_once(place):
    names = [f"client {i}" for i in range(1200)]
    with closing(open_store(place)) as store:
        store.write([a_record(name, size=10) for name in names])
        assert store.read(names).keys() == set(names)
    assert [record.client for record in load(place)] == names


def test_replacing_everything_is_all_or_nothing(place):
    def breaking():
        yield a_record("new")
        raise ValueError("the backup ends here")

    with closing(open_store(place)) as store:
        store.claim("one")
        store.write([a_record("a")])
        with pytest.raises(ValueError, match="ends here"):
            store.replace("two", breaking())
        assert store.claim("two") == "one"
        assert store.read(["a", "new"]) == {"a": a_record("a")}
        store.replace("two", iter([a_record("c", 3), a_record("b", 2)]))
        assert store.claim("one") == "two"
    assert load(place) == [a_record("c", 3), a_record("b", 2)]


def damage(place, postgres_server, statement):
    """Change bytes behind the back of the store."""
    if place.startswith("postgresql"):
        postgres_server.execute(f"UPDATE latte_clients {statement}", place)
    else:
        import sqlite3

        with closing(sqlite3.connect(f"{place}/clients.db")) as database, database:
            database.execute(f"UPDATE clients {statement}")


@pytest.mark.parametrize("change", ["version = version + 1", "key = body", "body = key", "checksum = checksum + 1"])
def test_a_damaged_row_is_refused(place, change, request):
    with closing(open_store(place)) as store:
        store.write([a_record("a"), a_record("b")])
    server = request.getfixturevalue("postgres") if place.startswith("postgresql") else None
    damage(place, server, f"SET {change} WHERE id = (SELECT min(id) FROM {'latte_' if server else ''}clients)")
    with pytest.raises(DamagedRecordError, match=r"client 'a' is damaged.*latte store check"):
        load(place)


def test_a_server_that_runs_goes_on_without_a_damaged_row_until_its_client_writes_again(place, request, caplog):
    server = request.getfixturevalue("postgres") if place.startswith("postgresql") else None
    with closing(open_store(place)) as store:
        store.write([a_record("a"), a_record("b")])
        damage(place, server, "SET body = key WHERE id = 1")
        assert store.read(["a", "b"]) == {"b": a_record("b")}
        assert "client 'a' is damaged" in caplog.text
        assert store.write([a_record("a", 2)]) == frozenset()
        assert store.read(["a"]) == {"a": a_record("a", 2)}


def test_tokens_are_added_revoked_and_replaced(place):
    text, token = new_token("a\0é")
    admin_text, admin = new_token(None)
    with closing(open_tokens(place)) as tokens, closing(open_tokens(place)) as other:
        assert other.tokens() == {}
        assert not other.made()
        tokens.add(token, admin)
        assert other.made()
        assert check_token(text, tokens.tokens()) == token
        assert check_token(admin_text, tokens.tokens()) == admin
        tokens.revoke([token.id])
        assert check_token(text, tokens.tokens()) is None
    with closing(open_store(place)) as store:
        store.replace("one", [], tokens=lambda rows: [token.row, *(row for row in rows if row[1] == "admin")])
    with closing(open_tokens(place)) as tokens:
        assert tokens.tokens() == {token.id: token, admin.id: admin}
    with closing(open_store(place)) as store:
        store.replace("one", [], tokens=lambda rows: [])
    with closing(open_tokens(place)) as tokens:
        assert tokens.tokens() == {}
        assert tokens.made()  # for ever


def test_nothing_of_its_own_comes_back_as_a_change(place):
    with closing(open_store(place)) as store:
        assert list(store.changes()) == []
        store.write([a_record("a"), a_record("b")])
        store.remove("b")
        assert list(store.changes()) == []


def test_a_full_disk_loses_nothing_and_recovers(postgres):
    """PostgreSQL's own error, raised where it would be; the embedded store meets a real full disk elsewhere."""
    place = postgres.new_schema()
    with closing(open_store(place)) as store:
        store.write([a_record("a")])
        postgres.execute(
            """CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left' USING ERRCODE = 'disk_full'; END $$;
            CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON latte_clients EXECUTE FUNCTION full_disk()""",
            place,
        )
        with pytest.raises(StoreFullError, match="No space left"):
            store.write([a_record("a", 2), a_record("b")])
        assert store.read(["a", "b"]) == {"a": a_record("a")}
        postgres.execute("DROP TRIGGER full_disk ON latte_clients", place)
        assert store.write([a_record("a", 2), a_record("b")]) == frozenset()
    assert load(place) == [a_record("a", 2), a_record("b")]
