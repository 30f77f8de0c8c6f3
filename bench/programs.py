"""Where the programs are that we measure ourselves against."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

SEXTON = str(Path(sys.executable).with_name("sexton"))
# scripts/system-packages unpacks there what must not be installed: it would start daemons.
_PEERS = Path(sys.executable).parents[1] / "peers" / "usr"
_PATH = os.pathsep.join(
    [
        os.environ.get("PATH", os.defpath),
        str(_PEERS / "bin"),
        "/usr/sbin",
        "/sbin",
        "/usr/lib/sysstat",
        "/usr/lib/sa",
        "/usr/lib64/sa",
    ]
)


#: The shell first: the same engine without a browser's own windows, which are pages too and take
#: as much CPU time as the one that is measured.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
NO_CHROMIUM = "needs Chromium: apt-get install chromium-headless-shell"


def find(name: str) -> str | None:
    """The full path of a program, or None where it is not installed."""
    return shutil.which(name, path=_PATH)


def traced(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The call for a program that wants tracefs where it usually is.

    Where nobody has mounted it, it is mounted for this program alone, in a mount namespace of its
    own, and is gone with it.
    """
    if Path("/sys/kernel/tracing/events").is_dir() and Path("/sys/kernel/debug/tracing").is_dir():
        return argv
    mounts = """\
[ -d /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing
[ -d /sys/kernel/debug/tracing ] || mount -t debugfs debugfs /sys/kernel/debug
exec "$@\""""
    return ("unshare", "--mount", "sh", "-c", mounts, "sh", *argv)
