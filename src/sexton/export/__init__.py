"""Prometheus metrics of a node: the verdict, and what it rests on."""
