"""How often a client may ask: a bucket of tokens that fills at a steady rate."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from ..errors import refuse

MOST_CLIENTS = 200_000  # whose buckets are remembered; full buckets are forgotten first


@dataclass(frozen=True, slots=True)
class RequestRate:
    """Requests per second in the long run, and how many may come at once. ``per_second`` 0: no limit."""

    per_second: float = 50.0
    burst: float = 100.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.per_second) and self.per_second >= 0):
            raise refuse("rate", self.per_second, "requests per second, 0 or above")
        if self.per_second and not self.burst >= 1:
            raise refuse("burst", self.burst, "at least 1: with less, every request is refused")

    @classmethod
    def of(cls, per_second: float) -> RequestRate:
        """Return it with room for the requests of two seconds at once, and for one at least."""
        return cls(per_second, max(1.0, 2 * per_second))


class Buckets:
    """A bucket per client."""

    def __init__(self, rate: RequestRate) -> None:
        self.rate = rate
        self._levels: dict[str, tuple[float, float]] = {}  # what is left in the bucket, and at which time

    def take(self, client: str) -> float:
        """Take one token; return 0, or the seconds until there is a token again."""
        if not self.rate.per_second:
            return 0.0
        now = time.monotonic()
        level, when = self._levels.get(client, (self.rate.burst, now))
        level = min(self.rate.burst, level + (now - when) * self.rate.per_second)
        if level < 1.0:
            self._levels[client] = level, now
            return (1.0 - level) / self.rate.per_second
        if len(self._levels) >= MOST_CLIENTS and client not in self._levels:
            self._forget_full(now)
        self._levels[client] = level - 1.0, now
        return 0.0

    def _forget_full(self, now: float) -> None:
        pause = self.rate.burst / self.rate.per_second
        self._levels = {client: (left, when) for client, (left, when) in self._levels.items() if now - when < pause}
