"""The parts of a running server, and what the routes do with them: authenticate, limit, answer."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ...errors import InputError, refuse
from ...wire.messages import Problem, SyncReply, SyncRequest
from ..dashboard.fleet import FleetLog
from ..dashboard.state import Board
from ..hub.batches import Batches
from ..hub.hub import Hub
from ..store.audit import Audit
from ..store.tokens import ADMIN, Token, TokenStore, are_required, check_token, require_tokens, rights_of
from .limits import MOST_HELD, HeldBytes

log = logging.getLogger("latte.server")
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_CLIENTS = 200_000  # whose buckets are remembered; full buckets are forgotten first
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64)
_SLACK = 1 << 20  # bytes of a body beyond twice the largest upload: what the client has, and a report
_PATIENCE = 1.0  # seconds by which the refusal of an impatient client is delayed: it cannot keep the server busy
_MOST_DELAYED = 256  # refusals that are delayed at once
_FOLLOW_EVERY = 1.0  # seconds; every batch of requests follows by itself
_LONGEST_LOOK = 10.0  # seconds after which a store that has not answered counts as one that does not answer
_AUDITED = (
    "bad_message", "bad_upload", "forbidden", "key_reused", "other_task", "too_large", "too_many_clients",
    "unauthorized", "unsupported_media", "unsupported_protocol",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RequestRate:
    """Requests per second in the long run, and how many may come at once. ``per_second`` 0: no limit."""

    per_second: float = 50.0
    burst: float = 100.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.per_second) and self.per_second >= 0):
            raise refuse("rate", self.per_second, "requests per second, 0 or above")
        if self.per_second and not self.burst >= 1:
            raise refuse("burst", self.burst, "at least 1: with less, every request is refused")

    @classmethod
    def of(cls, per_second: float) -> RequestRate:
        """Return it with room for the requests of two seconds at once, and for one at least."""
        return cls(per_second, max(1.0, 2 * per_second))


class Buckets:
    """A bucket per client."""

    def __init__(self, rate: RequestRate) -> None:
        self.rate = rate
        self._levels: dict[str, tuple[float, float]] = {}  # what is left in the bucket, and at which time

    def take(self, client: str) -> float:
        """Take one token; return 0, or the seconds until there is a token again."""
        if not self.rate.per_second:
            return 0.0
        now = time.monotonic()
        level, when = self._levels.get(client, (self.rate.burst, now))
        level = min(self.rate.burst, level + (now - when) * self.rate.per_second)
        if level < 1.0:
            self._levels[client] = level, now
            return (1.0 - level) / self.rate.per_second
        if len(self._levels) >= MOST_CLIENTS and client not in self._levels:
            pause = self.rate.burst / self.rate.per_second
            self._levels = {other: bucket for other, bucket in self._levels.items() if now - bucket[1] < pause}
        self._levels[client] = level - 1.0, now
        return 0.0


class Metrics:
    """What a server measures of itself, for Prometheus. No label holds the name of a client."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        by_route = ("route", "outcome")
        self.requests = Counter("latte_requests", "Requests by route and outcome", by_route, registry=registry)
        self.seconds = Histogram(
            "latte_request_seconds", "Time to answer", ("route",), buckets=_SECONDS, registry=registry
        )
        self.received = Counter("latte_received_bytes", "Bytes of the bodies of requests", registry=registry)
        self.sent = Counter("latte_sent_bytes", "Bytes of the bodies of answers", registry=registry)
        self.clients = Gauge("latte_clients", "Clients that have uploaded", registry=registry)
        self.waiting = Gauge("latte_waiting_requests", "Requests that wait for a batch", registry=registry)
        self.batch = Histogram("latte_batch_requests", "Requests of a batch", buckets=_SIZES, registry=registry)
        about = "Processor time of batches by what was done"
        self.phase = Counter("latte_batch_seconds", about, ("phase",), registry=registry)


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request: a ``client`` with a ``token``, an ``admin``, or anybody on an ``open`` server."""

    client: str | None = None
    admin: bool = False
    open: bool = False
    token: Token | None = None

    def check_client(self, name: str) -> None:
        """Refuse to act as a client of another name."""
        if not self.open and self.client != name:
            mine = f"client {self.client!r}" if self.client is not None else "an admin"
            raise Problem("forbidden", f"the token belongs to {mine}, not to client {name!r}")

    def check_admin(self) -> None:
        """Refuse everyone but an admin."""
        if not self.open and not self.admin:
            raise Problem("forbidden", "this needs the token of an admin")


@dataclass(frozen=True, slots=True)
class Access:
    """How requests are admitted: only with a token if ``required``; with ``once_made``, once there has been a token.

    ``local``: only this machine can reach the server, so that requests without tokens must name this machine.
    """

    required: bool = False
    once_made: bool = True
    rate: RequestRate = field(default_factory=RequestRate)
    local: bool = False


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host.lower() in ("localhost", "127.0.0.1"):  # the usual ones, at every request
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Service:
    """A hub with everything around it."""

    def __init__(self, hub: Hub, tokens: TokenStore, access: Access, audit: Audit, folder: Path | None = None) -> None:
        self.hub, self.tokens, self.access, self.audit = hub, tokens, access, audit
        self.metrics, self.log = Metrics(), FleetLog()
        hub.on_join = lambda client: audit.note("joined", client)
        hub.on_labels = self._note_labels
        self._rights_from = tokens.tokens()
        hub.grant(rights_of(self._rights_from))
        self.batches: Batches[tuple[SyncRequest, Caller], SyncReply | Problem] = Batches(self._run)
        self.board = Board(hub, self.batches, self.log)
        self.task_bytes = hub.task.to_bytes()
        self.most_body = 2 * hub.reader.upload_bytes + _SLACK
        self.held = HeldBytes(max(MOST_HELD, 4 * self.most_body))
        self._buckets = Buckets(access.rate)
        self._folder = folder
        self._closed = access.required
        if access.once_made and (tokens.made() or (folder is not None and are_required(folder))):
            self._ask_for_tokens()
        self._delayed = 0
        self.ready = True
        self._store_fails, self._followed = False, time.monotonic()

    # --- access -------------------------------------------------------------------------------------------

    async def authenticate(self, header: str | None) -> Caller:
        """Return the sender of a request by its header ``Authorization``."""
        tokens = await self._tokens()
        if self._is_open(tokens):
            return Caller(open=True)
        kind, _, presented = (header or "").partition(" ")
        token = check_token(presented.strip(), tokens) if kind.lower() == "bearer" else None
        if token is None:
            raise Problem("unauthorized", "no valid token: Authorization: Bearer latte_…")
        return Caller(admin=True, token=token) if token.role == ADMIN else Caller(token.client, token=token)

    async def _tokens(self, newest: bool = False) -> Mapping[str, Token]:
        tokens = self.tokens.at_hand(newest)
        return await asyncio.to_thread(self.tokens.tokens, newest) if tokens is None else tokens

    def _is_open(self, tokens: Mapping[str, Token]) -> bool:
        if not self._closed and tokens and self.access.once_made:
            self._ask_for_tokens()
        return not self._closed

    async def check_again(self, callers: Sequence[Caller]) -> list[Problem | None]:
        """Return why callers that were let in are refused now: while a body arrives, its token may be revoked."""
        tokens = await self._tokens(newest=True)
        if tokens is not self._rights_from:
            self._rights_from, rights = tokens, rights_of(tokens)
            if rights != self.hub.rights:
                await self.batches.call(lambda: self.hub.grant(rights))
        is_open, refusals = self._is_open(tokens), list[Problem | None]()
        for caller in callers:
            if caller.token is None:
                valid = is_open
            else:
                now = tokens.get(caller.token.id)
                valid = now is not None and now.revoked is None and now.digest == caller.token.digest
            detail = "the token was revoked while the request was on its way"
            refusals.append(None if valid else Problem("unauthorized", detail))
        return refusals

    def _note_labels(self, client: str, labels: int) -> None:
        rights = self.hub.rights
        trusted = rights.teachers is None or client in rights.teachers
        weight = "none counts" if client in rights.muted else "each counts" if trusted else "their weight is capped"
        self.audit.note("labels", client, f"{labels} labels, {weight}")

    def _ask_for_tokens(self) -> None:
        """Answer nobody without a token from now on, whatever becomes of the store, also after a restart."""
        self._closed = True
        if self._folder is not None:
            require_tokens(self._folder)

    async def admit(self, client: str) -> None:
        """Refuse a client that asks too often; the refusal takes a second, so that asking again at once is useless."""
        wait = self._buckets.take(client)
        if not wait:
            return
        if self._delayed < _MOST_DELAYED:
            self._delayed += 1
            try:
                await asyncio.sleep(_PATIENCE)
            finally:
                self._delayed -= 1
        rate = self.access.rate
        raise Problem("too_many_requests", f"at most {rate.per_second:g} requests per second", retry_after=wait)

    # --- answers ------------------------------------------------------------------------------------------

    async def sync(self, request: SyncRequest, caller: Caller) -> SyncReply:
        """Answer one request."""
        start = time.perf_counter()
        caller.check_client(request.client)
        answer = await self.batches.submit((request, caller))
        if isinstance(answer, Problem):
            raise answer
        exchanged = request.upload is not None or request.precision is not None
        if exchanged and request.client in self.hub.versions:
            if request.report is not None and request.upload is None:  # one that comes with an upload is stored with it
                self.hub.reports.note(request.client, request.report)
            self.log.note_sync(request.client, request.report, time.perf_counter() - start)
        return answer

    def note_refusal(self, caller: Caller, claimed: str, problem: Problem) -> None:
        """Note a refusal under the name that the token belongs to; where there is none, under the ``claimed`` one."""
        name = claimed if caller.client is None else caller.client
        if problem.code in _AUDITED:
            self.audit.note(f"refused: {problem.code}", name, problem.detail, known=caller.client is not None)
        self.log.note_refusal(name, problem)

    async def _run(self, batch: Sequence[tuple[SyncRequest, Caller]]) -> Sequence[SyncReply | Problem]:
        """Answer a batch. A client whose token is revoked, and which is then removed, does not come back.

        Where others write to the store, it may be removed by another server between the check of its token and the
        write. So the check is made once more: either it sees that the token is revoked, or the removal comes later.
        """
        callers = [caller for _, caller in batch]
        refusals = await self.check_again(callers)
        due = [request for (request, _), refusal in zip(batch, refusals, strict=True) if refusal is None]
        replies = iter(await self.batches.call(lambda: self._answer(due)) if due else ())
        answers = [next(replies) if refusal is None else refusal for refusal in refusals]
        if self.hub.store.shared:
            for place, refusal in enumerate(await self.check_again(callers)):
                request, was_due = batch[place][0], refusals[place] is None
                if refusal is not None and was_due and not isinstance(answers[place], Problem):
                    answers[place] = refusal
                    tokens = (await self._tokens(newest=True)).values()
                    valid = any(t.client == request.client and t.is_client and t.revoked is None for t in tokens)
                    if request.upload is not None and not valid:
                        await self.forget(request.client, "removed: its token was revoked while it uploaded")
        return answers

    def _answer(self, requests: Sequence[SyncRequest]) -> Sequence[SyncReply | Problem]:
        answers = self.hub.run(requests)
        taken, self.hub.seconds = self.hub.seconds, {}
        for phase, seconds in taken.items():
            self.metrics.phase.labels(phase).inc(seconds)
        self.metrics.batch.observe(len(requests))
        self.metrics.clients.set(len(self.hub))
        return answers

    async def forget(self, client: str, event: str, by_owner: bool = False) -> bool:
        """Remove a client and what it uploaded."""
        was_there = await self.batches.call(lambda: self.hub.forget(client))
        if was_there:
            self.audit.note(event, client, always=by_owner)
            self.log.forget(client)
            self.metrics.clients.set(len(self.hub))
        return was_there

    async def follow_others(self) -> None:
        """Look after the store until this is cancelled, even without requests: does it answer, and what is new in it?

        So the first request after a quiet night is quick, and :attr:`store_answers` is at most a second old.
        """
        while True:
            await asyncio.sleep(_FOLLOW_EVERY)
            try:
                await self.batches.call(self.hub.follow)
                self._store_fails, self._followed = False, time.monotonic()
            except Exception as error:  # requests say so, too
                if not self._store_fails:
                    ours = not isinstance(error, (OSError, InputError))
                    log.error("store: %s", error, exc_info=error if ours else None)
                self._store_fails = True
            self.metrics.clients.set(len(self.hub))

    @property
    def store_answers(self) -> bool:
        """Whether the store answered when it was last looked at, and that was not long ago."""
        return not self._store_fails and time.monotonic() - self._followed < _LONGEST_LOOK

    async def close(self) -> None:
        """Answer all accepted requests, then close the store."""
        self.ready = False
        await self.batches.close()
        self.close_stores()
        log.info("stopped", extra={"fields": {"clients": len(self.hub), "at": time.time()}})

    def close_stores(self) -> None:
        """Release the store and the tokens."""
        self.hub.store.close()
        self.tokens.close()
