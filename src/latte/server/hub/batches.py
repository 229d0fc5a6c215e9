"""Requests that arrive while a batch runs form the next batch.

So an idle server answers at once, and a busy server answers many requests with one commit and one product per class.
One thread does the work; the event loop only waits for it. Nobody waits long for a batch to begin: a request that would
is refused at once, and one that did, because batches became slower, is refused then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from ...wire.messages import Problem

MOST = 64  # requests of a batch: larger batches are not cheaper per request, and the first request would wait longer
WAITING = 4096  # requests that may wait for a batch
LONGEST_WAIT = 5.0  # seconds until its batch begins: a client waits for an answer for 10
_LAST = 0.5  # weight of the last batch in the expected time of the next
# Turns of the event loop between two batches: answers are sent before the next batch needs the interpreter, and
# requests that arrive meanwhile belong to the next batch.
_TURNS = 4
# Then the next batch waits while requests keep arriving, for at most this share of the time that the last batch took:
# a batch of 64 takes a third less processor time per request than two of 32, which read everyone's prototypes twice.
_LONGER = 0.15
_STEP = 0.001  # seconds between two looks

Q = TypeVar("Q")
A = TypeVar("A")
R = TypeVar("R")


class Batches(Generic[Q, A]):
    """Runs ``run`` on batches of what is submitted, one after the other; it does its work with :meth:`call`."""

    def __init__(
        self, run: Callable[[Sequence[Q]], Awaitable[Sequence[A]]], most: int = MOST, waiting: int = WAITING
    ) -> None:
        self._run, self._most, self._room = run, most, waiting
        self._waiting: deque[tuple[Q, asyncio.Future[A], float]] = deque()  # the last: since when
        self._batch_seconds = self._began = 0.0  # the expected time of a batch, and the beginning of the present one
        self._thread = ThreadPoolExecutor(1, "latte-batch")
        self._worker: asyncio.Task[None] | None = None
        self._look: asyncio.TimerHandle | None = None  # for requests that have waited too long

    def __len__(self) -> int:
        return len(self._waiting)

    async def submit(self, request: Q) -> A:
        """Return the answer to a request; it waits for its batch."""
        loop = asyncio.get_running_loop()
        wait = self._expected_wait(loop.time())
        if wait > LONGEST_WAIT or len(self._waiting) >= self._room:
            raise self._busy(wait)
        answer: asyncio.Future[A] = loop.create_future()
        self._waiting.append((request, answer, loop.time()))
        if self._look is None:
            self._look = loop.call_later(LONGEST_WAIT, self._refuse_late)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await answer

    def _expected_wait(self, now: float) -> float:
        """Return the seconds until a batch begins that has room for one request more."""
        if self._worker is None or self._worker.done():
            return 0.0
        present = max(0.0, self._batch_seconds - (now - self._began))
        return present + self._batch_seconds * (len(self._waiting) // self._most)

    def _busy(self, wait: float) -> Problem:
        return Problem("busy", f"{len(self._waiting)} requests are waiting", retry_after=max(1.0, wait))

    def _refuse_late(self) -> None:
        """Refuse what has waited too long; look again when the next has."""
        loop, left = asyncio.get_running_loop(), self._most
        while left and self._waiting and loop.time() >= self._waiting[0][2] + LONGEST_WAIT:
            _, future, _ = self._waiting.popleft()
            left -= 1
            if not future.done():
                future.set_exception(self._busy(self._expected_wait(loop.time())))
        self._look = None
        if self._waiting:  # a few at a time: others ask, too
            self._look = loop.call_at(max(self._waiting[0][2] + LONGEST_WAIT, loop.time() + _STEP), self._refuse_late)

    async def call(self, function: Callable[[], R]) -> R:
        """Run a function between two batches."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)

    async def close(self) -> None:
        """Answer everything that was submitted, then end."""
        while self._worker is not None and not self._worker.done():
            await asyncio.wait([self._worker])
        self._thread.shutdown()

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            batch = [self._waiting.popleft() for _ in range(min(self._most, len(self._waiting)))]
            began = self._began = loop.time()
            try:
                answers = await self._run([request for request, _, _ in batch])
            except Exception as error:  # each caller gets it, and the next batch goes on
                for _, future, _ in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            finally:
                self._batch_seconds += _LAST * (loop.time() - began - self._batch_seconds)
            for (_, future, _), answer in zip(batch, answers, strict=True):
                if not future.done():  # a caller that has gone away
                    future.set_result(answer)
            for _ in range(_TURNS):
                await asyncio.sleep(0)
            if len(batch) > 1:
                await self._let_more_arrive(loop.time() + _LONGER * (loop.time() - began))

    async def _let_more_arrive(self, until: float) -> None:
        """Wait while requests keep arriving and the next batch has room for them."""
        loop, before = asyncio.get_running_loop(), 0
        while before < len(self._waiting) < self._most and loop.time() < until:
            before = len(self._waiting)
            await asyncio.sleep(_STEP)
