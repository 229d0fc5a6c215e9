"""The server of the fleet demo as a process: it ends when its input ends, and removes its folder.

``python -m latte.serve.demo_server FOLDER HOST PORT`` serves the task file in FOLDER and prints its address, or an
error.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import threading
from pathlib import Path

from ..errors import InputError
from ..wire.task_file import read_task
from .running import ServerOptions, log_to_stderr, serve
from .service import Access

TASK_NAME = "federation.task"


def main(folder: Path, host: str, port: int) -> None:
    """Serve until SIGTERM, or until the program that started it has ended."""
    try:
        signal.signal(signal.SIGTERM, _leave)  # until the server has its own handler, which waits for open requests
        threading.Thread(target=_stop_with_parent, daemon=True).start()  # may end this process at once
        log_to_stderr("warning")
        options = ServerOptions(folder / "data", host=host, port=port, insecure=True, access=Access(required=True))
        serve(read_task(folder / TASK_NAME), options, lambda address: print(address, flush=True))
    except (InputError, OSError) as error:
        print(error, flush=True)
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second one must not leave half of the folder behind
        shutil.rmtree(folder, ignore_errors=True)


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def _stop_with_parent() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
