"""Labels of pictures: zero-shot, or with a memory that adapts from picture to picture and is kept in a file."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ...core.memory import NEAR_COPY
from ...core.sync import is_due, sync, upload_of
from ...core.types import Arrays, Collaborative, Exchange, MemoryFill, Method, Prediction, State, Teachable, Vectors
from ...core.unknown import mcm_of
from ...core.validate import at_least, exactly
from ...core.zero_shot import ZeroShot
from ...encoders import Encoder
from ...encoders.base import BATCH, encode_files
from ...encoders.pictures import HEIC_HINT, HEIC_SUFFIXES, MOST_PIXELS, PICTURE_SUFFIXES
from ...errors import InputError, refuse
from ...files.atomic import lock
from ...files.documents import check_regular, parse_json, refuse_inside, shorten
from ...files.tensors import Tensors, read_safetensors, write_safetensors
from ...methods import create, create_exchange, describe

NAME = "self"  # of the only client of the exchange
IMAGES = "images"  # in the state, beside what the method has there
JOINED = "joined"  # in the state of a member: whether a server has answered
MEMORY_FORMAT = "latte-memory/1"
SAVE_SECONDS = 10  # seconds of work that a power cut may cost
_SHARE = 20  # saving takes at most one part in 20 of the time, however large the memory and however slow the disk
_NOTE = "unfinished"

log = logging.getLogger("latte.pictures")


@dataclass(frozen=True, slots=True)
class Answer:
    """The label of a picture.

    ``probability`` is that of the label in the method's own ``Prediction.probabilities``: the adapted scores, at a
    temperature that needs no labels. It has not been compared with labels of yours; docs/reports.md says how far
    off it was elsewhere. ``certainty`` is 1 minus the entropy of the zero-shot prediction: 1 is certain, 0 is
    undecided. ``zero_shot`` is the label without the memory, and ``zero_shot_probability`` its probability.
    ``near_copy``: the method did not learn from the picture, because its memory has almost the same picture.
    ``problem`` is the reason if there is no label.

    Where adapting hurts, ``label`` is zero-shot's, and ``adapted`` what the method would have said; otherwise that is
    None. Where somebody named a share of images to flag, ``mcm`` is the picture's score (see ``latte.core.unknown``),
    and ``unlike`` says that it is unlike the known classes. Where somebody labels pictures, ``margin`` is
    that between the probabilities of the two best classes, and ``soft_label`` (C,) in float32 what a method learnt.
    """

    file: str
    label: str | None
    probability: float | None = None
    certainty: float | None = None
    zero_shot: str | None = None
    zero_shot_probability: float | None = None
    near_copy: bool = False
    problem: str | None = None
    adapted: str | None = None
    mcm: float | None = None
    unlike: bool = False
    margin: float | None = None
    soft_label: bytes | None = field(default=None, repr=False)

    @property
    def opinion(self) -> str | None:
        """What the method says, whether or not that was the answer."""
        return self.label if self.adapted is None else self.adapted


@dataclass(frozen=True, slots=True, eq=False)
class EmbeddedPicture:
    """A picture and its embedding ``row`` (D,), or the ``problem`` that prevents it."""

    file: str
    row: Vectors | None
    problem: str | None = None


def find_pictures(places: Sequence[Path]) -> list[Path]:
    """Return picture files: a file stands for itself, a folder for all pictures below it, sorted; none is hidden."""
    pictures: list[Path] = []
    for place in places:
        if place.is_dir():
            inside = sorted(_pictures_below(place))
            if not inside:
                kinds = " ".join(sorted(PICTURE_SUFFIXES))
                raise refuse("folder", f"{place} without images", f"at least one, of {kinds}")
            pictures += inside
        elif place.exists() or place.is_symlink():  # a link that leads nowhere is unreadable, as others may be
            pictures.append(place)
        else:
            raise InputError(f"{place}: no such file or folder")
    return pictures


def absolute_name(path: Path) -> str:
    """Return the absolute name of a file without ``..``, so that a file has one name whichever folder it is named from.

    Links stay as they are named, except where a link before a ``..`` leads elsewhere: there, the folder is resolved.
    """
    name = os.path.abspath(path)  # noqa: PTH100  it removes .. by the text alone
    if ".." not in path.parts or os.path.realpath(path.parent) == os.path.realpath(os.path.dirname(name)):  # noqa: PTH120
        return name
    return os.path.join(os.path.realpath(path.parent), path.name)  # noqa: PTH118


def _pictures_below(folder: Path) -> Iterator[Path]:
    """Yield the pictures in a folder and the folders in it, however deep; what is left out has a line of the log."""
    folders, left_out = [str(folder)], []
    while folders:
        inside = folders.pop()
        try:
            with os.scandir(inside) as entries:
                for entry in entries:
                    if entry.name.startswith("."):
                        continue
                    suffix = os.path.splitext(entry.name)[1].lower()  # noqa: PTH122  there may be very many
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
                    elif suffix in PICTURE_SUFFIXES and _is_file(entry):
                        yield Path(entry.path)
                    elif suffix in HEIC_SUFFIXES:
                        left_out.append(entry.path)
        except OSError as error:
            if inside == str(folder):
                raise
            log.warning("%s is left out: %s", inside, error.strerror)
    if left_out:
        more = f" and {len(left_out) - 1} more are" if len(left_out) > 1 else " is"
        log.warning("%s%s left out: %s", min(left_out), more, HEIC_HINT)


def _is_file(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_file()
    except OSError:  # reading it says what is wrong
        return True


def classify_pictures(encoder: Encoder, zero_shot: ZeroShot, method: Method, files: Sequence[Path]) -> Iterator[Answer]:
    """Yield an answer per file, in order; an unreadable file is an answer with a problem."""
    return (answer_picture(picture, zero_shot, method) for picture in embed_files(encoder, files))


def embed_files(
    encoder: Encoder,
    files: Sequence[Path],
    start: int = 0,
    most_pixels: int = MOST_PIXELS,
    batch: int = BATCH,
) -> Iterator[EmbeddedPicture]:
    """Yield the embedding of every file from position ``start`` on, the same to the last bit whatever ``start`` is.

    A picture of more than ``most_pixels`` has a problem instead.
    """
    first = start - start % batch  # whole batches: a row may depend on the batch it is computed in, in the last bits
    for part in encode_files(encoder, list(files), batch, skip_bad=True, start=first, most_pixels=most_pixels):
        rows = dict(zip(part.index.tolist(), part.rows, strict=True))
        bad = dict(part.bad)
        for i in range(max(start, part.start), part.stop):
            yield EmbeddedPicture(str(files[i]), rows.get(i), bad.get(i))


def answer_picture(
    picture: EmbeddedPicture,
    zero_shot: ZeroShot,
    method: Method,
    *,
    fallback: bool = False,
    threshold: float | None = None,
    reviewed: bool = False,
) -> Answer:
    """Return the label of a picture; ``method`` learns from it.

    With ``fallback``, the answer is zero-shot's. With a ``threshold``, a picture whose MCM is below it is flagged. It
    is ``reviewed`` where somebody labels pictures.
    """
    if picture.row is None:
        return Answer(picture.file, None, problem=picture.problem)
    prediction = method.predict(picture.row[None])
    answer = answer_of(picture.file, picture.row, zero_shot, prediction)
    if fallback:
        answer = replace(answer, label=answer.zero_shot, probability=answer.zero_shot_probability, adapted=answer.label)
    if threshold is not None:
        mcm = mcm_of(picture.row, zero_shot)
        answer = replace(answer, mcm=mcm, unlike=mcm < threshold)
    if reviewed:
        second, best = np.partition(prediction.probabilities, -2)[-2:]
        learnt = getattr(prediction, "learnt", None)
        soft_label = None if learnt is None else learnt.astype("<f4").tobytes()
        answer = replace(answer, margin=float(best - second), soft_label=soft_label)
    return answer


def answer_of(file: str, row: Vectors, zero_shot: ZeroShot, prediction: Prediction) -> Answer:
    """Return the answer that a ``prediction`` for the embedding ``row`` (D,) stands for."""
    names = zero_shot.classnames
    logits = np.where(np.isneginf(prediction.scores), -np.inf, zero_shot.logits(row))  # of classes that may win
    plain = int(logits.argmax())
    return Answer(
        file=file,
        label=names[prediction.label],
        probability=prediction.probability,
        certainty=1 - prediction.entropy,
        zero_shot=names[plain],
        zero_shot_probability=float(1 / np.add.reduce(np.exp(logits - logits[plain]))),  # of its softmax
        near_copy=prediction.near_copy,
    )


def sigmoid_probabilities(zero_shot: ZeroShot, row: Vectors, bias: float) -> dict[str, float]:
    """Return how likely each class is by itself: sigmoid(scale · cosine + bias), what SigLIP was trained for.

    The methods use another reading of the same cosines, a softmax over the classes of scale · cosine, in which the bias
    cancels: entropies, pseudo-labels and memories compare classes. Where no class fits, only this one says so.
    """
    logits = zero_shot.logits(row).astype(np.float64) + bias
    return dict(zip(zero_shot.classnames, (0.5 * (1 + np.tanh(logits / 2))).tolist(), strict=True))


class Alone:
    """A collaborative method and an exchange that nobody else uses; they sync when ``kind`` says so.

    The state is that of the method and the number of images. The exchange needs no state: it holds only the latest
    upload, and every sync replaces it.
    """

    def __init__(self, method: Collaborative[Any, Any], exchange: Exchange[Any, Any], kind: str) -> None:
        self.method, self.exchange, self.kind = method, exchange, kind
        self.images = 0
        self._unsettled = False  # whether labels wait for a sync

    def predict(self, views: ArrayLike, *, remember: bool = True) -> Prediction:
        """Predict as the method does; an image that is remembered may be followed by a sync."""
        self._settle()
        prediction = self.method.predict(views, remember=remember)
        if remember:
            self.images += 1
            if is_due(self.kind, self.images):
                sync([(NAME, self.method)], self.exchange)
        return prediction

    @property
    def labels(self) -> int:
        """How many images have a label."""
        return self.method.labels if isinstance(self.method, Teachable) else 0

    def correct(self, image: ArrayLike, label: int, learnt: ArrayLike | None = None) -> None:
        """Learn the true class of an image."""
        self._teachable().correct(image, label, learnt)
        self._unsettled = True

    def withdraw(self, image: ArrayLike) -> None:
        """Forget the label of an image."""
        self._teachable().withdraw(image)
        self._unsettled = True

    def _teachable(self) -> Teachable:
        if not isinstance(self.method, Teachable):
            raise refuse("method", type(self.method).__name__, "a method that learns from labels, as Latte does")
        return self.method

    def _settle(self) -> None:
        """Sync after labels, which count from then on: once for many."""
        if self._unsettled:
            sync([(NAME, self.method)], self.exchange)
            self._unsettled = False

    def memory_fill(self) -> MemoryFill | None:
        """Return how much the method remembers; None if it does not say."""
        return fill_of(self.method)

    def reset(self) -> None:
        """Forget everything."""
        self.method.reset()
        self.images, self._unsettled = 0, False

    def state(self) -> State:
        """Return a copy of everything, as arrays."""
        self._settle()
        return {**self.method.state(), IMAGES: np.array(self.images, np.int64)}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        if not isinstance(arrays, Mapping) or IMAGES not in arrays:
            raise refuse("arrays", f"no {IMAGES}", "what state() returns")
        images = at_least(IMAGES, int(exactly(IMAGES, arrays[IMAGES], np.int64, ())), 0)
        self.method.load({name: array for name, array in arrays.items() if name != IMAGES})
        self.images, self._unsettled = images, False


class OwnServer(Alone):
    """The same for a member of a fleet: it syncs with itself until a download comes; after that, see :meth:`stand_in`.

    The first download goes to ``served``, which goes on with all that ``method`` has learnt: where not every client is
    trusted, it is guarded against others. Until then, nobody else has had a part in anything.

    >>> zero = ZeroShot(np.eye(2), ("cat", "dog"))
    >>> alone, served = create("ristretto", zero), create("ristretto", zero, trust="open")
    >>> member = OwnServer(alone, create_exchange("ristretto", zero), "doubling", served)
    >>> member.predict([0.6, 0.8]).classname, member.summary().empty, member.joined
    ('dog', False, False)
    """

    def __init__(
        self,
        method: Collaborative[Any, Any],
        exchange: Exchange[Any, Any],
        kind: str,
        served: Collaborative[Any, Any],
    ) -> None:
        super().__init__(method, exchange, kind)
        self._methods = method, served  # until the first download, and after it
        self.joined = False

    def predict(self, views: ArrayLike, *, remember: bool = True) -> Prediction:
        """Predict as the method does; while no server has answered, a sync of its own may follow."""
        return (
            self.method.predict(views, remember=remember) if self.joined else super().predict(views, remember=remember)
        )

    def _settle(self) -> None:
        """Sync with itself after labels, while no server has answered."""
        self._unsettled &= not self.joined
        super()._settle()

    def summary(self) -> Any:
        """Return the summary of the method."""
        return self.method.summary()

    def private_summary(self, *arguments: Any) -> Any:
        """Return the summary of the method that hides single images."""
        return self.method.private_summary(*arguments)  # type: ignore[attr-defined]  # a PrivateClient asks for both

    def sensitivity(self, privacy: Any) -> float:
        """Return how far one image can move that summary."""
        return float(self.method.sensitivity(privacy))  # type: ignore[attr-defined]

    def receive(self, download: Any) -> None:
        """Take over what the server answered; it replaces what came before, also what the member made itself."""
        served = self._methods[True]
        if not self.joined:
            served.load(self.method.state())
        served.receive(download)
        self.method, self.joined = served, True

    def stand_in(self) -> bool:
        """Stand in for a server that has answered and is away now; return whether that changed anything.

        What the member makes of its own images alone takes the place of the last download as soon as it rests on more
        evidence, which the method's ``outweighs(download)`` says.
        """
        outweighs = getattr(self.method, "outweighs", None)
        if not self.joined or outweighs is None or (upload := upload_of(self.method)) is None:
            return False
        self.exchange.push(NAME, upload)
        download = self.exchange.pull(NAME)
        if not outweighs(download):
            return False
        self.method.receive(download)
        return True

    def take_over(self, earlier: OwnServer) -> None:
        """Go on with what a member of an earlier version of the task has learnt."""
        method: Any = self._methods[earlier.joined]
        method.take_over(earlier.method)
        self.method, self.joined, self.images = method, earlier.joined, earlier.images

    def reset(self) -> None:
        """Forget everything."""
        self.method, self.joined = self._methods[False], False
        super().reset()

    def state(self) -> State:
        """Return a copy of everything, as arrays."""
        return {**super().state(), JOINED: np.array(int(self.joined), np.int64)}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        if not isinstance(arrays, Mapping) or JOINED not in arrays:
            raise refuse("arrays", f"no {JOINED}", "what state() returns")
        joined = bool(exactly(JOINED, arrays[JOINED], np.int64, ()))
        before, self.method = self.method, self._methods[joined]
        try:
            super().load({name: array for name, array in arrays.items() if name != JOINED})
        except BaseException:
            self.method = before
            raise
        self.joined = joined


def fill_of(method: Method) -> MemoryFill | None:
    """Return how much a method remembers; None if it does not say."""
    fill = getattr(method, "memory_fill", None)
    return fill() if callable(fill) else None


def create_alone(
    name: str, zero_shot: ZeroShot, params: Any = None, preset: str | None = None, near_copy: float = NEAR_COPY
) -> Method:
    """Return a method for a device without others, which answers from single embeddings.

    A device sees the same scene again and again, so its memory leaves out an image whose cosine with a stored image is
    at least ``near_copy`` (0: it learns from every image). A ``near_copy`` in ``params`` comes first, as does a whole
    dataclass of parameters; a method without that parameter learns from every image.

    >>> import numpy as np
    >>> device = create_alone("ristretto", ZeroShot(np.eye(2), ("cat", "dog")))
    >>> device.predict([0.6, 0.8]).classname, device.images
    ('dog', 1)
    """
    info = describe(name)
    if info.tunes_prompt or info.uses_views:
        raise refuse("method", repr(name), "one that needs neither other views of a picture nor a prompt to tune")
    chosen = with_near_copy(info.params, params, near_copy)
    method = create(name, zero_shot, chosen, preset=preset)
    if not info.alone or not isinstance(method, Collaborative):
        return method
    return Alone(method, create_exchange(name, zero_shot, chosen, preset=preset), info.sync)


def with_near_copy(kind: type, params: Any, near_copy: float) -> Any:
    """Return the parameters of a method for a device, which leaves near copies out if the method can."""
    whole = params is not None and not isinstance(params, Mapping)
    if whole or "near_copy" not in {field.name for field in fields(kind)}:
        return params
    return {"near_copy": near_copy, **(params or {})}


def save_memory(path: Path, method: Method, zero_shot: ZeroShot, notes: Mapping[str, str] | None = None) -> None:
    """Write the state of ``method`` to ``path``, with ``notes`` of the caller's own."""
    about = {"format": MEMORY_FORMAT, "fingerprint": zero_shot.fingerprint, "method": _kind(method)}
    write_safetensors(path, method.state(), {**(notes or {}), **about})


