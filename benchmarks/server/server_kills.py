"""A server is killed under load, many times: what was acknowledged is there, and answers are as if nothing happened.

python benchmarks/server/server_kills.py --kills 200 --clients 50
python benchmarks/server/server_kills.py --kills 50 --clients 20 --power-cuts ../shared/tools/lossyfs.py

Clients upload without a pause until the server is killed with SIGKILL at a random moment. It is started again, every
stored upload is compared with what its client was promised, and the server has to answer as an exchange that never
crashed. With ``--power-cuts`` the store lies on a file system (a FUSE program) that then loses what was not synced, and
tears sectors. The short form is tests/serve/test_server_crash.py.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

from crash_load import CrashLoad
from latte.checks.material import a_zero_shot
from latte.edge.joining import make_task
from lossy_disk import LossyDisk, lossy_disk
from mortal_server import MortalServer, mortal_server


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--longest", type=float, default=1.0, help="seconds of load before a kill, at most")
    parser.add_argument(
        "--power-cuts", type=Path, metavar="TOOL", help="the file system that loses what was not synced"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        disk = stack.enter_context(lossy_disk(options.power_cuts, folder)) if options.power_cuts else None
        data = (disk.mount if disk else folder) / "data"
        server = stack.enter_context(mortal_server(make_task(a_zero_shot(), "latte", {"k_e": 3}), data))
        load = CrashLoad((server.address,), data, options.clients)
        kill(server, disk, load, options)
        load.exchange.close()
    what = "power cuts" if options.power_cuts else "kills"
    print(f"{options.kills} {what}, {load.acknowledged:,} acknowledged uploads of {options.clients} clients: none lost")


def kill(server: MortalServer, disk: LossyDisk | None, load: CrashLoad, options: argparse.Namespace) -> None:
    """Kill and start again, so many times."""
    rng = random.Random(options.seed)
    for number in range(options.kills):
        load.start()
        time.sleep(rng.uniform(0.0, options.longest))
        server.kill()
        load.join()
        if disk is not None:
            disk.cut_power()
            disk.start(options.seed + number + 2)
        load.check_store()
        server.start()
        load.check_answers()
        print(f"{number + 1}: {load.acknowledged:,} acknowledged so far", file=sys.stderr)


if __name__ == "__main__":
    main()
