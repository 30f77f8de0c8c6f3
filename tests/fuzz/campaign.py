"""Fuzz for as long as there is time, one process at a time, and write down what was done:
``python -m tests.fuzz.campaign SECONDS [TARGET...]``, SECONDS for each target in turn.

The counts are added to ``tests/fuzz/counts.json``, of which the table in docs/fuzzing.md is made.
What reached something new is kept in ``.fuzz/`` for the next time, and a few small inputs of each
target in ``tests/fuzz/corpus/``. With 0 seconds only the table is written.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

from sexton.errors import SextonError
from tests.fuzz.corpus import keep
from tests.fuzz.running import HERE, ROOT, TARGETS, run
from tests.fuzz.walking import WALK, fuzz_walk

COUNTS, PAGE = HERE / "counts.json", ROOT / "docs/fuzzing.md"
_BEGIN, _END = "<!-- counts: python -m tests.fuzz.campaign -->\n", "<!-- end of counts -->"
#: Of a target, in the repository.
_MOST_KEPT, _MOST_BYTES, _MOST_TRIED = 40, 24 << 10, 1000
_OURS = f"{os.sep}src{os.sep}sexton{os.sep}"
_NICE = 19


def main(seconds: float, names: list[str]) -> int:
    found = 0
    for name in names or [*TARGETS, WALK]:
        if seconds:
            found += not _fuzz(name, seconds)
    PAGE.write_text(with_table(PAGE.read_text(), _counts()))
    return 1 if found else 0


def _fuzz(name: str, seconds: float) -> bool:
    """Whether it found nothing."""
    place = ROOT / ".fuzz" / name
    ran = fuzz_walk(seconds, _NICE) if name == WALK else run(name, 0, seconds, place, _NICE)
    print(f"{name}: {ran.failure or f'{ran.inputs:,} inputs in {ran.seconds:.0f} s'}", flush=True)
    if ran.failure:
        return False
    counts = _counts()
    known = counts.setdefault(name, {"inputs": 0, "seconds": 0})
    known["inputs"] += ran.inputs
    known["seconds"] += round(ran.seconds)
    known["last"] = datetime.now(UTC).date().isoformat()
    COUNTS.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n")
    if name != WALK:
        keep(name, _fewest(name, place))
    return True


def _fewest(name: str, place: Path) -> list[bytes]:
    """Small inputs of which each reaches lines that none before it reaches."""
    target = importlib.import_module(f"tests.fuzz.{name}_target")
    paths = sorted(place.iterdir(), key=lambda path: (path.stat().st_size, path.name))
    kept: list[bytes] = []
    reached: set[tuple[str, int]] = set()
    for path in paths[:_MOST_TRIED]:
        content = path.read_bytes()
        if len(kept) == _MOST_KEPT or sum(map(len, kept)) + len(content) > _MOST_BYTES:
            break
        new = _lines_reached(target.one, content) - reached
        if new and content:
            kept.append(content)
            reached |= new
    return kept


def _lines_reached(one: Callable[[bytes], None], content: bytes) -> set[tuple[str, int]]:
    found: set[tuple[str, int]] = set()

    def traced(frame: FrameType, event: str, argument: object) -> Any:
        name = frame.f_code.co_filename
        if _OURS not in name:
            return None
        found.add((name, frame.f_lineno))
        return traced

    sys.settrace(traced)
    try:
        with suppress(SextonError):
            one(content)
    finally:
        sys.settrace(None)
    return found


def _counts() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = json.loads(COUNTS.read_text()) if COUNTS.exists() else {}
    return found


def with_table(page: str, counts: dict[str, dict[str, Any]]) -> str:
    """The page with these counts."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}{table(counts)}{_END}{after}"


def table(counts: dict[str, dict[str, Any]]) -> str:
    """One row per target, and their sum."""
    rows = ["| target | inputs | minutes | last |", "|---|---:|---:|---|"]
    for name, known in sorted(counts.items()):
        minutes = known["seconds"] / 60
        rows.append(f"| {name} | {known['inputs']:,} | {minutes:,.0f} | {known['last']} |")
    inputs = sum(known["inputs"] for known in counts.values())
    minutes = sum(known["seconds"] for known in counts.values()) / 60
    rows.append(f"| **all** | **{inputs:,}** | **{minutes:,.0f}** | |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), sys.argv[2:]))
