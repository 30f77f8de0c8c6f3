"""The profile engine compared with perf script and FlameScope, on one capture, in one run."""
