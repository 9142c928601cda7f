"""Counts and times for Prometheus, in its text format."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from itertools import accumulate

__all__ = ["Histogram", "Metrics"]

_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64)


class Histogram:
    """How many values lie below each bound, their number and their sum.

    >>> times = Histogram((1, 2))
    >>> times.observe(1.5)
    >>> times.lines("seconds", 'path="/"')[0]
    'seconds_bucket{path="/",le="1"} 0'
    """

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.sum = bounds, 0.0
        self.counts = [0] * (len(bounds) + 1)

    def observe(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str = "") -> list[str]:
        """As text, with these labels."""
        comma, braces = ("," if labels else ""), (f"{{{labels}}}" if labels else "")
        below = list(accumulate(self.counts))
        bounds = [*map(str, self.bounds), "+Inf"]
        buckets = [
            f'{name}_bucket{{{labels}{comma}le="{bound}"}} {count}'
            for bound, count in zip(bounds, below, strict=True)
        ]
        return [*buckets, f"{name}_sum{braces} {self.sum:.6f}", f"{name}_count{braces} {below[-1]}"]


class Metrics:
    """Requests by route and status, their times, and the batches that went through the towers."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self.requests: defaultdict[tuple[str, str, int], int] = defaultdict(int)
        self.seconds: defaultdict[str, Histogram] = defaultdict(lambda: Histogram(_SECONDS))
        self.batches, self.batch_seconds = Histogram(_SIZES), Histogram(_SECONDS)
        self.running = 0

    def request(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answered request; `route` is a pattern, so that there are only so many."""
        with self._guard:
            self.requests[method, route, status] += 1
            self.seconds[route].observe(seconds)

    def batch(self, size: int, seconds: float) -> None:
        """Count a batch of queries."""
        with self._guard:
            self.batches.observe(size)
            self.batch_seconds.observe(seconds)

    def text(self, waiting: int, items: dict[str, int]) -> str:
        """Everything, with the number of queries that wait and the items of each modality."""
        with self._guard:
            lines = _head("ccal_requests_total", "counter", "Requests that were answered.")
            for (method, route, status), count in sorted(self.requests.items()):
                labels = f'method="{method}",route="{route}",status="{status}"'
                lines.append(f"ccal_requests_total{{{labels}}} {count}")
            name = "ccal_request_seconds"
            lines += _head(name, "histogram", "Time to the end of the answer.")
            for route, histogram in sorted(self.seconds.items()):
                lines += histogram.lines(name, f'route="{route}"')
            name = "ccal_batch_queries"
            lines += _head(name, "histogram", "Queries that went through the towers together.")
            lines += self.batches.lines(name)
            name = "ccal_batch_seconds"
            lines += _head(name, "histogram", "Time to embed and search a batch.")
            lines += self.batch_seconds.lines(name)
            lines += _head("ccal_requests_running", "gauge", "Requests that are being answered.")
            lines.append(f"ccal_requests_running {self.running}")
            lines += _head("ccal_queries_waiting", "gauge", "Queries that wait for a batch.")
            lines.append(f"ccal_queries_waiting {waiting}")
            lines += _head("ccal_items", "gauge", "Items of the collection.")
            for modality, count in items.items():
                lines.append(f'ccal_items{{modality="{_escaped(modality)}"}} {count}')
        return "\n".join(lines) + "\n"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
