"""Counts and times for Prometheus, in a registry of the application's own."""

from collections.abc import Mapping
from functools import lru_cache, partial

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
        seconds = partial(Histogram, buckets=_SECONDS, registry=own)
        gauge = partial(Gauge, registry=own)
        text, labels = "Requests that were answered.", ("method", "route", "status")
        self._requests = Counter("ccal_requests_total", text, labels, registry=own)
        text = "Time to the end of the answer."
        self._seconds = seconds("ccal_request_seconds", text, ["route"])
        text = "Queries that went through the towers together."
        self._batches = Histogram("ccal_batch_queries", text, buckets=_SIZES, registry=own)
        self._batch_seconds = seconds("ccal_batch_seconds", "Time to embed and search a batch.")
        # The library takes longer to look a series up than to count.
        self._series = lru_cache(maxsize=256)(
            lambda *labels: (self._requests.labels(*labels), self._seconds.labels(labels[1]))
        )
        self.running = gauge("ccal_requests_running", "Requests that are being answered.")
        self._waiting = gauge("ccal_queries_waiting", "Queries that wait for a batch.")
        self._items = gauge("ccal_items", "Items of the collection.", ["modality"])

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request; `route` is a pattern, so that there are few of them."""
        count, time = self._series(method, route, status)
        count.inc()
        time.observe(seconds)

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
