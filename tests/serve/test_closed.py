"""A server for which tokens were made never answers without one, whatever becomes of its files."""

import json
import shutil
from contextlib import closing

import httpx2
import pytest

from latte.checks.material import a_zero_shot
from latte.edge.joining import make_task
from latte.errors import InputError
from latte.server.store import audit
from latte.server.store.audit import Audit
from latte.server.store.backup import Restoration, StorePlace, back_up, restore
from latte.server.store.base import open_tokens
from latte.server.store.tokens import check_token, new_token
from serving import serving
from waiting import latte, wait_until

TASK = make_task(a_zero_shot(), "latte", {"k_e": 3})
REPLACE = Restoration(overwrite=True)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """The place of a store that a server without tokens has used."""
    folder = tmp_path / "data"
    store = folder if request.param == "sqlite" else request.getfixturevalue("postgres").new_schema()
    place = StorePlace(store, folder)
    with serving(TASK, folder, store=str(store)):
        pass
    return place


def status(place, token=None, folder=None):
    """Return what a server that starts now answers to an admin's request."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with serving(TASK, folder or place.folder, store=str(place.store)) as server:
        return httpx2.get(f"{server.address}/v1/clients", headers=headers).status_code


def test_a_backup_from_before_the_first_token_opens_nothing(place, tmp_path):
    assert status(place) == 200
    back_up(place, tmp_path / "before")
    text, token = new_token(None)
    with closing(open_tokens(place.store)) as tokens:
        tokens.add(token)
    assert (status(place), status(place, text)) == (401, 200)
    restore(tmp_path / "before", place, REPLACE)
    assert (status(place), status(place, text)) == (401, 401)
    back_up(place, tmp_path / "after")  # and it has the fact
    other = StorePlace(tmp_path / "other", tmp_path / "other")
    restore(tmp_path / "after", other, Restoration())
    assert status(other) == 401


def test_two_restorations_make_no_revoked_token_valid(place, tmp_path):
    back_up(place, tmp_path / "before")
    text, token = new_token(None)
    with closing(open_tokens(place.store)) as tokens:
        tokens.add(token)
        back_up(place, tmp_path / "with")
        tokens.revoke([token.id])
    for name in ("before", "with", "before", "with"):
        restore(tmp_path / name, place, REPLACE)
        with closing(open_tokens(place.store)) as tokens:
            assert check_token(text, tokens.tokens()) is None
    assert status(place, text) == 401


@pytest.mark.parametrize("keep", [False, True])
def test_what_is_revoked_in_the_backup_is_revoked_afterwards(place, tmp_path, keep):
    text, token = new_token(None)
    with closing(open_tokens(place.store)) as tokens:
        tokens.add(token)
        back_up(place, tmp_path / "old")
        tokens.revoke([token.id])
    back_up(place, tmp_path / "new")
    other = StorePlace(tmp_path / "other", tmp_path / "other")
    for name in ("old", "new"):
        restore(tmp_path / name, other, Restoration(overwrite=True, keep_tokens=keep and name == "new"))
    with closing(open_tokens(other.store)) as tokens:
        assert check_token(text, tokens.tokens()) is None


def test_a_lost_store_is_not_an_open_one(place, request):
    with closing(open_tokens(place.store)) as tokens:
        tokens.add(new_token("a")[1])
    assert status(place) == 401
    if place.is_postgres:
        request.getfixturevalue("postgres").execute(
            "DELETE FROM latte_tokens; DELETE FROM latte_about WHERE name = 'tokens'", place.store
        )
        assert status(place) == 401
        assert status(StorePlace(place.folder, place.folder)) == 401  # --store was forgotten
        return
    for path in place.folder.glob("clients.db*"):
        if path.name != "clients.db.mark":
            path.unlink()
    with pytest.raises(InputError, match="nothing, where"):
        status(place)
    (place.folder / "clients.db.mark").unlink()
    assert status(place) == 401


def test_tokens_that_vanish_under_a_running_server_open_nothing(place, request):
    with serving(TASK, place.folder, store=str(place.store)) as server:
        with closing(open_tokens(place.store)) as tokens:
            tokens.add(new_token("a")[1])
        address = f"{server.address}/v1/clients"
        wait_until(lambda: httpx2.get(address).status_code == 401, "a server that asks for tokens")
        if place.is_postgres:
            request.getfixturevalue("postgres").execute("DELETE FROM latte_tokens", place.store)
        else:
            shutil.rmtree(place.folder)
        assert httpx2.get(address).status_code in (401, 503)


def test_a_new_folder_is_told_what_cannot_be_known(tmp_path):
    data, where = tmp_path / "data", ("--folder", tmp_path / "new")
    latte("token", "create", "a", "--folder", data, check=True)
    latte("store", "backup", tmp_path / "backup", "--folder", data, check=True)
    restored = latte("store", "restore", tmp_path / "backup", *where, check=True)
    assert "revoked since" in restored.stderr and len(restored.stderr.splitlines()) == 1
    again = latte("store", "restore", tmp_path / "backup", *where, "--replace", check=True)
    assert again.stderr == ""


# --- the audit log --------------------------------------------------------------------------------------------


def test_a_client_that_comes_and_goes_is_noted_now_and_then(tmp_path):
    with serving(TASK, tmp_path) as server:
        for _ in range(30):
            server.service.hub.on_join("x" * 1024)
            server.service.audit.note("left", "x" * 1024)
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines if line.get("client")] == ["joined", "left"]


def test_the_audit_log_has_a_bound_and_keeps_the_latest(tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "LARGEST", 10_000)
    monkeypatch.setattr(audit, "OLDER", 3)
    log = Audit(tmp_path)
    for number in range(2000):
        log.note("token created", f"client {number}", always=True)
    files = sorted(tmp_path.glob("audit.jsonl*"))
    assert [path.name for path in files] == ["audit.jsonl", *(f"audit.jsonl.{n}" for n in (1, 2, 3))]
    assert all(path.stat().st_size < 10_200 and path.stat().st_mode & 0o077 == 0 for path in files)
    numbers = [int(json.loads(line)["client"].split()[1]) for path in (files[3], files[2], files[1], files[0])
               for line in path.read_text().splitlines()]  # fmt: skip
    assert numbers == list(range(numbers[0], 2000))


def test_more_clients_than_are_remembered_keep_their_pauses(tmp_path, monkeypatch):
    monkeypatch.setattr(audit, "_MOST", 50)
    log = Audit(tmp_path)
    for number in range(1000):
        log.note("joined", f"client {number % 50}")
    assert len((tmp_path / "audit.jsonl").read_text().splitlines()) == 50
