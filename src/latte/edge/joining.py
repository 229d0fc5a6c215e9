"""Membership of a device in a fleet: the task from its server, its own name, and the way to sync."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple, cast
from urllib.parse import urlsplit

import msgspec
import numpy as np

from ..core.privacy import Privacy, PrivateClient
from ..core.sync import SYNC_TIMES
from ..core.types import Collaborative, Method
from ..core.validate import at_least, choice, client_name
from ..core.zero_shot import ZeroShot, places_of
from ..encoders import Encoder, FunctionEncoder
from ..errors import InputError, refuse
from ..files.atomic import write_text
from ..files.documents import parse_json, read_text
from ..methods import create, create_exchange, describe, resolve
from ..wire.messages import DeviceReport, FleetWord
from ..wire.task import EarlierTask, EncoderIdentity, Task, read_task, write_task
from .classify.classify import OwnServer
from .classify.masked import Masked
from .clients.calls import Calls, Connection, RefusedError, UnreachableError, check_token_text
from .clients.folder import TASK_FILE as TASK_FILE
from .clients.folder import FolderExchange, Hidden, folder_of, is_folder
from .clients.http import HttpExchange, fetch_task
from .device.record import task_of_record
from .device.syncing import BackgroundSync

NAME_FILE = "name.txt"
NEXT_FILE = "next.task"  # a later version of the task, until the record has it
_LONGEST_TOKEN = 4096  # bytes of a token file
_SAME_TEXT = 0.99  # the least cosine of two embeddings of one text: machines and precisions round differently


@dataclass(frozen=True, slots=True)
class Membership:
    """A server, and how to talk to it; ``name`` is needed only if the server asks for no token.

    ``without`` are classes that the device cannot meet: they never win, and nothing is learnt of them.

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
    without: tuple[str, ...] = ()

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


def as_membership(server: str | Membership, name: str | None, token: str | None) -> Membership:
    """Return a membership; with one attempt per request, because a program has its own pauses between syncs."""
    if isinstance(server, Membership):
        if name is not None or token is not None:
            raise refuse("name or token", "a value", "it in the Membership")
        return server
    return Membership(server, token, name, connection=Connection(attempts=1))


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
    settle_version(folder)
    if path.is_file() and name_path.is_file():
        stored = read_text(name_path, "name").rstrip("\n")
        return DeviceIdentity(read_task(path), _own_name(membership.name, stored))
    identity = ask(membership)
    folder.mkdir(parents=True, exist_ok=True)
    write_task(path, identity.task)
    write_text(name_path, f"{identity.name}\n")
    return identity


def begin_version(task: Task, earlier: Method, membership: Membership, folder: Path) -> Method:
    """Return a member that goes on with a later version of the task; the task is stored beside that of the record."""
    member: Any = new_member(task, membership.privacy, membership.without)
    inner = member
    while hasattr(inner, "method"):
        inner = inner.method
    if not hasattr(inner, "take_over"):
        raise refuse("method", type(inner).__name__, "one with take_over(earlier), as latte.BaseMethod has")
    member.take_over(earlier)
    write_task(folder / NEXT_FILE, task)
    return cast(Method, member)


def settle_version(folder: Path) -> None:
    """Let the task of a device be that of its record, wherever a crash has left the two."""
    path = folder / NEXT_FILE
    if path.is_file():
        if read_task(path).fingerprint == task_of_record(folder):
            path.replace(folder / TASK_FILE)
        else:
            path.unlink()


def ask(membership: Membership) -> DeviceIdentity:
    """Return the task and the name that the server gives; nothing is stored."""
    task, given = _ask_folder(membership.server) if is_folder(membership.server) else _ask_server(membership)
    return DeviceIdentity(task, _own_name(membership.name, given))


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
    if task.encoder is None or any_encoder or isinstance(encoder, FunctionEncoder):  # that of a function is unknown
        return
    if encoder.fingerprint == task.encoder.fingerprint:
        return
    want = f"{task.encoder.name} ({task.encoder.fingerprint[:12]}…), or --any-encoder if it is the same in another form"
    raise refuse("encoder", f"{encoder.name} ({encoder.fingerprint[:12]}…)", want)


