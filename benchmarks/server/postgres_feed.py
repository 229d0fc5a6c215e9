"""Following other processes' writes in PostgreSQL: what is missed, how old it is when it is seen, and what it costs.

python benchmarks/server/postgres_feed.py --seconds 20 --writers 4

Writer processes store batches of new clients, with pauses of random length between taking numbers and committing, as
networks and disks make them. One reader follows by the feed of the store, another by the naive one (numbers larger than
the largest seen). Both look every ``--poll`` milliseconds. Then the costs of one batch of a server are measured.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import sys
import time
from pathlib import Path

import numpy as np
import psycopg

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

from latte.server.store.base import Record
from latte.server.store.postgres import PostgresStore
from postgres import running_postgres

BODY = 20_480  # bytes: ten classes, 512 dimensions, single precision
BATCH = 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--poll", type=float, default=100.0)
    parser.add_argument("--clients", type=int, nargs="+", default=[1000, 20000])
    options = parser.parse_args()
    with running_postgres() as server:
        follow(server.new_schema(), options)
        for clients in options.clients:
            costs(server.new_schema(), clients)


# --- what is missed -----------------------------------------------------------------------------------------


def write(url: str, number: int, seconds: float) -> None:
    """Store new clients for so long; each transaction stays open for a random while."""
    rng, store = random.Random(number), PostgresStore(url)
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        names = [f"{number}:{count + i}" for i in range(rng.randint(1, 8))]
        count += len(names)
        store._link.run(lambda database: database.execute("BEGIN"))
        store.write([Record(name, 1, b"", b"x" * 200, time.time()) for name in names])
        time.sleep(rng.expovariate(50.0))
        store._link.run(lambda database: database.execute("COMMIT"))
    store.close()


def follow(url: str, options: argparse.Namespace) -> None:
    reader, naive, last = PostgresStore(url), set[bytes](), 0
    list(reader.changes())
    arguments = [(url, number, options.seconds) for number in range(options.writers)]
    writers = [multiprocessing.Process(target=write, args=one) for one in arguments]
    for process in writers:
        process.start()
    seen, ages = set[str](), []
    with psycopg.connect(url, autocommit=True) as database:
        while any(process.is_alive() for process in writers):
            time.sleep(options.poll / 1e3)
            news = [change.client for change in reader.changes()]
            ages += [time.time() - record.updated for record in reader.read(news).values()]
            seen |= set(news)
            rows = database.execute("SELECT id, name FROM latte_clients WHERE id > %s", [last]).fetchall()
            naive |= {row[1] for row in rows}
            last = max([last, *(row[0] for row in rows)])
        seen |= {change.client for change in reader.changes()}
        rows = database.execute("SELECT id, name FROM latte_clients WHERE id > %s", [last]).fetchall()
        naive |= {row[1] for row in rows}
        total = database.execute("SELECT count(*) FROM latte_clients").fetchone()[0]
    reader.close()
    print(f"{options.writers} writers, {total:,} clients: the feed missed {total - len(seen)}, ", end="")
    print(f"the naive one {total - len(naive)}")
    middle, late = (1e3 * float(np.quantile(ages, q)) for q in (0.5, 0.99))
    print(f"age when seen, with a look every {options.poll:g} ms: {middle:.0f} ms (p50), {late:.0f} ms (p99)")


# --- what it costs ------------------------------------------------------------------------------------------


def costs(url: str, clients: int) -> None:
    """Print the processor time of this process, and the wall time, of the steps of a batch of 64."""
    one, other, rng = PostgresStore(url), PostgresStore(url), np.random.default_rng(0)
    names, version = [f"client {i}" for i in range(clients)], 1
    bodies = [rng.bytes(BODY) for _ in range(BATCH)]
    for start in range(0, clients, BATCH):
        one.write([Record(name, 1, b"k" * 16, bodies[0], 0.0) for name in names[start : start + BATCH]])
    began = time.process_time(), time.perf_counter()
    list(other.changes())
    print(f"{clients:,} clients: load {time.process_time() - began[0]:.2f} s processor, ", end="")
    print(f"{time.perf_counter() - began[1]:.2f} s wall")
    list(one.changes())
    spent = {step: [0.0, 0.0] for step in ("read", "write", "own look", "other's look", "empty look")}

    def timed(step: str, call) -> None:
        began = time.process_time(), time.perf_counter()
        call()
        spent[step][0] += time.process_time() - began[0]
        spent[step][1] += time.perf_counter() - began[1]

    rounds = 30
    for _ in range(rounds):
        version += 1
        some = [names[i] for i in rng.choice(clients, BATCH, replace=False)]
        batch = [Record(name, version, b"k" * 16, body, 0.0) for name, body in zip(some, bodies, strict=True)]
        timed("read", lambda some=some: one.read(some))
        timed("write", lambda batch=batch: one.write(batch))
        timed("own look", lambda: list(one.changes()))
        timed("other's look", lambda: list(other.changes()))
        timed("empty look", lambda: list(other.changes()))
    for step, (cpu, wall) in spent.items():
        print(f"  {step:<13} {1e3 * cpu / rounds:6.2f} ms processor, {1e3 * wall / rounds:7.2f} ms wall per batch")
    one.close()
    other.close()


if __name__ == "__main__":
    main()
