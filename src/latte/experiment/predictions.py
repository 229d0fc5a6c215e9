"""The prediction of every sample and its confidence, stored beside the results of a run.

A comparison sample by sample needs them, and so do intervals over images and an audit of the calibration error.

``predictions/NAME.safetensors``  one file per (method, seed): a row per sample, client after client in stream order
``predictions/index.json``        per file: its checksum, and that of the line of results.jsonl that it belongs to

A file counts only when both checksums are right; anything else (half a file, results that were computed again) is done
again by the next ``latte run --predictions``.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.types import Mask, Reals
from ..data.federation import Federation
from ..errors import InputError, refuse
from ..files.atomic import write_text
from ..files.documents import checksum, parse_json, read_json, sha256_of
from ..files.tensors import Tensors, parse_safetensors, read_safetensors, safetensors_bytes, write_safetensors
from ..simulation.results import Outcome, expected_calibration_error
from .folder import RunFolder, whole_lines
from .plan import Item, ItemKey, Plan

PREDICTIONS_FORMAT = "latte-predictions/1"
SAMPLE_COLUMNS = ("sample", "client", "position", "label", "prediction")
COLUMNS: dict[str, type] = {**dict.fromkeys(SAMPLE_COLUMNS, np.int32), "image": np.int64, "confidence": np.float64}
NAME_LISTS = {"clients": "clients", "domains": "domains", "classnames": "classes"}  # by field, the key in a file
Int32Column = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Predictions:
    """What one method predicted on one seed; the columns (n,) have a row per sample, client after client.

    ``sample`` is the sample's row in the embedding file, ``client`` the number of the client that saw it, ``position``
    when in the client's stream, ``label`` its true class, ``prediction`` the predicted one. ``clients`` and ``domains``
    name each client and its domain, ``classnames`` the classes. ``image`` is the source image: samples with the same
    number show the same picture (without an ``index`` in the embedding file, it is the row). ``confidence`` is the
    probability of the predicted class.
    """

    sample: Int32Column
    client: Int32Column
    position: Int32Column
    label: Int32Column
    prediction: Int32Column
    clients: tuple[str, ...]
    domains: tuple[str, ...]
    classnames: tuple[str, ...]
    image: NDArray[np.int64]
    confidence: Reals

    @property
    def correct(self) -> Mask:
        """Which predictions are right (n,)."""
        return np.asarray(self.label == self.prediction)

    @property
    def accuracy(self) -> float:
        """Accuracy over samples in per cent, as in the results."""
        return 100 * int(self.correct.sum()) / len(self.label)

    @property
    def calibration_error(self) -> float:
        """The expected calibration error, as in the results."""
        return expected_calibration_error(self.confidence, self.correct)


def predictions_of(federation: Federation, outcome: Outcome) -> Predictions:
    """Return an outcome sample by sample."""
    clients, embeddings = federation.clients, federation.embeddings
    lengths = [len(client) for client in clients]
    sample = np.concatenate([client.samples for client in clients])
    return Predictions(
        sample=sample.astype(np.int32),
        client=np.repeat(np.arange(len(clients), dtype=np.int32), lengths),
        position=np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        label=embeddings.labels[sample].astype(np.int32),
        prediction=np.concatenate(outcome.labels).astype(np.int32),
        clients=tuple(client.name for client in clients),
        domains=tuple(embeddings.domains[client.domain] for client in clients),
        classnames=embeddings.zero_shot.classnames,
        image=(sample if embeddings.index is None else embeddings.index[sample]).astype(np.int64),
        confidence=np.concatenate(outcome.confidences or ()),
    )


def pack(predictions: Predictions) -> str:
    """Return predictions as text, from a worker to the process that writes."""
    return base64.b64encode(safetensors_bytes(_columns(predictions), _lists(predictions))).decode("ascii")


def unpack(packed: str) -> Predictions:
    """Return what :func:`pack` packed."""
    return _predictions(parse_safetensors(base64.b64decode(packed), "predictions"), "predictions")


def _columns(predictions: Predictions) -> dict[str, NDArray[Any]]:
    return {name: getattr(predictions, name) for name in COLUMNS}


def _lists(predictions: Predictions) -> dict[str, str]:
    return {key: json.dumps(getattr(predictions, name)) for name, key in NAME_LISTS.items()}


def _predictions(stored: Tensors, where: str) -> Predictions:
    """Return the predictions in a file; columns of other lengths or types are refused."""
    fields: dict[str, Any] = {}
    for name, key in NAME_LISTS.items():
        fields[name] = parse_json(stored.metadata.get(key, ""), f"{where}: {key}", tuple[str, ...])
    rows = stored.arrays[SAMPLE_COLUMNS[0]].shape if SAMPLE_COLUMNS[0] in stored.arrays else (0,)
    for name, kind in COLUMNS.items():
        column = stored.arrays.get(name)
        if column is None or column.dtype != kind or column.shape != rows or column.ndim != 1:
            got = "no such column" if column is None else f"{column.dtype} of shape {column.shape}"
            raise refuse(f"{where}: {name}", got, f"one {kind.__name__} per sample")
        fields[name] = column
    return Predictions(**fields)


def read_predictions(run: Path, method: str, seed: int) -> Predictions:
    """Return what the method labelled ``method`` predicted on ``seed``, from the folder of a run."""
    files = PredictionFiles(Path(run))
    entries = files.entries()
    entry = entries.get((method, seed))
    if entry is None:
        labels = ", ".join(sorted({repr(label) for label, _ in entries})) or "none"
        want = f"what is there (methods: {labels}), or: latte run --predictions"
        raise refuse("predictions", f"method {method!r}, seed {seed} in {run}", want)
    path = files.path(method, seed)
    results = {sha256_of(line.encode()) for line in whole_lines(RunFolder(Path(run)).results)}
    if entry.result not in results or not _matches(path, entry):
        raise refuse(str(path), "a damaged file, or one of other results", "latte run --predictions to redo it")
    return _predictions(read_safetensors(path, "predictions", only=tuple(COLUMNS)), str(path))


@dataclass(frozen=True, slots=True)
class PredictionEntry:
    """A file in the index: its checksum, and that of the line of results that it belongs to."""

    method: str
    seed: int
    file: str
    sha256: str
    result: str


@dataclass(frozen=True, slots=True)
class PredictionIndex:
    """What index.json holds."""

    format: str
    files: tuple[PredictionEntry, ...]


@dataclass(frozen=True, slots=True)
class PredictionFiles:
    """The predictions in the folder of a run."""

    run: Path

    @property
    def index(self) -> Path:
        """The file of the checksums."""
        return self.run / "predictions" / "index.json"

    def path(self, method: str, seed: int) -> Path:
        """Return the file of one method and seed; any label gives a name that any system takes."""
        word = re.sub(r"[^A-Za-z0-9+=.-]+", "-", method)[:40].lstrip(".-")
        return self.index.with_name(f"{word}-{sha256_of(json.dumps(method).encode())[:8]}-{seed}.safetensors")

    def entries(self) -> dict[ItemKey, PredictionEntry]:
        """Return what is listed; nothing where the index is missing or damaged."""
        try:
            files = read_json(self.index, PredictionIndex, "index of predictions").files
        except InputError:
            return {}
        return {(entry.method, entry.seed): entry for entry in files}

    def trusted(self, lines: Mapping[ItemKey, str]) -> set[ItemKey]:
        """Return which of the results in ``lines`` have their predictions here, undamaged."""
        entries = self._belonging(lines)
        return {key for key, entry in entries.items() if _matches(self.path(*key), entry)}

    def restart(self, lines: Mapping[ItemKey, str]) -> None:
        """Forget the predictions of results that will be computed again."""
        if self.index.is_file():
            self._write(self._belonging(lines))

    def add(self, plan: Plan, item: Item, line: str, predictions: Predictions) -> None:
        """Write the predictions behind the result in ``line``; only when they are listed do they count."""
        method, seed = item.method.label, item.seed
        path = self.path(method, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        params = json.dumps(dict(item.method.params), sort_keys=True)
        texts = {"format": PREDICTIONS_FORMAT, "benchmark": plan.config.benchmark, "data": plan.data.sha256}
        texts |= {"method": method, "seed": str(seed), "params": params}
        write_safetensors(path, _columns(predictions), texts | _lists(predictions))
        entry = PredictionEntry(method, seed, path.name, checksum(path), sha256_of(line.encode()))
        self._write({**self.entries(), (method, seed): entry})

    def _belonging(self, lines: Mapping[ItemKey, str]) -> dict[ItemKey, PredictionEntry]:
        sums = {key: sha256_of(line.encode()) for key, line in lines.items()}
        return {key: entry for key, entry in self.entries().items() if sums.get(key) == entry.result}

    def _write(self, entries: Mapping[ItemKey, PredictionEntry]) -> None:
        files = tuple(sorted(entries.values(), key=repr))  # whichever came first
        write_text(self.index, json.dumps(asdict(PredictionIndex(PREDICTIONS_FORMAT, files)), indent=1) + "\n")


def _matches(path: Path, entry: PredictionEntry) -> bool:
    return entry.file == path.name and path.is_file() and checksum(path) == entry.sha256
