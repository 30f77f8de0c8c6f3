"""Whole nodes, end to end: collected on a real kernel, replayed, diagnosed, compared."""
