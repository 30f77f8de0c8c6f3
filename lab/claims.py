"""Claims of an experiment with the numbers behind them, and the JSON file they are written to.

``X.json`` of a check (``python -m lab.X --out DIR``) has the schema `sexton.check/1`: `claims`,
each with `id`, `claim` (a sentence), `holds`, `numbers` and when it was checked; and `failed`, the
ids of failed claims with the reason. For `lab.vm` a check passed if `failed` is empty.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = "sexton.check/1"


@dataclass
class Claims:
    """Claims of one experiment, in the order checked; `about` describes the machine."""

    name: str
    about: dict[str, Any] = field(default_factory=dict)
    results: list[dict[str, Any]] = field(default_factory=list)
    failed: dict[str, list[str]] = field(default_factory=dict)
    _began_s: float = field(default_factory=time.monotonic)

    def check(self, name: str, sentence: str, holds: bool, **numbers: Any) -> bool:
        """Record one claim with its `numbers`, whether it holds or not."""
        at = round(time.monotonic() - self._began_s, 1)
        self.results.append(
            {"id": name, "claim": sentence, "holds": holds, "at_s": at, "numbers": numbers}
        )
        if not holds:
            self.failed[name] = [f"failed: {sentence}{_why(numbers)}"]
        print(f"{'holds' if holds else 'FAILED':<7} {name}: {sentence}", flush=True)
        return holds

    @property
    def holds(self) -> bool:
        """All claims hold, and there is at least one."""
        return bool(self.results) and not self.failed

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "check": self.name,
            "kernel": os.uname().release,
            **self.about,
            "seconds": round(time.monotonic() - self._began_s, 1),
            "claims": self.results,
            "failed": self.failed,
        }

    def write(self, out: Path) -> None:
        """Write ``NAME.json`` into `out`, atomically."""
        out.mkdir(parents=True, exist_ok=True)
        fresh = out / f".{self.name}.json"
        fresh.write_text(json.dumps(self.as_json(), indent=1, default=str) + "\n")
        fresh.rename(out / f"{self.name}.json")


def _why(numbers: dict[str, Any]) -> str:
    """The reason, if `numbers` has one.

    >>> _why({"why": "the node was too busy", "freed": 3}), _why({"freed": 3})
    (' (the node was too busy)', '')
    """
    return f" ({numbers['why']})" if numbers.get("why") else ""
