"""A device is killed with SIGKILL many times at random moments: no picture twice, none left out, the same memory.

python benchmarks/device/edge_kills.py --kills 200

The device classifies a folder and syncs with a server on which another device has left what it learnt. Every
start but the last is killed: a quarter of them before a new picture is classified, the others after some. In the end
every picture has been classified once, in order, the lines of --out are those of the record, and the memory, with what
came from the other device, is that of a device that was left alone. The short form is tests/e2e/test_edge_kills.py.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

import devices
from killed_devices import Kills
from serving import server_process


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--pictures", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pictures = devices.write_pictures(folder / "in", options.pictures, side=400)
        donor = devices.write_pictures(folder / "donor", 60)
        with server_process(devices.make_task_file(folder), folder / "data") as (server, _):
            devices.run_device(server, folder / "of donor", "donor", donor[0].parent)
            kills = Kills(folder, server, pictures, options.seed)
            kills.kill(options.kills)
            kills.finish()
            kills.check_each_once()
            same = devices.memory(kills.state) == devices.memory(kills.undisturbed())
    assert same, "another memory than without kills"
    print(
        f"{kills.kills} kills in {time.monotonic() - start:.0f} s: {options.pictures} pictures, each classified once,"
    )
    print("and the memory of a device that was left alone, bit for bit")


if __name__ == "__main__":
    main()
