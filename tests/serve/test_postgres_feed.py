"""Following what other processes write to PostgreSQL: nothing is missed, whatever the order of commits."""

import threading
from contextlib import ExitStack, closing

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte.server.store import postgres as postgres_queries
from latte.server.store import postgres as postgres_store
from latte.server.store.base import DamagedRecordError, Record, Removal, StoreUnavailableError
from latte.server.store.postgres import PostgresStore


def a_record(client: str, version: int = 1) -> Record:
    return Record(client, version, b"key", f"{client}:{version}".encode() * 10, 0.0)


class Follower:
    """What a server has in memory: it ignores versions that it has, as the hub does."""

    def __init__(self, url: str) -> None:
        self.store, self.memory = PostgresStore(url), {}

    def follow(self) -> dict[str, int]:
        for change in self.store.changes():
            if isinstance(change, Removal):
                self.memory.pop(change.client, None)
            elif self.memory.get(change.client, 0) < change.version:
                self.memory[change.client] = change.version
        return self.memory

    def write(self, *records: Record) -> None:
        late = self.store.write(records)
        self.memory.update({one.client: one.version for one in records if one.client not in late})

    def remove(self, client: str) -> None:
        self.store.remove(client)
        self.memory.pop(client, None)

    def statement(self, text: str) -> None:
        """Begin or end a transaction around what the store does."""
        self.store._link.run(lambda database: database.execute(text))


@pytest.fixture
def followers(postgres):
    """Return a function that makes followers of one store."""
    url = postgres.new_schema()
    with ExitStack() as opened:

        def make() -> Follower:
            follower = Follower(url)
            opened.callback(follower.store.close)
            return follower

        make.url = url
        yield make


# --- the order of commits -----------------------------------------------------------------------------------


class NaiveFeed:
    """The feed that one writes first: rows with a larger number than the largest that was seen."""

    def __init__(self, url: str) -> None:
        self._url, self._last, self.memory = url, 0, set()

    def follow(self) -> set[bytes]:
        with psycopg.connect(self._url) as database:
            rows = database.execute("SELECT id, name FROM latte_clients WHERE id > %s", [self._last]).fetchall()
        self._last = max([self._last, *(row[0] for row in rows)])
        self.memory |= {row[1].decode() for row in rows}
        return self.memory


def test_a_transaction_that_commits_late_is_missed_by_the_naive_feed_only(followers):
    slow, fast, reader = followers(), followers(), followers()
    naive = NaiveFeed(followers.url)
    slow.statement("BEGIN")
    slow.write(a_record("slow"))
    fast.write(a_record("fast"))
    assert reader.follow().keys() == naive.follow() == {"fast"}
    slow.statement("COMMIT")
    assert naive.follow() == {"fast"}  # and never again
    assert reader.follow().keys() == {"fast", "slow"}


def test_many_writers_at_once(followers):
    """Short transactions of eight processes, while a reader looks as often as it can."""
    reader, done = followers(), threading.Event()
    seen = []

    def look() -> None:
        while not done.is_set():
            seen.append(len(reader.follow()))

    def write(follower: Follower, number: int) -> None:
        for i in range(30):
            follower.statement("BEGIN")
            follower.write(a_record(f"{number}:{i}"))
            follower.statement("COMMIT")

    watching = threading.Thread(target=look)
    watching.start()
    writers = [threading.Thread(target=write, args=(followers(), number)) for number in range(8)]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    watching.join()
    assert len(reader.follow()) == 240
    assert seen == sorted(seen)


CLIENTS = 3
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["begin", "write", "write", "remove", "commit", "commit", "rollback", "clean", "reconnect"]),
        st.integers(0, 2),  # which writer
        st.integers(0, CLIENTS - 1),  # which of its clients
        st.booleans(),  # whether the reader looks then
    ),
    min_size=5,
    max_size=40,
)


class Writers:
    """Three processes with clients of their own, of which each may have a transaction open."""

    def __init__(self, stores: list[Follower]) -> None:
        self.stores = stores
        self.committed, self.pending = {}, [{}, {}, {}]
        self.open, self.version = [False] * 3, 0

    def do(self, action: str, writer: int, number: int) -> None:
        client, store = f"{writer}:{number}", self.stores[writer]
        if action == "begin" and not self.open[writer]:
            store.statement("BEGIN")
            self.open[writer] = True
        elif action == "write":
            self.version += 1
            version = self.version if number else 1 + self.version % 3  # some begin again after they have left
            if version > self.value(writer, client):
                store.write(a_record(client, version))
                self.set(writer, client, version)
        elif action == "remove":
            store.remove(client)
            self.set(writer, client, None)
        elif action in ("commit", "rollback") and self.open[writer]:
            store.statement(action)
            self.end(writer, action == "commit")

    def commit_all(self) -> None:
        for writer in range(3):
            self.do("commit", writer, 0)

    def remove_all(self) -> None:
        for client in list(self.committed):
            self.do("remove", int(client[0]), int(client[2]))

    def value(self, writer: int, client: str) -> int:
        return (self.committed | self.pending[writer]).get(client) or 0

    def set(self, writer: int, client: str, version: int | None) -> None:
        self.pending[writer][client] = version
        if not self.open[writer]:
            self.end(writer, True)

    def end(self, writer: int, keep: bool) -> None:
        changed = self.pending[writer] if keep else {}
        self.committed = {c: v for c, v in (self.committed | changed).items() if v is not None}
        self.pending[writer], self.open[writer] = {}, False


