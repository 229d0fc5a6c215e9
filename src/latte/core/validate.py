"""Checks of input: every refusal says which argument it is, what it got and what it wants."""

from __future__ import annotations

import math
import re
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import refuse
from .types import Arrays, Mask, Reals, State, Vectors

NORM_TOLERANCE = 1e-3
UNIT_ROUNDING = 1e-6  # a row whose squared length is this near to 1 is left as it is, to the last bit
LARGEST = 2**63 - 1  # a larger whole number fits neither an array nor the files of other programs
MOST_SLOTS = 1_000  # of a memory per class: reading keeps their squared number. The largest published one is 50
_LOW, _HIGH = (1 - NORM_TOLERANCE) ** 2, (1 + NORM_TOLERANCE) ** 2
# What multiplies a cosine, an entropy or a logit is at most this: no exponent and no logit of any method overflows, and
# the formulas are at their limit (the most similar item, the most certain one), since a cosine of float32 vectors is
# known to 1e-7 only.
LARGEST_FACTOR = 1e9
LONGEST = 1024  # bytes of a name in UTF-8: room for any path or address, and too little to fill a server with names


def show(value: object) -> str:
    """Return a bad value as a refusal shows it; of a very long whole number only the number of its digits."""
    if isinstance(value, int) and value.bit_length() > 200:
        return f"a number of about {int(value.bit_length() * math.log10(2)) + 1} digits"
    return repr(value)


def float32(name: str, value: Any, want: str) -> Vectors:
    """Return ``value`` as a float32 array (the same object if it is one already)."""
    if type(value) is np.ndarray and value.dtype == np.float32:
        return value
    array = numbers(name, value, want)
    if array.dtype.itemsize > 4 and array.size and not np.abs(array).max() < np.finfo(np.float32).max:
        raise refuse(name, "a value that is NaN, infinite or too large for float32", want)
    return array.astype(np.float32)


def numbers(name: str, value: Any, want: str) -> NDArray[Any]:
    """Return ``value`` as an array of real numbers."""
    try:
        array = np.asarray(value)
    except ValueError:
        raise refuse(name, "rows of different lengths", want) from None
    if array.dtype.kind not in "fiu":
        raise refuse(name, f"dtype {array.dtype}", want)
    return array


def unit_rows(name: str, value: Any, dim: int | None = None, normalise: bool | None = None) -> Vectors:
    """Return ``value`` (n, D), n >= 1, with rows of length 1.

    Rows within 1e-3 of unit length are accepted and normalised; others are refused unless ``normalise``. Rows that are
    of unit length up to rounding stay as they are, so that rows which were sent or saved come back unchanged.
    """
    want = f"(n, {'D' if dim is None else dim}) unit rows, n >= 1"
    rows = np.ascontiguousarray(float32(name, value, want))  # another layout would round products differently
    if rows.ndim != 2 or not rows.size or (dim is not None and rows.shape[1] != dim):
        raise refuse(name, f"shape {rows.shape}", want)
    if len(rows) == 1:  # the everyday case, one plain view
        square = float(np.einsum("nd,nd->", rows, rows))  # unlike dot, it does not warn when it overflows
        if abs(square - 1) <= UNIT_ROUNDING:
            return rows.copy()
        if _LOW < square < _HIGH:  # NaN and infinity fail here too
            return rows / np.float32(math.sqrt(square))
        return _odd_rows(name, rows, normalise)
    squares = np.einsum("nd,nd->n", rows, rows)
    low, high = np.minimum.reduce(squares), np.maximum.reduce(squares)
    if not (low > _LOW and high < _HIGH):
        return _odd_rows(name, rows, normalise)
    if 1 - low <= UNIT_ROUNDING and high - 1 <= UNIT_ROUNDING:
        return rows.copy()
    unit: Vectors = rows / lengths_of(squares)[:, None]
    return unit


def precise_unit_rows(name: str, value: Any, dim: int | None = None, normalise: bool | None = None) -> Reals:
    """Return the rows of :func:`unit_rows` in float64; float64 input is not rounded to float32.

    >>> precise_unit_rows("text", np.array([[0.6, 0.8]]))[0, 0] == 0.6
    np.True_
    """
    rows = unit_rows(name, value, dim, normalise)
    array = np.asarray(value)
    if array.dtype.itemsize <= 4:
        return rows.astype(np.float64)
    wide = np.ascontiguousarray(array, np.float64)
    unit: Reals = wide / lengths_of(np.einsum("nd,nd->n", wide, wide))[:, None]
    return unit


