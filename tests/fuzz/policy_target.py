"""Fuzz target: policies of the gate."""

from __future__ import annotations

from sexton.prevent.gate import builtin_text, parse
from tests.prevent.gate.test_policy import WAIVER


def one(data: bytes) -> None:
    parse(data, "gate.toml")


def seeds() -> list[bytes]:
    """The built-in one, and a waiver."""
    return [builtin_text().encode(), WAIVER.encode(), b"[rules.memcg_count]\nlimit = 2\n"]
