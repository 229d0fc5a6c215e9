"""The command line. Commands are looked up by name and imported when they run, so that ``latte --help`` is quick.

This module itself imports next to nothing: a signal should meet our handler, not the import of click.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from .commands import COMMANDS as COMMANDS
    from .commands import cli as cli


def _leave_early() -> NoReturn:
    """End on a Ctrl-C that came before there was a handler of ours."""
    os.write(2, b"latte: interrupted; nothing had begun\n")
    os._exit(130)


try:
    from .stop import Stopped, Stopper, hint_for, is_endless
except KeyboardInterrupt:
    _leave_early()


def __getattr__(name: str) -> object:
    if name not in ("COMMANDS", "cli"):
        raise AttributeError(f"module 'latte.cli' has no attribute {name!r}")
    from . import commands

    return getattr(commands, name)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line.

    Bad input is one line on stderr (after the usage, where an option itself is wrong) and exit code 2. A bug of ours is
    a traceback and exit code 70. SIGINT and SIGTERM are one line that says how to go on and exit code 130 or 143 (see
    :mod:`.stop`).
    """
    try:
        words = sys.argv[1:] if arguments is None else arguments
        stopper = Stopper(hint_for(words), is_endless(words))
        stopper.install()
    except KeyboardInterrupt:
        if arguments is not None:  # a caller's to handle
            raise
        _leave_early()
    try:
        _run(arguments)
    except Stopped as stopped:
        stopper.leave(stopped.number, stopped.hint)
    finally:
        stopper.end()
        if arguments is not None:  # a caller of ours goes on
            stopper.remove()


def _run(arguments: list[str] | None) -> None:
    import errno
    import traceback

    from ..errors import InputError, MissingExtra
    from .commands import cli
    from .output import problem

    try:
        cli.main(args=arguments, prog_name="latte")
    except (InputError, MissingExtra) as error:
        problem(error)
        sys.exit(2)
    except MemoryError as error:  # numpy names the size of the array
        problem(f"not enough memory ({error})")
        sys.exit(1)
    except OSError as error:  # a full disk, a folder that may not be written; or a name that no file can have
        problem(_without_number(error))
        sys.exit(2 if error.errno in (errno.ENAMETOOLONG, errno.ELOOP) else 1)
    except Exception:  # nobody's input: the traceback is what a report of the bug needs
        traceback.print_exc()
        problem("this is a bug; please report it with the lines above")
        sys.exit(70)


def _without_number(error: OSError) -> OSError | str:
    """Return an error of the system as a line for people: what could not be done with which file."""
    import errno

    said = {
        errno.ENOSPC: "no room is left on the disk",
        errno.EDQUOT: "no room is left on the disk for this user",
        errno.EROFS: "the file system can only be read",
    }.get(error.errno or 0)
    if said is None:
        return error
    return said if error.filename is None else f"{error.filename}: {said}"
