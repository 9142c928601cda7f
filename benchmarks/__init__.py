"""Ratios in one run, against peers and against the limit: `python -m benchmarks`."""
