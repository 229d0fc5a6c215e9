"""Errors that are a user's to mend. Everything else that is raised is a bug of ours, and looks like one."""

from __future__ import annotations

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
