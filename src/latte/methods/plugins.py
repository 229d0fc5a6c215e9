"""Methods of a user's own, in files that are imported by their path, and what went wrong in them, in one line."""

from __future__ import annotations

import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType, TracebackType

from ..errors import InputError, MissingExtra, refuse

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


def load_plugin(path: Path) -> ModuleType:
    """Import a file that registers methods of its own; a second call for the same file does nothing."""
    path = Path(path).resolve()
    name = f"latte_plugin_{path.stem}"
    if name in sys.modules and Path(str(sys.modules[name].__file__)) == path:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path) if path.suffix == ".py" and path.is_file() else None
    if spec is None or spec.loader is None:
        raise refuse("plugin", f"{path}", "a Python file that calls latte.methods.register")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: its methods are looked up by this name
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise InputError(f"plugin {path}: {describe_failure(error)}") from error
    return module