def nearly_unit(squares: Any) -> Any:
    """Return whether rows of these squared lengths (n,) are accepted as unit rows; False for what is not finite."""
    return (squares > _LOW) & (squares < _HIGH)


def lengths_of(squares: Any) -> Any:
    """Return what rows of these squared lengths (n,) are divided by: exactly 1 for rows that stay as they are."""
    return np.where(np.abs(squares - 1) <= UNIT_ROUNDING, squares.dtype.type(1), np.sqrt(squares))


def _odd_rows(name: str, rows: Vectors, normalise: bool | None) -> Vectors:
    """Normalise or refuse rows of which at least one is not of unit length."""
    finite = np.isfinite(rows).all(axis=1)
    if not finite.all():
        raise refuse(name, f"NaN or infinite values in row {int(finite.argmin())}", "finite values")
    wide = rows.astype(np.float64)
    norms = lengths_of(np.einsum("nd,nd->n", wide, wide))
    if not norms.min() > 0:
        raise refuse(name, f"a zero vector in row {int(norms.argmin())}", "rows with a direction")
    if not normalise:
        worst, hint = int(np.abs(norms - 1).argmax()), "" if normalise is None else " (or pass normalise=True)"
        raise refuse(name, f"row {worst} of length {norms[worst]:.6g}", f"unit rows{hint}")
    unit: Vectors = (wide / norms[:, None]).astype(np.float32)
    return unit


def unit_where(name: str, vectors: Any, mask: Mask, shape: tuple[int, ...]) -> Vectors:
    """Return ``vectors`` of ``shape`` (..., D) with unit rows where ``mask``, zero rows elsewhere.

    Rows where the mask is False are not looked at: they may hold anything.
    """
    array = numbers(name, vectors, f"shape {shape}")
    if array.shape != shape:
        raise refuse(name, f"shape {array.shape}", f"shape {shape}")
    if mask.size and mask.all():  # the everyday case
        return unit_rows(name, array.reshape(-1, shape[-1]), shape[-1]).reshape(shape)
    result = np.zeros(shape, np.float32)
    if mask.any():
        result[mask] = unit_rows(name, array[mask], shape[-1])
    return result


def boolean(name: str, value: Any, shape: tuple[int, ...]) -> Mask:
    """Return ``value`` as a bool array of ``shape``."""
    array = np.asarray(value)
    if array.dtype != np.bool_ or array.shape != shape:
        raise refuse(name, f"{array.dtype} of shape {array.shape}", f"bool of shape {shape}")
    return array.copy()


def entropies(name: str, value: Any, mask: Mask) -> Reals:
    """Return ``value`` as float64 entropies in [0, 1] where ``mask``, 1 elsewhere."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" or array.shape != mask.shape:
        raise refuse(name, f"{array.dtype} of shape {array.shape}", f"real numbers of shape {mask.shape}")
    inside = array[mask]
    # NaN fails the comparison; 1e-6 is room for float32 rounding on the way here
    if not bool(np.all((inside >= -1e-6) & (inside <= 1 + 1e-6))):
        raise refuse(name, "a value that is NaN or outside [0, 1]", "entropies divided by ln C, in [0, 1]")
    result = np.ones(mask.shape)
    result[mask] = np.clip(inside, 0.0, 1.0)
    return result


def message(name: str, value: object, kind: type, task: str) -> None:
    """Refuse a ``value`` that is not a message of this ``kind``, or that was made for another task."""
    if not isinstance(value, kind):
        raise refuse(name, type(value).__name__, kind.__name__)
    same_task(f"{name}.task", getattr(value, "task", None), task)


def same_task(name: str, value: object, task: str) -> None:
    """Refuse a fingerprint that is not that of ``task``."""
    if value != task:
        shown = f"{value[:16]}…" if isinstance(value, str) and value else repr(value)
        raise refuse(name, shown, f"{task[:16]}…: the same class names, text embeddings and scale")


def at_least(name: str, value: object, least: int, most: int = LARGEST) -> int:
    """Return ``value`` as an int that is ``least`` or more, and not more than ``most``."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least:
        raise refuse(name, show(value), f"a whole number >= {least}")
    if value > most:
        raise refuse(name, show(value), f"a whole number from {least} to {most}")
    return int(value)


