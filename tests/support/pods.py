"""A node's tree with a kubelet's names in it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from tests.support.fixtures import FIXTURES

LOGS = FIXTURES / "kubernetes"


def link_logs(root: Path, lines: Iterable[str]) -> None:
    """The links of `NAME -> TARGET` lines, in /var/log/containers; they dangle."""
    folder = root / "var/log/containers"
    folder.mkdir(parents=True, exist_ok=True)
    for line in lines:
        name, _, target = line.rstrip("\n").partition(" -> ")
        os.symlink(target, os.fsencode(folder) + b"/" + os.fsencode(name))


def make_pods(root: Path, names: Iterable[str]) -> None:
    """Directories of pods' logs, in /var/log/pods."""
    folder = root / "var/log/pods"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        os.mkdir(os.fsencode(folder) + b"/" + os.fsencode(name))
