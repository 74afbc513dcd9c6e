"""Measurements, each beside its peer in one run: `python -m benchmarks`."""
