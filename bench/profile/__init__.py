"""The profile engine beside perf script and FlameScope, on one capture, in one run."""
