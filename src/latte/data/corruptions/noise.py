"""Noise: gaussian, shot, impulse and speckle."""

from __future__ import annotations

import numpy as np

from .draws import Bytes, Rngs, normal, to_bytes, to_unit, uniform

GAUSSIAN_NOISE_SIGMA = (0.04, 0.06, 0.08, 0.09, 0.10)
SHOT_PHOTONS = (500, 250, 100, 75, 50)
IMPULSE_SHARE = (0.01, 0.02, 0.03, 0.05, 0.07)
SPECKLE_SIGMA = (0.06, 0.10, 0.12, 0.16, 0.20)


def gaussian_noise(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Add the same amount of noise everywhere."""
    return to_bytes(to_unit(images) + GAUSSIAN_NOISE_SIGMA[severity - 1] * normal(rngs, images.shape[1:]))


def shot_noise(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Count photons: Poisson noise, stronger where the image is bright."""
    photons = SHOT_PHOTONS[severity - 1]
    expected = to_unit(images) * photons
    counts = np.stack([rng.poisson(mean) for rng, mean in zip(rngs, expected, strict=True)])
    return to_bytes(counts / photons)


def impulse_noise(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Set a share of the values to 0 or 255, each channel for itself."""
    draws = uniform(rngs, (2, *images.shape[1:]))
    hit = draws[:, 0] <= IMPULSE_SHARE[severity - 1]
    extreme = np.where(draws[:, 1] <= 0.5, np.uint8(255), np.uint8(0))
    return np.where(hit, extreme, images)


def speckle_noise(images: Bytes, severity: int, rngs: Rngs) -> Bytes:
    """Add noise in proportion to the value."""
    clean = to_unit(images)
    return to_bytes(clean + clean * (SPECKLE_SIGMA[severity - 1] * normal(rngs, images.shape[1:])))
