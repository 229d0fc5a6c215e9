"""Methods and exchanges, made by name: ``create("latte", zero_shot, preset="cifar10c")``.

A type checker knows what a built-in name stands for, and its parameters. Of any other name it knows the contract, and
the parameters are a mapping: ``create(name, zero_shot, {"k": 3})``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Literal, Unpack, overload

from ..core.types import CreatedMethod, Exchange
from ..core.validate import at_least
from ..core.zero_shot import ZeroShot
from ..errors import refuse
from .base import Given, NoParams, ParameterChoice, choose_parameters, predict_many
from .registry import describe, share

if TYPE_CHECKING:
    from .adapt import Adapt, AdaptParams
    from .bca import Bca, BcaParams
    from .clip import Clip, ClipParams
    from .dmn import Dmn, DmnParams
    from .dota import Dota, DotaFed, DotaParams
    from .ecalp import Ecalp, EcalpParams
    from .latte.client import Latte, LatteParams
    from .mta import Mta, MtaParams
    from .oga import Oga, OgaFed, OgaParams
    from .onzeta import OnZeta, OnZetaParams
    from .options import (
        AdaptOptions,
        BcaOptions,
        DmnOptions,
        DotaOptions,
        EcalpOptions,
        LatteOptions,
        MtaOptions,
        OgaOptions,
        OnZetaOptions,
        Options,
        PtaFedOptions,
        PtaOptions,
        RistrettoOptions,
        TdaOptions,
        TptOptions,
        VteOptions,
        ZeroOptions,
    )
    from .pta import Pta, PtaFed, PtaFedParams, PtaParams
    from .ristretto.client import Ristretto
    from .ristretto.heads import RistrettoParams
    from .tda import Tda, TdaParams
    from .tpt import TextEncoder, Tpt, TptParams
    from .views import Vte, VteParams, Zero, ZeroParams


@overload
def create(
    name: Literal["adapt", "adapt-global"],
    zero_shot: ZeroShot,
    params: Given[AdaptParams] = None,
    **options: Unpack[AdaptOptions],
) -> Adapt: ...
@overload
def create(
    name: Literal["bca", "bca-global"],
    zero_shot: ZeroShot,
    params: Given[BcaParams] = None,
    **options: Unpack[BcaOptions],
) -> Bca: ...
@overload
def create(
    name: Literal["clip"], zero_shot: ZeroShot, params: Given[ClipParams] = None, **options: Unpack[Options]
) -> Clip: ...
@overload
def create(
    name: Literal["dmn", "dmn-global"],
    zero_shot: ZeroShot,
    params: Given[DmnParams] = None,
    **options: Unpack[DmnOptions],
) -> Dmn: ...
@overload
def create(
    name: Literal["dota", "dota-global"],
    zero_shot: ZeroShot,
    params: Given[DotaParams] = None,
    **options: Unpack[DotaOptions],
) -> Dota: ...
@overload
def create(
    name: Literal["dota-fed"], zero_shot: ZeroShot, params: Given[DotaParams] = None, **options: Unpack[DotaOptions]
) -> DotaFed: ...
@overload
def create(
    name: Literal["ecalp", "ecalp-global"],
    zero_shot: ZeroShot,
    params: Given[EcalpParams] = None,
    **options: Unpack[EcalpOptions],
) -> Ecalp: ...
@overload
def create(
    name: Literal["latte"], zero_shot: ZeroShot, params: Given[LatteParams] = None, **options: Unpack[LatteOptions]
) -> Latte: ...
@overload
def create(
    name: Literal["mta"], zero_shot: ZeroShot, params: Given[MtaParams] = None, **options: Unpack[MtaOptions]
) -> Mta: ...
@overload
def create(
    name: Literal["oga", "oga-global"],
    zero_shot: ZeroShot,
    params: Given[OgaParams] = None,
    **options: Unpack[OgaOptions],
) -> Oga: ...
@overload
def create(
    name: Literal["oga-fed"], zero_shot: ZeroShot, params: Given[OgaParams] = None, **options: Unpack[OgaOptions]
) -> OgaFed: ...
@overload
def create(
    name: Literal["onzeta", "onzeta-global"],
    zero_shot: ZeroShot,
    params: Given[OnZetaParams] = None,
    **options: Unpack[OnZetaOptions],
) -> OnZeta: ...
@overload
def create(
    name: Literal["pta", "pta-global"],
    zero_shot: ZeroShot,
    params: Given[PtaParams] = None,
    **options: Unpack[PtaOptions],
) -> Pta: ...
@overload
def create(
    name: Literal["pta-fed"], zero_shot: ZeroShot, params: Given[PtaFedParams] = None, **options: Unpack[PtaFedOptions]
) -> PtaFed: ...
@overload
def create(
    name: Literal["ristretto"],
    zero_shot: ZeroShot,
    params: Given[RistrettoParams] = None,
    **options: Unpack[RistrettoOptions],
) -> Ristretto: ...
@overload
def create(
    name: Literal["tda", "tda-global"],
    zero_shot: ZeroShot,
    params: Given[TdaParams] = None,
    **options: Unpack[TdaOptions],
) -> Tda: ...
@overload
def create(
    name: Literal["tpt"],
    zero_shot: ZeroShot,
    params: Given[TptParams] = None,
    *,
    text_encoder: TextEncoder,
    **options: Unpack[TptOptions],
) -> Tpt: ...
@overload
def create(
    name: Literal["vte"], zero_shot: ZeroShot, params: Given[VteParams] = None, **options: Unpack[VteOptions]
) -> Vte: ...
@overload
def create(
    name: Literal["zero"], zero_shot: ZeroShot, params: Given[ZeroParams] = None, **options: Unpack[ZeroOptions]
) -> Zero: ...
@overload
def create(
    name: str,
    zero_shot: ZeroShot,
    params: ParameterChoice = None,
    *,
    preset: str | None = None,
    normalise: bool = False,
    text_encoder: Any = None,
) -> CreatedMethod: ...
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
    chosen = choose_parameters(name, info.kind, params, preset, changes)
    options: dict[str, Any] = {"normalise": True} if normalise else {}  # a class need not know what is not used
    if info.tunes_prompt:
        if text_encoder is None:
            want = f"one, because {info.name!r} tunes a prompt: create({info.name!r}, ..., text_encoder=...)"
            raise refuse("text_encoder", "none", want)
        options["text_encoder"] = text_encoder
    method: Any = info.kind(*((zero_shot,) if info.params is NoParams else (zero_shot, chosen)), **options)
    if not hasattr(method, "predict_many"):
        type(method).predict_many = predict_many  # works for any method
    created: CreatedMethod = method
    return created


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
    chosen = choose_parameters(name, info.kind, params, preset, changes)
    exchange: Exchange[Any, Any] = info.kind.exchange_for(zero_shot, chosen, clients)
    return exchange


def resolve(name: str, params: ParameterChoice = None, preset: str | None = None) -> Any:
    """Return the full parameters of a method: its preset or defaults, with the changes of ``params``."""
    return choose_parameters(name, describe(name).kind, params, preset, {})
