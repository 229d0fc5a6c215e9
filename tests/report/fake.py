"""Results as a real run would leave them: 38 clients in 19 domains, nine methods, five seeds, seeded noise."""

from __future__ import annotations

import numpy as np

from latte.simulation.results import ClientScore, Result

DOMAINS = (
    "gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "defocus_blur", "glass_blur", "motion_blur",
    "zoom_blur", "gaussian_blur", "snow", "frost", "fog", "brightness", "spatter", "contrast", "elastic_transform",
    "pixelate", "jpeg_compression", "saturate",
)  # fmt: skip
GAINS = {
    "clip": 0.0, "vte": 1.1, "tpt": 0.4, "zero": 1.4, "tda": 0.9, "tda-global": 1.6, "dmn": 0.7, "dmn-global": 1.8,
    "latte": 3.2,
}  # fmt: skip


def fake_results(
    benchmark: str = "cifar10c", methods: tuple[str, ...] = tuple(GAINS), seeds: int = 5, per_client: int = 1579
) -> list[Result]:
    """Return one result per method and seed; CLIP's depends on the seed only through the partition."""
    base = np.random.default_rng(1).uniform(35, 75, len(DOMAINS))
    return [
        _result(benchmark, method, seed, base + GAINS.get(method, 0.5), per_client)
        for method in methods
        for seed in range(seeds)
    ]


def _result(benchmark, method, seed, accuracy, per_client):
    rng = np.random.default_rng([seed, len(method), *method.encode()])
    clients = []
    for number, domain in enumerate(DOMAINS):
        for fold in range(2):
            samples = per_client + (number + fold) % 2
            correct = int(rng.binomial(samples, accuracy[number] / 100))
            clients.append(ClientScore(f"{domain}-{fold}", domain, samples, correct))
    params = {} if method == "clip" else {"alpha": 1.0}
    return Result(benchmark, method, params, "default" if method == "clip" else "preset", seed, tuple(clients))