def new_member(task: Task, privacy: Privacy | None = None, without: Iterable[str] = ()) -> Collaborative[Any, Any]:
    """Return the method of a device in a fleet; with ``privacy``, its summaries hide single images.

    Classes that it is ``without`` never win.

    It predicts, and goes into a sync: ``sync([("camera 7", member)], exchange)``.

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
        if task.joined and hasattr(exchange, "watch_classes"):
            exchange.watch_classes(task.joined)
        method = OwnServer(_before_others(task, params, noisy), exchange, info.sync, method)
    versions = [task.zero_shot.classnames, *(earlier.classnames for earlier in task.history)]
    known = tuple(sorted({name for names in versions for name in names}))
    for name in (classes := tuple(without)):  # one that has left the task may join it again
        choice("without", name, known)
    if classes:
        method = Masked(method, task.zero_shot, classes)
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
        self._newer: Task | None = None  # the version of the task that the server has
        self._follows = False  # whether it was taken over since the last trip

    def __call__(self, upload: Any, report: DeviceReport) -> Any:
        """Upload and download; after a refusal of the token, the next connection reads it again."""
        member, self._follows = self._membership, False
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
            if error.code == "other_task" and self._look_for_newer():
                raise RefusedError(error.code, error.status, "the classes of the task have changed") from None
            raise

    def _look_for_newer(self) -> bool:
        """Return whether the server's task is a later version of this device's."""
        self.close()
        with closing(Calls(self._membership.server, self._token, self._membership.connection)) as calls:
            task = fetch_task(calls)
        self._newer = None if task.classes_of(self._task.fingerprint) is None else task
        return self._newer is not None

    def newer(self) -> Task | None:
        """Return the later version of the task that the server has; None if it has none."""
        return self._newer

    def follow(self, task: Task) -> None:
        """Go on with a later version of the task."""
        self._task, self._newer, self._follows = task, None, True

    def mended(self) -> bool:
        """Return whether there is another token, or another task, than the one that was refused."""
        if self._follows:
            return True
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


def link_to(
    membership: Membership, task: Task, name: str, tell: Callable[[str], object] = lambda problem: None
) -> BackgroundSync:
    """Return the background syncs of a member; ``tell`` is called with what is wrong, and with "" when it is over."""
    if is_folder(membership.server):
        privacy = membership.privacy
        hidden = Hidden(privacy.least_images, privacy.noise, True if privacy.labels else msgspec.UNSET)
        exchange = FolderExchange(folder_of(membership.server), task, membership.precision, hidden)
        return BackgroundSync(exchange.push_pull, tell=tell)
    trip = ServerTrip(membership, task, name)
    calls = {name: getattr(trip, name) for name in ("close", "notice", "mended", "fleet", "newer", "follow")}
    return BackgroundSync(trip, tell=tell, **calls)


def make_task(
    zero_shot: ZeroShot,
    method: str = "latte",
    params: Any = None,
    *,
    encoder: EncoderIdentity | None = None,
    templates: Sequence[str] = (),
    sync: str | None = None,
    period: int = 1,
    descriptions: Mapping[str, Sequence[str]] | None = None,
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
    sentences = {name: tuple(several) for name, several in (descriptions or {}).items()}
    return Task(single, method, chosen, kind, period, tuple(templates), encoder, sentences)


def next_version(task: Task, zero_shot: ZeroShot, descriptions: Mapping[str, Sequence[str]] | None = None) -> Task:
    """Return a task with the classes of another classifier: what was learnt with ``task`` goes on in it.

    Classes that stay keep their text to the last bit. A classifier that puts it elsewhere is of another encoder.

    >>> import numpy as np
    >>> task = make_task(ZeroShot(np.eye(3)[:2], ("cat", "dog")), "ristretto")
    >>> after = next_version(task, ZeroShot(np.eye(3), ("cat", "dog", "fox")))
    >>> after.joined, after.classes_of(task.fingerprint)
    (('fox',), ('cat', 'dog'))
    """
    before = task.zero_shot
    names = zero_shot.classnames
    if (zero_shot.dim, zero_shot.scale) != (before.dim, before.scale):
        got = f"{zero_shot.dim} dimensions and a scale of {zero_shot.scale:g}"
        raise refuse("classifier", got, f"{before.dim} and {before.scale:g}, as before")
    if set(names) == set(before.classnames):
        raise refuse("classes", "the same as before", "classes that join or leave")
    new = [name for name in names if name in task.joined or name not in before.classnames]
    places, text = places_of(names, before.classnames), zero_shot.text.copy()
    stay = np.flatnonzero(places >= 0)
    kept = before.text[places[stay]]
    for place, cosine in zip(stay, np.einsum("cd,cd->c", text[stay], kept), strict=True):
        if cosine < _SAME_TEXT:
            got = f"another one of {names[place]!r} than before (cosine {cosine:.2f})"
            raise refuse("text embedding", got, "the encoder of the task, and its templates and descriptions")
    text[stay] = kept
    single = ZeroShot(text, names, zero_shot.scale)
    sentences = {name: tuple(several) for name, several in (descriptions or task.descriptions).items() if name in names}
    made = replace(task, zero_shot=single, descriptions=sentences, joined=tuple(new))
    earlier = [each for each in task.history if each.fingerprint != made.fingerprint]
    history = (*earlier, EarlierTask(task.fingerprint, before.classnames))
    return replace(made, history=history)


def identify(encoder: Encoder) -> EncoderIdentity:
    """Return the identity of an encoder, for a task."""
    return EncoderIdentity(encoder.name, encoder.fingerprint, asdict(encoder.preprocess))
