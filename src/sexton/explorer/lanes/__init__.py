"""Lanes, one module each."""
