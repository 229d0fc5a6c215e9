"""Class names, one per line and in label order, as a prompt wants them (spaces, no underscores)."""

from __future__ import annotations

from importlib.resources import files


def class_names(name: str) -> tuple[str, ...]:
    """Return the class names in the data file ``name``.txt.

    >>> class_names("cifar10")[:3]
    ('airplane', 'automobile', 'bird')
    """
    return tuple((files(__name__) / f"{name}.txt").read_text("utf-8").split("\n")[:-1])
