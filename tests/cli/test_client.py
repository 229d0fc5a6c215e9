"""``latte client`` and ``latte token``: over HTTP with an admin's token, and in the folder of a stopped server."""

import json

import pytest

from latte.checks.material import a_zero_shot, an_upload
from latte.edge.clients.http import HttpExchange
from latte.edge.joining import make_task
from serving import serving
from waiting import latte, wait_until

TASK = make_task(a_zero_shot(), "latte", {"k_e": 3})
NAMES = ["a", "b&client=a", "é 😀/?#%"]


@pytest.fixture
def data(tmp_path):
    """The folder of a server that has stopped, with three clients."""
    with serving(TASK, tmp_path / "data") as server, HttpExchange(server.address) as exchange:
        for number, name in enumerate(NAMES):
            exchange.push(name, an_upload(number))
    return tmp_path / "data"


def listed(*where):
    return [row["client"] for row in json.loads(latte("client", "list", *where, "--json", check=True).stdout)]


def test_clients_of_a_running_server(data, tmp_path):
    with serving(TASK, data) as server:
        where = ("--server", server.address)
        assert listed(*where) == NAMES
        table = latte("client", "list", *where, check=True).stdout
        assert "version" in table and "+00:00" in table
        latte("token", "create", "a", "--folder", data, "--out", tmp_path / "device", check=True)
        latte("token", "create", "--admin", "--folder", data, "--out", tmp_path / "admin", check=True)
        wait_until(lambda: latte("client", "list", *where).returncode, "tokens to be asked for, after 20 ms")
        for token, code in (((), "unauthorized"), (("--token-file", tmp_path / "device"), "forbidden")):
            refused = latte("client", "list", *where, *token)
            assert refused.returncode == 2 and code in refused.stderr and len(refused.stderr.splitlines()) == 1
        admin = (*where, "--token-file", tmp_path / "admin")
        assert listed(*admin) == NAMES
        assert latte("client", "remove", NAMES[1], *admin, check=True).stdout == f"removed {NAMES[1]}\n"
        removed = latte("client", "remove", NAMES[2], *admin, "--json", check=True).stdout
        assert json.loads(removed) == {"client": NAMES[2], "removed": True}
        assert listed(*admin) == ["a"]
        gone = latte("client", "remove", NAMES[2], *admin)
        assert gone.returncode == 2 and "unknown_client" in gone.stderr
        busy = latte("client", "remove", "a", "--folder", data)
        assert busy.returncode == 2 and "another process at work" in busy.stderr


def test_clients_in_the_folder_of_a_stopped_server(data, tmp_path):
    assert listed("--folder", data) == NAMES
    assert latte("client", "remove", NAMES[1], "--folder", data, check=True).stdout == f"removed {NAMES[1]}\n"
    assert listed("--folder", data) == [NAMES[0], NAMES[2]]
    assert "forgotten" in (data / "audit.jsonl").read_text()
    assert latte("client", "remove", "nobody", "--folder", data).returncode == 2
    (tmp_path / "empty").mkdir()
    for words in (("list",), ("remove", "a")):
        assert latte("client", *words, "--folder", tmp_path / "empty").returncode == 2
        assert latte("client", *words).returncode == 2
    assert not list((tmp_path / "empty").iterdir())


def test_a_token_in_a_folder_that_no_server_has_used_says_so(data, tmp_path):
    made = latte("token", "create", "a", "--folder", tmp_path / "typo", check=True)
    assert made.stdout.startswith("latte_") and "no server has used" in made.stderr
    assert "no server has used" in latte("token", "list", "--folder", tmp_path / "typo", check=True).stderr
    assert "no server" not in latte("token", "create", "a", "--folder", data, check=True).stderr
