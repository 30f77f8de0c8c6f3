"""What other tools would have shown of a recorded incident, by their own published rules.

Evaluations over recorded rows, not runs: each peer's rule is data under `rules/`, with the file and
the commit it was read from, and is applied to what the recording holds. Prometheus' own `promtool`
checks our reading of its expressions where it is installed (tests/lab/test_peers.py).
"""
