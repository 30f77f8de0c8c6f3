"""Tests of several workers share one node, and each has a lock of its own."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def node_lock(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sexton.cure.journal.NODE_LOCK", str(tmp_path / "node.lock"))