def load_memory(path: Path, method: Method, zero_shot: ZeroShot) -> Mapping[str, str]:
    """Let ``method`` continue from ``path``, and return the notes in it.

    A file of another method, of other classes or of another encoder is refused.
    """
    tensors = read_memory(path)
    check_author(path, tensors.metadata, method)
    if tensors.metadata.get("fingerprint") != zero_shot.fingerprint:
        want = "the same classes, templates and encoder, or another file"
        raise refuse(str(path), "the memory of another task", want)
    try:
        method.load(tensors.arrays)
    except InputError as error:
        raise refuse_inside(path, error) from None
    return tensors.metadata


def check_author(path: Path, notes: Mapping[str, str], method: Method) -> None:
    """Refuse the memory of another method; files of earlier versions do not name their method and are accepted."""
    author = notes.get("method", _kind(method))
    if author != _kind(method):
        want = f"that of {_kind(method)}: name another file, or the method that wrote this one"
        raise refuse(str(path), f"the memory of {shorten(author)}", want)


def _kind(method: Method) -> str:
    """Return the name of a method's class; of an :class:`~.alone.Alone`, that of the method inside."""
    return type(getattr(method, "method", method)).__name__


def read_memory(path: Path) -> Tensors:
    """Return what is in a memory file; refuse any other file."""
    tensors = read_safetensors(path, "memory file")
    if tensors.metadata.get("format") != MEMORY_FORMAT:
        raise refuse(str(path), f"format {shorten(repr(tensors.metadata.get('format')))}", repr(MEMORY_FORMAT))
    return tensors


