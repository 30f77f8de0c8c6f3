"""Sexton: a verdict on the Linux node you are on, with its evidence."""

__version__ = "0.1.0"
