"""Completion scripts, made from the parsers: one module per shell, each with `script()`."""
