"""Files with uploads, secrets and tokens: only their owner may read them, also where others could before."""

import stat
from contextlib import closing

import pytest

from latte.checks.material import a_zero_shot, an_upload
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task
from latte.files.atomic import writing
from latte.server.store.sqlite import SqliteStore
from latte.server.store.tokens import TokenFile
from serving import serving
from waiting import latte


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_the_files_of_a_server_are_private(tmp_path):
    with serving(make_task(a_zero_shot()), tmp_path) as server, HttpExchange(server.address) as exchange:
        exchange.push("a", an_upload(1))
        names = ("clients.db", "clients.db-wal", "clients.db-shm", "clients.db.mark", "audit.jsonl")
        assert {name: mode(tmp_path / name) for name in names} == dict.fromkeys(names, 0o600)


@pytest.mark.parametrize(("kind", "name"), [(SqliteStore, "clients.db"), (TokenFile, "clients.db")])
def test_files_that_others_could_read_become_private(tmp_path, kind, name):
    kind(tmp_path).close()
    for file in (tmp_path / name, tmp_path / f"{name}-wal", tmp_path / f"{name}-shm"):
        file.touch()
        file.chmod(0o644)
    with closing(kind(tmp_path)):
        assert {mode(file) for file in tmp_path.glob(f"{name}*") if file.suffix != ".lock"} == {0o600}


def test_a_private_file_replaces_one_that_others_can_read(tmp_path):
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)
    with writing(path, private=True) as file:
        file.write(b"new")
        assert path.read_text() == "old"
    assert (path.read_text(), mode(path)) == ("new", 0o600)


# --- latte token ----------------------------------------------------------------------------------------------


def test_a_token_is_written_to_a_private_file_or_not_made(tmp_path):
    data, out = tmp_path / "data", tmp_path / "token"
    out.write_text("old")
    out.chmod(0o644)
    latte("token", "create", "a", "--folder", data, "--out", out, check=True)
    assert out.read_text().startswith("latte_") and mode(out) == 0o600
    refused = latte("token", "create", "b", "--folder", data, "--out", tmp_path / "missing" / "token")
    assert refused.returncode == 2 and "whose folder is not there" in refused.stderr
    with closing(TokenFile(data)) as tokens:
        assert [token.client for token in tokens.tokens().values()] == ["a"]


@pytest.mark.parametrize("words", [("list",), ("revoke", "a"), ("rotate", "a")])
def test_a_folder_without_tokens_is_refused_and_not_made(tmp_path, words):
    refused = latte("token", *words, "--folder", tmp_path / "typo")
    assert refused.returncode == 2 and "which no server has used, and where no token was made" in refused.stderr
    assert not (tmp_path / "typo").exists()
