"""Prometheus metrics of a node: the verdict, and what it rests on."""

#: Where they are served.
METRICS = "/metrics"
