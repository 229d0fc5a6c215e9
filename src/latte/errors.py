"""Errors that are a user's to mend. Everything else that is raised is a bug of ours, and looks like one."""

from __future__ import annotations

import importlib
import re
from typing import Any

# --- errors that are a user's to mend. Everything else that is raised is a bug of ours, and looks like one ----


_SHOWN = 400  # characters of a bad value that a refusal shows


class InputError(ValueError):
    """Input that cannot be used. Its text says which argument, what it got, what it wants."""


class MissingExtra(ModuleNotFoundError):  # noqa: N818  the name says what is missing
    """A package that is not installed. Its text is the pip line that brings it."""


def refuse(name: str, got: object, want: str) -> InputError:
    """Return the error that refuses bad input."""
    text = str(got)
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}... ({len(text)} characters)"
    return InputError(f"{name}: got {shown}, want {want}")


# --- third-party packages that only some parts need, imported when they are first used ------------------------


DISTRIBUTION = "latte-tta"
# pip's own choice on Linux brings gigabytes of GPU libraries
_TORCH_NOTE = "; without a GPU, first a CPU build of torch: docs/installing.md"
_REQUIREMENT = re.compile(r"""(?P<name>[\w.-]+)(?P<rest>[^;]*);\s*extra\s*==\s*['"](?P<extra>[^'"]+)['"]""")


def need(module: str, extra: str) -> Any:
    """Return the imported ``module``; if it is missing, the error gives the pip line that brings it.

    >>> need("json", "onnx").dumps([1])
    '[1]'
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        message = f"{package} is not installed (missing: {error.name}); {install_advice(extra)}"
        raise MissingExtra(message, name=error.name) from None


def install_advice(extra: str) -> str:
    """Return what to do about a missing extra, for the end of an error message.

    >>> install_advice("fast")
    'run: pip install "numba>=0.60" (the extra fast)'
    """
    brings_torch = any(requirement.startswith("torch>") for requirement in requirements_of(extra))
    return f"run: {pip_line(extra)} (the extra {extra}{_TORCH_NOTE if brings_torch else ''})"


def pip_line(extra: str) -> str:
    """Return the command that brings an extra.

    It names the packages themselves, as the installed metadata list them. That works for an installation from an index,
    from a file and from a checkout alike; the name of this package would work only after a release.
    """
    requirements = requirements_of(extra)
    if not requirements:  # run from a checkout that was never installed
        return f'pip install -e ".[{extra}]"'
    return "pip install " + " ".join(f'"{requirement}"' for requirement in requirements)


def requirements_of(extra: str) -> list[str]:
    """Return the requirements of an extra, each package once; none if this package is not installed.

    >>> requirements_of("report")
    ['matplotlib>=3.9', 'scikit-learn>=1.5']
    """
    from importlib.metadata import PackageNotFoundError, requires

    try:
        lines = requires(DISTRIBUTION) or []
    except PackageNotFoundError:
        return []
    constraints: dict[str, list[str]] = {}
    for match in filter(None, map(_REQUIREMENT.match, lines)):
        if match["extra"] == extra:
            constraints.setdefault(match["name"], []).append(match["rest"].strip())
    return [name + _join_versions(versions) for name, versions in constraints.items()]


def _join_versions(versions: list[str]) -> str:
    """Return one constraint for several of a package: the highest of floors; of other constraints, all of them.

    >>> _join_versions([">=2.4", ">=2.10"]), _join_versions([">=2", "<3"]), _join_versions([""])
    ('>=2.10', '>=2,<3', '')
    """
    floors = [re.fullmatch(r">=(\d+(?:\.\d+)*)", version) for version in versions]
    if len(versions) > 1 and all(floors):
        return max(versions, key=lambda version: [int(part) for part in version[2:].split(".")])
    return ",".join(versions)
