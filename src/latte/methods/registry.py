"""Methods by name, and what the rest of the package may know about each: :func:`describe`.

A class is described by attributes that all have defaults, so that a class with nothing but the four calls of the
contract can be registered:

================= ============================== =========================================================
attribute         default                        meaning
================= ============================== =========================================================
``Params``        :class:`~.base.NoParams`       a frozen dataclass; a field is a number, a word, a bool or None
``presets``       none                           names of published or recommended parameters
``tunes_prompt``  False                          the constructor takes a differentiable ``text_encoder``
``uses_views``    False                          the prediction uses more views than the plain one
``sync``          "every"                        when a client syncs, if the schedule leaves it to the method
``alone``         False                          a client without others learns more by a sync with itself
``Upload``        none                           the message that ``summary()`` returns
``Download``      none                           the message that ``receive()`` takes
``messages``      none                           staticmethod ``(params, classes)``: what is sent (``traffic``)
``engine``        none                           "module:Name" of its ``MethodEngine``; a subclass has none
``exchange_for``  none                           classmethod ``(zero_shot, params, clients) -> Exchange``
================= ============================== =========================================================

A class that has ``summary`` and ``receive`` has to have ``Upload``, ``Download`` and ``exchange_for``. A subclass of
:class:`~.base.BaseMethod` names an ``Exchange``, a class that is made from ``(zero_shot, clients)``; the three follow
from it. The global form is a matter of the registration, not of the class: ``shared=True``.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..core.validate import near
from ..errors import refuse
from .base import NoParams


class Registration(NamedTuple):
    """Where a method is ("module:Class"), and whether the clients of a federation share one memory of it."""

    target: str
    shared: bool = False


METHODS: dict[str, Registration] = {
    "clip": Registration("latte.methods.clip:Clip"),
    "dmn": Registration("latte.methods.dmn:Dmn"),
    "dmn-global": Registration("latte.methods.dmn:Dmn", shared=True),
    "latte": Registration("latte.methods.latte:Latte"),
    "ristretto": Registration("latte.methods.ristretto:Ristretto"),
    "tda": Registration("latte.methods.tda:Tda"),
    "tda-global": Registration("latte.methods.tda:Tda", shared=True),
    "tpt": Registration("latte.methods.tpt:Tpt"),
    "vte": Registration("latte.methods.vte:Vte"),
    "zero": Registration("latte.methods.zero:Zero"),
}


@dataclass(frozen=True, slots=True)
class MethodInfo:
    """A registered method: its class ``kind`` and what the class says of itself.

    ``family`` is the name of the form in which each client has a memory of its own; ``shared`` is the global form.
    """

    name: str
    family: str
    kind: Any  # the class; Any because a registered class need not derive from ours
    shared: bool
    params: type
    presets: Mapping[str, Any]
    tunes_prompt: bool
    uses_views: bool
    collaborative: bool
    sync: str
    alone: bool
    engine: str | None
    target: str

    @property
    def built_in(self) -> bool:
        """Whether the class is part of this package."""
        return self.target.startswith("latte.")


def register(name: str, target: str, shared: bool = False) -> None:
    """Make a method of your own known by ``name``; ``target`` is "module:Class".

    With ``shared``, the clients of a federation write and read one memory: the global form.
    """
    new = Registration(target, shared)
    if METHODS.get(name, new) != new:
        raise refuse("name", f"{name!r}, which is {METHODS[name].target}", "a name that is still free")
    METHODS[name] = new


def describe(name: str) -> MethodInfo:
    """Return what is known about a method; an unknown name is refused with the near ones.

    >>> describe("tda-global").family, describe("tda-global").shared
    ('tda', True)
    """
    if name not in METHODS:
        raise refuse("method", repr(name), "a known one, such as " + ", ".join(near(str(name), sorted(METHODS))))
    target, shared = METHODS[name]
    kind = load_target(target)
    return MethodInfo(
        name=name,
        family=next((other for other, known in METHODS.items() if known == Registration(target)), name),
        kind=kind,
        shared=shared,
        params=getattr(kind, "Params", NoParams),
        presets=getattr(kind, "presets", {}),
        tunes_prompt=bool(getattr(kind, "tunes_prompt", False)),
        uses_views=bool(getattr(kind, "uses_views", False)),
        collaborative=hasattr(kind, "summary") and hasattr(kind, "receive"),
        sync=getattr(kind, "sync", "every"),
        alone=bool(getattr(kind, "alone", False)),
        engine=vars(kind).get("engine"),  # its own: that of a base class runs the base class
        target=target,
    )


def load_target(target: str) -> Any:
    """Return what ``target``, "module:Name", names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