def whole(name: str, text: str, least: int = 0, most: int = LARGEST) -> int:
    """Return the whole number that ``text`` is, in decimal digits.

    >>> whole("views", "63")
    63
    """
    if not re.fullmatch(r"[0-9]{1,19}", text):
        raise refuse(name, repr(text), f"a whole number from {least} to {most}")
    return at_least(name, int(text), least, most)


def real(name: str, value: object, least: float = 0.0, most: float = math.inf) -> float:
    """Return ``value`` as a finite float from ``least`` to ``most``."""
    want = f"a finite number >= {least:g}" if most == math.inf else f"a number from {least:g} to {most:g}"
    if isinstance(value, bool) or not isinstance(value, (int, float, np.floating, np.integer)):
        raise refuse(name, repr(value), want)
    try:
        number = float(value)
    except OverflowError:  # a whole number of hundreds of digits
        number = math.inf
    if not math.isfinite(number) or not least <= number <= most:
        raise refuse(name, show(value), want)
    return number


def factor(name: str, value: object, least: float = 0.0) -> float:
    """Return ``value`` as a number by which a cosine, an entropy or a logit can be multiplied."""
    return real(name, value, least, LARGEST_FACTOR)


def first_twice(values: Iterable[Hashable]) -> Hashable | None:
    """Return the first value that occurs a second time; None if each occurs once.

    >>> first_twice("abcb")
    'b'
    """
    seen = set()
    for value in values:
        if value in seen:
            return value
        seen.add(value)
    return None


def near(name: str, known: Iterable[str]) -> list[str]:
    """Return the names in ``known`` that an unknown ``name`` may stand for; all of them if none is near.

    >>> near("late", ["clip", "latte"]), near("xyz", ["tda", "clip"])
    (['latte'], ['tda', 'clip'])
    """
    names = list(known)
    return close_names(name, names) or names


def close_names(name: str, known: Iterable[str]) -> list[str]:
    """Return at most three names in ``known`` that are spelt like ``name``, the closest first."""
    import difflib

    return difflib.get_close_matches(str(name), list(known), n=3, cutoff=0.4)


def choice(name: str, value: object, options: tuple[str, ...]) -> None:
    """Refuse a ``value`` that is not one of ``options``."""
    if value not in options:
        raise refuse(name, show(value), "one of " + ", ".join(map(repr, options)))


# --- reading back what ``state()`` returned -------------------------------------------------------------------


def require(arrays: Arrays, names: Iterable[str]) -> Arrays:
    """Return ``arrays``, which must be exactly those of ``names``."""
    if not isinstance(arrays, Mapping):
        raise refuse("arrays", type(arrays).__name__, "a mapping of names to arrays, as state() returns")
    present, expected = set(arrays), set(names)
    if expected - present:
        raise refuse("arrays", f"no {', '.join(sorted(expected - present))}", "what state() returns")
    if present - expected:
        raise refuse("arrays", f"also {', '.join(sorted(map(str, present - expected)))}", "what state() returns")
    return arrays


