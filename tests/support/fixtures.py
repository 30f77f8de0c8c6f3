"""Where fixtures live, and how a test reads them."""

from __future__ import annotations

from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures"


def kernels(source_id: str) -> list[Path]:
    """The fixture files of a source, one per kernel: `fixtures/procfs/stat/6.18.txt`."""
    return sorted((FIXTURES / source_id.replace(".", "/")).glob("*.txt"))


def kernel_text(source_id: str, kernel: str) -> str:
    """One fixture as a source would see it."""
    path = FIXTURES / source_id.replace(".", "/") / f"{kernel}.txt"
    return path.read_bytes().decode("utf-8", "surrogateescape")
