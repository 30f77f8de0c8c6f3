"""One tree for each test."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prevent.audit.trees import Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    root = tmp_path / "image"
    root.mkdir()
    return Tree(root)
