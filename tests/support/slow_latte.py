"""Latte as the paper writes it, in loops and float64: the ground truth. It shares no code with latte."""

from __future__ import annotations

import hashlib
from math import exp, log

import numpy as np


def unit(x):
    return x / np.sqrt(np.sum(x * x))


def zero_shot(text, scale, f):
    return np.array([scale * float(np.dot(t, f)) for t in text])


def entropy(text, scale, f, unit="normalised"):
    """H(f) = - sum p log p; divided by ln C unless the unit is nats (B6)."""
    z = zero_shot(text, scale, f)
    p = np.exp(z - z.max())
    p = p / p.sum()
    nats = -sum(q * log(q) for q in p if q > 0)
    return nats if unit == "nats" else nats / log(len(text))


class SlowClient:
    def __init__(self, text, scale, p):
        self.text, self.scale, self.p = np.asarray(text, np.float64), scale, p
        self.local = [[] for _ in text]  # per class a list of (entropy, vector)
        self.external = [[] for _ in text]

    def predict(self, f):
        f = unit(np.asarray(f, np.float64))
        z = zero_shot(self.text, self.scale, f)
        y, h = int(np.argmax(z)), entropy(self.text, self.scale, f, self.p.entropy)
        queue = self.local[y]
        if len(queue) < self.p.k_l:
            queue.append((h, f))
        else:
            worst = max(range(len(queue)), key=lambda k: queue[k][0])
            if h < queue[worst][0] or self.p.replace == "always":  # B7
                queue[worst] = (h, f)
        memory = np.array([self.scale * self.read(c, f) for c in range(len(self.text))])
        return z + self.p.alpha * memory

    def merged(self, c):
        if self.p.memory == "local":
            return self.local[c]
        if self.p.memory == "external":
            return self.external[c]
        return sorted(self.local[c] + self.external[c], key=lambda item: item[0])[: self.p.k_l]

    def read(self, c, f):
        total = np.zeros(len(f))
        items = self.merged(c)
        if not items:
            return 0.0
        top = max(self.p.beta * float(f @ m) - self.p.gamma * h for h, m in items)
        for h, m in items:
            total = total + exp(self.p.beta * float(f @ m) - self.p.gamma * h - top) * m
        return float(f @ unit(total))

    def prototypes(self):
        rate = self.p.gamma if self.p.gamma_prototype is None else self.p.gamma_prototype
        result = []
        for queue in self.local:
            if not queue:
                result.append(None)
                continue
            if self.p.prototype == "min_entropy":
                g = min(queue, key=lambda item: item[0])[1]
            elif self.p.prototype == "mean":
                g = unit(sum(m for _, m in queue))
            else:
                g = unit(sum(exp(-rate * h) * m for h, m in queue))
            result.append((entropy(self.text, self.scale, g, self.p.entropy), g))
        return result


def route(uploads, own, c, k_e, empty_query):
    """Return the prototypes of class c that client ``own`` gets: the k_e most similar of the others."""
    donors = [j for j in uploads if j != own and uploads[j][c] is not None]
    mine = uploads[own]
    if mine[c] is not None:
        score = {j: float(uploads[j][c][1] @ mine[c][1]) for j in donors}
    elif empty_query == "none":
        return []
    else:
        score = {}
        for j in donors:
            both = [y for y in range(len(mine)) if mine[y] is not None and uploads[j][y] is not None]
            score[j] = np.mean([mine[y][1] @ uploads[j][y][1] for y in both]) if both else -2.0
    return [uploads[j][c] for j in sorted(donors, key=lambda j: (-score[j], name_hash(j)))[:k_e]]


def name_hash(name):
    """Equally similar donors come in an order that depends on their names only, not on who came first."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def slow_federation(text, scale, params, streams, period, names):
    """Return per client the post logits of every sample; lock-step rounds, sync after every ``period``."""
    clients = [SlowClient(text, scale, params) for _ in streams]
    uploads = {}
    out = [[] for _ in streams]
    longest = max(len(s) for s in streams)
    for number in range(1, longest + 1):
        for i, stream in enumerate(streams):
            if number <= len(stream):
                out[i].append(clients[i].predict(stream[number - 1]))
        if number % period == 0 and number < longest:
            for i, client in enumerate(clients):
                uploads[names[i]] = client.prototypes()
            for i, client in enumerate(clients):
                client.external = [
                    route(uploads, names[i], c, params.k_e, params.empty_query or "client") for c in range(len(text))
                ]
    return [np.array(rows).reshape(-1, len(text)) for rows in out]
