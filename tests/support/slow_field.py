"""The methods of the field, written down a second time from their formulas: slow, float64, one image after the other.

Each function takes the texts T (c, d), the views (n, V, d) and the parameters by the names that the methods have, and
returns the answers (n, c), and what is remembered at the end.
"""

import itertools
import math

import numpy as np


def stream(seed, n, c, d, v):
    """Return texts (c, d) and views (n, v, d), like those of a model: images are nearer to each other than to texts."""
    rng = np.random.default_rng(seed)
    text = rng.normal(size=d) + 0.6 * rng.normal(size=(c, d))
    text /= np.linalg.norm(text, axis=1, keepdims=True)
    centres = rng.normal(size=d) + 0.7 * np.sqrt(d) * text
    views = centres[rng.integers(0, c, n), None] + 0.5 * rng.normal(size=(n, 1, d)) + 0.3 * rng.normal(size=(n, v, d))
    return text.astype(np.float32), (views / np.linalg.norm(views, axis=2, keepdims=True)).astype(np.float32)


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def nats(z):
    p = softmax(z)
    return -sum(x * math.log(x) for x in p if x > 0)


def confident(T, views, few_are_plain=True):
    """Return the tenth of the views with the lowest entropy; of fewer than ten the plain one, or the best."""
    count = int(0.1 * len(views))
    if not count and few_are_plain:
        return views[:1]
    order = sorted(range(len(views)), key=lambda v: nats(100 * T @ views[v]))
    return views[order[: max(count, 1)]]


def oga(T, images, k=8, tau=0.05, mean="capacity"):
    c, d = T.shape
    memory = [[None] * k for _ in range(c)]  # (embedding, entropy), both in float16
    means, precision, answers, stored_at = T.copy(), d * np.eye(d), [], []
    for views in images:
        f = views[0]
        z = 100 * T @ f
        p, y = softmax(z), int(z.argmax())
        H = np.float16(-(p * np.log(p + 1e-9)).sum())
        entropies = [np.float16(math.log(c)) if item is None else item[1] for item in memory[y]]
        stored_at.append(any(h > H for h in entropies))
        if stored_at[-1]:
            memory[y][entropies.index(max(entropies))] = (f.astype(np.float16).astype(float), H)
            stored = [[item[0] for item in row if item is not None] for row in memory]
            n = sum(map(len, stored))
            for j, row in enumerate(stored):
                if len(row) >= 2:
                    means[j] = np.sum(row, axis=0) / (k if mean == "capacity" else len(row))
            if any(len(row) > 2 for row in stored):
                r = np.array([m - means[j] for j, row in enumerate(stored) for m in row])
                r -= r.mean(axis=0)
                M = r.T @ r / (n - 1)
                precision = np.linalg.pinv(M) if n > 4 * d else d * np.linalg.inv((n - 1) * M + np.trace(M) * np.eye(d))
        loglik = np.array([m @ precision @ f - 0.5 * m @ precision @ m - 0.5 * f @ precision @ f for m in means])
        g = softmax(tau * loglik)
        answers.append(p * g / (p @ g))
    empty = np.float16(math.log(c))
    entropies = np.array([[empty if item is None else item[1] for item in row] for row in memory])
    return answers, {"stored": stored_at, "entropy": entropies, "means": means}


def dota(T, images, epsilon=1e-3, sigma=2e-3, eta=0.3, rho=0.02, mu_init="small", views="first"):
    c, d = T.shape
    n, means = np.ones(c), T.copy() if mu_init == "text" else np.full((c, d), 0.001)
    covariances, precision, answers = [sigma * np.eye(d) for _ in range(c)], np.eye(d) / sigma, []
    for each in images:
        kept = confident(T, each) if views == "confident" else each[:1]
        f, z = kept.mean(axis=0), (100 * kept @ T.T).mean(axis=0)
        g = np.array([f @ precision @ m - 0.5 * m @ precision @ m for m in means])
        answers.append(z + min(rho * n.mean() / len(kept), eta) * g)
        P = [softmax(100 * T @ v) for v in kept]
        for y in range(c):
            p = [one[y] for one in P]
            outer = sum(a * np.outer(v - means[y], v - means[y]) for a, v in zip(p, kept, strict=True))
            covariances[y] = (n[y] * covariances[y] + outer) / (n[y] + sum(p))
            means[y] = (n[y] * means[y] + sum(a * v for a, v in zip(p, kept, strict=True))) / (n[y] + sum(p))
            n[y] += sum(p)
        precision = np.linalg.inv((1 - epsilon) * np.mean(covariances, axis=0) + epsilon * np.eye(d))
    return answers, {"counts": n, "means": means, "covariance": np.mean(covariances, axis=0)}


