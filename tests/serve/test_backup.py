"""Backups: from either store to either, while a server runs, and never from a damaged file."""

import hashlib
import threading
import zlib
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latte import create_exchange
from latte.checks.material import a_zero_shot, an_upload, same_message
from latte.coordination.upload_records import Record
from latte.core.names import client_name
from latte.edge.http_exchange import HttpExchange
from latte.edge.make_task import make_task
from latte.serve.backup_file import open_backup, write_backup
from latte.serve.store_backup import Restoration, StorePlace, back_up, restore
from latte.serve.store_contents import open_contents
from latte.serve.tokens import new_token
from latte.serve.upload_store import open_store, open_tokens
from serving import IMPATIENT, serving
from waiting import wait_until

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
    with closing(open_store(place.store)) as store, closing(open_tokens(place.store, place.folder)) as stored:
        store.claim(task)
        store.secret()
        store.write(records)
        for token in tokens:
            stored.add(token)
    return place


def contents(place: StorePlace):
    """Return the task, the tokens, the rows and the secret of a store."""
    with open_contents(place.store, place.folder) as everything:
        return everything.task, set(everything.tokens), list(everything.rows), everything.secret


@pytest.mark.parametrize("to", KINDS)
@pytest.mark.parametrize("source", KINDS)
def test_a_store_goes_through_a_backup_to_any_store(source, to, places, tmp_path):
    tokens = [new_token("a\0")[1], new_token(None)[1], new_token("gone")[1]]
    first = fill(places(source), *(a_record(name, i + 1) for i, name in enumerate(NAMES)), tokens=tokens)
    with closing(open_tokens(first.store, first.folder)) as stored:
        stored.revoke([tokens[2].id])
    out = tmp_path / "backup"
    written = back_up(first, out)
    assert (written.clients, written.tokens) == (5, 3)
    second = places(to)
    restored = restore(out, second, Restoration())
    assert restored.clients == 5
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
    write_backup(tmp_path / "older", "task", [], [a_record("a")])
    place = fill(places(kind), a_record("b"))
    before = contents(place)[3]
    restore(tmp_path / "older", place, REPLACE)
    assert contents(place)[3] is None
    with closing(open_store(place.store)) as store:
        assert store.secret() != int(before, 16)


def test_a_backup_with_a_secret_that_cannot_be_one_is_refused(tmp_path):
    write_backup(tmp_path / "backup", "task", [], [], "not a number")
    with pytest.raises(ValueError, match="a message that cannot be one"), open_backup(tmp_path / "backup"):
        pass


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_that_are_there_are_not_replaced_by_accident(kind, places, tmp_path):
    (_, mine), (_, old) = new_token("a"), new_token("b")
    place = places(kind)
    with closing(open_tokens(place.store, place.folder)) as tokens:
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
    with closing(open_tokens(place.store, place.folder)) as tokens:
        tokens.revoke([stolen.id])
    restore(tmp_path / "backup", place, REPLACE)
    with closing(open_tokens(place.store, place.folder)) as tokens:
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
        assert back_up(place, out).clients == 1
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
    path = tmp_path_factory.mktemp("sound") / "backup"
    tokens = [new_token("a")[1], new_token(None)[1]]
    write_backup(path, "task", tokens, [a_record(name, i + 1) for i, name in enumerate(NAMES)])
    return path.read_bytes()


@st.composite
def mutations(draw):
    """Return a function that damages bytes."""
    kind = draw(st.sampled_from(["flip", "cut", "drop", "double", "append", "zero", "swap"]))
    place, other, bit = draw(st.floats(0, 1)), draw(st.floats(0, 1)), draw(st.integers(0, 7))

    def mutate(content: bytes) -> bytes:
        i, j = sorted((int(place * (len(content) - 1)), int(other * (len(content) - 1))))
        flipped = content[:i] + bytes([content[i] ^ (1 << bit)]) + content[i + 1 :]
        return {
            "flip": flipped,
            "cut": content[:i],
            "drop": content[:i] + content[j + 1 :],
            "double": content[:j] + content[i:j] + content[j:],
            "append": content + content[i:j] + b"\0",
            "zero": content[:i] + bytes(j - i) + content[j:],
            "swap": content[j:] + content[:j],
        }[kind]

    return mutate


@settings(max_examples=300)
@given(mutate=mutations())
def test_a_damaged_backup_is_refused(mutate, sound, tmp_path_factory):
    damaged = mutate(sound)
    if damaged == sound:
        return
    path = tmp_path_factory.getbasetemp() / "backup"
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match="backup"), open_backup(path):
        pass


@settings(max_examples=20)
@given(mutate=mutations())
def test_a_damaged_backup_changes_nothing(mutate, sound, tmp_path_factory):
    damaged = mutate(sound)
    if damaged == sound:
        return
    folder = tmp_path_factory.mktemp("damaged")
    place = fill(StorePlace(folder, folder), a_record("old"))
    before = contents(place)
    (folder / "backup").write_bytes(damaged)
    with pytest.raises(ValueError, match="backup"):
        restore(folder / "backup", place, REPLACE)
    assert contents(place) == before


