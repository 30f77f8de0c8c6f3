"""kubelet's configuration: found, checked against the fields kubelet has, and corrected."""

from __future__ import annotations

from sexton.prevent.kubelet.checks import ERROR, NOTE, WARNING, Flag, Problem, check_flags
from sexton.prevent.kubelet.config import (
    KubeletFile,
    flags_of,
    inspect,
    is_installed,
    judge,
    running,
)
from sexton.prevent.kubelet.correction import corrected
from sexton.prevent.kubelet.live import differences, running_config

__all__ = (
    "ERROR", "NOTE", "WARNING", "Flag", "KubeletFile", "Problem", "check_flags", "corrected",
    "differences", "flags_of", "inspect", "is_installed", "judge", "running", "running_config",
)  # fmt: skip
