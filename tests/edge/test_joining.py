"""How a device becomes a member: what it gets the first time is what it has the next time, with or without a server."""

import pytest

from devices import RowEncoder, small_task
from latte.core.privacy import Privacy
from latte.core.private_client import PrivateClient
from latte.core.zero_shot import ZeroShot
from latte.edge.exchange_folder import ExchangeFolder
from latte.edge.http_calls import Connection, UnreachableError
from latte.edge.joining import Membership, check_encoder, join, new_member
from latte.edge.make_task import make_task
from latte.wire.task_file import EncoderIdentity
from serving import serving

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