def framed(messages: list[bytes]) -> bytes:
    """Return a file of messages with checksums that match, whatever they are."""
    content = b"LATTEBAK"
    for message in messages:
        content += len(message).to_bytes(4, "little") + zlib.crc32(message).to_bytes(4, "little") + message
    end = {"type": "end", "tokens": 2, "clients": len(NAMES), "sha256": hashlib.sha256(content).digest()}
    last = msgspec.msgpack.encode(end)
    return content + len(last).to_bytes(4, "little") + zlib.crc32(last).to_bytes(4, "little") + last


def messages_of(content: bytes) -> list[bytes]:
    messages, place = [], len(b"LATTEBAK")
    while place < len(content):
        size = int.from_bytes(content[place : place + 4], "little")
        messages.append(content[place + 8 : place + 8 + size])
        place += 8 + size
    return messages[:-1]


@settings(max_examples=300)
@given(mutate=mutations(), which=st.integers(0, 7))
def test_messages_that_somebody_has_made_are_refused_or_make_sense(mutate, which, sound, tmp_path_factory):
    """With checksums that match: what is not refused has names, versions and tokens that can be."""
    messages, path = messages_of(sound), tmp_path_factory.getbasetemp() / "backup"
    assert framed(messages) == sound
    messages[which] = mutate(messages[which])
    path.write_bytes(framed(messages))
    try:
        with open_backup(path) as backup:
            records = list(backup.records())
    except ValueError:
        return
    assert all(record.version > 0 and client_name(record.client) for record in records)
    assert all(len(token.digest) == 32 and token.role in ("client", "admin") for token in backup.tokens)


@pytest.mark.parametrize(
    "value",
    [
        {"type": "head", "format": 1, "task": None, "created": 1e300},
        {"type": "head", "format": 2, "task": None, "created": 0},
        {"type": "head", "format": 1, "task": "x" * 1000, "created": 0},
        {"type": "head", "format": 1, "task": 5, "created": 0},
        {"type": "end", "tokens": 0, "clients": 0, "sha256": b""},
        {"type": "client", "name": "a", "version": 1, "key": b"", "body": b"", "checksum": 0, "updated": 0},
        {"type": "other"},
        [1, 2],
    ],
)
def test_a_first_message_that_cannot_be_one_is_refused(value, tmp_path):
    (tmp_path / "backup").write_bytes(framed([msgspec.msgpack.encode(value)]))
    with pytest.raises(ValueError, match="backup"), open_backup(tmp_path / "backup"):
        pass


def test_a_backup_that_changes_while_it_is_restored_is_refused(sound, places, tmp_path):
    path, place = tmp_path / "backup", fill(places("sqlite"), a_record("old"))
    path.write_bytes(sound)
    before = contents(place)
    with open_backup(path) as backup, closing(open_store(place.store)) as store:
        with path.open("r+b") as file:
            file.seek(len(sound) - 300)
            file.write(b"\0")
        with pytest.raises(ValueError, match="damaged file"):
            store.replace("task", backup.records())
    assert contents(place) == before


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"names": ["a", "a"]}, "client 'a' twice"),
        ({"names": [""]}, "want a name"),
        ({"versions": [0]}, "cannot be one"),
    ],
)
def test_a_whole_backup_of_what_cannot_be_is_refused(change, message, tmp_path):
    names = change.get("names", ["a"])
    records = [Record(name, change.get("versions", [1])[0], b"", b"", 0.0) for name in names]
    write_backup(tmp_path / "backup", "task", [], records)
    with pytest.raises(ValueError, match=message), open_backup(tmp_path / "backup"):
        pass


def test_other_files_are_refused(tmp_path):
    for content in (b"", b"LATTE", b"SQLite format 3\0" * 20, b"LATTEBAK", b"LATTEBAK" + b"\xff" * 100):
        (tmp_path / "backup").write_bytes(content)
        with pytest.raises(ValueError, match="backup"), open_backup(tmp_path / "backup"):
            pass


def test_a_backup_is_for_its_owner_only_and_complete_or_absent(places, tmp_path):
    place = fill(places("sqlite"), a_record("a"), a_record("b"))
    back_up(place, tmp_path / "backup")
    assert (tmp_path / "backup").stat().st_mode & 0o077 == 0
    sound = (tmp_path / "backup").read_bytes()

    def breaking():
        yield a_record("a")
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        write_backup(tmp_path / "backup", "task", [], breaking())
    assert (tmp_path / "backup").read_bytes() == sound
    assert [path.name for path in Path(tmp_path).glob("*backup*")] == ["backup"]


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
    for name in ("clients.db", "tokens.db"):
        file = place.folder / name
        content = bytearray(file.read_bytes())
        content[where : where + 9000] = b"\xa5" * len(content[where : where + 9000])
        file.write_bytes(content)
    restore(tmp_path / "backup", place, REPLACE)
    assert contents(place) == wanted
