"""Where the programs are that the benchmarks run."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

SEXTON = str(Path(sys.executable).with_name("sexton"))
# scripts/system-packages unpacks peers there instead of installing them, which would start daemons.
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


#: The headless shell first: the same engine without the browser's own windows, which are pages too
#: and use as much CPU time as the measured one.
CHROMIUM = shutil.which("chromium-headless-shell") or shutil.which("chromium")
NO_CHROMIUM = "needs Chromium: apt-get install chromium-headless-shell"


def find(name: str) -> str | None:
    """The full path of a program, or None if it is not installed."""
    return shutil.which(name, path=_PATH)


def traced(argv: tuple[str, ...]) -> tuple[str, ...]:
    """The command for a program that needs tracefs in its usual place.

    If tracefs is not mounted, it is mounted only for this program, in a separate mount namespace.
    """
    if Path("/sys/kernel/tracing/events").is_dir() and Path("/sys/kernel/debug/tracing").is_dir():
        return argv
    mounts = """\
[ -d /sys/kernel/tracing/events ] || mount -t tracefs tracefs /sys/kernel/tracing
[ -d /sys/kernel/debug/tracing ] || mount -t debugfs debugfs /sys/kernel/debug
exec "$@\""""
    return ("unshare", "--mount", "sh", "-c", mounts, "sh", *argv)
