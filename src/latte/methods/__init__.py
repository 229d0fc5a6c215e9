"""One file or room per method, known by name: ``create("latte", zero_shot, preset="cifar10c")``.

``registry`` says which methods there are, what each is (:func:`describe`), and makes methods and exchanges; ``base`` is
what a method of your own derives from.
"""

from .registry import METHODS, MethodInfo, create, create_exchange, create_federation, describe, register, resolve

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
