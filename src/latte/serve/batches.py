"""Requests that arrive while a batch runs form the next batch.

So an idle server answers at once, and a busy server answers many requests with one commit and one product per class.
One thread does the work; the event loop only waits for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from ..coordination.problems import Problem

MOST = 64  # requests of a batch: larger batches are not cheaper per request, and the first request would wait longer
WAITING = 4096  # requests that may wait for a batch
BUSY_RETRY = 1.0  # seconds
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
    """Runs ``run`` on batches of what is submitted, one after the other."""

    def __init__(self, run: Callable[[Sequence[Q]], Sequence[A]], most: int = MOST, waiting: int = WAITING) -> None:
        self._run, self._most, self._room = run, most, waiting
        self._waiting: deque[tuple[Q, asyncio.Future[A]]] = deque()
        self._thread = ThreadPoolExecutor(1, "latte-batch")
        self._worker: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    async def submit(self, request: Q) -> A:
        """Return the answer to a request; it waits for its batch."""
        if len(self._waiting) >= self._room:
            raise Problem("busy", f"{len(self._waiting)} requests are waiting", retry_after=BUSY_RETRY)
        answer: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        self._waiting.append((request, answer))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())
        return await answer

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
            requests = [request for request, _ in batch]
            began = loop.time()
            try:
                answers = await loop.run_in_executor(self._thread, self._run, requests)
            except Exception as error:  # each caller gets it, and the next batch goes on
                for _, future in batch:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), answer in zip(batch, answers, strict=True):
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