@pytest.fixture(scope="module")
def four(postgres):
    """Return the address of a store, three writers and a reader, for many examples."""
    url = postgres.new_schema()
    with ExitStack() as opened:
        made = [Follower(url) for _ in range(4)]
        for follower in made:
            opened.callback(follower.store.close)
        yield url, made[:3], made[3]


@settings(max_examples=100)
@given(steps=STEPS)
def test_after_every_look_memory_is_what_is_committed(postgres, four, steps):
    url, stores, reader = four
    writers = Writers(stores)
    assert reader.follow() == {}
    for action, writer, number, looks in steps:
        if action == "clean":
            postgres.execute("UPDATE latte_removals SET removed = now() - interval '2 hours'", url)
            postgres.execute(postgres_queries.CLEAN, url)
        elif action == "reconnect":
            reader.store._link.close()
        else:
            writers.do(action, writer, number)
        if looks:
            assert reader.follow() == writers.committed
    writers.commit_all()
    assert reader.follow() == writers.committed
    writers.remove_all()


# --- removals -----------------------------------------------------------------------------------------------


def test_removals_are_followed_and_who_joins_again_is_there(followers):
    one, other = followers(), followers()
    one.write(a_record("a", 5), a_record("b"))
    assert other.follow() == {"a": 5, "b": 1}
    one.remove("a")
    assert other.follow() == {"b": 1}
    one.write(a_record("a", 2))
    assert other.follow() == {"a": 2, "b": 1}
    one.remove("a")
    one.write(a_record("a", 1))  # both between two looks
    assert other.follow() == {"a": 1, "b": 1}


def test_a_client_that_is_removed_here_and_joins_there_before_anybody_looks(followers):
    one, other = followers(), followers()
    one.write(a_record("a", 5))
    other.follow()
    one.remove("a")
    other.write(a_record("a", 6))  # other has not seen the removal
    assert other.follow() == {"a": 6} == one.follow()


def test_a_removal_that_was_cleaned_away_is_noticed(followers, postgres):
    """A process that has not looked for so long compares all names, once."""
    one, idle, busy = followers(), followers(), followers()
    one.write(a_record("a"), a_record("b"))
    for follower in (idle, busy):
        follower.follow()
    one.remove("a")
    assert busy.follow() == {"b": 1}
    postgres.execute("UPDATE latte_removals SET removed = now() - interval '2 hours'", followers.url)
    one.store._cleaned_at = float("-inf")
    one.follow()
    assert postgres.execute("SELECT count(*) FROM latte_removals", followers.url) == [(0,)]
    assert idle.follow() == busy.follow() == {"b": 1}
    look, everything = busy.store._look()
    assert not everything
    assert look.news == []


def test_the_name_of_a_removed_client_is_forgotten(followers, postgres, monkeypatch):
    clean = postgres_queries.CLEAN.replace(postgres_queries.REMEMBERED, "0 seconds")
    monkeypatch.setattr(postgres_store, "CLEAN", clean)
    one = followers()
    one.write(a_record("a"))
    one.remove("a")
    one.store._cleaned_at = float("-inf")
    one.follow()
    assert postgres.execute("SELECT count(*) FROM latte_removals", followers.url) == [(0,)]


# --- lost connections, other servers ------------------------------------------------------------------------


def end_connections(postgres, url):
    postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'latte'", url)


def test_a_lost_connection_is_made_again_and_nothing_is_missed(followers, postgres):
    one, other = followers(), followers()
    one.write(a_record("a"), a_record("b"))
    other.follow()
    end_connections(postgres, followers.url)
    with pytest.raises(StoreUnavailableError):  # a write that may have been done is not done again
        one.store.write([a_record("a", 2)])
    one.write(a_record("a", 3), a_record("c"))
    one.remove("b")
    assert other.follow() == {"a": 3, "c": 1}
    assert other.store.read(["a"]) == {"a": a_record("a", 3)}


