"""Class names of datasets: a text file each, one name per line in label order, with spaces instead of underscores."""

from __future__ import annotations

from importlib.resources import files

__all__ = ["load_classnames"]


def load_classnames(name: str) -> tuple[str, ...]:
    """Return the class names in the data file ``name``.txt.

    >>> load_classnames("cifar10")[:3]
    ('airplane', 'automobile', 'bird')
    """
    return tuple((files(__name__) / f"{name}.txt").read_text("utf-8").split("\n")[:-1])
