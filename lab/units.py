"""Units of the running systemd, for checks."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

UNITS = Path("/run/systemd/system")
MASKS = Path("/etc/systemd/system")
#: Longer than systemd itself waits before and after it kills.
PATIENCE_S = 300.0


@contextlib.contextmanager
def unit(name: str, text: str, drop_in: str = "") -> Iterator[None]:
    """A systemd unit, stopped and removed at the end."""
    place = UNITS / name
    more = place.with_name(f"{name}.d")
    place.write_text(text)
    if drop_in:
        more.mkdir()
        (more / "lab.conf").write_text(drop_in)
    systemctl("daemon-reload")
    systemctl("start", "--no-block", name)
    try:
        yield
    finally:
        systemctl("stop", name)
        place.unlink()
        shutil.rmtree(more, ignore_errors=True)
        systemctl("daemon-reload")
        systemctl("reset-failed", name)


def systemctl(*words: str) -> str:
    """Its output, whatever its exit status; empty if systemd does not answer."""
    command = ["systemctl", *words]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return ""
    return ended.stdout


def shown(name: str, field: str) -> str:
    return systemctl("show", "-p", field, "--value", name).strip()


def journal(name: str) -> str:
    """Its lines in the journal."""
    words = ["journalctl", "--no-pager", "-o", "short-monotonic", "-u", name]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def is_masked(name: str) -> bool:
    """By its link: systemd may not be able to answer."""
    return (MASKS / name).is_symlink()