def exactly(name: str, value: object, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return ``value``, which must be an array of this dtype and shape."""
    if not isinstance(value, np.ndarray):
        raise refuse(name, type(value).__name__, "an array")
    if value.dtype != dtype or value.shape != shape:
        raise refuse(name, f"{value.dtype} of shape {value.shape}", f"{np.dtype(dtype)} of shape {shape}")
    return value


def positive(name: str, value: object, shape: tuple[int, ...]) -> Reals:
    """Return a copy of float64 numbers of this shape, which must be finite and above 0."""
    array = exactly(name, value, np.float64, shape)
    if not (np.isfinite(array) & (array > 0)).all():
        raise refuse(name, "a value that is not positive", "finite numbers above 0")
    return array.copy()


def stored_mask(name: str, value: object, shape: tuple[int, ...]) -> Mask:
    """Return a copy of a mask."""
    return exactly(name, value, np.bool_, shape).copy()


def stored_entropies(name: str, value: object, mask: Mask) -> Reals:
    """Return a copy of entropies that must be in [0, 1] up to rounding where ``mask``; 1 elsewhere."""
    array = exactly(name, value, np.float64, mask.shape)
    entropies(name, array, mask)
    result: Reals = np.where(mask, array, 1.0)
    return result


def stored_vectors(name: str, value: object, mask: Mask, dim: int) -> Vectors:
    """Return a copy of vectors (..., D) that must be of unit length where ``mask``; zero elsewhere."""
    vectors = finite_vectors(name, value, mask, dim)
    if mask.any():
        unit_rows(name, vectors[mask], dim)
    return vectors


def finite_vectors(name: str, value: object, mask: Mask, dim: int) -> Vectors:
    """Return a copy of vectors (..., D) of any length that must be finite where ``mask``; zero elsewhere."""
    array = exactly(name, value, np.float32, (*mask.shape, dim))
    result: Vectors = np.where(mask[..., None], array, np.float32(0))
    if not np.isfinite(result).all():
        raise refuse(name, "NaN or infinite values", "finite values in every slot that is in use")
    return result


# --- names of clients and fingerprints of tasks, which are stored as numbers ----------------------------------


def finite_array(name: str, value: object, shape: tuple[int, ...]) -> Reals:
    """Return a float64 copy of an array of finite numbers of this ``shape``."""
    array = real_array(name, value, shape)
    if not np.isfinite(array).all():
        raise refuse(name, "NaN or infinite values", "finite values")
    return array


def real_array(name: str, value: object, shape: tuple[int, ...]) -> Reals:
    """Return a float64 copy of an array of real numbers of this ``shape``."""
    array = numbers(name, value, f"real numbers of shape {shape}") if isinstance(value, np.ndarray) else None
    if array is None or array.shape != shape:
        shown = f"shape {array.shape}" if array is not None else type(value).__name__
        raise refuse(name, shown, f"an array of shape {shape}")
    return array.astype(np.float64)


def check_lengths(name: str, rows: Reals, most: Reals) -> None:
    """Refuse rows (C, D) that are longer than ``most`` (C,), which no means (or sums) of unit vectors are."""
    lengths = np.sqrt(np.einsum("cd,cd->c", rows, rows))
    if not (lengths <= most * (1 + NORM_TOLERANCE)).all():
        worst = int((lengths - most).argmax())
        raise refuse(name, f"row {worst} of length {lengths[worst]:.6g}", f"at most {most[worst]:.6g}")


def client_name(value: object) -> str:
    """Return ``value`` as the name of a client: any text of 1 to 1024 bytes in UTF-8. Two texts are two names."""
    if not isinstance(value, str) or not len(value):
        raise refuse("client", repr(value), "a name: a non-empty string")
    name = str.__str__(value)  # the text itself, whatever a subclass (an Enum, say) shows instead
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise refuse("client", f"{name[:80]!r}", "a name that UTF-8 can write, without lone surrogates") from None
    if size > LONGEST:
        raise refuse("client", f"a name of {size} bytes", f"at most {LONGEST} bytes in UTF-8")
    return name


def pack_names(names: list[str]) -> State:
    """Return names as two arrays: their bytes in UTF-8, one after the other, and the length of each (N,)."""
    encoded = [name.encode() for name in names]
    return {
        "names": np.frombuffer(b"".join(encoded), np.uint8).copy(),
        "name_lengths": np.array([len(name) for name in encoded], np.int64),
    }


def unpack_names(packed: Any, lengths: Any) -> list[str]:
    """Return the names that :func:`pack_names` packed; refuse what it cannot have returned."""
    sizes = exactly("name_lengths", lengths, np.int64, (np.size(lengths),))
    if ((sizes < 1) | (sizes > LONGEST)).any():
        raise refuse("name_lengths", "a length out of range", f"1 to {LONGEST} bytes")
    raw = exactly("names", packed, np.uint8, (int(sizes.sum()),)).tobytes()
    ends = sizes.cumsum().tolist()
    try:
        names = [raw[start:end].decode() for start, end in zip([0, *ends], ends, strict=False)]
    except UnicodeDecodeError:
        raise refuse("names", "bytes that are no UTF-8", "what state() returns") from None
    if len(set(names)) < len(names):
        raise refuse("names", f"{len(names) - len(set(names))} names twice", "every client once")
    return names


def pack_task(fingerprint: str) -> Any:
    """Return a fingerprint as numbers (32,), for a state."""
    return np.frombuffer(bytes.fromhex(fingerprint), np.uint8).copy()


def check_task(packed: Any, fingerprint: str) -> None:
    """Refuse a state whose task does not have this fingerprint."""
    stored = exactly("task", packed, np.uint8, (len(fingerprint) // 2,)).tobytes().hex()
    same_task("task", stored, fingerprint)
