"""Counts and times for Prometheus, in a registry of the application's own."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64)


class Metrics:
    """Requests by route and status, their times, and batches of queries.

    >>> metrics = Metrics()
    >>> metrics.request("GET", "/health", 200, 0.001)
    >>> b'ccal_requests_total{method="GET",route="/health",status="200"} 1.0' in metrics.text(0, {})
    True
    """

    def __init__(self) -> None:
        own = self._registry = CollectorRegistry()
        labels = ("method", "route", "status")
        self._requests = Counter(
            "ccal_requests", "Requests that were answered.", labels, registry=own
        )
        self._seconds = Histogram(
            "ccal_request_seconds",
            "Time to the end of the answer.",
            ["route"],
            buckets=_SECONDS,
            registry=own,
        )
        self._batches = Histogram(
            "ccal_batch_queries",
            "Queries that went through the towers together.",
            buckets=_SIZES,
            registry=own,
        )
        self._batch_seconds = Histogram(
            "ccal_batch_seconds",
            "Time to embed and search a batch.",
            buckets=_SECONDS,
            registry=own,
        )
        self.running = Gauge(
            "ccal_requests_running", "Requests that are being answered.", registry=own
        )
        self._waiting = Gauge(
            "ccal_queries_waiting", "Queries that wait for a batch.", registry=own
        )
        self._items = Gauge("ccal_items", "Items of the collection.", ["modality"], registry=own)

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request; `route` is a pattern, so that there are few of them."""
        self._requests.labels(method, route, status).inc()
        self._seconds.labels(route).observe(seconds)

    def batch(self, size: int, seconds: float) -> None:
        """Count a batch of queries."""
        self._batches.observe(size)
        self._batch_seconds.observe(seconds)

    def text(self, waiting: int, items: Mapping[str, int]) -> bytes:
        """All metrics, with the number of waiting queries and of items of each modality."""
        self._waiting.set(waiting)
        for modality, count in items.items():
            self._items.labels(modality).set(count)
        return generate_latest(self._registry)
