"""The gate of an image pipeline: checks a node or an image against a policy, pass or fail."""

from __future__ import annotations

from sexton.prevent.gate.judge import judge
from sexton.prevent.gate.model import Gate, Outcome, Result, Violation, Waiver, WaiverState
from sexton.prevent.gate.policy import Policy, agents_of, builtin, builtin_text, parse
from sexton.prevent.gate.rules import all_rules
from sexton.prevent.gate.target import Target, is_booted, os_release, require_system

__all__ = (
    "Gate", "Outcome", "Policy", "Result", "Target", "Violation", "Waiver", "WaiverState",
    "agents_of", "all_rules", "builtin", "builtin_text", "is_booted", "judge", "os_release",
    "parse", "require_system",
)  # fmt: skip
