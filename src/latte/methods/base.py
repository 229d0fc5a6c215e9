"""Base of the methods: the zero-shot classifier, parameters, the check of the input, a state that may be empty."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields, replace
from inspect import Parameter
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.exchange import WholeCopy
from ..core.types import Arrays, MemoryFill, Method, Prediction, Reals, State, Vectors
from ..core.types import Exchange as AnyExchange
from ..core.validate import exactly, message, near, numbers, require, unit_rows
from ..core.zero_shot import ZeroShot
from ..errors import refuse


class ParameterClass(Protocol):
    """The parameters of a method: any dataclass."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


ParameterChoice: TypeAlias = ParameterClass | Mapping[str, Any] | None  # whole, or the fields to change


P = TypeVar("P", bound=ParameterClass)
Given: TypeAlias = P | Mapping[str, Any] | None  # the same, of one method


@dataclass(frozen=True, slots=True)
class NoParams:
    """The parameters of a method that has nothing to set."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a method comes from, as a table of methods prints it.

    Parameters
    ----------
    paper, venue
        The title of its paper, and where and when it was published.
    code, licence
        Of its authors; "" where no code could be had.
    constants
        Who chose the defaults here, and on what.
    per_dataset
        Whether its authors choose constants per dataset: "yes", "no", or what else is known.
    test_labels
        Whether constants were chosen on labels of sets that it is tested on, here or by its authors.
    """

    paper: str
    venue: str
    code: str = ""
    licence: str = ""
    constants: str = "its authors"
    per_dataset: str = "no"
    test_labels: str = "not known"


def choose_parameters(
    method: str, kind: Any, params: ParameterChoice, preset: str | None, changes: Mapping[str, Any]
) -> Any:
    """Return the parameters of a ``method`` whose class ``kind`` has ``Params`` and ``presets``, or neither.

    ``params`` is its own dataclass, or a mapping of the fields to change; ``changes`` are more of these. Without a
    dataclass they apply to ``preset``, or to the defaults.
    """
    own, presets = getattr(kind, "Params", NoParams), getattr(kind, "presets", {})
    if isinstance(params, Mapping) or params is None:
        if preset is not None and preset not in presets:
            raise refuse("preset", repr(preset), f"one of {', '.join(presets) or 'none: it has no presets'}")
        base, changes = own() if preset is None else presets[preset], {**(params or {}), **changes}
    elif isinstance(params, str) and params in presets:
        raise refuse("params", repr(params), f"a preset by its own argument: preset={params!r}")
    elif not isinstance(params, own):
        raise refuse("params", type(params).__name__, f"{own.__name__}, or a mapping of its fields")
    elif preset is not None:
        raise refuse("preset", repr(preset), "a preset or whole parameters, not both")
    else:
        base = params
    known = [field.name for field in fields(base)]
    for key in changes:
        if key not in known:
            want = "one of " + (", ".join(near(key, known)) or "none: it has none")
            raise refuse(f"{method} parameter", repr(key), want)
    return replace(base, **changes) if changes else base


def needed_views(method: Any, views: NDArray[Any]) -> NDArray[Any]:
    """Return those of the ``views`` (V, D) of an image that a method reads: the plain one, or all of them."""
    return views if getattr(getattr(method, "method", method), "reads_views", True) else views[:1]


def predict_many(self: Method, images: ArrayLike) -> list[Prediction]:
    """Predict images one after the other: (N, D), or (N, V, D) with V views of each.

    If one of them is refused, the method is as it was before the first.
    """
    array, before = stacked_images(images), self.state()
    try:
        return [self.predict(needed_views(self, image) if array.ndim == 3 else image) for image in array]
    except Exception:
        self.load(before)
        raise


def stacked_images(images: ArrayLike) -> NDArray[Any]:
    """Return ``images`` as an array (N, D) or (N, V, D) of numbers, or refuse them."""
    array = numbers("images", images, "(N, D) or (N, V, D) unit rows")
    if array.ndim not in (2, 3):
        raise refuse("images", f"shape {array.shape}", "(N, D), or (N, V, D) with V views of each image")
    return array


