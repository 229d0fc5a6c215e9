"""``latte store check``: damaged uploads are found, named, and removed on request; a server does not start on one."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from latte.checks.material import a_zero_shot, an_upload
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task
from latte.server.hub import check
from latte.server.hub.check import StoreReport, check_store, forget_damaged
from latte.server.store.backup import StorePlace
from latte.server.store.base import DamagedRecordError, Record, open_store
from latte.wire.blocks import encode
from latte.wire.messages import Upload, pack
from serving import IMPATIENT, serving, task_file
from waiting import latte

TASK = make_task(a_zero_shot(), "latte", {"k_e": 3})


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """A store with the uploads of five clients."""
    folder = tmp_path / "data"
    store = str(folder) if request.param == "sqlite" else request.getfixturevalue("postgres").new_schema()
    with serving(TASK, folder, store=store) as server, HttpExchange(server.address) as exchange:
        for name in "abcde":
            exchange.push(name, an_upload(ord(name)))
    return StorePlace(store, folder)


def change(place, statement, *values):
    """Change rows behind the back of the store."""
    if place.is_postgres:
        import psycopg

        with psycopg.connect(place.store) as database:
            database.execute(f"UPDATE latte_clients SET {statement.replace('?', '%s')}", values)
    else:
        with closing(sqlite3.connect(place.folder / "clients.db")) as database, database:
            database.execute(f"UPDATE clients SET {statement}", values)


def write(place, client, body):
    """Store an upload with a checksum that matches."""
    with closing(open_store(place.store)) as store:
        store.write([Record(client, 100, b"", body, 0.0)])


def a_body(**changes):
    """Return the body of a sound upload, with changes of its first block."""
    first, *others = encode(an_upload(1), "fp32", 8)
    return pack(Upload((msgspec.structs.replace(first, **changes), *others)))


def turned(upload):
    """Return prototypes that lie on the other side of everything."""
    return replace(upload, vectors=-upload.vectors)


def test_a_sound_store_has_no_damage(place):
    assert check_store(place, TASK).damages == check_store(place).damages == ()
    assert check_store(place).clients == 5


def test_a_bug_of_ours_is_no_damage(place, monkeypatch):
    """--forget-damaged would remove what is sound."""
    monkeypatch.setattr(check, "unpack", lambda *_: np.zeros(3) + np.zeros(4))
    with pytest.raises(ValueError, match="broadcast"):
        check_store(place)


def test_damage_is_found_named_and_removed(place):
    change(place, "body = key WHERE name = ?", b"b")
    change(place, "version = 77 WHERE name = ?", b"d")
    for _ in range(2):
        report = check_store(place, TASK)
        assert [(one.client, one.fault) for one in report.damages] == [
            ("b", "its checksum does not match"), ("d", "its checksum does not match")]  # fmt: skip
    with pytest.raises(DamagedRecordError, match=r"client 'b' is damaged.*run: latte store check"):
        start(place)
    assert forget_damaged(place, report) == 2
    assert check_store(place, TASK).damages == ()
    assert check_store(place).clients == 3
    audit = (place.folder / "audit.jsonl").read_text().splitlines()
    assert [json.loads(line)["client"] for line in audit if "damaged" in line] == ["b", "d"]
    with serving(TASK, place.folder, store=str(place.store)) as server, HttpExchange(server.address) as exchange:
        exchange.push("b", an_upload(ord("b")))  # it uploads again at its next sync


def start(place):
    """Start a server that does not start."""
    with serving(TASK, place.folder, store=str(place.store)):
        pass


def test_a_name_that_is_no_text_any_more_is_removed_too(place):
    change(place, "name = ? WHERE name = ?", b"\xff\xfe\0", b"c")
    report = check_store(place)
    assert [one.client for one in report.damages] == ["\udcff\udcfe\0"]
    forget_damaged(place, report)
    assert check_store(place).clients == 4
    assert check_store(place).damages == ()


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_columns_of_other_types_are_found_and_removed(place):
    """SQLite stores any type in any column; a whole number must not be taken for so many bytes."""
    change(place, "body = 123456789012345 WHERE name = ?", b"a")
    change(place, "key = 'text' WHERE name = ?", b"b")
    change(place, "name = 'c' WHERE name = ?", b"c")
    change(place, "name = 17 WHERE name = ?", b"d")
    change(place, "name = CAST(x'ff' AS TEXT) WHERE name = ?", b"e")
    report = check_store(place, TASK)
    assert [damage.client for damage in report.damages] == ["a", "b", "c", "17", "\udcff"]
    assert report.damages[0].fault == "columns of the types bytes, int, bytes, int, int, float"
    with pytest.raises(DamagedRecordError, match="client 'a' is damaged"):
        start(place)
    shown = latte("store", "check", "--folder", place.folder)
    assert shown.returncode == 1 and "5 clients, 5 damaged" in shown.stdout and "Traceback" not in shown.stderr
    assert forget_damaged(place, report) == 5
    assert check_store(place, TASK) == StoreReport(0, ())


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (lambda: b"nothing", "a message of this protocol"),
        (lambda: pack(Upload(())), "each once"),
        (lambda: a_body(shape=(4, 9)), "want f4 of shape"),
        (lambda: a_body(data=b"\xff" * 128), "NaN"),
        (lambda: pack(Upload(encode(turned(an_upload(1)), "fp32", 8))), "class"),
    ],
    ids=["no message", "no arrays", "another shape", "NaN", "dishonest"],
)
def test_an_upload_that_the_task_does_not_accept_is_damage(place, body, fault):
    write(place, "e", body())
    (damage,) = check_store(place, TASK).damages
    assert damage.client == "e"
    assert fault in damage.fault


def test_another_task_is_refused_before_anything_is_called_damaged(place):
    with pytest.raises(ValueError, match=r"another task than the store's \(logit scale differ\)"):
        check_store(place, make_task(a_zero_shot(scale=30.0), "latte", {"k_e": 3}))


def test_a_server_may_run_meanwhile(place):
    with (
        serving(TASK, place.folder, store=str(place.store)) as server,
        HttpExchange(server.address, connection=IMPATIENT) as exchange,
    ):
        exchange.push("f", an_upload(6))
        assert check_store(place, TASK).clients == 6


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
def test_faults_of_the_file_are_found(place):
    file = place.folder / "clients.db"
    content = file.read_bytes()
    file.write_bytes(content[:36] + (5).to_bytes(4, "big") + content[40:])  # the number of free pages
    assert [one.client for one in check_store(place).damages] == [None]
    file.write_bytes(content[:5000] + b"\xa5" * 4000 + content[9000:])
    ruined = latte("store", "check", "--folder", place.folder)
    assert ruined.returncode == 1
    assert "damaged database" in ruined.stderr
    assert "latte store restore --replace" in ruined.stderr


def test_the_command_line(place, tmp_path):
    path = task_file(tmp_path, a_zero_shot(), k_e=3)
    where = ("--folder", place.folder, *(("--store", place.store) if place.is_postgres else ()))
    change(place, "body = key WHERE name = ?", b"b")
    found = latte("store", "check", *where, "--task", path)
    assert found.returncode == 1
    assert found.stdout.splitlines()[-1] == "5 clients, 1 damaged"
    assert "b       its checksum does not match" in found.stdout
    refused = latte("store", "backup", tmp_path / "backup", *where)
    assert refused.returncode == 2
    assert "run: latte store check" in refused.stderr
    mended = latte("store", "check", *where, "--forget-damaged", "--json", check=True)
    assert json.loads(mended.stdout)["damaged"] == [{"client": "b", "fault": "its checksum does not match"}]
    assert latte("store", "backup", tmp_path / "backup", *where, check=True).stdout.endswith("4 clients, 0 tokens\n")
    other = ("--folder", tmp_path / "other")
    restored = latte("store", "restore", tmp_path / "backup", *other, check=True).stdout
    assert restored.startswith("restored 4 clients, 0 tokens, as of 20")
    assert latte("store", "restore", tmp_path / "backup", *other).returncode == 2
    assert latte("store", "check", *other, "--task", path, check=True).stdout == "4 clients, none damaged\n"
