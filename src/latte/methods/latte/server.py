"""Global memory: the latest prototypes of all clients, and which of them a client gets. It is Latte's exchange."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ...core import validate
from ...core.exchange import FEWEST, NamedRows, TableExchange
from ...core.maths import entropy, normalised
from ...core.types import (
    Arrays,
    External,
    Integers,
    Mask,
    Prototypes,
    Reals,
    Rounding,
    State,
    TeachingRights,
    Vectors,
)
from ...core.zero_shot import ZeroShot
from ...errors import refuse
from ..labels import (
    LabelTable,
    checked_labels,
    label_fields,
    label_head,
    label_inverse,
    split_state,
)
from .donors import Digests, Donors, Routing, Uploaded, digests_of, donors_of_many

SINGLE_ROUNDING = 1e-6  # the rounding of unit vectors in single precision, with room for sums over their dimensions
LAST_PLACE = 2**63 - 1  # in the order of joining
STORED = ("vectors", "entropy", "seen", "order")  # the rest follows from these
MOST_IMAGES = 1e12  # that a client can have seen
IMAGES_CAP = 4.0  # times the median over the clients: for so many images a client counts in the mean of all, at most
LEAST_VOTE = 1e-12  # squared size of prototypes that say nothing about a covariance
FRESH = 64  # up to twice so many clients, what labels are measured by is found anew after every upload
_CHUNK = 256  # rows whose digests are computed at a time, to bound the memory

RowForm: TypeAlias = Callable[[Vectors], NDArray[Any]]  # (n, D) vectors -> (n, width), row by row


class Rows(NamedTuple):
    """What is stored, a row per client."""

    vectors: Vectors  # (n, C, D); those of one class lie side by side in memory: a pull compares them with each other
    entropy: Reals  # (n, C)
    seen: Mask  # (n, C)
    order: NDArray[np.uint64]  # (n,) decides ties: the lower number comes first
    digests: Digests  # (n, C) of the vectors, side by side as these
    stale: Mask  # (n,) whose digests are computed when they are needed, many rows at once


class PreparedRow(NamedTuple):
    """A checked upload: ``vectors`` (C, D), ``entropy`` and ``seen`` (C,), and what labels add to it, if any do."""

    vectors: Vectors
    entropy: Reals
    seen: Mask
    labels: Mapping[str, Reals] | None = None
    images: tuple[Reals, float] | None = None  # the sum of all embeddings (D,), and of how many


class Taught(NamedTuple):
    """What labels add to every download."""

    prototypes: Vectors  # (C, D) of images with a label
    valid: Mask  # (C,)
    weights: Reals  # (C, D), and
    bias: Reals  # (C,): the label head


class Picked(NamedTuple):
    """What m clients get, without the vectors: the ``rows`` (m, C, E) of a memory, ``valid``, and ``entropy``."""

    rows: Integers
    valid: Mask
    entropy: Reals

    def of(self, places: Any) -> Picked:
        """Return the arrays of some of the clients."""
        return Picked(*(array[places] for array in self))


class GlobalMemory(TableExchange[Prototypes]):
    """The latest prototypes of all clients in one growing array.

    It serves the task of one ``zero_shot`` classifier and refuses prototypes that were made with another. Any number of
    threads may use one global memory: a lock makes each call atomic, so that an upload is seen wholly or not at all,
    and a state or a copy is that of one moment. (The rows that :meth:`join` and :meth:`neighbours` return are valid
    until a client leaves: threads use :meth:`push` and :meth:`pull`.)

    >>> import numpy as np
    >>> zero_shot = ZeroShot(np.eye(2), ("cat", "dog"))
    >>> memory = GlobalMemory(zero_shot, Routing(external_slots=1))
    >>> both = Prototypes(np.eye(2, dtype=np.float32), np.array([True, True]), zero_shot.fingerprint)
    >>> memory.push("ann", both)
    >>> memory.push("bob", both)
    >>> memory.pull("ann").valid
    array([[ True],
           [ True]])
    """

    def __init__(self, zero_shot: ZeroShot, routing: Routing, clients: Iterable[str] = ()) -> None:
        super().__init__(zero_shot)
        self.routing = routing
        self._classes = np.arange(zero_shot.classes)[:, None]  # beside rows (C, E)
        per_class = {"label_counts": zero_shot.text.shape[:1], "label_sums": zero_shot.text.shape}
        self._labels = LabelTable({**label_fields(zero_shot), **per_class})
        self._replace(self._new_table())
        for client in clients:
            self.join(client)

    def __repr__(self) -> str:
        shape = f"{len(self)} clients, C={self.zero_shot.classes}, D={self.zero_shot.dim}"
        return f"GlobalMemory({shape}, {self.routing}, task={self.task[:8]!r})"

    def _new_table(self) -> NamedRows:
        classes, dim = self.zero_shot.text.shape
        vectors, shape = np.zeros((classes, FEWEST, dim), np.float32), (FEWEST, classes)
        entropies, seen, order = np.ones(shape), np.zeros(shape, np.bool_), np.zeros(FEWEST, np.uint64)
        digests, stale = np.zeros((classes, FEWEST), np.uint64), np.zeros(FEWEST, np.bool_)
        return NamedRows(*Rows(vectors.transpose(1, 0, 2), entropies, seen, order, digests.T, stale))

    def _replace(self, table: NamedRows) -> None:
        self._table, self._encoded = table, dict[str, _EncodedRows]()
        self._images: dict[str, tuple[Reals, float]] = {}  # sum of all embeddings, and of how many, by client
        self._taught: Taught | None = None
        self._around: Reals | None = None  # what labels are measured by, and how many uploads ago it was found
        self._pushes = 0

    @property
    def _rows(self) -> Rows:
        return Rows(*self._table.arrays)

    # --- uploads ------------------------------------------------------------------------------------------

    def prepare(self, upload: Prototypes, rounding: Rounding | None = None) -> PreparedRow:
        """Check an upload and return what :meth:`store` stores of it, with the entropies (B5); nothing changes.

        With a ``rounding``, the distance by which encoding can have moved the vectors (or each row), a prototype has to
        be classified as its own class by zero-shot. An honest prototype is: it is a sum, with positive weights, of
        embeddings that are classified so, and the embeddings of one class form a convex cone.
        """
        task = self.zero_shot
        validate.message("upload", upload, Prototypes, self.task)
        seen = validate.boolean("upload.seen", upload.seen, (task.classes,))
        vectors = validate.unit_where("upload.vectors", upload.vectors, seen, task.text.shape)
        logits = task.logits(vectors)  # (C, C), a row per prototype
        if rounding is not None and (seen & (logits.max(axis=1) > np.diagonal(logits))).any():
            # a vector that moved by its rounding changes the difference of two logits by at most that times the
            # distance of the two texts times the scale
            slack = task.scale * (np.asarray(rounding)[..., None] + SINGLE_ROUNDING) * task.distances
            excess = logits - np.diagonal(logits)[:, None] - slack
            odd = np.flatnonzero(seen & (excess.max(axis=1) > 0))
            if len(odd):
                own, other = task.classnames[odd[0]], task.classnames[excess[odd[0]].argmax()]
                shown = f"row {odd[0]} ({own!r}), which zero-shot classifies as {other!r}"
                raise refuse("upload.vectors", shown, "prototypes of their own classes")
        labels, images = self._checked_labels(upload)
        return PreparedRow(vectors, np.where(seen, entropy(logits), 1.0), seen, labels, images)

    def prepare_many(self, uploads: Prototypes) -> list[PreparedRow | None]:
        """Return what :meth:`prepare` returns for each of many uploads without labels, to the same bits.

        ``uploads`` has ``vectors`` (m, C, D) and ``seen`` (m, C). An upload that rounding may have moved out of its
        class, that is unsound, or of a single class is None: it has to be prepared by itself.
        """
        task, seen = self.zero_shot, uploads.seen
        vectors = np.where(seen[:, :, None], uploads.vectors, np.float32(0))
        flat = vectors.reshape(-1, task.dim)
        squares = np.einsum("nd,nd->n", flat, flat).reshape(seen.shape)
        good = (validate.nearly_unit(squares) | ~seen).all(axis=1) & (seen.sum(axis=1) > 1)
        vectors /= np.where(seen & good[:, None], validate.lengths_of(squares), np.float32(1))[:, :, None]
        vectors[~good] = 0
        logits = task.logits(vectors)  # (m, C, C): a product per upload
        good &= ~(seen & (logits.max(axis=2) > np.diagonal(logits, axis1=1, axis2=2))).any(axis=1)
        entropies = np.where(seen, entropy(logits), 1.0)
        return [PreparedRow(vectors[i], entropies[i], seen[i]) if good[i] else None for i in range(len(seen))]

    def _checked_labels(self, upload: Prototypes) -> tuple[dict[str, Reals] | None, tuple[Reals, float] | None]:
        """Return what labels add to an upload; refuse sums that no images can have given."""
        (classes, dim), images, labels = self.zero_shot.text.shape, None, None
        sums = checked_labels(upload, self.zero_shot)
        if (upload.label_counts is None, upload.label_sums is None) != (sums is None, sums is None):
            raise refuse("upload", "a part of what labels add up to", "label_counts and label_sums, too, or none")
        if sums is not None:
            counts = validate.finite_array("upload.label_counts", upload.label_counts, (classes,))
            total = validate.finite_array("upload.label_sums", upload.label_sums, (classes, dim))
            if counts.min() < 0 or counts.sum() > sums.labels * (1 + validate.NORM_TOLERANCE):
                raise refuse("upload.label_counts", "counts below 0 or above the labels", "labels per class")
            validate.check_lengths("upload.label_sums", total, counts)
            labels = {**sums._asdict(), "label_counts": counts, "label_sums": total}
        if (upload.image_sum is None) != (upload.images is None):
            raise refuse("upload", "one of image_sum and images", "both, or none")
        if upload.images is not None:
            mean = validate.finite_array("upload.image_sum", upload.image_sum, (dim,))
            count = float(validate.finite_array("upload.images", upload.images, ()))
            if not 1 <= count <= MOST_IMAGES:
                raise refuse("upload.images", count, f"1 to {MOST_IMAGES:g}")
            validate.check_lengths("upload.image_sum", mean[None], np.array([count]))
            images = mean, count
        return labels, images

    def store(self, client: str, prepared: PreparedRow) -> None:
        """Store what :meth:`prepare` returned; a new client joins."""
        with self._lock:
            place = None if client in self._table.row_of else self._next_place(client)
            self._table.set(client, *prepared[:3], place, 0, True)
            self._labels.put(client, prepared.labels)
            self._images.pop(client, None)
            if prepared.images is not None:
                self._images[client] = prepared.images
            self._taught, self._pushes = None, self._pushes + 1
            self._encode_again(self._table.row_of[client])

    def join(self, client: str) -> int:
        """Return the row of ``client``, a new one (with nothing seen) if it was not there."""
        name = validate.client_name(client)
        with self._lock:
            if name not in self._table.row_of:
                self._table.set(name, 0, 1, False, self._next_place(name), 0, False)
            return self._table.row_of[name]

    def _next_place(self, name: str) -> int:
        """Return the place of a new client in the order that decides ties."""
        if not self.routing.by_joining:
            return stable_place(name)
        return int(self._rows.order.max()) + 1 if len(self) else 0

    def forget(self, client: str) -> None:
        """Remove ``client`` and its upload. Clients that have its prototypes already keep them until they pull."""
        with self._lock:
            (row,) = self._rows_of([client])
            self._table.remove(validate.client_name(client))
            self._labels.put(client, None)
            self._images.pop(client, None)
            self._taught, self._around = None, None
            self._encode_again(row, len(self))  # the last row took its place

    def _encode_again(self, *rows: int) -> None:
        for encoded in self._encoded.values():
            encoded.fresh[[row for row in rows if row < len(encoded.fresh)]] = False

    # --- labels -------------------------------------------------------------------------------------------

    @property
    def labels(self) -> Mapping[str, int]:
        """How many labels the latest upload of each client stands for; clients without are left out."""
        with self._lock:
            return self._labels.labels

    @property
    def rights(self) -> TeachingRights:
        """Whose labels count in full, and whose not at all; by default everybody's do."""
        return self._labels.rights

    def grant(self, rights: TeachingRights) -> None:
        """Replace the rights to teach."""
        with self._lock:
            self._labels.grant(rights)
            self._taught = None

    def taught(self) -> Taught | None:
        """Return what labels add to every download; None if nobody's labels count."""
        with self._lock:
            names, sums = self._labels.capped()
            if names and self._taught is None:
                count, total = sums["label_counts"].sum(axis=0), sums["label_sums"].sum(axis=0)
                self._taught = Taught(normalised(total), (count > 0) & total.any(axis=1), *self._label_head(sums))
            return self._taught if names else None

    def _label_head(self, sums: Mapping[str, Reals]) -> tuple[Reals, Reals]:
        """Return V (C, D) and -V m̄ (C,), m̄ the mean of all images; zeros until there is enough to go by."""
        shape, inverse = self.zero_shot.text.shape, self._inverse()
        if inverse is None or not self._images:
            return np.zeros(shape), np.zeros(shape[0])
        totals, images = (np.array([self._images[name][part] for name in sorted(self._images)]) for part in (0, 1))
        # no client counts for many more images than others: its claim could move the mean of all
        share = np.minimum(1.0, IMAGES_CAP * np.median(images) / images)
        mean = share @ totals / (share @ images)
        residuals = sums["residual_sums"] - sums["residual_counts"][:, :, None] * mean
        count = sums["labels"].sum(keepdims=True)
        (weights,) = label_head(residuals.sum(axis=0)[None], count, 1.0 - float(mean @ mean), inverse)
        return weights, -weights @ mean

    def _inverse(self) -> Reals | None:
        """Return (Σ + ρ_L I)⁻¹ (D, D), Σ the scatter of all prototypes around their mean; None with fewer than two.

        One client has one vote. Where very many upload one by one, it may be some uploads old.
        """
        if self._around is None or self._pushes >= max(1, len(self) // FRESH):
            order = [self._table.row_of[name] for name in sorted(self._table.names)]
            vectors, seen, dim = self._rows.vectors[order], self._rows.seen[order], self.zero_shot.dim
            self._around, self._pushes = None, 0
            if seen.sum() >= 2:
                mean, scatter, voters = vectors[seen].mean(axis=0, dtype=np.float64), np.zeros((dim, dim)), 0
                for mine, there in zip(vectors, seen, strict=True):
                    rows = mine[there] - mean
                    size = float((rows**2).sum())
                    if size > LEAST_VOTE:
                        scatter, voters = scatter + rows.T @ rows / size, voters + 1
                self._around = label_inverse(scatter * (dim / voters) if voters else np.eye(dim))
        return self._around

    # --- downloads ----------------------------------------------------------------------------------------

    def _uploaded(self) -> Uploaded:
        rows = self._rows
        return Uploaded(
            rows.vectors.transpose(1, 0, 2), rows.seen, np.argsort(rows.order, kind="stable"), self._digests
        )

    def _digests(self) -> Digests:
        """Return the digests (C, n), after those of the rows that have changed were computed."""
        rows = self._rows
        vectors, digests = rows.vectors.transpose(1, 0, 2), rows.digests.T
        stale = np.flatnonzero(rows.stale)
        for start in range(0, len(stale), _CHUNK):
            part = stale[start : start + _CHUNK]
            for label, of_class in enumerate(vectors):
                digests[label, part] = digests_of(of_class[part])
        rows.stale[stale] = False
        return digests

    def neighbours(self, client: str) -> Donors:
        """Return the rows (C, E) whose prototypes ``client`` gets, most similar first, and which are real."""
        picked = self.pick([client])
        return Donors(picked.rows[0], picked.valid[0])

    def pick(self, clients: Sequence[str]) -> Picked:
        """Return which prototypes each of ``clients`` gets, as rows, without the prototypes themselves."""
        with self._lock:
            rows, valid = donors_of_many(self._uploaded(), self.routing, self._rows_of(clients))
            uncertainty = self._rows.entropy[rows, self._classes]
            return Picked(rows, valid, np.where(valid, uncertainty, 1.0))

    def pull_many(self, clients: Sequence[str]) -> list[External]:
        """Return, per class, the prototypes of the k_e clients most similar to each of ``clients`` (eq. 2)."""
        with self._lock:
            return self._downloads(self.pick(clients))

    def pull_traced(self, clients: Sequence[str]) -> tuple[list[External], Integers]:
        """Return the downloads of :meth:`pull_many`, and how many prototypes each client gets from which: (m, N)."""
        with self._lock:
            picked = self.pick(clients)
            counts = np.zeros((len(clients), len(self)), np.int64)
            client, _, _ = at = np.nonzero(picked.valid)
            np.add.at(counts, (client, picked.rows[at]), 1)
            return self._downloads(picked), counts

    def _downloads(self, picked: Picked) -> list[External]:
        downloads, stored, taught = [], self._rows.vectors, self.taught()
        for rows, valid, uncertainty in zip(*picked, strict=True):
            vectors = stored[rows, self._classes]
            vectors[~valid] = 0
            if taught is None:
                downloads.append(External(vectors, uncertainty, valid, self.task))
                continue
            # one slot more: the prototypes of images with a label, which are as certain as can be
            vectors = np.concatenate([np.where(taught.valid[:, None], taught.prototypes, 0)[:, None], vectors], axis=1)
            uncertainty = np.concatenate([np.where(taught.valid, 0.0, 1.0)[:, None], uncertainty], axis=1)
            valid = np.concatenate([taught.valid[:, None], valid], axis=1)
            head = taught.weights.copy(), taught.bias.copy()
            downloads.append(External(vectors, uncertainty, valid, self.task, *head))
        return downloads

    def picked_vectors(self, picked: Picked, name: str, form: RowForm | None) -> NDArray[Any]:
        """Return the vectors of :meth:`pick` in a ``form`` (None: as they are), as (m, C E, width).

        Copies in that form are kept under its ``name`` until their client uploads again.
        """
        with self._lock:
            stored = self._rows.vectors
            if form is not None:
                if name not in self._encoded or len(self._encoded[name].fresh) < len(stored):
                    self._encoded[name] = _EncodedRows(form, stored)
                stored = self._encoded[name].refreshed(stored, picked.rows, self._classes)
            vectors: NDArray[Any] = stored[picked.rows, self._classes]
            return vectors.reshape(len(vectors), -1, vectors.shape[-1])

    def coverage(self, clients: Sequence[str]) -> Mask:
        """Return which classes (m, C) each of ``clients`` has a prototype of."""
        with self._lock:
            return self._rows.seen[self._rows_of(clients)]

    # --- state --------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Return a copy of everything, as arrays."""
        with self._lock:
            rows = {name: np.array(getattr(self._rows, name), order="C") for name in STORED}
            images = {f"images.{name}": array for name, array in validate.pack_names(list(self._images)).items()}
            images["images.sum"] = np.array([total for total, _ in self._images.values()])
            images["images.count"] = np.array([count for _, count in self._images.values()])
            labels = {**self._labels.state(), **(images if self._images else {})}
            return {**validate.pack_names(self._table.names), **rows, "task": validate.pack_task(self.task), **labels}

    def load(self, arrays: Arrays) -> None:
        """Continue from what :meth:`state` returned; nothing changes if it does not fit."""
        arrays, labels = split_state(arrays, "labels.")
        arrays, images = split_state(arrays, "images.")
        validate.require(arrays, ("names", "name_lengths", *STORED, "task"))
        validate.check_task(arrays["task"], self.task)
        names = validate.unpack_names(arrays["names"], arrays["name_lengths"])
        seen = validate.stored_mask("seen", arrays["seen"], (len(names), self.zero_shot.classes))
        uncertainty = validate.stored_entropies("entropy", arrays["entropy"], seen)
        vectors = validate.stored_vectors("vectors", arrays["vectors"], seen, self.zero_shot.dim)
        order = validate.exactly("order", arrays["order"], np.uint64, (len(names),))
        if self.routing.by_joining:
            if len(np.unique(order)) < len(order) or (order > LAST_PLACE).any():
                raise refuse("order", "a place twice or out of range", "the order of joining")
            if LAST_PLACE in order:  # there is no place behind it: number the clients anew, in the same order
                order = np.argsort(np.argsort(order)).astype(np.uint64)
        elif order.tolist() != [stable_place(name) for name in names]:
            raise refuse("order", "another order than that of the names", "the state of a memory with this routing")
        table = self._new_table()
        for name, *row in zip(names, vectors, uncertainty, seen, order, strict=True):
            table.set(name, *row, 0, True)
        taught, counted = self._labels.rows(labels), self._loaded_images(images)
        for name in {*taught, *counted}:
            if name not in table.row_of:
                raise refuse("labels.names", repr(name), "one of the names")
            total, count = counted.get(name, (None, None))
            number = None if count is None else np.array(count)
            more = {**taught.get(name, {}), "image_sum": total, "images": number}
            place = table.row_of[name]
            self.prepare(Prototypes(vectors[place], seen[place], self.task, **more))
        with self._lock:
            self._replace(table)
            self._labels.replace(taught)
            self._images = counted

    def _loaded_images(self, arrays: Arrays) -> dict[str, tuple[Reals, float]]:
        if not arrays:
            return {}
        validate.require(arrays, [f"images.{name}" for name in ("names", "name_lengths", "sum", "count")])
        names = validate.unpack_names(arrays["images.names"], arrays["images.name_lengths"])
        total = validate.exactly("images.sum", arrays["images.sum"], np.float64, (len(names), self.zero_shot.dim))
        count = validate.exactly("images.count", arrays["images.count"], np.float64, (len(names),))
        if not names:
            raise refuse("images.names", "no clients", "at least one, or no array")
        return {name: (total[i].copy(), float(count[i])) for i, name in enumerate(names)}

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:  # a copy: what is pickled later must be of one moment
            own = {
                "_table": copy.deepcopy(self._table),
                "_labels": copy.copy(self._labels),
                "_images": {**self._images},
            }
            return {**vars(self), **own, "_encoded": {}, "_lock": None}


class _EncodedRows:
    """Vectors (n, C, D) in the ``form`` in which a server sends them; each is encoded once after a change."""

    def __init__(self, form: RowForm, vectors: Vectors) -> None:
        n, classes, dim = vectors.shape
        example = form(np.zeros((1, dim), np.float32))
        self.form = form
        self.fresh = np.zeros((2 * n, classes), np.bool_)  # with room for more clients
        self.vectors = np.empty((2 * n, classes, example.shape[1]), example.dtype)

    def refreshed(self, vectors: Vectors, rows: Integers, labels: Integers) -> NDArray[Any]:
        """Return all of them, of which those at ``rows, labels`` are up to date."""
        sent = np.zeros_like(self.fresh)
        sent[rows, labels] = True
        stale = np.nonzero(sent & ~self.fresh)
        if len(stale[0]):
            self.vectors[stale] = self.form(vectors[stale])
            self.fresh[stale] = True
        return self.vectors


def stable_place(client: str) -> int:
    """Return 64 bits that depend on the name only, so that ties do not depend on the order of joining."""
    return int.from_bytes(hashlib.blake2b(client.encode(), digest_size=8).digest(), "little")
