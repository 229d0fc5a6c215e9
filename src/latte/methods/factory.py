"""Make methods and exchanges by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.contracts import Exchange, Method
from ..core.validate import at_least, refuse
from ..core.zero_shot import ZeroShot
from .base import NoParams
from .parameters import Choices, choose_parameters
from .registry import MethodInfo, describe
from .shared import share


def create(
    name: str,
    zero_shot: ZeroShot,
    params: Any = None,
    *,
    preset: str | None = None,
    normalise: bool = False,
    text_encoder: Any = None,
    **changes: Any,
) -> Method:
    """Return a new method.

    ``params`` is the method's own frozen dataclass, or a mapping of the fields to change in ``preset`` (or in
    the defaults); ``changes`` are more of these. ``text_encoder`` goes to the methods that tune a prompt; the others
    have no use for it.

    >>> import numpy as np
    >>> zero_shot = ZeroShot(np.eye(2), ("cat", "dog"))
    >>> create("latte", zero_shot, preset="vlcs", alpha=0.5)
    Latte(C=2, D=2, k_l=15, k_e=12, alpha=0.5, beta=6.0, gamma=6.0)
    """
    info = describe(name)
    options: dict[str, Any] = {"normalise": True} if normalise else {}
    if info.tunes_prompt and text_encoder is None:
        want = f"one, because {name!r} tunes a prompt: create({name!r}, ..., text_encoder=...)"
        raise refuse("text_encoder", "none", want)
    if info.tunes_prompt:
        options["text_encoder"] = text_encoder
    chosen = _parameters(info, params, preset, changes)
    method: Method = info.kind(zero_shot, *(() if info.params is NoParams else (chosen,)), **options)
    return method


def create_federation(
    name: str,
    zero_shot: ZeroShot,
    n: int,
    params: Any = None,
    *,
    preset: str | None = None,
    normalise: bool = False,
    text_encoder: Any = None,
    **changes: Any,
) -> list[Method]:
    """Return the methods of ``n`` clients: independent, or for a global form handles of a single one.

    >>> import numpy as np
    >>> zero_shot = ZeroShot(np.eye(2), ("cat", "dog"))
    >>> ann, bob = create_federation("tda-global", zero_shot, 2)
    >>> ann.method is bob.method
    True
    """
    count = at_least("n", n, 1)
    options: dict[str, Any] = {"preset": preset, "normalise": normalise, "text_encoder": text_encoder, **changes}
    if describe(name).shared:
        return share(create(name, zero_shot, params, **options), count)
    return [create(name, zero_shot, params, **options) for _ in range(count)]


def create_exchange(
    name: str,
    zero_shot: ZeroShot,
    params: Any = None,
    *,
    preset: str | None = None,
    clients: Iterable[str] = (),
    **changes: Any,
) -> Exchange[Any, Any]:
    """Return the exchange that serves the clients of a collaborative method.

    >>> import numpy as np
    >>> create_exchange("latte", ZeroShot(np.eye(2), ("cat", "dog")), k_e=3).routing.external_slots
    3
    """
    info = describe(name)
    if not info.collaborative:
        raise refuse("method", repr(name), "one that collaborates, with summary() and receive()")
    exchange: Exchange[Any, Any] = info.kind.exchange_for(
        zero_shot, _parameters(info, params, preset, changes), clients
    )
    return exchange


def resolve(name: str, params: Any = None, preset: str | None = None) -> Any:
    """Return the full parameters of a method: its preset or defaults, with the changes of ``params``."""
    return _parameters(describe(name), params, preset, {})


def _parameters(info: MethodInfo, params: Any, preset: str | None, changes: Mapping[str, Any]) -> Any:
    return choose_parameters(Choices(info.name, info.params, info.presets), params, preset, changes)
