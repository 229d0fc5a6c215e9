"""What the published generator of CIFAR-C makes of one image: the recording, the image, and its random numbers.

``published_corruptions.npz`` was recorded with the published ``make_cifar_c.py`` (hendrycks/robustness), its random
numbers replaced by those of :class:`Numbers`, on ImageMagick 6.9.11 Q16, OpenCV 5.0.0, scikit-image 0.26.0 and
scipy 1.17.1: "NAME" (5, 32, 32, 3) uint8, by severity.
"""

from pathlib import Path

import numpy as np

RECORDING = Path(__file__).parent.parent / "data" / "published_corruptions.npz"


def picture():
    """Return an image (32, 32, 3) of flat fields, ramps, edges, greys and grain, by whole numbers only."""
    y, x, channel = np.indices((32, 32, 3))
    image = (7 * y + 3 * x + 40 * channel + (x // 8) * (y // 8) * 11) % 256
    grain = (y * 131 + x * 71 + channel * 37 + (x * y * 17)) % 97
    image = np.where((y // 8 + x // 8) % 3 == 1, (image + grain) % 256, image)
    image[:8, :8], image[:8, 8:12], image[:4, 28:] = 255, 0, 128
    image[24:, :16] = (60 + 11 * (y // 4) + 5 * (x // 4))[24:, :16]  # grey
    image[20:24] = np.where(channel == 1, 200, 40)[20:24]
    return image.astype(np.uint8)


class Numbers:
    """Random numbers that are the same for ever: a 64-bit linear congruential generator."""

    def __init__(self, seed=1):
        self.state = seed

    def word(self):
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) % 2**64
        return self.state >> 33  # 31 bits

    def random(self, shape=()):
        words = [self.word() for _ in range(int(np.prod(shape)))]
        return np.reshape(words, shape) / 2.0**31

    def uniform(self, low, high, shape=()):
        values = low + (high - low) * self.random(shape)
        return float(values) if shape == () else values

    def standard_normal(self, shape):
        """Return the sum of twelve uniform numbers, less six."""
        return self.random((*shape, 12)).sum(axis=-1) - 6

    def integers(self, low, high=None, shape=()):
        low, high = (0, low) if high is None else (low, high)
        return (low + np.floor((high - low) * self.random(shape))).astype(np.int64)

    def poisson(self, mean):
        """Return whole numbers around the mean: not Poisson's, but the same for both sides."""
        return np.floor(mean + np.sqrt(mean) * self.standard_normal(np.shape(mean)) + 0.5).clip(0)
