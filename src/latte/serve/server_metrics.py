"""What a server measures of itself, for Prometheus. No label holds the name of a client."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """The counters of one server."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        by_route = ("route", "outcome")
        self.requests = Counter("latte_requests", "Requests by route and outcome", by_route, registry=registry)
        self.seconds = Histogram(
            "latte_request_seconds", "Time to answer", ("route",), buckets=_SECONDS, registry=registry
        )
        self.received = Counter("latte_received_bytes", "Bytes of the bodies of requests", registry=registry)
        self.sent = Counter("latte_sent_bytes", "Bytes of the bodies of answers", registry=registry)
        self.clients = Gauge("latte_clients", "Clients that have uploaded", registry=registry)
        self.waiting = Gauge("latte_waiting_requests", "Requests that wait for a batch", registry=registry)
        self.batch = Histogram("latte_batch_requests", "Requests of a batch", buckets=_SIZES, registry=registry)
        self.phase = Counter(
            "latte_batch_seconds", "Processor time of batches by what was done", ("phase",), registry=registry
        )

    def page(self) -> bytes:
        """Return all of them as Prometheus reads them."""
        return generate_latest(self.registry)
