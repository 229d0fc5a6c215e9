"""Ristretto written down once more, from its formulas: one client, one class at a time, nothing shared or clever."""

from __future__ import annotations

import numpy as np

EPS, LIVE = 1e-9, 1e-6


def slow_heads(N, mu, text, scale, params):
    """Return weights (n, C, d), biases (n, C) and trust (n,) from counts (n, C) and class means (n, C, d)."""
    n, C, d = mu.shape
    tau = text - text.mean(axis=0)
    own = [1 - sum(N[j, y] * mu[j, y] @ mu[j, y] for y in range(C)) / N[j].sum() for j in range(n)]
    noise = max(float(np.median(own)), 1e-3)
    a = np.array([[slow_route(N, mu, i, j, noise, params.routing) for j in range(n)] for i in range(n)])
    if params.trust == "open":
        a = slow_open_routes(N, mu, a)
    EN, M, m, delta = np.zeros((n, C)), np.zeros(n), np.zeros((n, d)), np.zeros((n, C, d))
    within, between = [], []
    for i in range(n):
        ES = np.zeros((C, d))
        for j in range(n):
            for y in range(C):
                EN[i, y] += a[i, j] * N[j, y]
                ES[y] += a[i, j] * N[j, y] * mu[j, y]
        M[i], m[i] = EN[i].sum(), ES.sum(axis=0) / EN[i].sum()
        offsets = [ES[y] - EN[i, y] * m[i] for y in range(C)]
        size = max(sum(EN[i, y] * tau[y] @ tau[y] for y in range(C)), EPS)
        r = min(max(sum(offsets[y] @ tau[y] for y in range(C)) / size, 0), 2)
        left_out = np.zeros((C, d))
        for y in range(C):
            delta[i, y] = (params.kappa * r * tau[y] + offsets[y]) / (params.kappa + EN[i, y])
            rest = max(EN[i, y] - N[i, y], 0)
            if rest > LIVE:
                other = (ES[y] - N[i, y] * mu[i, y]) / max(rest, EPS)
                left_out[y] = np.sqrt(N[i, y] * rest / max(N[i, y] + rest, EPS)) * (mu[i, y] - other)
        within.append(left_out)
        between.append(np.sqrt(EN[i])[:, None] * delta[i])
    spread = float(np.median([sum(EN[i, y] * delta[i, y] @ delta[i, y] for y in range(C)) / M[i] for i in range(n)]))
    cov = (noise * slow_vote(within, d) + spread * slow_vote(between, d)) / (noise + spread)
    heads = [slow_head(delta[i], m[i], M[i], cov, tau, scale, params) for i in range(n)]
    return tuple(np.array(part) for part in zip(*heads, strict=True))


def slow_route(N, mu, i, j, noise, routing="evidence"):
    if i == j or routing in ("everyone", "alone"):
        return 1.0 if i == j or routing == "everyone" else 0.0
    distance, total, live = 0.0, 0.0, 0
    for y in range(N.shape[1]):
        one, other = max(N[i, y], EPS), max(N[j, y], EPS)
        w = one * other / (one + other)
        distance += w * float(((mu[i, y] - mu[j, y]) ** 2).sum())
        total += w
        live += N[i, y] > LIVE and N[j, y] > LIVE
    bias = max((distance - (0 if routing == "raw" else noise) * live) / max(total, EPS), 0.0)
    return 1 / (1 + (N[j] ** 2).sum() / N[j].sum() * bias / noise)


def slow_open_routes(N, mu, plain):
    """Return the routes (n, n) of an open task from those of a fleet."""
    n, C, d = mu.shape
    total, median = N.sum(axis=1), float(np.median(N.sum(axis=1)))
    rows = np.zeros((C, d))
    for y in range(C):
        held = [N[j, y] * min(1, median / total[j]) for j in range(n)]
        means = [sum(N[j, k] * mu[j, k] for k in range(C)) / total[j] for j in range(n)]
        offset = sum(held[j] * (mu[j, y] - means[j]) for j in range(n)) / (1 + sum(held))
        rows[y] = np.sqrt(sum(held)) * offset
    eigenvalues, vectors = np.linalg.eigh(rows.T @ rows)  # another way to the same span
    U = vectors[:, np.argsort(-eigenvalues)[: min(C - 1, 64)]]
    within, spreads = mu @ U, []
    for i in range(n):
        spread, live = 0.0, 0
        for y in range(C):
            R = sum(plain[i, j] * N[j, y] for j in range(n) if j != i)
            o = sum(plain[i, j] * N[j, y] * within[j, y] for j in range(n) if j != i) / max(R, EPS)
            spread += N[i, y] * R / max(N[i, y] + R, EPS) * float(((within[i, y] - o) ** 2).sum())
            live += N[i, y] > LIVE and R > LIVE
        spreads.append(spread / max(live, 1))
    noise, a = max(float(np.median(spreads)), 1e-4), np.eye(n)
    for i in range(n):
        for j in range(n):
            if i != j:
                x = max(1 / plain[i, j] - 1, 1 / slow_route(N, within, i, j, noise) - 1)
                share = (1 + x) ** -2
                a[i, j] = share * min(1, total[i] / max(share * total[j], EPS))
    return a


def slow_vote(clients, d):
    votes = [rows.T @ rows / (rows**2).sum() for rows in clients if (rows**2).sum() > 1e-12]
    return d * np.mean(votes, axis=0) if votes else np.eye(d)


def slow_head(delta, m, M, cov, tau, scale, params):
    d, C = len(cov), len(tau)
    W = np.linalg.solve(cov + params.rho * np.eye(d), delta.T).T
    c = np.array([-W[y] @ (m + delta[y] / 2) for y in range(C)])
    W, c = W - W.mean(axis=0), c - c.mean()
    q = np.sqrt(np.trace(tau @ cov @ tau.T) / max(np.trace(W @ cov @ W.T), 1e-12))
    w = M / (M + params.nu * C)
    return scale * params.eta * w * q * W, scale * params.eta * w * q * c, w


class SlowClient:
    """One client, image after image."""

    def __init__(self, text, scale, trust="fleet"):
        self.text, self.scale, self.trust = text, scale, trust
        C, d = text.shape
        self.N, self.S, self.A, self.b, self.w = np.zeros(C), np.zeros((C, d)), np.zeros((C, d)), np.zeros(C), 0.0

    def predict(self, f):
        z0, h = self.scale * self.text @ f, self.A @ f + self.b
        labels = z0 if self.trust == "open" else z0 + self.w * h
        p = np.exp(labels - labels.max())
        p /= p.sum()
        self.N, self.S = self.N + p, self.S + np.outer(p, f)
        if self.trust == "fleet":
            return z0 + h
        likely = [y for y in range(len(z0)) if z0[y] >= z0.max() - 2]
        best = max(z0[y] + h[y] for y in likely)
        return np.array([z0[y] + h[y] if y in likely else min(z0[y] + h[y], best - 2) for y in range(len(z0))])

    def upload(self):
        return self.N.copy(), self.S / np.maximum(self.N, EPS)[:, None]