def onzeta(T, images, beta=0.4, alpha=1.0, rate_labels=20.0, rate_proxies=0.5, temperature=0.04, horizon=100):
    c, _ = T.shape
    rho, w, answers = np.zeros(c), T.copy(), []
    for i, views in enumerate(images, 1):
        f = views[0]
        q = softmax(100 * T @ f) * np.exp(rho)
        q /= q.sum()
        v = softmax(w @ f / temperature)
        b = beta * math.sqrt(min(1, i / horizon))
        answers.append(b * v + (1 - b) * q)
        rho = np.maximum(0, rho - rate_labels / math.sqrt(i) * (q - alpha / c))
        for y in range(c):
            w[y] -= rate_proxies / (math.sqrt(i) * temperature) * (v[y] - q[y]) * f
            w[y] /= np.linalg.norm(w[y])
    return answers, {"multipliers": rho, "proxies": w}


def ecalp(T, images, k=8, k_text=3, gamma=10):
    c, _ = T.shape
    u = T.var(axis=0, ddof=1)
    u /= np.linalg.norm(u)
    F, lists, carried, answers = [], [], [], []  # lists: (similarity, node), the best first

    def phi(f):
        return u * f / np.linalg.norm(u * f)

    for i, views in enumerate(images):
        f, N = views[0], i + 2
        near = min(k, N)
        length = near if i <= near else min(near + i - near, k + 2)
        rest = []
        for j, g in enumerate(F):
            s = float(phi(g) @ f)
            lists[j] = [pair for pair in lists[j] if pair[1] != i] + [(s, i + 1), (s, i)]  # the twin first
            lists[j] = sorted(lists[j], key=lambda pair: -pair[0])[:length]
            rest.append((s, j))
        itself = float(phi(f) @ f)
        own = sorted([*rest, (itself, i + 1), (itself, i)], key=lambda pair: -pair[0])[:length]
        lists.append(own)
        F.append(f)
        W = np.zeros((c + N, c + N))
        for a, row in enumerate([*lists, own]):
            for s, b in row[:near]:
                W[c + a, c + b] = s**gamma
            cosines = T @ (F[min(a, i)])
            for y in sorted(range(c), key=lambda y, cosines=cosines: -cosines[y])[: min(k_text, c)]:
                W[c + a, y] = cosines[y] ** gamma
        W = W + W.T
        D = 1 / (np.sqrt(W.sum(axis=1)) + 1e-6)
        W = D[:, None] * W * D
        Y = np.zeros((c + N, c))
        Y[:c] = np.eye(c)
        for a, (label, value) in enumerate(carried):
            Y[c + a, label] = value
        for _ in range(3):
            Y[c:] = W[c:] @ Y
        answers.append(Y[-1])  # before the factor
        carried = [(int(row.argmax()), row.max() / 5) for row in Y[c:-1]]
    padded = [row + [(-2.0, -1)] * (k + 2 - len(row)) for row in lists]
    similarities = np.array([[s for s, _ in row] for row in padded])
    labels, values = zip(*carried, strict=True)
    return answers, {"labels": labels, "values": values, "similarities": similarities}


def mta(T, images, lambda_y=0.2, lambda_q=4.0):
    answers = []
    for F in images:
        V = len(F)
        if V < 5:
            answers.append(100 * T @ F[0])
            continue
        P = np.array([softmax(100 * T @ f) for f in F])
        A = P @ P.T
        squares = np.array([[((a - b) ** 2).sum() for b in F] for a in F])
        h2 = [max(0.5 * np.mean(np.sort(row)[1 : 1 + int(0.3 * (V - 1))]), 1e-12) for row in squares]
        y, m = np.full(V, 1 / V), F[0]

        def kernel(m, F=F, h2=h2):
            return np.array([math.exp(-((f - m) ** 2).sum() / (2 * h)) for f, h in zip(F, h2, strict=True)])

        for _ in range(5):
            kappa = kernel(m)
            for _ in range(5):
                old, y = y, softmax((kappa + lambda_q * A @ y) / lambda_y)
                if np.linalg.norm(old - y) < 1e-6:
                    break
            for _ in range(5):
                weights = kernel(m) * y
                old, m = m, weights @ F / weights.sum()
                m = m / np.linalg.norm(m)
                if np.linalg.norm(old - m) < 1e-6:
                    break
        answers.append(100 * T @ m)
    return answers, {}