@contextmanager
def locked_memory(path: Path) -> Iterator[Path]:
    """Keep other processes from a memory file while the block runs; yield the file that a link leads to."""
    target = Path(os.path.realpath(path))
    check_regular(path, "memory")
    if target.is_symlink() or not target.parent.is_dir():
        raise refuse("memory", f"{path}, whose folder is not there", "a file in a folder that is")
    with lock(Path(f"{target}.lock"), f"memory {path}"):
        yield target


class Learning:
    """A method that learns from ``files``, in order, and the file that stores its memory.

    ``start`` is the number of files that the memory covered at the beginning, ``done`` the number that it covers now.
    ``before_save()`` is called before the memory file is written, to put on disk what has to be there first.
    """

    def __init__(
        self,
        file: Path,
        method: Method,
        zero_shot: ZeroShot,
        files: Sequence[Path],
        every: float = SAVE_SECONDS,
        before_save: Callable[[], object] = lambda: None,
    ) -> None:
        self.file, self.method, self.zero_shot, self.every = file, method, zero_shot, every
        self.files, self._before_save = files, before_save
        notes = load_memory(file, method, zero_shot) if file.exists() else {}
        self.start = self.done = covered_files(notes, files)
        self.finished = False
        self._digest = _digest(files[: self.start])
        self._saved, self._cost = time.monotonic(), 0.0

    def count(self) -> None:
        """Count the next file as learnt, and save if it is time."""
        self._digest.update(_name(self.files[self.done]))
        self.done += 1
        if time.monotonic() - self._saved >= max(self.every, _SHARE * self._cost):
            self.save()

    def save(self) -> None:
        """Write the memory and the number of files that it covers."""
        self._before_save()
        before = time.monotonic()
        covered = {"done": self.done, "digest": self._digest.hexdigest()}  # a digest of the names of the files
        notes = {} if self.finished else {_NOTE: json.dumps(covered)}
        save_memory(self.file, self.method, self.zero_shot, notes)
        self._saved = time.monotonic()
        self._cost = self._saved - before

    def finish(self) -> None:
        """Write the memory: it has learnt from all files."""
        self.finished = True
        self.save()


def covered_files(notes: Mapping[str, str], files: Sequence[Path]) -> int:
    """Return the number of ``files`` that an interrupted call has covered; 0 after a call with other files.

    ``notes`` are those of its memory file.
    """
    try:
        note = parse_json(notes.get(_NOTE, ""), _NOTE)
        done, digest = int(note["done"]), note["digest"]
    except (InputError, KeyError, TypeError, ValueError):
        return 0
    return done if 0 < done <= len(files) and _digest(files[:done]).hexdigest() == digest else 0


def _digest(files: Sequence[Path]) -> hashlib._Hash:
    return hashlib.sha256(b"".join(map(_name, files)))


def _name(file: Path) -> bytes:
    return os.fsencode(os.path.abspath(file)) + b"\0"  # noqa: PTH100  a link stays the link that was named
