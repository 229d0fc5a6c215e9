"""Make methods and exchanges by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ..core.contracts import CreatedMethod, Exchange
from ..core.predict_many import predict_many
from ..core.validate import at_least
from ..core.zero_shot import ZeroShot
from ..errors import refuse
from .base import NoParams
from .parameters import Choices, ParameterChoice, choose_parameters
from .registry import MethodInfo, describe
from .shared import share


def create(
    name: str,
    zero_shot: ZeroShot,
    params: ParameterChoice = None,
    *,
    preset: str | None = None,
    normalise: bool = False,
    text_encoder: Any = None,
    **changes: Any,
) -> CreatedMethod:
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
    chosen = _parameters(info, params, preset, changes)
    positional = (zero_shot,) if info.params is NoParams else (zero_shot, chosen)
    return _completed(info.kind(*positional, **_constructor_options(info, normalise, text_encoder)))


def _constructor_options(info: MethodInfo, normalise: bool, text_encoder: Any) -> dict[str, Any]:
    """Return what the constructor gets by name; a class need not know an option that is not used."""
    options: dict[str, Any] = {"normalise": True} if normalise else {}
    if info.tunes_prompt and text_encoder is None:
        want = f"one, because {info.name!r} tunes a prompt: create({info.name!r}, ..., text_encoder=...)"
        raise refuse("text_encoder", "none", want)
    return {**options, "text_encoder": text_encoder} if info.tunes_prompt else options


def _completed(method: Any) -> CreatedMethod:
    """Return a method whose class has ``predict_many``: one without it gets that which works for any method."""
    if not hasattr(method, "predict_many"):
        type(method).predict_many = predict_many
    completed: CreatedMethod = method
    return completed


def create_federation(
    name: str,
    zero_shot: ZeroShot,
    params: ParameterChoice = None,
    *,
    clients: int,
    preset: str | None = None,
    normalise: bool = False,
    text_encoder: Any = None,
    **changes: Any,
) -> list[CreatedMethod]:
    """Return the methods of so many ``clients``: independent, or for a global form handles of a single one.

    >>> import numpy as np
    >>> zero_shot = ZeroShot(np.eye(2), ("cat", "dog"))
    >>> ann, bob = create_federation("tda-global", zero_shot, clients=2)
    >>> ann.method is bob.method
    True
    """
    count = at_least("clients", clients, 1)
    options: dict[str, Any] = {"preset": preset, "normalise": normalise, "text_encoder": text_encoder, **changes}
    if describe(name).shared:
        return share(create(name, zero_shot, params, **options), count)
    return [create(name, zero_shot, params, **options) for _ in range(count)]


def create_exchange(
    name: str,
    zero_shot: ZeroShot,
    params: ParameterChoice = None,
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


def resolve(name: str, params: ParameterChoice = None, preset: str | None = None) -> Any:
    """Return the full parameters of a method: its preset or defaults, with the changes of ``params``."""
    return _parameters(describe(name), params, preset, {})


def _parameters(info: MethodInfo, params: ParameterChoice, preset: str | None, changes: Mapping[str, Any]) -> Any:
    return choose_parameters(Choices(info.name, info.params, info.presets), params, preset, changes)
