"""Backups: from either store to either, while a server runs, and never from a damaged file."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte import create_exchange
from latte.checks.material import a_zero_shot, an_upload, same_message
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task
from latte.errors import InputError
from latte.server.store.backup import Restoration, StorePlace, back_up, open_backup, open_contents, restore
from latte.server.store.base import DamagedStoreError, Record, open_store, open_tokens
from latte.server.store.tokens import are_required, new_token
from postgres import small_disk
from serving import IMPATIENT, serving
from waiting import latte, wait_until

REPLACE = Restoration(overwrite=True)
KINDS = ("sqlite", "postgres")
NAMES = ("z", "a\0", "é😀", "x" * 1024, "b")


def a_record(client: str, version: int = 1) -> Record:
    return Record(client, version, b"k" * (version % 17), f"{client}:{version}".encode() * 50, 1.5 * version)


@pytest.fixture
def places(request, tmp_path):
    """Return a function that returns the place of a new store of a kind."""
    count = iter(range(100))

    def make(kind: str) -> StorePlace:
        folder = tmp_path / f"store{next(count)}"
        folder.mkdir()
        return StorePlace(folder if kind == "sqlite" else request.getfixturevalue("postgres").new_schema(), folder)

    return make


def fill(place: StorePlace, *records: Record, task: str = "task", tokens=()) -> StorePlace:
    with closing(open_store(place.store)) as store, closing(open_tokens(place.store)) as stored:
        store.claim(task)
        store.secret()
        store.write(records)
        for token in tokens:
            stored.add(token)
    return place


def contents(place: StorePlace):
    """Return the task, the tokens, the rows and the secret of a store."""
    with open_contents(place.store) as everything:
        return everything.task, set(everything.tokens), list(everything.rows), everything.secret


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_a_store_goes_through_a_backup_to_any_store(source, to, places, tmp_path):
    tokens = [new_token("a\0")[1], new_token(None)[1], new_token("gone")[1]]
    first = fill(places(source), *(a_record(name, i + 1) for i, name in enumerate(NAMES)), tokens=tokens)
    with closing(open_tokens(first.store)) as stored:
        stored.revoke([tokens[2].id])
    out = tmp_path / "backup"
    assert back_up(first, out) == (5, 3)
    second = places(to)
    restored, unknown = restore(out, second, Restoration())
    assert restored.clients == 5
    assert unknown  # a new store cannot know what was revoked since
    assert are_required(second.folder)
    assert contents(second) == contents(first)
    assert contents(first)[0] == "task"
    assert len(contents(first)[3]) == 32
    with closing(open_store(second.store)) as store:
        assert [record.client for record in store.changes()] == list(NAMES)  # in the order of joining
    assert "store restored" in (second.folder / "audit.jsonl").read_text()


def test_the_same_store_gives_the_same_records_whatever_it_is(places, tmp_path):
    for kind in KINDS:
        back_up(fill(places(kind), *map(a_record, NAMES)), tmp_path / kind)
    with open_backup(tmp_path / "sqlite") as one, open_backup(tmp_path / "postgres") as other:
        assert list(one.records()) == list(other.records()) == [a_record(name) for name in NAMES]


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_that_holds_something_is_not_replaced_by_accident(kind, places, tmp_path):
    place = fill(places(kind), a_record("old"), task="one")
    back_up(fill(places("sqlite"), a_record("new"), task="two"), tmp_path / "backup")
    before = contents(place)
    with pytest.raises(ValueError, match=r"which has clients, want an empty one, or --replace"):
        restore(tmp_path / "backup", place, Restoration())
    assert contents(place) == before
    restore(tmp_path / "backup", place, REPLACE)
    assert contents(place)[0] == "two"
    assert [row[0] for row in contents(place)[2]] == [b"new"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_from_a_backup_without_a_secret_draws_a_new_one(kind, places, tmp_path):
    older = places(kind)
    with closing(open_store(older.store)) as store:
        store.claim("task")
        store.write([a_record("a")])
    back_up(older, tmp_path / "older")
    place = fill(places(kind), a_record("b"))
    before = contents(place)[3]
    restore(tmp_path / "older", place, REPLACE)
    assert contents(place)[3] is None
    with closing(open_store(place.store)) as store:
        assert store.secret() != int(before, 16)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_that_are_there_are_not_replaced_by_accident(kind, places, tmp_path):
    (_, mine), (_, old) = new_token("a"), new_token("b")
    place = places(kind)
    with closing(open_tokens(place.store)) as tokens:
        tokens.add(mine)
    back_up(fill(places("sqlite"), a_record("b"), tokens=[old]), tmp_path / "backup")
    with pytest.raises(ValueError, match=r"which has tokens, want an empty one, --replace or --keep-tokens"):
        restore(tmp_path / "backup", place, Restoration())
    restore(tmp_path / "backup", place, Restoration(keep_tokens=True))
    assert contents(place)[1] == {mine}
    restore(tmp_path / "backup", place, REPLACE)
    assert contents(place)[1] == {old}


@pytest.mark.parametrize("kind", KINDS)
def test_a_token_that_was_revoked_since_stays_revoked(kind, places, tmp_path):
    (_, stolen), (_, good) = new_token("a"), new_token("b")
    place = fill(places(kind), tokens=[stolen, good])
    back_up(place, tmp_path / "backup")
    with closing(open_tokens(place.store)) as tokens:
        tokens.revoke([stolen.id])
    restore(tmp_path / "backup", place, REPLACE)
    with closing(open_tokens(place.store)) as tokens:
        assert {one.id: one.revoked is not None for one in tokens.tokens().values()} == {
            stolen.id: True,
            good.id: False,
        }


# --- servers that run ---------------------------------------------------------------------------------------

TASK = make_task(a_zero_shot(), "latte", {"k_e": 3})


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_on_which_a_server_runs_is_backed_up_and_not_restored(kind, places, tmp_path):
    place, out = places(kind), tmp_path / "backup"
    with (
        serving(TASK, place.folder, store=str(place.store)) as server,
        HttpExchange(server.address, connection=IMPATIENT) as exchange,
    ):
        exchange.push("a", an_upload(1))
        assert back_up(place, out) == (1, 0)
        with pytest.raises(ValueError, match=r"at work.*want to wait until it has ended"):
            restore(out, place, REPLACE)
        exchange.push("b", an_upload(2))
    assert len(contents(place)[2]) == 2
    restore(out, place, REPLACE)
    assert len(contents(place)[2]) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_backup_under_load_is_the_store_of_one_moment(kind, places, tmp_path):
    """Clients b and c upload what a has just uploaded, in this order: at any moment, a is ahead by at most one."""
    place, done, counts = places(kind), threading.Event(), []

    def write() -> None:
        with closing(open_store(place.store)) as store:
            store.claim("task")
            version = 0
            while not done.is_set():
                version += 1
                for names in (("a",), ("b",), ("c",)) if version % 2 else (("a", "b"), ("c",)):
                    store.write([a_record(name, version) for name in names])
                counts.append(version)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(8):
            enough = len(counts) + 3
            wait_until(lambda enough=enough: len(counts) > enough, "some writes")
            back_up(place, tmp_path / f"{number}")
    finally:
        done.set()
        writer.join()
    for number in range(8):
        target = places("sqlite")
        restore(tmp_path / f"{number}", target, Restoration())
        with closing(open_store(target.store)) as store:
            versions = {record.client: record.version for record in store.changes()}
        assert versions["c"] <= versions["b"] <= versions["a"] <= versions["c"] + 1


@pytest.mark.parametrize("kind", KINDS)
def test_clients_go_on_by_themselves_after_last_weeks_backup(kind, places, tmp_path):
    """They have later versions and send only what changed since; one has joined since, one has left since."""
    place = places(kind)
    with serving(TASK, place.folder, store=str(place.store)) as server:
        exchange = HttpExchange(server.address, precision="exact", connection=IMPATIENT)
        for name in "abc":
            exchange.push_pull(name, an_upload(1)) if name != "a" else exchange.push(name, an_upload(1))
        back_up(place, tmp_path / "last week")
        for seed in range(5):
            for name in "abcd":
                exchange.push_pull(name, an_upload(seed + ord(name)))
        exchange.leave("b")
    restore(tmp_path / "last week", place, REPLACE)
    with serving(TASK, place.folder, store=str(place.store)) as server:
        exchange._calls.server = server.address
        assert exchange._conversations["a"].acknowledged == 6
        uploads = {name: changed(an_upload(4 + ord(name))) for name in "abcd"}
        for name, upload in uploads.items():
            exchange.push_pull(name, upload)
        assert exchange._conversations["a"].acknowledged > 6  # versions go on
        for name in "abcd":
            assert same_message(exchange.pull(name), expected(uploads).pull(name))
    exchange.close()


def changed(upload):
    """Return an upload of which one row has changed."""
    vectors = upload.vectors.copy()
    vectors[0] = an_upload(999).vectors[0]
    return type(upload)(vectors, upload.seen, upload.task)


def expected(uploads):
    exchange = create_exchange("latte", a_zero_shot(), {"k_e": 3})
    for name, upload in uploads.items():
        exchange.push(name, upload)
    return exchange


# --- damaged files ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> bytes:
    """The bytes of a backup."""
    folder = tmp_path_factory.mktemp("sound")
    place = StorePlace(folder, folder)
    records = [a_record(name, i + 1) for i, name in enumerate(NAMES)]
    fill(place, *records, tokens=[new_token("z")[1], new_token(None)[1]])
    back_up(place, folder / "backup")
    return (folder / "backup").read_bytes()


def held(path: Path):
    """Return all that a backup holds."""
    with open_backup(path) as backup:
        facts = backup.task, backup.secret, backup.created, backup.made, backup.clients
        return facts, list(backup.records()), list(backup.tokens)


def mutations():
    """Return strategies for changes of bytes: some are changed, removed or added."""
    place = st.floats(0, 1, exclude_max=True)

    def change(where: float, bit: int):
        def mutate(content: bytes) -> bytes:
            at = int(where * len(content))
            return content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :]

        return mutate

    def cut(where: float):
        return lambda content: content[: int(where * len(content))]

    def blank(where: float, size: int):
        def mutate(content: bytes) -> bytes:
            at = int(where * len(content))
            return content[:at] + bytes(len(content[at : at + size])) + content[at + size :]

        return mutate

    changes = st.builds(change, place, st.integers(0, 7))
    return st.one_of(changes, st.builds(cut, place), st.builds(blank, place, st.integers(1, 9000)))


@settings(max_examples=300)
@given(mutate=mutations())
def test_a_damaged_backup_is_refused_or_holds_the_same(mutate, sound, tmp_path_factory):
    """Bytes of a database file that nobody reads may be anything."""
    path = tmp_path_factory.getbasetemp() / "backup"
    path.write_bytes(sound)
    wanted = held(path)
    path.write_bytes(mutate(sound))
    try:
        found = held(path)
    except InputError as error:
        assert "backup" in str(error)
        return
    assert found == wanted


def test_a_damaged_backup_changes_nothing(sound, tmp_path):
    place = fill(StorePlace(tmp_path, tmp_path), a_record("old"))
    before = contents(place)
    at = sound.index(b"z:1z:1z:1")
    (tmp_path / "backup").write_bytes(sound[:at] + b"y" + sound[at + 1 :])
    with pytest.raises(InputError, match="damaged file"):
        restore(tmp_path / "backup", place, REPLACE)
    assert contents(place) == before


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE tokens SET revoked = 1.0",
        "UPDATE tokens SET digest = 5",
        "UPDATE tokens SET digest = 9000000000000000",
        "DELETE FROM tokens",
        "UPDATE about SET value = 'other' WHERE name = 'task'",
        "DELETE FROM about WHERE name = 'tokens'",
        "DELETE FROM about WHERE name = 'digest'",
        "UPDATE clients SET updated = 7.0",
        "UPDATE clients SET body = key",
        "DELETE FROM clients WHERE id = 2",
        "DROP TABLE tokens",
        "CREATE VIEW more AS SELECT * FROM clients",
        "PRAGMA user_version = 9",
        "PRAGMA application_id = 9",
    ],
)
def test_a_backup_that_somebody_has_changed_is_refused(statement, sound, tmp_path):
    (tmp_path / "backup").write_bytes(sound)
    with closing(sqlite3.connect(tmp_path / "backup")) as database, database:
        database.execute(statement)
    with pytest.raises(InputError, match="backup"):
        held(tmp_path / "backup")


def test_a_backup_that_changes_while_it_is_restored_is_refused(sound, places, tmp_path):
    path, place = tmp_path / "backup", fill(places("sqlite"), a_record("old"))
    path.write_bytes(sound)
    before = contents(place)
    with open_backup(path) as backup, closing(open_store(place.store)) as store:
        at = sound.index(b"b:5b:5b:5")
        with path.open("r+b") as file:
            file.seek(at)
            file.write(b"\0")
        try:
            store.replace("task", backup.records())
        except InputError as error:
            assert "damaged" in str(error)
    rows = contents(place)[2]
    assert rows in (before[2], [a_record(name, i + 1).row for i, name in enumerate(NAMES)])  # what was checked, or none


def test_other_files_are_refused(places, tmp_path):
    place = fill(places("sqlite"), a_record("a"))
    store = (place.folder / "clients.db").read_bytes()
    for content in (b"", b"LATTEBAK" + b"\xff" * 100, b"SQLite format 3\0" * 20, store):
        (tmp_path / "backup").write_bytes(content)
        with pytest.raises(InputError, match="want one that latte store backup wrote"):
            held(tmp_path / "backup")
    with closing(open_store(place.store)) as store:
        store.write([a_record("b")])
        with pytest.raises(InputError, match="in use"), open_backup(place.folder / "clients.db"):
            pass


@pytest.mark.parametrize("kind", KINDS)
def test_a_backup_is_a_store_of_sqlite(kind, places, tmp_path):
    """SQLite reads it, in one file, and a server starts on it as it is; nothing of a removed client is left in it."""
    place, folder = places(kind), tmp_path / "new"
    with closing(open_store(place.store)) as store:
        store.claim("task")
        store.write([a_record("a"), a_record("gone", 3)])
        store.remove("gone")
    folder.mkdir()
    back_up(place, folder / "clients.db")
    assert [path.name for path in folder.iterdir()] == ["clients.db"]
    assert b"gone:3" not in (folder / "clients.db").read_bytes()
    with closing(sqlite3.connect(folder / "clients.db")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert database.execute("SELECT name, version FROM clients").fetchall() == [(b"a", 1)]
    with closing(open_store(folder)) as store:
        assert list(store.changes()) == [a_record("a")]


def test_a_backup_is_for_its_owner_only_and_complete_or_absent(places, tmp_path):
    place = fill(places("sqlite"), a_record("a"), a_record("b"))
    back_up(place, tmp_path / "backup")
    assert (tmp_path / "backup").stat().st_mode & 0o077 == 0
    sound = (tmp_path / "backup").read_bytes()
    with closing(sqlite3.connect(place.folder / "clients.db")) as database, database:
        database.execute("UPDATE clients SET body = key WHERE name = ?", [b"b"])
    with pytest.raises(InputError, match="client 'b' is damaged"):
        back_up(place, tmp_path / "backup")
    assert (tmp_path / "backup").read_bytes() == sound
    assert [path.name for path in Path(tmp_path).glob("*backup*")] == ["backup"]


def test_a_backup_onto_a_full_disk_is_one_line_and_leaves_nothing(places):
    place = fill(places("sqlite"), *(Record(f"{i}", 1, b"", bytes(100_000), 0.0) for i in range(30)))
    with small_disk(2) as disk:
        refused = latte("store", "backup", disk / "backup", "--folder", place.folder)
        assert refused.returncode == 1 and len(refused.stderr.splitlines()) == 1
        assert "full" in refused.stderr and str(disk / "backup") in refused.stderr
        assert not [path for path in disk.iterdir() if "backup" in path.name]


def test_there_is_nothing_to_back_up(places, tmp_path, postgres):
    with pytest.raises(ValueError, match=r"where there is no clients.db, want the folder given to latte serve"):
        back_up(places("sqlite"), tmp_path / "backup")
    with pytest.raises(ValueError, match="a database without a store"):
        back_up(places("postgres"), tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


# --- stores that cannot be read any more ----------------------------------------------------------------------


@pytest.mark.parametrize("where", [0, 5000, 30000])
def test_a_ruined_database_file_is_set_aside_by_a_restoration(where, places, tmp_path):
    place = fill(places("sqlite"), *(a_record(f"client {i}") for i in range(200)), tokens=[new_token("a")[1]])
    back_up(place, tmp_path / "backup")
    wanted = contents(place)
    file = place.folder / "clients.db"
    content = bytearray(file.read_bytes())
    content[where : where + 9000] = b"\xa5" * len(content[where : where + 9000])
    file.write_bytes(content)
    with pytest.raises(DamagedStoreError):
        restore(tmp_path / "backup", place, Restoration())
    _, unknown = restore(tmp_path / "backup", place, REPLACE)
    assert unknown  # what was revoked since may have been in what is damaged
    assert contents(place) == wanted
