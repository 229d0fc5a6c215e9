"""One file per method, known by name: ``create("latte", zero_shot, preset="cifar10c")``.

``registry`` says which methods there are and what each is (:func:`describe`), ``factory`` makes methods and exchanges,
``base`` is what a method of your own derives from, ``shared`` is the global form of a memory method, in which the
clients of a federation share one memory.
"""

from .factory import create, create_exchange, create_federation, resolve
from .registry import METHODS, MethodInfo, describe, register

__all__ = [
    "METHODS",
    "MethodInfo",
    "create",
    "create_exchange",
    "create_federation",
    "describe",
    "register",
    "resolve",
]
