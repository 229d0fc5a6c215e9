"""What a client does to an upload before it is sent: leave out classes with few images, add Gaussian noise.

The guarantee is that of the Gaussian mechanism, for one image of a client replaced by any other, and for the numbers of
the classes that are shared. Which classes are shared, and when they change, is not covered: it depends on how many
images they have. A class that did not change is sent with the noise that it was sent with before: fresh noise at every
upload could be averaged away. docs/security.md says what that means in practice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..errors import refuse
from .types import Arrays, Collaborative, Integers, Mask, MemoryFill, Prediction, Reals, State, can_be_taught
from .validate import at_least, exactly, factor, real, require
from .zero_shot import places_of

DELTA = 1e-5  # the probability with which the guarantee may fail
PRIVATE = "private."  # how the names of arrays in the state of a client begin that are about noise
UPLOADS = 100  # for the second number of :meth:`PrivateClient.guarantee`: a device syncs many times
_MOST_EPSILON = 1e9


@dataclass(frozen=True, slots=True)
class Privacy:
    """What a client leaves out of its uploads and adds to them.

    Parameters
    ----------
    least_images
        A class with fewer images is not shared.
    noise
        The length of the noise added to a class. A class mean of a Latte client has a length of at most 1, and a class
        sum of a Ristretto client a length of at most the number of its images: 0.5 adds to each a random vector that is
        about 0.5 long.
    labels
        Whether sums of labels are sent although noise is added: they get none, and no epsilon covers them. Without
        noise they are sent from ``least_images`` labels on.

    >>> Privacy(least_images=4, noise=0.5).hides
    True
    """

    least_images: int = 1
    noise: float = 0.0
    labels: bool = False

    def __post_init__(self) -> None:
        at_least("least_images", self.least_images, 1)
        factor("noise", self.noise)

    @property
    def hides(self) -> bool:
        """Whether an upload is changed at all."""
        return self.least_images > 1 or self.noise > 0

    def deviation(self, dim: int) -> float:
        """Return the standard deviation of the noise of one number of a vector of ``dim`` numbers."""
        return self.noise / math.sqrt(dim)

    def shares(self, counts: Reals) -> Mask:
        """Return which classes (C,) have enough images."""
        mask: Mask = counts >= self.least_images
        return mask


class NoisyRows:
    """Rows of numbers with noise, one per class; a row that did not change keeps the noise that it has.

    >>> noise, exact = NoisyRows(np.random.default_rng(0)), np.eye(2)
    >>> first, again, third = noise.of(exact, 1.0), noise.of(exact, 1.0), noise.of(exact * [[1], [2]], 1.0)
    >>> bool((again == first).all()), (third == first).all(axis=1)
    (True, array([ True, False]))
    """

    def __init__(self, rng: np.random.Generator | None = None) -> None:
        self._rng = rng or np.random.default_rng()
        self.fresh = False  # whether there is noise that state() has not returned yet
        self.reset()

    def reset(self) -> None:
        """Forget all noise."""
        self._exact = self._noisy = np.zeros((0, 0))
        self._deviation = 0.0

    def of(self, exact: Reals, deviation: float, slack: float = 0.0) -> Reals:
        """Return rows (C, n) with noise: those of before where a row moved by no more than a length of ``slack``.

        ``deviation`` is that of one number; for another one than before, all noise is drawn anew.
        """
        if self._exact.shape != exact.shape or self._deviation != deviation:
            self._exact, self._noisy = np.full(exact.shape, np.inf), np.zeros(exact.shape)
            self._deviation = deviation
        moved = np.linalg.norm(exact - self._exact, axis=1) > slack
        self._exact[moved] = exact[moved]
        self._noisy[moved] = exact[moved] + self._rng.normal(0.0, deviation, (int(moved.sum()), exact.shape[1]))
        self.fresh = self.fresh or bool(moved.any())
        return self._noisy.copy()

    def take_over(self, earlier: NoisyRows, places: Integers) -> None:
        """Go on with the rows of an earlier version of the task, at ``places`` (C,); a new class is noise around 0."""
        shape = len(places) if len(earlier._exact) else 0, earlier._exact.shape[1]
        self._exact, self._deviation = np.zeros(shape), earlier._deviation
        self._noisy = self._rng.normal(0.0, self._deviation, shape)
        if len(earlier._exact):
            kept = places >= 0
            self._exact[kept], self._noisy[kept] = earlier._exact[places[kept]], earlier._noisy[places[kept]]
            self.fresh = True

    def state(self) -> State:
        """Return the rows with their noise and without, as arrays: nothing is hidden in them."""
        self.fresh = False
        return {"exact": self._exact.copy(), "noisy": self._noisy.copy(), "deviation": np.array(self._deviation)}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        require(arrays, ("exact", "noisy", "deviation"))
        shape = np.shape(arrays["exact"])
        exact, noisy = (exactly(f"{PRIVATE}{name}", arrays[name], np.float64, shape) for name in ("exact", "noisy"))
        deviation = exactly(f"{PRIVATE}deviation", arrays["deviation"], np.float64, ())
        if len(shape) != 2 or not all(np.isfinite(array).all() for array in (exact, noisy, deviation)):
            raise refuse(f"{PRIVATE}exact", f"shape {shape}, or not finite", "what state() returns")
        self._exact, self._noisy, self._deviation = exact.copy(), noisy.copy(), float(deviation)


def refuse_near_copies(near_copy: float) -> None:
    """Refuse noise together with ``near_copy``: one image more may then change what is stored of many others."""
    if near_copy:
        raise refuse("noise", f"near_copy={near_copy:g}", "near_copy=0: otherwise no epsilon can be stated")


def epsilon(sensitivity: float, deviation: float, uploads: int = 1, delta: float = DELTA) -> float:
    """Return the epsilon of ``uploads`` releases with Gaussian noise; infinite without noise.

    It is exact (Balle and Wang, 2018): the smallest epsilon that the Gaussian mechanism has at this ``delta``. Several
    releases count as one release whose sensitivity is larger by the root of their number.

    >>> round(epsilon(1.0, 1.0), 2), round(epsilon(1.0, 1.0, uploads=100), 1)
    (4.38, 91.8)
    """
    real("delta", delta, 1e-300, 0.5)
    if not deviation:
        return math.inf
    ratio = math.sqrt(at_least("uploads", uploads, 1)) * sensitivity / deviation
    low, high = 0.0, 1.0
    while _excess(high, ratio, delta) > 0:
        high *= 2
        if high > _MOST_EPSILON:
            return math.inf
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if _excess(middle, ratio, delta) > 0 else (low, middle)
    return high


def _excess(value: float, ratio: float, delta: float) -> float:
    """Return how much more than ``delta`` the Gaussian mechanism needs at an epsilon of ``value``."""
    normal = 0.5 * math.erfc((value / ratio - ratio / 2) / math.sqrt(2.0))
    return normal - math.exp(value + _log_normal(-ratio / 2 - value / ratio)) - delta


def _log_normal(x: float) -> float:
    """Return the logarithm of the normal distribution function, also where it underflows."""
    if x > -30:
        return math.log(0.5 * math.erfc(-x / math.sqrt(2.0)))
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log1p(-1 / (x * x))


def without_noise(arrays: Arrays) -> Arrays:
    """Return the state of a client without what is about noise: what the method itself remembers."""
    if not isinstance(arrays, Mapping):
        raise refuse("arrays", type(arrays).__name__, "a mapping of names to arrays, as state() returns")
    return {name: array for name, array in arrays.items() if not str(name).startswith(PRIVATE)}


class PrivateClient:
    """The client ``method`` with ``privacy``: only its summaries differ, and its state, which also has the noise.

    The method has ``private_summary(privacy, noise)``, which returns the summary with noise and without the classes
    that have too few images, and ``sensitivity(privacy)``, how far one image, replaced by another, can move all numbers
    before the noise, as a length. If it remembers no more than so many images of a class, ``most_images`` says so.

    ``unsaved_noise`` says whether noise was drawn since the state was last asked for. A device saves it before it sends
    it: after a restart, a class that did not change is sent with the same noise again.

    >>> from latte import Latte, Privacy, ZeroShot
    >>> client = PrivateClient(Latte(ZeroShot(np.eye(2), ("cat", "dog"))), Privacy(least_images=2))
    >>> client.predict([0.6, 0.8]).classname, client.summary().seen
    ('dog', array([False, False]))
    """

    def __init__(
        self, method: Collaborative[Any, Any], privacy: Privacy, rng: np.random.Generator | None = None
    ) -> None:
        if not hasattr(method, "private_summary") or not hasattr(method, "sensitivity"):
            raise refuse("privacy", type(method).__name__, "a method with private_summary, as Latte and Ristretto have")
        if privacy.noise:
            method.sensitivity(privacy)  # refuses parameters for which there is none
        most = getattr(method, "most_images", None)
        if most is not None and privacy.least_images > most:
            want = f"at most {most}: the memory keeps no more images of a class, so nothing would ever be shared"
            raise refuse("least_images", privacy.least_images, want)
        self.method: Any = method
        self.privacy = privacy
        self._rng = rng or np.random.default_rng()
        self._noise = NoisyRows(self._rng)

    def __repr__(self) -> str:
        return f"PrivateClient({self.method!r}, {self.privacy!r})"

    def predict(self, views: ArrayLike, *, remember: bool = True) -> Prediction:
        """Predict as the method does: nothing is hidden from the device itself."""
        prediction: Prediction = self.method.predict(views, remember=remember)
        return prediction

    @property
    def labels(self) -> int:
        """How many images have a label."""
        return self.method.labels if can_be_taught(self) else 0

    def correct(self, image: ArrayLike, label: int, learnt: ArrayLike | None = None) -> None:
        """Learn the true class of an image; whether sums of labels leave the device is a matter of privacy."""
        if not can_be_taught(self):
            raise refuse("method", type(self.method).__name__, "a method that learns from labels, as Latte does")
        self.method.correct(image, label, learnt)

    def withdraw(self, image: ArrayLike) -> None:
        """Forget the label of an image."""
        if not can_be_taught(self):
            raise refuse("method", type(self.method).__name__, "a method that learns from labels, as Latte does")
        self.method.withdraw(image)

    def summary(self) -> Any:
        """Return the summary that may leave the device."""
        return self.method.private_summary(self.privacy, self._noise)

    @property
    def unsaved_noise(self) -> bool:
        """Whether noise was drawn that no state has yet."""
        return self._noise.fresh

    def receive(self, download: Any) -> None:
        """Take over what the exchange answered."""
        self.method.receive(download)

    def reset(self) -> None:
        """Forget everything."""
        self.method.reset()
        self._noise.reset()

    def take_over(self, earlier: PrivateClient) -> None:
        """Go on with what a client of an earlier version has learnt; a class that does not change keeps its noise."""
        self.method.take_over(earlier.method)
        self._noise.take_over(earlier._noise, places_of(_classnames(self.method), _classnames(earlier.method)))

    def memory_fill(self) -> MemoryFill | None:
        """Return how much the method remembers; None if it does not say."""
        fill = getattr(self.method, "memory_fill", None)
        filled: MemoryFill | None = fill() if callable(fill) else None
        return filled

    def state(self) -> State:
        """Return what the method remembers, and the noise in its last upload; nothing is hidden in it."""
        noise = self._noise.state() if self.privacy.noise else {}
        return {**self.method.state(), **{f"{PRIVATE}{name}": array for name, array in noise.items()}}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned, with noise or without."""
        own, noise = without_noise(arrays), NoisyRows(self._rng)
        if kept := {name.removeprefix(PRIVATE): arrays[name] for name in arrays if name not in own}:
            noise.load(kept)
        self.method.load(own)
        self._noise = noise

    def epsilon(self, dim: int, uploads: int = 1) -> float:
        """Return the exact epsilon of this number of uploads; infinite without noise."""
        if not self.privacy.noise:
            return math.inf
        return epsilon(self.method.sensitivity(self.privacy), self.privacy.deviation(dim), uploads)

    def guarantee(self, dim: int) -> str:
        """Return what the noise guarantees, in one line for people."""
        if not self.privacy.noise:
            return f"classes with fewer than {self.privacy.least_images} images are not shared; no noise: no epsilon"
        single, several = self.epsilon(dim), self.epsilon(dim, UPLOADS)
        return (
            f"epsilon {single:.3g} for one upload, {several:.3g} for {UPLOADS} with new noise, at delta {DELTA:g}: "
            "for one image replaced by another, in the numbers of the classes. Not covered: which classes are shared "
            "and when they change, and how many pictures there were"
        )


def _classnames(method: Any) -> Sequence[str]:
    """Return the classes of a method; a method inside another (``.method``) has them."""
    names: Sequence[str] = _classnames(method.method) if hasattr(method, "method") else method.zero_shot.classnames
    return names
