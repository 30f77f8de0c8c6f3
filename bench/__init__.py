"""Benchmarks: ratios against peers, measured in one run on one machine."""
