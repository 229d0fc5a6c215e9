"""Cells of very many made-up clients with the statistics of a benchmark: ``cells.py crowd`` runs it."""

from __future__ import annotations

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from cell_groups import FIRST, GROUPINGS, SHARES, cells_of
from measurements import MethodSpec

from latte.core.maths import entropy, softmax
from latte.core.memory import LocalMemory
from latte.core.types import Prototypes
from latte.data.catalogue import BenchmarkFile, read_benchmark
from latte.data.federation import Embeddings
from latte.methods import create, create_exchange
from latte.methods.ristretto.sums import ClassSums


class Crowd:
    """Clients whose images are drawn around class means of two domains of a benchmark, mixed in their own proportion.

    The means of every domain and class, and the covariance around them, are those of the real embeddings. The images of
    a client depend on its number only.
    """

    def __init__(self, embeddings: Embeddings, seed: int) -> None:
        self.zero_shot, self.seed = embeddings.zero_shot, seed
        rows = np.asarray(embeddings.views[:, 0], np.float64)
        self.domains, self.classes = len(embeddings.domains), self.zero_shot.classes
        self.means = np.zeros((self.domains, self.classes, self.zero_shot.dim))
        for label in range(self.classes):
            for domain in range(self.domains):
                here = (embeddings.labels == label) & (embeddings.domain == domain)
                self.means[domain, label] = rows[here].mean(axis=0)
        rest = rows - self.means[embeddings.domain, embeddings.labels]
        covariance = rest.T @ rest / len(rest) + 1e-9 * np.eye(rest.shape[1])
        self.factor = np.linalg.cholesky(covariance).T.astype(np.float32)

    def images(self, client: int, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the first ``number`` images of a client (number, D) and their classes."""
        rng = np.random.default_rng([self.seed, client])
        domains, share = rng.choice(self.domains, 2, replace=False), rng.random()
        labels = rng.integers(0, self.classes, number)
        noise = rng.standard_normal((number, self.zero_shot.dim), np.float32)
        rows = (noise @ self.factor).astype(np.float64)
        rows += share * self.means[domains[0], labels] + (1 - share) * self.means[domains[1], labels]
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows.astype(np.float32), labels


def latte_uploads(crowd: Crowd, method: MethodSpec, clients: int) -> Iterator[tuple[Any, np.ndarray]]:
    """Yield the upload of every client after its first images, and their mean."""
    zero_shot, params = crowd.zero_shot, method.params
    rate = params.prototype_rate(zero_shot.classes)
    for client in range(clients):
        rows, _ = crowd.images(client, FIRST)
        logits = zero_shot.logits(rows)
        memory = LocalMemory(zero_shot.classes, params.k_l, zero_shot.dim, params.replace)
        for row, label, uncertainty in zip(rows, logits.argmax(axis=1), entropy(logits), strict=True):
            memory.put(int(label), row, float(uncertainty))
        yield Prototypes(*memory.prototypes(params.prototype, rate), zero_shot.fingerprint), rows.mean(axis=0)


def ristretto_uploads(crowd: Crowd, method: MethodSpec, clients: int) -> Iterator[tuple[Any, np.ndarray]]:
    for client in range(clients):
        rows, _ = crowd.images(client, FIRST)
        soft = softmax(rows.astype(np.float64) @ crowd.zero_shot.precise_scaled.T)
        counts = soft.sum(axis=0)
        means = soft.T @ rows / np.maximum(counts, 1e-9)[:, None]
        yield ClassSums(counts, means, crowd.zero_shot.fingerprint), rows.mean(axis=0)


UPLOADS: dict[str, Callable[..., Iterator[tuple[Any, np.ndarray]]]] = {
    "latte": latte_uploads,
    "ristretto": ristretto_uploads,
}


def measure_crowd(a: argparse.Namespace) -> None:
    embeddings = read_benchmark(BenchmarkFile(a.files[0].stem, a.files[0]))
    crowd = Crowd(embeddings, 0)
    for method in map(MethodSpec, a.methods.split(",")):
        started = time.process_time()
        exchange = create_exchange(method.name, crowd.zero_shot, method.params)
        prepared, means = [], np.empty((a.clients, crowd.zero_shot.dim))
        for i, (upload, mean) in enumerate(UPLOADS[method.name](crowd, method, a.clients)):
            prepared.append(exchange.prepare(upload))
            means[i] = mean
        print(f"\n{method.text}: {a.clients:,} uploads ({time.process_time() - started:.0f} s)", flush=True)
        print_crowd(crowd, method, CrowdUploads(prepared, means), a)


@dataclass(frozen=True, eq=False)
class CrowdUploads:
    prepared: list[Any]
    means: np.ndarray


def print_crowd(crowd: Crowd, method: MethodSpec, uploads: CrowdUploads, a: argparse.Namespace) -> None:
    """Print the accuracy of some clients after one sync, by the size of their cells."""
    clients = len(uploads.prepared)
    sample = np.linspace(0, clients - 1, a.sample).astype(np.int64)
    base = accuracies(crowd, method, sample, None, a.images)
    zero_shot = zero_shot_of(crowd, sample, a.images)
    print(f"zero-shot {100 * zero_shot.mean():.2f}, without a sync {100 * base.mean():.2f}; gain over zero-shot:\n")
    print("| cells | clients per cell | gain | change |\n|:--|--:|--:|--:|", flush=True)
    whole = None
    for share in (*SHARES, *map(float, a.small.split(","))):
        for grouping in GROUPINGS if share < 1 else GROUPINGS[:1]:
            cells = round(1 / share)
            groups = cells_of(grouping, uploads.means, cells, np.random.default_rng(cells))
            found = accuracies(crowd, method, sample, pull_cells(crowd, method, uploads, groups, sample), a.images)
            whole = found if whole is None else whole
            change = found - whole  # per client, paired
            error = 196 * change.std() / math.sqrt(len(change))
            shown = f"{100 * change.mean():+.2f} ± {error:.2f}" if share < 1 else ""
            gain = 100 * (found.mean() - zero_shot.mean())
            label = "one pool" if share == 1 else f"{cells} {grouping}"
            print(f"| {label} | {clients / cells:,.0f} | {gain:+.2f} | {shown} |", flush=True)


def pull_cells(
    crowd: Crowd, method: MethodSpec, uploads: CrowdUploads, groups: Sequence[np.ndarray], sample: np.ndarray
) -> dict[int, Any]:
    """Return what each client of the ``sample`` downloads from its own cell."""
    downloads: dict[int, Any] = {}
    for rows in groups:
        asking = np.intersect1d(rows, sample)
        if not len(asking):
            continue
        exchange = create_exchange(method.name, crowd.zero_shot, method.params)
        for i in rows.tolist():
            exchange.store(f"client {i}", uploads.prepared[i])
        for start in range(0, len(asking), 64):
            part = asking[start : start + 64].tolist()
            downloads |= dict(zip(part, exchange.pull_many([f"client {i}" for i in part]), strict=True))
    return downloads


def accuracies(
    crowd: Crowd, method: MethodSpec, sample: np.ndarray, downloads: dict[int, Any] | None, images: int
) -> np.ndarray:
    """Return the accuracy of each client on the images after the sync."""
    right = np.empty(len(sample))
    for place, i in enumerate(sample.tolist()):
        rows, labels = crowd.images(i, FIRST + images)
        client: Any = create(method.name, crowd.zero_shot, method.params)
        answers = [client.predict(row).label for row in rows[:FIRST]]
        if downloads is not None:
            client.receive(downloads[i])
        answers = [client.predict(row).label for row in rows[FIRST:]]
        right[place] = np.mean(answers == labels[FIRST:])
    return right


def zero_shot_of(crowd: Crowd, sample: np.ndarray, images: int) -> np.ndarray:
    right = np.empty(len(sample))
    for place, i in enumerate(sample.tolist()):
        rows, labels = crowd.images(i, FIRST + images)
        right[place] = np.mean(crowd.zero_shot.logits(rows[FIRST:]).argmax(axis=1) == labels[FIRST:])
    return right
