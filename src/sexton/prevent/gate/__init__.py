"""The gate of an image pipeline: a node or an unbooted image against a policy, 0 or 1."""

from __future__ import annotations

from sexton.prevent.gate.judging import judge
from sexton.prevent.gate.model import Gate, Outcome, Place, Result, Violation, Waiver, WaiverState
from sexton.prevent.gate.place import is_booted, os_release, require_system
from sexton.prevent.gate.policy import Policy, builtin, builtin_text, parse
from sexton.prevent.gate.rules import all_rules

__all__ = (
    "Gate", "Outcome", "Place", "Policy", "Result", "Violation", "Waiver", "WaiverState",
    "all_rules", "builtin", "builtin_text", "is_booted", "judge", "os_release", "parse",
    "require_system",
)  # fmt: skip
