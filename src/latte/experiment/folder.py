"""A run folder on disk: which of its lines are trusted, and writing that survives a kill at any moment.

``config.json``    the resolved configuration, whose hash names the folder
``manifest.json``  machine, versions, times, command lines; one entry per session
``results.jsonl``  one Result per (method, seed); once done, in the order of the configuration
``items.jsonl``    per result: its checksum and how long it took
``done``           the checksum of results.jsonl; there only when everything is
``predictions/``   of a run with predictions: a NAME.safetensors per (method, seed), a row per sample, client after
                   client in stream order; and index.json, per file its checksum and that of its line of results.jsonl

A line of results.jsonl counts only when it parses, belongs to the configuration and has its checksum in items.jsonl; a
file of predictions only when both of its checksums are right. Anything else (half a line, an edited number) is done
again.
"""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.types import Mask, Reals
from ..data.federation import Federation
from ..errors import InputError, refuse
from ..files.atomic import append_line, lock, write_text
from ..files.documents import checksum, parse_json, read_bytes, read_json, read_text, sha256_of
from ..files.tensors import Tensors, parse_safetensors, read_safetensors, safetensors_bytes, write_safetensors
from ..simulation.results import Outcome, Result, expected_calibration_error, read_result
from .plan import Item, ItemKey, Plan


@dataclass(frozen=True, slots=True)
class ItemEntry:
    """A line of items.jsonl: the checksum of a result, and how long it took."""

    method: str
    seed: int
    seconds: float
    sha256: str


class ResultLine(NamedTuple):
    """A line of results.jsonl, and the result that it is read as, once."""

    text: str
    result: Result

    @classmethod
    def parse(cls, text: str) -> ResultLine:
        """Read a line; one that is no result is refused."""
        return cls(text, Result.from_json(text))


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run."""

    path: Path

    @property
    def results(self) -> Path:
        """The file of the results."""
        return self.path / "results.jsonl"

    @property
    def items(self) -> Path:
        """The file of checksums and times."""
        return self.path / "items.jsonl"

    def finished(self) -> bool:
        """Return whether the run has ended; its results may have been changed since."""
        return (self.path / "done").is_file()

    def complete(self) -> bool:
        """Return whether the run has ended and its results are unchanged."""
        mark = _content(self.path / "done").decode("ascii", errors="replace").strip()
        return self.finished() and mark == sha256_of(_content(self.results))

    def lines(self) -> Iterator[ResultLine | None]:
        """Yield every whole line of results; None for one that is no result or whose checksum is not in items.jsonl."""
        sums = {entry.sha256 for entry in self._entries()}
        for text in whole_lines(self.results):
            line = None
            if sha256_of(text.encode()) in sums:
                with contextlib.suppress(InputError):
                    line = ResultLine.parse(text)
            yield line

    def trusted(self, plan: Plan) -> dict[ItemKey, ResultLine]:
        """Return the lines of results that can be trusted, by method label and seed."""
        return {(line.result.method, line.result.seed): line for line in self.lines() if line and belongs(line, plan)}

    def seconds(self) -> dict[ItemKey, float]:
        """Return how long each method took on each seed."""
        return {(entry.method, entry.seed): entry.seconds for entry in self._entries()}

    def append(self, line: ResultLine, seconds: float) -> None:
        """Add one result; only after both lines are on disk does it count."""
        sha256 = sha256_of(line.text.encode())
        entry = ItemEntry(line.result.method, line.result.seed, round(seconds, 3), sha256)
        append_line(self.results, line.text)
        append_line(self.items, json.dumps(asdict(entry)))

    def restart(self, plan: Plan, lines: Sequence[str]) -> None:
        """Begin or continue: the configuration and the trusted ``lines`` are written anew, the done mark is gone."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "done").unlink(missing_ok=True)
        sums = {sha256_of(line.encode()) for line in lines}
        entries = {entry.sha256: json.dumps(asdict(entry)) for entry in self._entries() if entry.sha256 in sums}
        write_text(self.path / "config.json", plan.canonical())
        write_text(self.results, _joined(lines))
        write_text(self.items, _joined(entries.values()))

    def finish(self, lines: Sequence[str]) -> None:
        """Write the results in their final order, then the done mark."""
        write_text(self.results, _joined(lines))
        write_text(self.path / "done", sha256_of(_joined(lines).encode()) + "\n")

    def manifest(self) -> dict[str, Any]:
        """Return the manifest as far as it can be read."""
        try:
            return read_json(self.path / "manifest.json", dict[str, Any])
        except InputError:
            return {}

    def _entries(self) -> Iterator[ItemEntry]:
        for line in whole_lines(self.items):
            with contextlib.suppress(InputError):
                yield parse_json(line, str(self.items), ItemEntry)

    @contextlib.contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes out; the system lets go when the process ends, however it ends."""
        self.path.mkdir(parents=True, exist_ok=True)
        with lock(self.path / "lock", f"run folder {self.path}"):
            yield


@dataclass(frozen=True, slots=True)
class Results:
    """The results of a run folder, each once; ``ignored`` counts the lines that are not trusted."""

    results: tuple[Result, ...]
    done: bool
    ignored: int


def read_results(folder: RunFolder) -> Results:
    """Read the trusted results: all of a run that is done, else the lines whose checksum is in items.jsonl.

    A run that ended with other results than are there now is refused.
    """
    known: dict[ItemKey, Result] = {}
    if not folder.finished():
        lines = list(folder.lines())
        known = {(line.result.method, line.result.seed): line.result for line in lines if line}
        return Results(tuple(known.values()), False, lines.count(None))
    if not folder.complete():
        raise refuse(str(folder.results), "other results than the run ended with", "`latte run` to redo them")
    for number, text in enumerate(read_text(folder.results).splitlines(), 1):
        where = f"{folder.results}, line {number}"
        result = read_result(text, where)
        if (result.method, result.seed) in known:
            raise refuse(where, f"{result.method}, seed {result.seed} twice", "it once")
        known[result.method, result.seed] = result
    return Results(tuple(known.values()), True, 0)


def belongs(line: ResultLine, plan: Plan) -> bool:
    """Say whether a result is that of an item of ``plan``."""
    result = line.result
    methods = [method for method in plan.config.methods if method.label == result.method]
    return (
        result.benchmark == plan.config.benchmark
        and result.seed in plan.config.seeds
        and [(dict(method.params), method.setting) for method in methods] == [(dict(result.params), result.setting)]
    )


def _joined(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


def _content(path: Path) -> bytes:
    """Return the bytes of a file; none where there is no such file."""
    try:
        return read_bytes(path)
    except InputError:
        return b""


def whole_lines(path: Path) -> list[str]:
    """Return the whole lines of a file; half a line at the end is none."""
    return _content(path).decode("utf-8", errors="replace").split("\n")[:-1]


# --- the prediction of every sample and its confidence --------------------------------------------------------


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
