"""One file per method, found by name: ``create("latte", zero_shot, preset="cifar10c")``.

A name that ends in ``-global`` is a memory method in its global form: the class is the same, but the clients
of a federation share one memory (:func:`create_federation`).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from ..core.types import Method
from ..core.validate import at_least, near, refuse
from ..core.zero_shot import ZeroShot
from .shared import share

METHODS: dict[str, str] = {
    "clip": "latte.methods.clip:Clip",
    "dmn": "latte.methods.dmn:Dmn",
    "dmn-global": "latte.methods.dmn:Dmn",
    "latte": "latte.methods.latte:Latte",
    "tda": "latte.methods.tda:Tda",
    "tda-global": "latte.methods.tda:Tda",
    "tpt": "latte.methods.tpt:Tpt",
    "vte": "latte.methods.vte:Vte",
    "zero": "latte.methods.zero:Zero",
}
GLOBAL = "-global"


def register(name: str, target: str) -> None:
    """Make a method of your own known by ``name``; ``target`` is "module:Class"."""
    if name in METHODS and METHODS[name] != target:
        raise refuse("name", f"{name!r}, which is {METHODS[name]}", "a name that is still free")
    METHODS[name] = target


def find(name: str) -> Any:
    """Return the class of a method; an unknown name is refused with the near ones."""
    if name not in METHODS:
        raise refuse("method", repr(name), "a known one, such as " + ", ".join(near(name, sorted(METHODS))))
    module, _, attribute = METHODS[name].partition(":")
    return getattr(importlib.import_module(module), attribute)


def create(
    name: str,
    zero_shot: ZeroShot,
    params: Any = None,
    preset: str | None = None,
    normalise: bool = False,
    text_encoder: Any = None,
) -> Method:
    """Return a new method.

    ``params`` is the method's own frozen dataclass, or a mapping of the fields to change in ``preset`` (or in
    the defaults). ``text_encoder`` goes to the methods that tune a prompt; the others have no use for it.

    >>> import numpy as np
    >>> zero_shot = ZeroShot(np.eye(2), ("cat", "dog"))
    >>> create("latte", zero_shot, {"alpha": 0.5}, preset="vlcs").params.k_l
    15
    """
    kind, resolved = find(name), resolve(name, params, preset)
    method: Method
    if not needs_text_encoder(name):
        method = kind(zero_shot, resolved, normalise=normalise)
    elif text_encoder is None:
        want = f"one, because {name!r} tunes a prompt: create({name!r}, ..., text_encoder=...)"
        raise refuse("text_encoder", "none", want)
    else:
        method = kind(zero_shot, resolved, normalise=normalise, text_encoder=text_encoder)
    return method


def create_federation(
    name: str,
    zero_shot: ZeroShot,
    n: int,
    params: Any = None,
    preset: str | None = None,
    normalise: bool = False,
    text_encoder: Any = None,
) -> list[Method]:
    """Return the methods of ``n`` clients: independent, or for a ``-global`` name handles of a single one.

    >>> import numpy as np
    >>> zero_shot = ZeroShot(np.eye(2), ("cat", "dog"))
    >>> ann, bob = create_federation("tda-global", zero_shot, 2)
    >>> ann.method is bob.method
    True
    """
    count = at_least("n", n, 1)
    given = (name, zero_shot, params, preset, normalise, text_encoder)
    if is_global(name):
        return share(create(*given), count)
    return [create(*given) for _ in range(count)]


def needs_text_encoder(name: str) -> bool:
    """Whether a method tunes the prompt of a text encoder, so that embeddings alone are not enough."""
    return bool(getattr(find(name), "needs_text_encoder", False))


def is_global(name: str) -> bool:
    """Whether the clients of a federation share one memory of this method."""
    return name.endswith(GLOBAL)


def resolve(name: str, params: Any = None, preset: str | None = None) -> Any:
    """Return the full parameters of a method: its preset or defaults, with the changes of ``params``."""
    kind = find(name)
    if params is not None and not isinstance(params, Mapping):
        return params
    if preset is not None and preset not in kind.presets:
        raise refuse("preset", repr(preset), f"one of {', '.join(kind.presets) or 'none: it has no presets'}")
    base = kind.presets[preset] if preset is not None else kind.Params()
    changes = dict(params or {})
    known = [field.name for field in fields(base)]
    for key in changes:
        if key not in known:
            raise refuse(
                f"{name} parameter", repr(key), "one of " + (", ".join(near(key, known)) or "none: it has none")
            )
    return replace(base, **changes)
