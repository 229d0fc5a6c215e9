"""How a device becomes a member: what it gets the first time is what it has the next time, with or without a server."""

import socket
import time

import pytest

from devices import RowEncoder, rows, small_task
from latte.core.privacy import Privacy, PrivateClient
from latte.core.zero_shot import ZeroShot
from latte.edge.clients.calls import Connection, RefusedError, UnreachableError
from latte.edge.clients.folder import ExchangeFolder
from latte.edge.joining import Membership, check_encoder, join, link_to, make_task, new_member
from latte.errors import InputError
from latte.server.http.service import Access, RequestRate
from latte.server.store.tokens import new_token
from latte.wire.messages import DeviceReport
from latte.wire.task import EncoderIdentity
from serving import serving
from waiting import wait_until

ONCE = Connection(attempts=1)


def test_the_task_is_stored_for_the_next_start_without_a_server(tmp_path):
    task, state = small_task(), tmp_path / "state"
    with serving(task, tmp_path / "data") as server:
        membership = Membership(server.address, name="cam", connection=ONCE)
        first, name = join(membership, state)
    assert (first.fingerprint, name) == (task.fingerprint, "cam")
    again, name = join(membership, state)
    assert (again.fingerprint, name) == (task.fingerprint, "cam")
    with pytest.raises(ValueError, match="'cam', to which"):
        join(Membership(server.address, name="other", connection=ONCE), state)
    with pytest.raises(UnreachableError, match="the first start of a device needs its server"):
        join(membership, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_another_encoder_is_refused_unless_it_is_meant():
    task = small_task()
    known = make_task(
        ZeroShot(task.zero_shot.text, task.zero_shot.classnames), encoder=EncoderIdentity("a", "f" * 64, {})
    )
    check_encoder(task, RowEncoder(8))  # a task of embeddings that come from elsewhere
    with pytest.raises(ValueError, match="--any-encoder"):
        check_encoder(known, RowEncoder(8))
    check_encoder(known, RowEncoder(8), any_encoder=True)
    with pytest.raises(ValueError, match="8, as the task has"):
        check_encoder(known, RowEncoder(9), any_encoder=True)


def test_a_folder_in_the_place_of_an_address(tmp_path):
    task, folder = small_task(), ExchangeFolder(tmp_path / "node").make()
    membership = Membership(f"folder:{folder.path}", name="cam", connection=ONCE)
    with pytest.raises(UnreachableError, match="has no task yet; the first start of a device needs a SuperNode"):
        join(membership, tmp_path / "state")
    folder.put_task(task)
    first, name = join(membership, tmp_path / "state")
    assert (first.fingerprint, name) == (task.fingerprint, "cam")


def test_the_method_of_a_device_hides_what_it_is_told_to():
    task = small_task()
    assert isinstance(new_member(task, Privacy(least_images=3)), PrivateClient)
    assert not isinstance(new_member(task, Privacy()), PrivateClient)


# --- tokens and names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("server", "shows"),
    [
        ("http://192.168.0.7:8420", True),
        ("http://latte.example.org", True),
        ("http://[fe80::1]:8420", True),
        ("http://127.0.0.2:8420", False),
        ("http://[::1]:8420", False),
        ("http://localhost:8420", False),
        ("https://latte.example.org", False),
        ("folder:/var/lib/latte", False),
    ],
)
def test_a_token_over_plain_http_to_another_machine_is_noticed(server, shows):
    assert Membership(server, token="t").shows_token == shows
    assert not Membership(server).shows_token


def test_two_machines_of_one_host_name_have_two_names(tmp_path):
    with serving(small_task(), tmp_path / "data") as server:
        membership = Membership(server.address, connection=ONCE)
        names = [join(membership, tmp_path / folder).name for folder in ("a", "b", "a")]
    assert names[0] == names[2] != names[1] and all(name.startswith(f"{socket.gethostname()}-") for name in names)


def test_the_token_file_is_read_again_after_a_refusal(tmp_path):
    task, file, member = small_task(), tmp_path / "token", new_member(small_task())
    member.predict_many(rows(12))
    text, token = new_token("cam")
    with serving(task, tmp_path / "data", access=Access(required=True, rate=RequestRate(0))) as server:
        server.service.tokens.add(token)
        membership = Membership(server.address, name="cam", connection=ONCE, token_file=file)
        for content, words in (("latte_other", "does not know this token"), ("", "which is empty")):
            file.write_text(content)
            with pytest.raises(InputError, match=words) as error:
                join(membership, tmp_path / "state")
            assert "--token-file" in str(error.value)
        with pytest.raises(RefusedError, match=r"it asks for a token, and none was given \(--token-file"):
            join(Membership(server.address, connection=ONCE), tmp_path / "state")
        file.write_text("latte_other")
        link = link_to(membership, task, "cam")
        link.offer(member.summary(), DeviceReport(images=12))
        wait_until(lambda: "--token-file" in link.state.problem, "the refusal")
        file.write_text(text)  # the pause after a refusal is 30 s at least
        began = time.monotonic()
        wait_until(lambda: link.state.synced, "a sync with the new token")
        assert time.monotonic() - began < 20 and not link.state.problem
        link.stop()


def test_a_cloned_device_says_so(tmp_path):
    task, member = small_task(), new_member(small_task())
    member.predict_many(rows(12))
    with serving(task, tmp_path / "data") as server:
        links = [link_to(Membership(server.address, connection=ONCE), task, "cam") for _ in range(2)]
        for turn in range(2):
            for number, link in enumerate(links):
                before = link.state.synced
                link.offer(member.summary(), DeviceReport(images=12))
                wait_until(lambda link=link, before=before: link.state.synced > before, "a sync")
                clone = "another device uses the name 'cam', too: give each its own name" in link.state.problem
                assert clone == bool(turn), (turn, number)
        for link in links:
            link.stop()
