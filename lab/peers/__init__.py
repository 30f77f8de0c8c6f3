"""What other tools would have shown for a recorded incident, according to their published rules.

The tools do not run: each rule is data under `rules/`, with its source file and commit, and is
evaluated over the recorded rows. Where Prometheus' `promtool` is installed, it checks our
evaluation of its expressions (tests/lab/test_peers.py).
"""