def test_a_store_that_was_replaced_meanwhile_is_compared(followers, postgres):
    """What a process has in memory is what the store holds, also after a restoration to earlier versions."""
    other = followers()
    other.write(a_record("a", 9), a_record("b", 9), a_record("c", 1))
    assert other.follow() == {"a": 9, "b": 9, "c": 1}
    other.store._link.close()
    with closing(PostgresStore(followers.url, alone=True)) as store:
        store.replace(None, [a_record("c", 1), a_record("a", 2), a_record("d", 4)])
    assert other.follow() == {"a": 2, "c": 1, "d": 4}


def test_a_store_of_another_task_is_not_served(followers):
    other = followers()
    other.store.claim("one")
    other.follow()
    other.store._link.close()
    with closing(PostgresStore(followers.url, alone=True)) as store:
        store.replace("two", [])
    for use in (other.follow, lambda: other.write(a_record("a")), lambda: other.remove("a")):
        with pytest.raises(StoreUnavailableError, match="another task"):
            use()
    assert followers().store.is_empty(), "and nothing of its own is written"


def test_a_dump_from_a_server_that_has_counted_further(followers, postgres):
    """Its numbers of transactions lie in the future here: they would be news at every look."""
    one = followers()
    one.write(a_record("a"), a_record("b"))
    one.remove("b")
    postgres.execute("UPDATE latte_clients SET xid = '123456789'", followers.url)
    postgres.execute("UPDATE latte_removals SET xid = '123456789'", followers.url)
    postgres.execute("INSERT INTO latte_cleaned VALUES (1, '123456789', '123456789')", followers.url)
    other = followers()
    assert other.follow() == {"a": 1}
    assert other.store._look()[0].news == []
    one.write(a_record("a", 2))
    assert other.follow() == {"a": 2}


def test_a_damaged_row_stops_no_server_that_runs(followers, postgres, caplog):
    one, other = followers(), followers()
    one.write(a_record("a"), a_record("b"))
    other.follow()
    one.write(a_record("a", 2), a_record("b", 2))
    postgres.execute("UPDATE latte_clients SET key = 'x' WHERE name = 'a'", followers.url)
    assert other.follow() == {"a": 1, "b": 2}
    assert "client 'a' is damaged" in caplog.text
    with pytest.raises(DamagedRecordError, match="client 'a'"):
        followers().follow()
    one.write(a_record("a", 3))
    assert other.follow() == followers().follow() == {"a": 3, "b": 2}


def test_a_look_that_is_given_up_half_way_is_repeated(followers):
    one, other = followers(), followers()
    one.write(a_record("a"), a_record("b"))
    assert next(iter(other.store.changes())) == a_record("a")
    assert other.follow() == {"a": 1, "b": 1}


def test_a_long_transaction_elsewhere_does_not_repeat_the_news(followers, postgres):
    one, other = followers(), followers()
    with psycopg.connect(postgres.url()) as foreign:
        foreign.execute("SELECT pg_current_xact_id()")  # and stays open
        one.write(a_record("a"), a_record("b"))
        assert other.follow() == {"a": 1, "b": 1}
        assert other.store._look()[0].news == []
        one.write(a_record("a", 2))
        assert [news.client for news in other.store._look()[0].news] == ["a"]


def test_a_lock_that_somebody_holds_is_not_waited_for_without_end(followers):
    one = followers()
    one.write(a_record("a"))
    one.statement("SET statement_timeout = '50ms'")
    with psycopg.connect(followers.url) as foreign:
        foreign.execute("LOCK TABLE latte_clients")
        with pytest.raises(StoreUnavailableError, match="timeout"):
            one.store.write([a_record("a", 2)])
        with pytest.raises(StoreUnavailableError, match="timeout"):
            one.store.read(["a"])
    one.write(a_record("a", 2))


def test_the_loser_of_a_deadlock_writes_once_more(followers, postgres):
    """Two processes that write the same two clients in opposite order: PostgreSQL refuses one of them."""
    one = followers()
    postgres.execute(
        """CREATE SEQUENCE attempts; CREATE FUNCTION deadlock() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN IF nextval('attempts') < 3 THEN RAISE EXCEPTION 'deadlock' USING ERRCODE = 'deadlock_detected';
        END IF; RETURN NULL; END $$;
        CREATE TRIGGER deadlock BEFORE INSERT ON latte_clients EXECUTE FUNCTION deadlock()""",
        followers.url,
    )
    one.write(a_record("a"), a_record("b"))
    assert followers().follow() == {"a": 1, "b": 1}
    assert postgres.execute("SELECT last_value FROM attempts", followers.url) == [(3,)]