class BaseMethod(WholeCopy, Generic[P]):
    """A method without memory. A method that remembers overrides :meth:`reset`, :meth:`state` and :meth:`load`.

    Parameters are a frozen dataclass, ``Params``. They come whole, from a preset, or one by one:

    >>> import numpy as np
    >>> from latte import Latte, ZeroShot
    >>> from latte.methods import LatteParams
    >>> zero_shot = ZeroShot(np.eye(2), ("cat", "dog"))
    >>> Latte(zero_shot, LatteParams(alpha=0.5)).params == Latte(zero_shot, alpha=0.5).params
    True
    >>> Latte(zero_shot, preset="vlcs", alpha=0.5)
    Latte(C=2, D=2, k_l=15, k_e=12, alpha=0.5, beta=6.0, gamma=6.0)
    """

    Params: ClassVar[type] = NoParams
    presets: ClassVar[Mapping[str, Any]] = {}
    title: ClassVar[str] = ""  # in tables; whether it is local or global follows, if there are both forms
    origin: ClassVar[Origin | None] = None  # the paper, its code, and how the constants were chosen
    colours: ClassVar[tuple[str, str, str] | None] = None  # light page, dark page, SVG dashes unless it is global
    tuning: ClassVar[Mapping[str, tuple[Any, ...]]] = {}  # the values that ``latte tune`` tries, by parameter
    tunes_prompt: ClassVar[bool] = False  # True: the constructor takes a ``text_encoder``
    uses_views: ClassVar[bool] = False  # True: more views than the plain one change the prediction
    Exchange: ClassVar[type[Any] | None] = None  # of a method that collaborates: made from (zero_shot, clients)
    Upload: ClassVar[type[Any]]  # what summary() returns, and
    Download: ClassVar[type[Any]]  # what receive() takes: by default, those of the Exchange
    __signature__: ClassVar[inspect.Signature]

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if exchange := vars(cls).get("Exchange"):
            for name in ("Upload", "Download"):
                setattr(cls, name, vars(cls).get(name, getattr(exchange, name, exchange.Upload)))
        _, *given = inspect.signature(cls.__init__).parameters.values()  # self comes first
        if given and given[-1].kind is Parameter.VAR_KEYWORD:  # help() and notebooks show the parameters instead
            given[-1:] = [Parameter(f.name, Parameter.KEYWORD_ONLY, default=f.default) for f in fields(cls.Params)]
            cls.__signature__ = inspect.Signature(given)

    def __init__(
        self,
        zero_shot: ZeroShot,
        params: P | Mapping[str, Any] | None = None,
        *,
        preset: str | None = None,
        normalise: bool = False,
        **changes: Any,
    ) -> None:
        self.zero_shot = zero_shot
        self.params: P = choose_parameters(type(self).__name__, type(self), params, preset, changes)
        self.normalise = normalise
        self.reset()

    def __repr__(self) -> str:
        changed = [f"{f.name}={v!r}" for f in fields(self.params) if (v := getattr(self.params, f.name)) != f.default]
        shape = [f"C={self.zero_shot.classes}", f"D={self.zero_shot.dim}"]
        return f"{type(self).__name__}({', '.join(shape + changed)})"

    # --- predictions --------------------------------------------------------------------------------------

    @property
    def reads_views(self) -> bool:
        """Whether more views than the plain one change the prediction, with these parameters."""
        return self.uses_views or getattr(self.params, "views", "first") != "first"

    def predict(self, views: ArrayLike, *, remember: bool = True) -> Prediction:
        """Predict one image from unit rows: ``views`` (V, D), or (D,) for the plain view alone.

        With ``remember=False`` the answer is the same, and the method stays exactly as it was. Several images are for
        :meth:`predict_many`: a method that reads the plain view only warns of more rows.
        """
        rows = self.check(views)
        if len(rows) > 1 and not self.reads_views:
            reads = f"{type(self).__name__} reads the first of {len(rows)} rows, the plain view of one image"
            warnings.warn(f"{reads}; for {len(rows)} images call predict_many", stacklevel=2)
        return (self if remember else copy.deepcopy(self)).predict_rows(rows)

    def predict_many(self, images: ArrayLike) -> list[Prediction]:
        """Predict images one after the other: (N, D), or (N, V, D) with V views of each.

        >>> import numpy as np
        >>> from latte import Clip, ZeroShot
        >>> clip = Clip(ZeroShot(np.eye(2), ("cat", "dog")))
        >>> [prediction.classname for prediction in clip.predict_many(np.eye(2))]
        ['cat', 'dog']
        """
        checked = [self.check(image) for image in stacked_images(images)]  # before the first is remembered
        return [self.predict_rows(rows) for rows in checked]

    def predict_rows(self, views: Vectors) -> Prediction:
        """Predict from unit rows (V, D) that were checked, and remember. This is what a method implements."""
        raise NotImplementedError(f"{type(self).__name__} has to implement predict_rows(views)")

    def check(self, views: ArrayLike) -> Vectors:
        """Return ``views`` (V, D) or (D,) as unit rows (V, D), or refuse them with an InputError."""
        dim, rows = self.zero_shot.dim, views
        if not isinstance(rows, np.ndarray) or rows.dtype.kind != "f":
            rows = numbers("views", views, f"(V, {dim}) unit rows")
        return unit_rows("views", rows[None] if rows.ndim == 1 else rows, dim, self.normalise)

    def prediction(
        self,
        scores: Reals,
        entropy: float | Callable[[], float],
        normalised_by_sum: bool = False,
        temperature: float | Callable[[], float] = 1.0,
        near_copy: bool = False,
        learnt: Callable[[], Reals] | None = None,
    ) -> Prediction:
        """Return the prediction with these ``scores`` (C,), of an image with this zero-shot ``entropy``.

        Entropy, ``temperature`` and what was ``learnt`` may be functions, which are called when somebody reads them.
        """
        names = self.zero_shot.classnames
        label = int(scores.argmax())
        return Prediction(label, scores, entropy, names, normalised_by_sum, temperature, near_copy, learnt)

    # --- collaboration ------------------------------------------------------------------------------------

    @classmethod
    def exchange_for(
        cls, zero_shot: ZeroShot, params: Any = None, clients: Iterable[str] = ()
    ) -> AnyExchange[Any, Any]:
        """Return the exchange that serves clients with these parameters: an ``Exchange`` of the class."""
        if cls.Exchange is None:
            raise refuse("method", cls.__name__, "a class that names an Exchange, such as Exchange = MyExchange")
        exchange: AnyExchange[Any, Any] = cls.Exchange(zero_shot, clients)
        return exchange

    def check_download(self, download: object) -> None:
        """Refuse what is not a ``Download`` of this class, or was made for another task."""
        message("download", download, self.Download, self.zero_shot.fingerprint)

    # --- memory -------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """Forget everything: here, nothing. It is also called once by the constructor, to make the memory."""

    def memory_fill(self) -> MemoryFill | None:
        """Return how much the method remembers; None if it remembers nothing, or does not say."""
        return None

    def state(self) -> State:
        """Return what the method remembers: here, nothing."""
        return {}

    def load(self, arrays: Arrays) -> None:
        """Continue from what ``state()`` returned: here, nothing, and nothing else is accepted."""
        require(arrays, ())

    def take_over(self, earlier: Any) -> None:
        """Go on with what a client of an earlier version of the task, with other classes, has learnt.

        A method whose memory has classes implements it, so that classes can join and leave its tasks.
        """
        if earlier.state():
            raise refuse("classes", "others than before", "a method that goes on with them, as Latte and Ristretto do")


