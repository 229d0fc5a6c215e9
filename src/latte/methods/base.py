"""What the methods share: the zero-shot classifier, parameters, the check of the input, a state that may be empty."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from ..core.contracts import Exchange as AnyExchange
from ..core.copying import WholeCopy
from ..core.predict_many import stacked_images
from ..core.stored import require
from ..core.types import Arrays, MemoryFill, Prediction, Reals, State, Vectors
from ..core.validate import message, numbers, unit_rows
from ..core.zero_shot import ZeroShot
from ..errors import refuse
from .parameters import Choices, ParameterClass, choose_parameters

P = TypeVar("P", bound=ParameterClass)


@dataclass(frozen=True, slots=True)
class NoParams:
    """The parameters of a method that has nothing to set."""


class BaseMethod(WholeCopy, Generic[P]):
    """A method without memory. A method that remembers overrides :meth:`reset`, :meth:`state` and :meth:`load`.

    Parameters are a frozen dataclass, ``Params``. They come whole, from a preset, or one by one:

    >>> import numpy as np
    >>> from latte import Latte, LatteParams, ZeroShot
    >>> zero_shot = ZeroShot(np.eye(2), ("cat", "dog"))
    >>> Latte(zero_shot, LatteParams(alpha=0.5)).params == Latte(zero_shot, alpha=0.5).params
    True
    >>> Latte(zero_shot, preset="vlcs", alpha=0.5)
    Latte(C=2, D=2, k_l=15, k_e=12, alpha=0.5, beta=6.0, gamma=6.0)
    """

    Params: ClassVar[type] = NoParams
    presets: ClassVar[Mapping[str, Any]] = {}
    tunes_prompt: ClassVar[bool] = False  # True: the constructor takes a ``text_encoder``
    uses_views: ClassVar[bool] = False  # True: more views than the plain one change the prediction
    Exchange: ClassVar[type[Any] | None] = None  # of a method that collaborates: made from (zero_shot, clients)
    Upload: ClassVar[type[Any]]  # what summary() returns, and
    Download: ClassVar[type[Any]]  # what receive() takes: by default, those of the Exchange

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if exchange := vars(cls).get("Exchange"):
            for name in ("Upload", "Download"):
                setattr(cls, name, vars(cls).get(name, getattr(exchange, name, exchange.Upload)))

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
        self.params: P = choose_parameters(
            Choices(type(self).__name__, self.Params, self.presets), params, preset, changes
        )
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
    ) -> Prediction:
        """Return the prediction with these ``scores`` (C,), of an image with this zero-shot ``entropy``.

        Entropy and ``temperature`` may be functions, which are called when somebody reads them.
        """
        names = self.zero_shot.classnames
        return Prediction(int(scores.argmax()), scores, entropy, names, normalised_by_sum, temperature, near_copy)

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
