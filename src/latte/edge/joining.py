"""Membership of a device in a fleet: the task from its server, its own name, and the way to sync."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from ..core.privacy import Privacy, PrivateClient
from ..core.sync import SYNC_TIMES
from ..core.types import Collaborative, Method
from ..core.validate import at_least, choice, client_name
from ..core.zero_shot import ZeroShot
from ..encoders import Encoder
from ..errors import InputError, refuse
from ..files.atomic import write_text
from ..files.documents import parse_json, read_text
from ..methods import create, create_exchange, describe, resolve
from ..wire.messages import DeviceReport, FleetWord
from ..wire.task import EncoderIdentity, Task, read_task, write_task
from .classify.classify import OwnServer
from .clients.calls import Calls, Connection, RefusedError, UnreachableError, check_token_text
from .clients.folder import TASK_FILE as TASK_FILE
from .clients.folder import FolderExchange, Hidden, folder_of, is_folder
from .clients.http import HttpExchange, fetch_task
from .device.syncing import BackgroundSync

NAME_FILE = "name.txt"
_LONGEST_TOKEN = 4096  # bytes of a token file


@dataclass(frozen=True, slots=True)
class Membership:
    """A server, and how to talk to it; ``name`` is needed only if the server asks for no token.

    Instead of an address, ``server`` may be a folder, ``folder:DIR``, whose messages another program carries. A
    ``token_file`` is read when it is needed, and again after a refusal: ``token`` is for programs that have none.
    """

    server: str
    token: str | None = None
    name: str | None = None
    precision: str = "int8"
    connection: Connection = field(default_factory=Connection)
    privacy: Privacy = field(default_factory=Privacy)
    token_file: Path | None = None

    def current_token(self) -> str | None:
        """Return the token; that of the file as it is now."""
        return self.token if self.token_file is None else read_token(self.token_file)

    @property
    def shows_token(self) -> bool:
        """Whether the token goes over a network that others may read: to another machine, without TLS."""
        parts = urlsplit(self.server)
        if parts.scheme != "http" or (self.token is None and self.token_file is None):
            return False
        host = parts.hostname or ""
        try:
            return not ip_address(host).is_loopback
        except ValueError:  # a name
            return host != "localhost" and not host.endswith(".localhost")


def read_token(path: Path) -> str:
    """Return the token in a file."""
    token = read_text(path, "token file", _LONGEST_TOKEN).strip()
    if not token:
        raise refuse("--token-file", f"{path}, which is empty", "one token: latte_…")
    try:
        check_token_text(token)
    except InputError as error:
        raise refuse("--token-file", f"{path} ({error})", "a file with one token and nothing else") from None
    return token


class DeviceIdentity(NamedTuple):
    """What a device works on, and its name in the fleet."""

    task: Task
    name: str


def join(membership: Membership, folder: Path) -> DeviceIdentity:
    """Return the task and the name of this device.

    The first time both come from the server. They are stored in ``folder``, so that the next start needs no server.
    """
    path, name_path = folder / TASK_FILE, folder / NAME_FILE
    if path.is_file() and name_path.is_file():
        stored = read_text(name_path, "name").rstrip("\n")
        return DeviceIdentity(read_task(path), _own_name(membership.name, stored))
    task, given = _ask_folder(membership.server) if is_folder(membership.server) else _ask_server(membership)
    name = _own_name(membership.name, given)
    folder.mkdir(parents=True, exist_ok=True)
    write_task(path, task)
    write_text(name_path, f"{name}\n")
    return DeviceIdentity(task, name)


def _ask_server(membership: Membership) -> tuple[Task, str | None]:
    """Return the task of a server, and the name that the token is bound to (None: the device chooses)."""
    with closing(Calls(membership.server, membership.current_token(), membership.connection)) as calls:
        try:
            task = fetch_task(calls)
            about = parse_json(calls.get("/v1/whoami"), f"{membership.server}/v1/whoami")
        except UnreachableError as error:
            raise UnreachableError(f"{error}; the first start of a device needs its server") from None
    return task, about.get("client")


def _ask_folder(server: str) -> tuple[Task, None]:
    """Return the task that a Flower client has put into the folder, and no name: Flower names its nodes."""
    folder = folder_of(server)
    if (task := folder.task()) is None:
        reason = f"{folder.path} has no task yet; the first start of a device needs a SuperNode with this state-dir"
        raise UnreachableError(f"{reason}, and a run")
    return task, None


def _own_name(requested: str | None, known: str | None) -> str:
    """Return the name that the token is bound to; without a token, the requested name or one of the machine's own.

    That is its host name with a few letters by chance: machines that were set up alike have the same host name.
    """
    if requested and known and requested != known:
        raise refuse("--name", repr(requested), f"{known!r}, to which the token and the state folder belong")
    return client_name(known or requested or f"{socket.gethostname()}-{secrets.token_hex(3)}")


def check_encoder(task: Task, encoder: Encoder, any_encoder: bool = False) -> None:
    """Refuse an encoder that is not that of the task: its embeddings mean something else."""
    if encoder.dim != task.zero_shot.dim:
        raise refuse(
            "encoder", f"{encoder.name} with {encoder.dim} dimensions", f"{task.zero_shot.dim}, as the task has"
        )
    if task.encoder is None or any_encoder or encoder.fingerprint == task.encoder.fingerprint:
        return
    want = f"{task.encoder.name} ({task.encoder.fingerprint[:12]}…), or --any-encoder if it is the same in another form"
    raise refuse("encoder", f"{encoder.name} ({encoder.fingerprint[:12]}…)", want)


def new_member(task: Task, privacy: Privacy | None = None) -> Method:
    """Return the method of a device in a fleet; with ``privacy``, its summaries hide single images.

    With noise it learns from near copies, too: without them, one image could change what is stored of many others, and
    nothing could be said about how much the noise hides.
    """
    params, noisy = dict(task.params), privacy is not None and privacy.noise > 0
    if noisy and "near_copy" in params:
        params["near_copy"] = 0.0
    method: Method = create(task.method, task.zero_shot, params)
    if not isinstance(method, Collaborative):
        raise refuse("method", repr(task.method), "one that collaborates")
    info = describe(task.method)
    if info.alone:
        exchange = create_exchange(task.method, task.zero_shot, params)
        method = OwnServer(_before_others(task, params, noisy), exchange, info.sync, method)
    return PrivateClient(method, privacy) if privacy is not None and privacy.hides else method


def _before_others(task: Task, params: dict[str, Any], noisy: bool) -> Collaborative[Any, Any]:
    """Return the method of a device that has heard of nobody else yet.

    There is nobody to distrust: an open task is a fleet of one. With noise it is the other way round. A head that the
    device made without noise must not have a part in its labels, or one image would move those of all later ones.
    """
    if any(each.name == "trust" for each in fields(describe(task.method).params)):
        params = {**params, "trust": "fleet"} if not noisy else {**params, "trust": "open", "routing": "evidence"}
    method = create(task.method, task.zero_shot, params)
    assert isinstance(method, Collaborative)  # as the same with other parameters
    return method


class ServerTrip:
    """One sync with the server, over a connection that is made when it is first needed.

    Every start of a device has an ``instance`` of its own, by which the server notices two devices of one name.
    """

    def __init__(self, membership: Membership, task: Task, name: str) -> None:
        self._membership, self._task, self._name = membership, task, name
        self._instance = secrets.token_hex(8)
        self._exchange: HttpExchange | None = None
        self._token: str | None = None
        self._refused: str | None = None  # the token that the server does not know

    def __call__(self, upload: Any, report: DeviceReport) -> Any:
        """Upload and download; after a refusal of the token, the next connection reads it again."""
        member = self._membership
        try:
            if self._exchange is None:
                self._token = member.current_token()
                self._exchange = HttpExchange(
                    member.server,
                    self._task,
                    tokens=self._token,
                    precision=member.precision,
                    connection=member.connection,
                )
            report = msgspec.structs.replace(report, instance=self._instance)
            return self._exchange.push_pull(self._name, upload, report)
        except RefusedError as error:
            if error.code == "unauthorized":
                self._refused = self._token
                self.close()
            raise

    def mended(self) -> bool:
        """Return whether there is another token than the one that was refused."""
        if self._refused is None or self._membership.token_file is None:
            return False
        try:
            return self._membership.current_token() != self._refused
        except (OSError, InputError):  # it is being written
            return False

    def notice(self) -> str:
        """Return what is wrong although the last sync succeeded."""
        if self._exchange is None or not self._exchange.name_is_shared(self._name):
            return ""
        return f"another device uses the name {self._name!r}, too: give each its own name, token and --state folder"

    def fleet(self) -> FleetWord | None:
        """Return what the server said of the whole fleet; None before it has answered."""
        return None if self._exchange is None else self._exchange.fleet(self._name)

    def close(self) -> None:
        """Close the connection."""
        if self._exchange is not None:
            self._exchange.close()
            self._exchange = None


def link_to(membership: Membership, task: Task, name: str) -> BackgroundSync:
    """Return the background syncs of a member."""
    if is_folder(membership.server):
        privacy = membership.privacy
        hidden = Hidden(privacy.least_images, privacy.noise, True if privacy.labels else msgspec.UNSET)
        exchange = FolderExchange(folder_of(membership.server), task, membership.precision, hidden)
        return BackgroundSync(exchange.push_pull)
    trip = ServerTrip(membership, task, name)
    return BackgroundSync(trip, close=trip.close, notice=trip.notice, mended=trip.mended, fleet=trip.fleet)


def make_task(
    zero_shot: ZeroShot,
    method: str = "latte",
    params: Any = None,
    *,
    encoder: EncoderIdentity | None = None,
    templates: Sequence[str] = (),
    sync: str | None = None,
    period: int = 1,
) -> Task:
    """Return the task of clients that use ``method``; ``sync`` and ``period`` say when a client syncs.

    ``params`` is the method's dataclass, or a mapping of the fields that differ from its defaults.

    >>> import numpy as np
    >>> make_task(ZeroShot(np.eye(2), ("cat", "dog")), "latte", {"alpha": 0.5})
    Task(latte, ZeroShot(cat, dog: C=2, D=2, scale=100, ...))
    """
    info = describe(method)
    if not info.collaborative:
        raise refuse("method", repr(method), "one that collaborates, such as latte or ristretto")
    kind = info.sync if sync is None else sync
    choice("sync", kind, SYNC_TIMES)
    at_least("period", period, 1)
    single = ZeroShot(zero_shot.text, zero_shot.classnames, zero_shot.scale)  # a task has text in single precision
    chosen = asdict(resolve(method, params))
    return Task(single, method, chosen, kind, period, tuple(templates), encoder)


def identify(encoder: Encoder) -> EncoderIdentity:
    """Return the identity of an encoder, for a task."""
    return EncoderIdentity(encoder.name, encoder.fingerprint, asdict(encoder.preprocess))
