"""What went wrong in a method, in one line: the error, and where in the file of its author it came up."""

from __future__ import annotations

import traceback
from pathlib import Path
from types import TracebackType

from ..errors import InputError, MissingExtra

_OURS = __name__.partition(".")[0]


def describe_failure(error: BaseException) -> str:
    """Return the error and the line of the code outside this package that it came from, if there is any.

    Where that code calls numpy or us, the line is still its own: the last one before the call.
    """
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    place = _own_line(error.__traceback__)
    if not place and error.__traceback__ and not isinstance(error, (InputError, MissingExtra, OSError, MemoryError)):
        place = _show(traceback.extract_tb(error.__traceback__)[-1])
        return f"a bug in latte, please report it: {text} ({place})"
    return f"{text} ({place})" if place else text


def _own_line(trace: TracebackType | None) -> str:
    """Return the file, line, function and source of the deepest frame in the code that we called."""
    names = [str(frame.f_globals.get("__name__", "")) for frame, _ in traceback.walk_tb(trace)]
    packages = [name.partition(".")[0] for name in names]
    theirs = [package for package in packages if package not in (_OURS, "importlib")]
    if not theirs:
        return ""
    chosen = max(i for i, package in enumerate(packages) if package == theirs[0])
    return _show(traceback.extract_tb(trace)[chosen])


def _show(summary: traceback.FrameSummary) -> str:
    return f"{Path(summary.filename).name}, line {summary.lineno}, in {summary.name}: {summary.line}"
