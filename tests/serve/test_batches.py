"""How requests become batches: together what arrives together, and nobody waits for requests that do not come."""

import asyncio

import pytest

from latte.server.hub import batches
from latte.server.hub.batches import Batches

NEVER_LATE = float("inf")


async def answer(requests):
    return requests


def sizes_of(rounds):
    """Return the sizes of the batches of so many clients that ask so many times, each when it has its answer."""
    sizes = []

    async def run(requests):
        sizes.append(len(requests))
        return requests

    async def ask(queue, number, times):
        for turn in range(times):
            assert await queue.submit((number, turn)) == (number, turn)

    async def main():
        queue = Batches(run)
        await asyncio.gather(*(ask(queue, number, times) for number, times in enumerate(rounds)))
        await queue.close()

    asyncio.run(main())
    return sizes


def test_everything_is_answered_whatever_the_batches():
    sizes = sizes_of([3, 5, 1, 8])
    assert sum(sizes) == 17
    assert max(sizes) <= batches.MOST


def test_one_client_never_waits_for_others(monkeypatch):
    monkeypatch.setattr(batches, "_STEP", NEVER_LATE)  # a wait would have no end
    assert sizes_of([20]) == [1] * 20


async def arrive(queue, count):
    """Let one request arrive per turn of the loop."""
    for number in range(count):
        queue._waiting.append((number, asyncio.get_running_loop().create_future(), 0.0))
        await asyncio.sleep(0)


@pytest.mark.parametrize(("count", "most", "taken"), [(5, 64, 5), (9, 4, 4)])
def test_the_next_batch_waits_while_requests_arrive_and_there_is_room(count, most, taken, monkeypatch):
    monkeypatch.setattr(batches, "_STEP", 0)

    async def main():
        queue = Batches(answer, most)
        arriving = asyncio.create_task(arrive(queue, count))
        await asyncio.sleep(0)
        await queue._let_more_arrive(NEVER_LATE)
        waiting = len(queue)
        await arriving
        queue._waiting.clear()
        await queue.close()
        return waiting

    assert asyncio.run(main()) == taken


def test_the_next_batch_does_not_wait_longer_than_it_may(monkeypatch):
    monkeypatch.setattr(batches, "_STEP", NEVER_LATE)

    async def main():
        queue = Batches(answer)
        await arrive(queue, 2)
        await queue._let_more_arrive(asyncio.get_running_loop().time() - 1)
        queue._waiting.clear()
        await queue.close()

    asyncio.run(main())