class ArrayMethod(BaseMethod[P]):
    """A method whose memory is arrays of fixed shapes: ``fresh`` makes them, ``rebuild`` what follows from them.

    Where an array ``valid`` (C, S) is among them, what other arrays of that shape hold outside of it means nothing.
    """

    memory: State

    def fresh(self) -> State:
        """Return the memory before the first image. This is what a method implements."""
        raise NotImplementedError(f"{type(self).__name__} has to implement fresh()")

    def rebuild(self) -> None:
        """Calculate what follows from the memory; called after every reset and load."""

    def reset(self) -> None:
        """Forget everything."""
        self.memory = self.fresh()
        self.rebuild()

    def state(self) -> State:
        """Return a copy of the memory."""
        return {name: array.copy() for name, array in self.memory.items()}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        fresh = self.fresh()
        require(arrays, fresh)
        loaded = {name: exactly(name, arrays[name], start.dtype, start.shape).copy() for name, start in fresh.items()}
        valid = loaded.get("valid", np.zeros(0, np.bool_))
        for name, array in loaded.items():
            if array.shape[: valid.ndim] == valid.shape:
                array[~valid] = fresh[name][~valid]
            if not np.isfinite(array).all():
                raise refuse(name, "NaN or infinite values", "finite values")
        self.memory = loaded
        self.rebuild()
