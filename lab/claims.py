"""What an experiment claims, with the numbers that show it; and the file a program can judge by.

``X.json`` of a check (``python -m lab.X --out DIR``) is `sexton.check/1`: `claims`, each with `id`,
`claim` (a sentence), `holds`, `numbers` and when it was settled; and `failed`, the ids of those
that do not hold with the reason. `lab.vm` takes a check for right where `failed` is empty.
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
    """Those of one experiment, in the order they were settled; `about` is where that was."""

    name: str
    about: dict[str, Any] = field(default_factory=dict)
    settled: list[dict[str, Any]] = field(default_factory=list)
    failed: dict[str, list[str]] = field(default_factory=dict)
    _began_s: float = field(default_factory=time.monotonic)

    def settle(self, name: str, sentence: str, holds: bool, **numbers: Any) -> bool:
        """One claim; `numbers` are what it rests on, whichever way it went."""
        at = round(time.monotonic() - self._began_s, 1)
        self.settled.append(
            {"id": name, "claim": sentence, "holds": holds, "at_s": at, "numbers": numbers}
        )
        if not holds:
            self.failed[name] = [f"not so: {sentence}{_why(numbers)}"]
        print(f"{'holds' if holds else 'NOT SO':<7} {name}: {sentence}", flush=True)
        return holds

    @property
    def holds(self) -> bool:
        """All of them do, and there are some."""
        return bool(self.settled) and not self.failed

    def as_json(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "check": self.name,
            "kernel": os.uname().release,
            **self.about,
            "seconds": round(time.monotonic() - self._began_s, 1),
            "claims": self.settled,
            "failed": self.failed,
        }

    def write(self, out: Path) -> None:
        """``NAME.json`` there, whole or not at all."""
        out.mkdir(parents=True, exist_ok=True)
        fresh = out / f".{self.name}.json"
        fresh.write_text(json.dumps(self.as_json(), indent=1, default=str) + "\n")
        fresh.rename(out / f"{self.name}.json")


def _why(numbers: dict[str, Any]) -> str:
    """The reason where one is among the numbers.

    >>> _why({"why": "the node was too busy", "freed": 3}), _why({"freed": 3})
    (' (the node was too busy)', '')
    """
    return f" ({numbers['why']})" if numbers.get("why") else ""
