"""Latte with labels, from the formulas of benchmarks/results/labels.md: loops, float64, and nothing of latte's."""

from __future__ import annotations

from math import sqrt

import numpy as np

from slow_latte import SlowClient, route, unit


class SlowTaughtClient(SlowClient):
    def __init__(self, text, scale, p):
        super().__init__(text, scale, p)
        self.labelled = []  # (image, class)
        self.head = None  # V and the mean of all images, once the fleet has a label
        self.total, self.images = np.zeros(self.text.shape[1]), 0

    def has_label(self, m):
        return any(np.allclose(m, f, atol=1e-9) for f, _ in self.labelled)

    def predict(self, f):
        f = unit(np.asarray(f, np.float64))
        z = super().predict(f)
        if self.head is not None:
            V, mean = self.head
            z = z + (1 + self.p.alpha) * V @ (f - mean)
            self.total, self.images = self.total + f, self.images + 1
        return z

    def correct(self, f, y):
        self.labelled.append((unit(np.asarray(f, np.float64)), y))

    def merged(self, c):
        own = [(0.0, f) for f, y in self.labelled if y == c]
        own += sorted((item for item in self.local[c] if not self.has_label(item[1])), key=lambda item: item[0])
        if self.p.memory == "local":
            return own[: self.p.k_l]
        if self.p.memory == "external":
            return self.external[c]
        return sorted(own + self.external[c], key=lambda item: item[0])[: self.p.k_l]

    def prototypes(self):
        kept, self.local = self.local, [[item for item in queue if not self.has_label(item[1])] for queue in self.local]
        result = super().prototypes()
        self.local = kept
        return result

    def residuals(self):
        R, r = np.zeros(self.text.shape), np.zeros(len(self.text))
        for f, y in self.labelled:
            p = np.exp(self.scale * self.text @ f - max(self.scale * self.text @ f))
            e = np.eye(len(self.text))[y] - p / p.sum()
            R, r = R + np.outer(e, f), r + e
        return R, r, len(self.labelled)

    def receive(self, prototypes, head):
        self.external = prototypes
        if head is None:
            self.head, self.total, self.images = None, 0 * self.total, 0
            return
        if self.images == 0:  # a beginning: what is stored
            stored = [m for queue in self.local for _, m in queue]
            self.total, self.images = sum(stored, 0 * self.total), len(stored)
        self.head = head


def slow_label_head(uploads, residuals, images):
    """Return V and the mean of all images: prototypes, (R, r, l) and (sum, count), a list of each."""
    C, d = residuals[0][0].shape
    every = [g for prototypes in uploads for item in prototypes if item is not None for g in [item[1]]]
    if len(every) < 2 or not images:
        return np.zeros((C, d)), np.zeros(d)
    centre, scatter, votes = sum(every) / len(every), np.zeros((d, d)), 0
    for prototypes in uploads:
        rows = [item[1] - centre for item in prototypes if item is not None]
        size = sum(row @ row for row in rows)
        if size > 1e-12:
            scatter, votes = scatter + sum(np.outer(row, row) for row in rows) / size, votes + 1
    covariance = scatter * d / votes if votes else np.eye(d)
    middle = float(np.median([count for _, count in images]))
    share = [min(1.0, 4 * middle / count) for _, count in images]
    claims = [(w * total, w * count) for w, (total, count) in zip(share, images, strict=True)]
    mean = sum(total for total, _ in claims) / sum(count for _, count in claims)
    G, labels = sum(R - np.outer(r, mean) for R, r, _ in residuals), sum(count for _, _, count in residuals)
    v = max(1 - mean @ mean, 0.02)
    V = 80 / (v * (1 + sqrt(labels / 64)) ** 2) * G @ np.linalg.inv(covariance + 3 * np.eye(d))
    return V - V.mean(axis=0), mean


def slow_taught_federation(text, scale, params, streams, told, period, names):
    """Return per client the logits of every sample; a label (``told``, -1: none) comes right after the answer."""
    clients = [SlowTaughtClient(text, scale, params) for _ in streams]
    uploads, labels, images = {}, {}, {}
    out = [[] for _ in streams]
    longest = max(len(s) for s in streams)
    for number in range(1, longest + 1):
        for i, stream in enumerate(streams):
            if number <= len(stream):
                out[i].append(clients[i].predict(stream[number - 1]))
                if told[i][number - 1] >= 0:
                    clients[i].correct(stream[number - 1], told[i][number - 1])
        if number % period or number == longest:
            continue
        for name, client in zip(names, clients, strict=True):
            uploads[name] = client.prototypes()
            if client.labelled:
                labels[name] = client.residuals()
            if client.head is not None and client.images:
                images[name] = client.total.copy(), client.images
        head = slow_label_head(list(uploads.values()), list(labels.values()), list(images.values())) if labels else None
        for i, client in enumerate(clients):
            given = [route(uploads, names[i], c, params.k_e, params.empty_query or "client") for c in range(len(text))]
            for c in range(len(text)):  # the label prototype: of the whole fleet, as certain as can be
                mine = [f for other in clients for f, y in other.labelled if y == c]
                if mine:
                    given[c] = [(0.0, unit(sum(mine))), *given[c]]
            client.receive(given, head)
    return [np.array(rows).reshape(-1, len(text)) for rows in out]