def pta(T, images, alpha=0.01, tau=20.0, floor=0.1, gate=False, kappa=1.0, views="first"):
    c, d = T.shape
    M, R, A, answers = np.zeros((c, d)), T.copy(), np.zeros(c), []
    for each in images:
        kept = confident(T, each) if views == "confident" else each[:1]
        f, z = kept.mean(axis=0), (100 * kept @ T.T).mean(axis=0)
        p = softmax(z)
        for y in range(c):
            if p[y] >= floor:
                w = 1 - math.exp(-p[y] / tau)
                M[y] = (1 - w) * M[y] + w * f
                A[y] = math.exp(-p[y] / tau) * A[y] + tau * (1 - math.exp(-p[y] / tau))
            if M[y].any():
                r = alpha * R[y] + (1 - alpha) * M[y]
                R[y] = r / np.linalg.norm(r)
        if not gate:
            answers.append(z + 100 * R @ f)
            continue
        g = np.array([A[y] / (A[y] + kappa) if p[y] >= floor else 0.0 for y in range(c)])
        s = np.array([100 * M[y] @ f / np.linalg.norm(M[y]) if g[y] else 0.0 for y in range(c)])
        answers.append(z + g * (s - (g @ s) / g.sum()) if g.any() else z)
    return answers, {"prototype": M, "refined": R, "evidence": A}


def bca(T, images, centre_images=2e4, prior_images=1.0, centre_least=0.05, prior_least=0.65, views="first"):
    c, _ = T.shape
    means, prior, n1, n2, answers = T.copy(), np.eye(c), np.full(c, centre_images), np.full(c, prior_images), []
    for each in images:
        kept = confident(means, each) if views == "confident" else each[:1]
        f = kept.mean(axis=0)
        q = softmax((100 * kept @ means.T).mean(axis=0)) @ prior
        answers.append(q)
        y = int(q.argmax())
        if q[y] > centre_least:
            moved = (n1[y] * means[y] + f) / (n1[y] + 1)
            means[y] = moved / np.linalg.norm(moved)
            n1[y] += 1
        if q[y] > prior_least:
            prior[y] = (n2[y] * prior[y] + q) / (n2[y] + 1)
            n2[y] += 1
    return answers, {"centre_images": n1, "prior_images": n2, "centres": means, "prior": prior}


def adapt(T, images, k=16, alpha=0.9, s=100.0, similarity="last", views="first"):
    c, d = T.shape
    bank, means, precision, sims, answers, stored_at = [[] for _ in range(c)], T.copy(), np.eye(d), {}, [], []
    for each in images:
        kept = confident(T, each, few_are_plain=False) if views == "confident" else each[:1]
        f, z = kept.mean(axis=0), (100 * kept @ T.T).mean(axis=0)
        p = np.mean([softmax(100 * T @ v) for v in kept], axis=0)
        H, y = -sum(x * math.log(x) for x in p if x > 0), int(z.argmax())
        worst = max(range(len(bank[y])), key=lambda j: bank[y][j][2], default=None)
        stored_at.append(len(bank[y]) < k or bank[y][worst][2] > H)
        if stored_at[-1]:
            if len(bank[y]) < k:
                bank[y].append((f, p, H))
            else:
                bank[y][worst] = (f, p, H)
            top = sum(item[1][y] * item[0] for item in bank[y]) + p[y] * f
            means[y] = alpha * top / (sum(item[1][y] for item in bank[y]) + p[y]) + (1 - alpha) * T[y]
            r = np.array([item[0] - means[j] for j in range(c) for item in bank[j]])
            if len(r) > 1:
                r = r - r.mean(axis=0)
                M = r.T @ r / (len(r) - 1)
                precision = d * np.linalg.inv((len(r) - 1) * M + np.trace(M) * np.eye(d))
            sims = {(j, slot): f @ item[0] for j in range(c) for slot, item in enumerate(bank[j])}
        g = np.array([m @ precision @ f - math.log(c) - 0.5 * m @ precision @ m for m in means])
        g -= g.max() + math.log(np.exp(g - g.max()).sum())
        N, u = sum(map(len, bank)), g
        for j, slot in itertools.product(range(c), range(k)):
            if slot < len(bank[j]):
                v, probabilities, _ = bank[j][slot]
                u[j] += s / (2 * N) * (f @ v if similarity == "own" else sims[j, slot]) * probabilities[j]
        answers.append(z * np.exp((u - u.max()) / s))
    entropies = [[item[2] for item in row] + [np.inf] * (k - len(row)) for row in bank]
    return answers, {"stored": stored_at, "entropy": np.array(entropies), "means": means}
