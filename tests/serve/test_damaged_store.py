"""Files that are damaged, lost, removed under a running server, or used by two: a part is never taken for the whole."""

import random
import shutil
import sqlite3
import threading
from contextlib import closing
from dataclasses import replace

import httpx2
import pytest

from latte.checks.material import a_zero_shot, an_upload
from latte.edge.clients.calls import UnreachableError
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task
from latte.errors import InputError
from latte.server.hub.check import check_store, forget_damaged
from latte.server.store.backup import Restoration, StorePlace, back_up, restore
from latte.server.store.base import Record, StoreUnavailableError
from latte.server.store.sqlite import SqliteStore
from latte.server.store.tokens import TokenFile, new_token
from latte.wire.blocks import encode
from latte.wire.messages import Upload, pack
from serving import IMPATIENT, serving, task_file
from waiting import latte, wait_until

TASK = make_task(a_zero_shot(), "latte", {"k_e": 3})
COUNT = 200
INTERIOR = (2, 5)  # the first byte of such a page
TOKENS = [new_token(name)[1] for name in ("a", "b", None)]
FILES = ("clients.db", "clients.db-wal", "clients.db.mark")


def a_record(number: int, version: int = 1) -> Record:
    """Return a record that is a sound upload; its key makes it short or long."""
    rng = random.Random(number * 1000 + version)
    body = pack(Upload(encode(an_upload(number), "fp32", 8)))
    return Record(f"client {number}", version, rng.randbytes(rng.randrange(16, 6000)), body, 1.5)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A folder with 200 clients and three tokens, one revoked, in which all is in the database file."""
    folder = tmp_path_factory.mktemp("stopped")
    fill(folder)
    with closing(SqliteStore(folder)) as store:
        store.write([a_record(0, 2)])
    assert not (folder / "clients.db-wal").exists()
    return folder


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A folder as a killed process leaves it: half of the clients are in the write-ahead log."""
    folder, copy = tmp_path_factory.mktemp("running"), tmp_path_factory.mktemp("killed")
    fill(folder, COUNT // 2)
    with closing(SqliteStore(folder)) as store, closing(TokenFile(folder)) as tokens:
        for number in range(COUNT // 2, COUNT):
            store.write([a_record(number)])
        store.write([a_record(0, 2)])
        tokens.revoke([TOKENS[1].id])
        for name in FILES:
            shutil.copy(folder / name, copy)
    return copy


def fill(folder, count=COUNT):
    with closing(SqliteStore(folder)) as store, closing(TokenFile(folder)) as tokens:
        store.claim(TASK.fingerprint)
        tokens.add(*TOKENS)
        tokens.revoke([TOKENS[0].id])
        for start in range(0, count, 10):
            store.write([a_record(number) for number in range(start, start + 10)])


def held(folder):
    """Return what a server that starts in a folder has, and whether each token is revoked."""
    with closing(SqliteStore(folder)) as store, closing(TokenFile(folder)) as tokens:
        revoked = {one.id: one.revoked is not None for one in tokens.tokens().values()}
        records = {record.client: replace(record, updated=0.0) for record in store.changes()}  # no checksum covers it
        return records, revoked, list(tokens.tokens())


def copied(folder, target):
    shutil.copytree(folder, target, dirs_exist_ok=True)
    return target


def flip(path, at, bit):
    content = bytearray(path.read_bytes())
    content[at] ^= 1 << bit
    path.write_bytes(content)


def refused_or_whole(folder, wanted, out):
    """Starting, checking and backing up agree: what they do not refuse is whole."""
    try:
        clients, _ = back_up(StorePlace(folder, folder), out)
        assert clients == len(wanted[0])
    except (InputError, StoreUnavailableError):
        pass
    try:
        found = held(folder)
    except (InputError, StoreUnavailableError):
        return True
    assert found == wanted
    return False


def test_a_flipped_bit_in_the_file_is_noticed_or_nobodys(stopped, tmp_path):
    """Interior pages above all: what is below them would be missing without a word."""
    wanted, rng, noticed = held(stopped), random.Random(5), 0
    content = (stopped / "clients.db").read_bytes()
    pages = [place for place in range(4096, len(content), 4096) if content[place] in INTERIOR]
    assert pages
    places = [page + rng.randrange(40) for page in pages for _ in range(25)]
    places += [rng.randrange(len(content)) for _ in range(100)]
    for number, place in enumerate(places):
        folder = copied(stopped, tmp_path / "copy")
        flip(folder / "clients.db", place, rng.randrange(8))
        noticed += refused_or_whole(folder, wanted, tmp_path / "backup")
        shutil.rmtree(folder)
        assert noticed or number < 60
    assert noticed > len(pages) * 10


def test_a_cell_count_of_an_interior_page_stops_server_and_backup(stopped, tmp_path):
    folder = copied(stopped, tmp_path / "data")
    content = bytearray((folder / "clients.db").read_bytes())
    page = max(
        (place for place in range(4096, len(content), 4096) if content[place] == 5),
        key=lambda place: int.from_bytes(content[place + 3 : place + 5], "big"),
    )
    cells = int.from_bytes(content[page + 3 : page + 5], "big")
    content[page + 3 : page + 5] = (cells // 2).to_bytes(2, "big")
    (folder / "clients.db").write_bytes(content)
    with closing(sqlite3.connect(folder / "clients.db")) as database:  # SQLite itself does not mind
        assert database.execute("SELECT count(*) FROM (SELECT * FROM clients ORDER BY id)").fetchone()[0] < COUNT
    served = latte("serve", task_file(tmp_path, a_zero_shot(), k_e=3), "--folder", folder, "--port", 0)
    assert served.returncode == 2 and "damaged database" in served.stderr and len(served.stderr.splitlines()) == 1
    backed_up = latte("store", "backup", tmp_path / "backup", "--folder", folder)
    assert backed_up.returncode == 2 and "damaged database" in backed_up.stderr
    assert not (tmp_path / "backup").exists()
    checked = latte("store", "check", "--folder", folder)
    assert checked.returncode == 1 and "(the file)" in checked.stdout
    mended = latte("store", "check", "--folder", folder, "--forget-damaged")
    assert mended.returncode == 0
    found = held(folder)
    assert 0 < len(found[0]) < COUNT
    assert found[0].items() <= held(stopped)[0].items()
    assert found[1:] == held(stopped)[1:]
    assert latte("store", "check", "--folder", folder).returncode == 0


def test_a_flipped_bit_in_the_log_is_noticed_or_nobodys(killed, tmp_path):
    wanted, rng, noticed = held(copied(killed, tmp_path / "sound")), random.Random(6), 0
    assert len(wanted[0]) == COUNT and wanted[1][TOKENS[1].id]
    size = (killed / "clients.db-wal").stat().st_size
    for _ in range(60):
        folder = copied(killed, tmp_path / "copy")
        flip(folder / "clients.db-wal", rng.randrange(size), rng.randrange(8))
        noticed += refused_or_whole(folder, wanted, tmp_path / "backup")
        shutil.rmtree(folder)
    assert noticed >= 40


def remove_log(folder):
    (folder / "clients.db-wal").unlink()


def cut_log(folder):
    with (folder / "clients.db-wal").open("r+b") as file:
        file.truncate((folder / "clients.db-wal").stat().st_size - 5000)


def remove_file(folder):
    (folder / "clients.db").unlink()


def empty_file(folder):
    (folder / "clients.db").write_bytes(b"")


def remove_both(folder):
    remove_log(folder)
    remove_file(folder)


LOSSES = [remove_log, cut_log, remove_file, empty_file, remove_both]


@pytest.mark.parametrize("lose", LOSSES)
def test_what_is_missing_is_noticed_until_somebody_decides(killed, tmp_path, lose):
    folder, place = copied(killed, tmp_path / "data"), StorePlace(tmp_path / "data", tmp_path / "data")
    sound = copied(killed, tmp_path / "sound")
    back_up(StorePlace(sound, sound), tmp_path / "backup")
    lose(folder)
    for _ in range(2):  # looking does not make it sound
        for use in (SqliteStore, lambda folder: back_up(StorePlace(folder, folder), tmp_path / "other")):
            with pytest.raises(InputError, match=r"missing|nothing, where \d+ commits were"):
                use(folder)
    words = latte("store", "check", "--folder", folder)
    assert words.returncode == 1 and "Traceback" not in words.stderr
    restore(tmp_path / "backup", place, Restoration(overwrite=True))
    assert held(folder) == held(sound)


def test_going_on_with_what_is_left(killed, tmp_path):
    folder = copied(killed, tmp_path / "data")
    place = StorePlace(folder, folder)
    cut_log(folder)
    damages = check_store(place).damages
    assert damages[-1].client is None and damages[-1].fault.startswith("the last ")
    assert forget_damaged(place, check_store(place)) == len(damages)
    assert check_store(place).damages == ()
    assert len(held(folder)[0]) > COUNT // 2
    with closing(SqliteStore(folder)) as store:
        store.write([a_record(1, 2)])
    assert check_store(place).damages == ()


def test_a_backup_that_is_copied_over_the_store_is_noticed(stopped, tmp_path):
    """It would make tokens valid that were revoked since."""
    folder = copied(stopped, tmp_path / "data")
    back_up(StorePlace(folder, folder), tmp_path / "backup")
    with closing(TokenFile(folder)) as tokens:
        tokens.revoke([TOKENS[1].id])
    shutil.copy(tmp_path / "backup", folder / "clients.db")
    with pytest.raises(InputError, match="the last 1 of"):
        SqliteStore(folder)


def test_a_lost_or_damaged_mark_is_made_again(stopped, tmp_path, caplog):
    folder = copied(stopped, tmp_path / "data")
    sound = (folder / "clients.db.mark").read_text()
    for content in (None, b"", b"nonsense", b"9" * 20 + b" 00000000\n"):
        (folder / "clients.db.mark").unlink()
        if content is not None:
            (folder / "clients.db.mark").write_bytes(content)
        assert len(held(folder)[0]) == COUNT
        assert (folder / "clients.db.mark").read_text() == sound


# --- while a server runs ------------------------------------------------------------------------------------


def remove_folder(folder):
    shutil.rmtree(folder)


def new_folder(folder):
    folder.rename(folder.with_name("moved"))
    folder.mkdir()


def another_file(folder):
    shutil.copy(folder / "clients.db", folder / "other")
    (folder / "other").replace(folder / "clients.db")


@pytest.mark.parametrize("lose", [remove_folder, new_folder, remove_file, remove_log, another_file])
def test_nothing_is_acknowledged_into_files_that_are_gone(tmp_path, lose):
    folder = tmp_path / "data"
    with serving(TASK, folder) as server, HttpExchange(server.address, connection=IMPATIENT) as exchange:
        exchange.push("a", an_upload(1))
        assert httpx2.get(f"{server.address}/readyz").status_code == 200
        lose(folder)
        with pytest.raises(UnreachableError, match="does not answer"):
            exchange.push("a", an_upload(2))
        wait_until(lambda: httpx2.get(f"{server.address}/readyz").status_code == 503, "a server that is not ready")
        assert httpx2.get(f"{server.address}/livez").status_code == 200


def test_a_second_process_is_refused_without_the_lock_file_too(tmp_path):
    with closing(SqliteStore(tmp_path)) as store:
        with pytest.raises(InputError, match=r"another process at work: pid \d+"):
            SqliteStore(tmp_path)
        (tmp_path / "clients.db.lock").unlink()
        for _ in range(2):
            with pytest.raises(InputError, match="another process at work, whose lock file was removed"):
                SqliteStore(tmp_path)
        store.write([a_record(1)])
    with closing(SqliteStore(tmp_path)) as store:
        assert store.read(["client 1"]) == {"client 1": a_record(1)}


def test_another_server_is_refused_without_the_lock_file_too(tmp_path):
    data = tmp_path / "data"
    with serving(TASK, data):
        (data / "clients.db.lock").unlink()
        second = latte("serve", task_file(tmp_path, a_zero_shot(), k_e=3), "--folder", data, "--port", 0)
    assert second.returncode == 2 and "another process at work" in second.stderr


# --- no false alarms ----------------------------------------------------------------------------------------


def test_files_of_any_moment_are_sound(tmp_path):
    """What a power cut or a kill leaves: the mark as it was at a moment, the store as it was then or later."""
    folder, rng = tmp_path / "data", random.Random(7)
    with closing(SqliteStore(folder)) as store, closing(TokenFile(folder)) as tokens:
        for number in range(60):
            marks = [(folder / "clients.db.mark").read_bytes()]
            kind = rng.randrange(3)
            if kind == 0:
                tokens.add(new_token("x")[1])
            elif kind == 1:
                store.remove(f"client {number % 7}")
            else:
                store.write([a_record(number % 7, number + 1)])
            copy = tmp_path / "copy"
            copy.mkdir()
            for name in FILES:
                shutil.copy(folder / name, copy)
            (copy / "clients.db.mark").write_bytes(rng.choice([*marks, (folder / "clients.db.mark").read_bytes(), b""]))
            SqliteStore(copy).close()
            shutil.rmtree(copy)


def test_a_check_beside_a_busy_server_raises_no_alarm(tmp_path):
    folder, done = tmp_path / "data", threading.Event()
    place = StorePlace(folder, folder)
    with closing(SqliteStore(folder)) as store:
        store.claim("task")

        def write():
            version = 0
            while not done.is_set():
                version += 1
                store.write([replace(a_record(1), version=version)])

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(30):
                assert check_store(place).damages == ()
        finally:
            done.set()
            writer.join()
