"""Pictures to labels in three lines: a classifier that adapts to what it sees, alone or in a fleet."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, Self, TypedDict, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.sync import upload_of
from ..core.types import Collaborative, Method, Prediction, Reals, Vectors
from ..core.validate import unit_rows
from ..core.zero_shot import ZeroShot
from ..encoders import Encoder, Picture, as_encoder, read_templates, zero_shot
from ..encoders.base import Pictures
from ..encoders.own import Embed, plain_rows
from ..errors import refuse
from .classify.classify import (
    Answer,
    answer_of,
    answer_picture,
    create_alone,
    embed_files,
    find_pictures,
    load_memory,
    save_memory,
)
from .classify.evidence import Labelled, Tally
from .device.device import report_to_owner
from .device.syncing import BackgroundSync, SyncClock, SyncState, SyncTimes, log_problem
from .joining import Membership, as_membership, ask, check_encoder, link_to, new_member


class LabelScore(TypedDict):
    """A class and its probability, in the form of a pipeline of transformers."""

    label: str
    score: float


class Classifier:
    """Labels pictures by the names of classes, and adapts to the pictures that it labels: no labels, no training.

    ``predict`` and ``predict_proba`` are those of scikit-learn, a call is that of a zero-shot pipeline of transformers.
    One thing is different: every picture that is labelled is also learnt from, unless ``remember=False`` is given. So
    the order of pictures matters, and one that comes again may get another answer. Any number of threads may call.

    >>> def colours(frames):
    ...     return [frame.mean(axis=(0, 1)) for frame in frames]
    >>> classifier = Classifier(["red", "blue"], encoder=colours, text=[[1, 0, 0], [0, 0, 1]])
    >>> classifier.predict(np.full((4, 4, 3), (200, 40, 90), np.uint8))
    'red'

    Parameters
    ----------
    classes
        The names of the classes. With a server they may be left out: its task has them.
    encoder
        The name of a model such as "onnx:DIR" (see ``load_encoder``), an encoder, or any function that takes a list of
        pictures and returns their embeddings (n, D). A function gets files as RGB pictures of Pillow, and anything else
        as it was given.
    text
        A row (D,) per class from the text side of the model. Without it, the encoder makes them from ``templates``; a
        function cannot.
    scale
        The logit scale of the model. Default: that of the encoder, and 100 for a function, as in CLIP.
    templates
        Prompts such as "a photo of a {}.", or the name of a set. Default: the seven of CLIP.
    method, params
        How to adapt (see ``latte methods``), and the parameters that differ from the defaults. "clip" does not adapt.
    server
        The address of ``latte serve``. The task comes from there, once: classes, text rows, method and parameters. What
        is learnt is shared in the background: no prediction waits for the network. A :class:`Membership` says more,
        such as certificates.
    name, token
        The name of this program in the fleet, or the token that is bound to one. Without both, every start is a new
        member.
    """

    def __init__(
        self,
        classes: Sequence[str] | None = None,
        *,
        encoder: str | Encoder | Embed,
        text: ArrayLike | None = None,
        scale: float | None = None,
        templates: str | Sequence[str] | None = None,
        method: str = "latte",
        params: Mapping[str, Any] | None = None,
        server: str | Membership | None = None,
        name: str | None = None,
        token: str | None = None,
    ) -> None:
        self._lock, self._tally = threading.Lock(), Tally()
        self._link: BackgroundSync | None = None
        self.name = name or ""
        self.encoder: Encoder
        self.zero_shot: ZeroShot
        self.method: Method
        if server is not None:
            own = {"text": text, "scale": scale, "templates": templates, "params": params}
            given = [each for each, value in own.items() if value is not None] + ["method"] * (method != "latte")
            if given:
                raise refuse(" and ".join(given), "a value", "none: with a server, its task has that")
            self._join(as_membership(server, name, token), encoder, classes)
            return
        if classes is None:
            raise refuse("classes", "none", 'names, such as ["cat", "dog"]')
        if text is None:
            self.encoder = as_encoder(encoder)
            prompts = read_templates(templates) if isinstance(templates, str) else templates
            made = zero_shot(self.encoder, classes, prompts)
            self.zero_shot = made if scale is None else ZeroShot(made.text, classes, scale)
        else:
            rows = unit_rows("text", plain_rows(text), normalise=True)
            self.encoder = as_encoder(encoder, rows.shape[1])
            self.zero_shot = ZeroShot(rows, classes, self.encoder.scale if scale is None else scale)
        self.method = create_alone(method, self.zero_shot, params)

    def _join(self, membership: Membership, encoder: str | Encoder | Embed, classes: Sequence[str] | None) -> None:
        if membership.privacy.noise:
            raise refuse("noise", f"{membership.privacy.noise}", "a Device, which stores the noise that it has drawn")
        task, self.name = ask(membership)
        names = task.zero_shot.classnames
        if classes is not None and tuple(classes) != names:
            raise refuse("classes", ", ".join(classes), f"none, or those of {membership.server}: {', '.join(names)}")
        self.encoder, self.zero_shot = as_encoder(encoder, task.zero_shot.dim), task.zero_shot
        check_encoder(task, self.encoder)
        self.method = new_member(task, membership.privacy, membership.without)
        self._link = link_to(membership, task, self.name, log_problem)
        self._clock = SyncClock(SyncTimes(task.sync, task.period))

    def __repr__(self) -> str:
        names = ", ".join(map(repr, self.zero_shot.classnames[:3])) + (", …" if self.zero_shot.classes > 3 else "")
        member = f", name={self.name!r}" if self._link else ""
        return f"Classifier([{names}], encoder={self.encoder!r}, method={self.method!r}{member})"

    @property
    def classes_(self) -> NDArray[np.str_]:
        """The names of the classes (C,), in the order of the columns of ``predict_proba``."""
        return np.array(self.zero_shot.classnames)

    # --- predictions --------------------------------------------------------------------------------------

    @overload
    def predict(self, pictures: NDArray[Any], *, remember: bool = True) -> Any: ...  # one or several: by its axes
    @overload
    def predict(self, pictures: Picture, *, remember: bool = True) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def predict(self, pictures: Sequence[Picture], *, remember: bool = True) -> NDArray[np.str_]: ...
    def predict(self, pictures: Picture | Pictures, *, remember: bool = True) -> str | NDArray[np.str_]:
        """Return the label of a picture, or the labels (n,) of several: paths, PIL images, RGB arrays (H, W, 3).

        OpenCV's frames are BGR: give ``frame[..., ::-1]``. If a picture is unreadable, a ``BadImageError`` says which,
        and nothing has been learnt.
        """
        labels = [prediction.classname for prediction in self._predict(pictures, remember)]
        return labels[0] if is_one(pictures) else np.array(labels, np.str_)

    def predict_proba(self, pictures: Picture | Pictures, *, remember: bool = True) -> Reals:
        """Return the probabilities (n, C) of several pictures, or (C,) of one; the columns are ``classes_``."""
        found = [prediction.probabilities for prediction in self._predict(pictures, remember)]
        return found[0] if is_one(pictures) else np.array(found).reshape(-1, self.zero_shot.classes)

    @overload
    def __call__(self, pictures: NDArray[Any], *, top_k: int | None = None, remember: bool = True) -> Any: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]  # a text is a picture, though it is a sequence of texts
        self, pictures: Picture, *, top_k: int | None = None, remember: bool = True
    ) -> list[LabelScore]: ...
    @overload
    def __call__(
        self, pictures: Sequence[Picture], *, top_k: int | None = None, remember: bool = True
    ) -> list[list[LabelScore]]: ...
    def __call__(
        self, pictures: Picture | Pictures, *, top_k: int | None = None, remember: bool = True
    ) -> list[LabelScore] | list[list[LabelScore]]:
        """Return the ``top_k`` labels of a picture with their scores, the best first; of several, a list of these."""
        ranked: list[list[LabelScore]] = []
        for prediction in self._predict(pictures, remember):
            shares = prediction.probabilities
            best = np.argsort(-shares, kind="stable")[:top_k]
            ranked.append([{"label": self.zero_shot.classnames[y], "score": float(shares[y])} for y in best])
        return ranked[0] if is_one(pictures) else ranked

    def classify(self, *places: str | Path) -> Iterator[Answer]:
        """Yield an answer for every picture in files and folders, as they come; an unreadable one is no error here.

        An answer also has the label without adapting and how certain that was.
        """
        for picture in embed_files(self.encoder, find_pictures([Path(place) for place in places])):
            with self._lock:
                answer = answer_picture(picture, self.zero_shot, self.method)
                self._count(answer)
            yield answer

    def _predict(self, pictures: Picture | Pictures, remember: bool) -> list[Prediction]:
        several: Any = [pictures] if is_one(pictures) else pictures
        several = several if isinstance(several, np.ndarray) and several.dtype.kind in "fiu" else list(several)
        rows: Vectors = self.encoder.images(several)  # all, before the first is learnt
        predictions = []
        for row in rows:
            with self._lock:
                predictions.append(prediction := self.method.predict(row[None], remember=remember))
                if remember and self._link:
                    self._count(answer_of("", row, self.zero_shot, prediction))
        return predictions

    # --- the fleet ----------------------------------------------------------------------------------------

    def _count(self, answer: Answer) -> None:
        """Count an answer; take over what others learnt, and share what is new if it is time."""
        if self._link is None:
            return
        self._tally.count(answer)
        if answer.problem is None:
            self._clock.count()
        self._link.deliver(self._member)
        if self._clock.is_time():
            self._share(self._link)

    def _share(self, link: BackgroundSync) -> None:
        upload = upload_of(self._member)
        if upload is not None:
            link.offer(upload, report_to_owner(self.method, self.zero_shot.classes, self._tally, Labelled()))
        self._clock.restart()

    @property
    def _member(self) -> Collaborative[Any, Any]:
        assert isinstance(self.method, Collaborative)  # as new_member says
        return self.method

    @property
    def sync_state(self) -> SyncState:
        """When the last sync with the server succeeded, after how many pictures, and what is wrong, if anything."""
        return self._link.state if self._link else SyncState()

    def close(self, patience: float = 5.0) -> None:
        """Share what is new, for which a server that answers gets ``patience`` seconds, and end the syncs.

        Predictions go on after that, alone.
        """
        with self._lock:
            link, self._link = self._link, None
            if link is None:
                return
            if self._clock.unshared:
                self._share(link)
        link.drain(patience)
        link.stop(patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- memory -------------------------------------------------------------------------------------------

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Classifier cannot be pickled: save(path) writes what it has learnt, load(path) reads that")

    def save(self, path: str | Path) -> None:
        """Write what was learnt to a file, which ``latte classify --memory`` reads, too."""
        with self._lock:
            save_memory(Path(path), self.method, self.zero_shot)

    def load(self, path: str | Path) -> Self:
        """Go on from what :meth:`save` wrote; the file of other classes, another encoder or method is refused."""
        with self._lock:
            load_memory(Path(path), self.method, self.zero_shot)
        return self


def is_one(pictures: Picture | Pictures) -> bool:
    """Return whether it is one picture; of arrays, those with one or three axes are.

    >>> is_one("cat.jpg"), is_one(["cat.jpg"]), is_one(np.zeros((4, 4, 3))), is_one(np.zeros((2, 4, 4, 3)))
    (True, False, True, False)
    """
    if isinstance(pictures, np.ndarray) and pictures.dtype.kind in "fiu":
        return pictures.ndim in (1, 3)
    return isinstance(pictures, (str, bytes, os.PathLike)) or hasattr(pictures, "convert")
