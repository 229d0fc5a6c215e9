"""Methods by name, and what the rest of the package may know about each: :func:`describe`.

A class is described by attributes that all have defaults, so that a class with nothing but the four calls of the
contract can be registered:

================= ============================== =========================================================
attribute         default                        meaning
================= ============================== =========================================================
``Params``        :class:`~.base.NoParams`       a frozen dataclass; a field is a number, a word, a bool or None
``presets``       none                           names of published or recommended parameters
``title``         its name                       how tables call it
``origin``        none                           :class:`~.base.Origin`: paper, code, how constants were chosen
``colours``       none                           how charts draw it: light page, dark page, dashes
``tuning``        none                           the values that ``latte tune`` tries, by parameter
``tunes_prompt``  False                          the constructor takes a differentiable ``text_encoder``
``uses_views``    False                          the prediction uses more views than the plain one
``sync``          "every"                        when a client syncs, if the schedule leaves it to the method
``alone``         False                          a client without others learns more by a sync with itself
``Upload``        none                           the message that ``summary()`` returns
``Download``      none                           the message that ``receive()`` takes
``messages``      none                           staticmethod ``(params, classes)``: what is sent (``traffic``)
``macs``          none                           staticmethod ``(params, sizes)``: multiplications (``traffic``)
``engine``        none                           "module:Name" of its ``MethodEngine``; a subclass has none
``exchange_for``  none                           classmethod ``(zero_shot, params, clients) -> Exchange``
================= ============================== =========================================================

A class that has ``summary`` and ``receive`` has to have ``Upload``, ``Download`` and ``exchange_for``. A subclass of
:class:`~.base.BaseMethod` names an ``Exchange``, a class that is made from ``(zero_shot, clients)``; the three follow
from it. The global form is a matter of the registration, not of the class: ``shared=True``.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import ArrayLike

from ..core.types import Arrays, CreatedMethod, Exchange, Prediction, State
from ..core.validate import at_least, near
from ..core.zero_shot import ZeroShot
from ..errors import refuse
from .base import NoParams, Origin, ParameterChoice, choose_parameters, predict_many


class Registration(NamedTuple):
    """Where a method is ("module:Class"), and whether the clients of a federation share one memory of it."""

    target: str
    shared: bool = False


METHODS: dict[str, Registration] = {
    "adapt": Registration("latte.methods.adapt:Adapt"),
    "adapt-global": Registration("latte.methods.adapt:Adapt", shared=True),
    "bca": Registration("latte.methods.bca:Bca"),
    "bca-global": Registration("latte.methods.bca:Bca", shared=True),
    "clip": Registration("latte.methods.clip:Clip"),
    "dmn": Registration("latte.methods.dmn:Dmn"),
    "dmn-global": Registration("latte.methods.dmn:Dmn", shared=True),
    "dota": Registration("latte.methods.dota:Dota"),
    "dota-fed": Registration("latte.methods.dota:DotaFed"),
    "dota-global": Registration("latte.methods.dota:Dota", shared=True),
    "ecalp": Registration("latte.methods.ecalp:Ecalp"),
    "ecalp-global": Registration("latte.methods.ecalp:Ecalp", shared=True),
    "latte": Registration("latte.methods.latte.client:Latte"),
    "mta": Registration("latte.methods.mta:Mta"),
    "oga": Registration("latte.methods.oga:Oga"),
    "oga-fed": Registration("latte.methods.oga:OgaFed"),
    "oga-global": Registration("latte.methods.oga:Oga", shared=True),
    "onzeta": Registration("latte.methods.onzeta:OnZeta"),
    "onzeta-global": Registration("latte.methods.onzeta:OnZeta", shared=True),
    "pta": Registration("latte.methods.pta:Pta"),
    "pta-fed": Registration("latte.methods.pta:PtaFed"),
    "pta-global": Registration("latte.methods.pta:Pta", shared=True),
    "ristretto": Registration("latte.methods.ristretto.client:Ristretto"),
    "tda": Registration("latte.methods.tda:Tda"),
    "tda-global": Registration("latte.methods.tda:Tda", shared=True),
    "tpt": Registration("latte.methods.tpt:Tpt"),
    "vte": Registration("latte.methods.views:Vte"),
    "zero": Registration("latte.methods.views:Zero"),
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
    title: str
    origin: Origin | None
    colours: tuple[str, str, str] | None
    tuning: Mapping[str, tuple[Any, ...]]
    tunes_prompt: bool
    uses_views: bool
    collaborative: bool
    sync: str
    alone: bool
    engine: str | None
    target: str
    teachable: bool = False  # it learns from labels: see latte.core.types.Teachable

    @property
    def form(self) -> str:
        """How clients use it: "local", "global" (one memory of all) or "collaborative"."""
        return "collaborative" if self.collaborative else "global" if self.shared else "local"

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
    kind, form = load_target(target), " (global)" if shared else " (local)"
    both, colours = Registration(target, not shared) in METHODS.values(), getattr(kind, "colours", None)
    return MethodInfo(
        name=name,
        family=next((other for other, known in METHODS.items() if known == Registration(target)), name),
        kind=kind,
        shared=shared,
        params=getattr(kind, "Params", NoParams),
        presets=getattr(kind, "presets", {}),
        title=(getattr(kind, "title", "") or name) + (form if both else ""),
        origin=getattr(kind, "origin", None),
        colours=None if colours is None else (*colours[:2], "" if shared else colours[2]),
        tuning=getattr(kind, "tuning", {}),
        tunes_prompt=bool(getattr(kind, "tunes_prompt", False)),
        uses_views=bool(getattr(kind, "uses_views", False)),
        collaborative=hasattr(kind, "summary") and hasattr(kind, "receive"),
        sync=getattr(kind, "sync", "every"),
        alone=bool(getattr(kind, "alone", False)),
        engine=vars(kind).get("engine"),  # its own: that of a base class runs the base class
        target=target,
        teachable=not shared and hasattr(kind, "correct") and hasattr(kind, "withdraw"),
    )


def load_target(target: str) -> Any:
    """Return what ``target``, "module:Name", names."""
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)


# --- the global form of a memory method: one memory that every client writes and reads ------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """One client's handle of the method that all of them share.

    Whatever is done through one handle is done to the memory of everyone: ``state()`` is the shared state,
    and ``reset()`` forgets for all.
    """

    method: CreatedMethod

    @property
    def params(self) -> Any:
        """The parameters of the shared method, if it has any."""
        return getattr(self.method, "params", None)

    def predict(self, views: ArrayLike, *, remember: bool = True) -> Prediction:
        """Write to the shared memory, then predict from it."""
        return self.method.predict(views, remember=remember)

    def predict_many(self, images: ArrayLike) -> list[Prediction]:
        """Write images (N, D) or (N, V, D) to the shared memory one after the other, and predict each from it."""
        return self.method.predict_many(images)

    def reset(self) -> None:
        """Forget everything, for everyone."""
        self.method.reset()

    def state(self) -> State:
        """Return a copy of the shared memory, as plain arrays."""
        return self.method.state()

    def load(self, arrays: Arrays) -> None:
        """Continue, for everyone, from what ``state()`` returned."""
        self.method.load(arrays)


def share(method: CreatedMethod, clients: int) -> list[CreatedMethod]:
    """Return a handle of ``method`` for each of so many ``clients``.

    >>> import numpy as np
    >>> from latte import ZeroShot, create
    >>> ann, bob = share(create("tda", ZeroShot(np.eye(2), ("cat", "dog"))), 2)
    >>> _ = ann.predict([[0.6, 0.8]])
    >>> bob.state()["positive.valid"].any()
    np.True_
    """
    return [Shared(method) for _ in range(at_least("clients", clients, 1))]


# --- make methods and exchanges by name -----------------------------------------------------------------------


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
