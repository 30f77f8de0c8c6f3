"""What every part of the lab shares: its one kind of error, progress lines, and tools it needs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

#: Each tool, and the Debian package it is in.
PACKAGES = {
    "qemu-system-x86_64": "qemu-system-x86",
    "debootstrap": "debootstrap",
    "depmod": "kmod",
    "modprobe": "kmod",
    "mkfs.ext4": "e2fsprogs",
    "dpkg-deb": "dpkg",
    "apt-get": "apt",
    "unshare": "util-linux",
    "setpriv": "util-linux",
    "cp": "coreutils",
}
_SYSTEM = ("/usr/sbin", "/sbin")
_BEGAN = time.monotonic()


class LabError(Exception):
    """The lab cannot go on; its text is one line that says why and what to do."""


def log(text: str) -> None:
    sys.stderr.write(f"[lab {time.monotonic() - _BEGAN:6.1f} s] {text}\n")
    sys.stderr.flush()


def search_path() -> str:
    """PATH, with the places where a user's shell does not look but a tool of root's lies."""
    have = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*have, *(place for place in _SYSTEM if place not in have)])


def require(*tools: str) -> None:
    """Raises with the line that installs what is missing, all of it at once."""
    missing = [tool for tool in tools if shutil.which(tool, path=search_path()) is None]
    if missing:
        packages = sorted({PACKAGES[tool] for tool in missing})
        raise LabError(
            f"no {', '.join(missing)} on this machine: "
            f"apt-get install --no-install-recommends {' '.join(packages)}"
        )


def run(
    argv: Sequence[str | Path], *, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> str:
    """Runs a tool and gives its standard output; a failure is told with its last words."""
    words = [str(word) for word in argv]
    result = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        cwd=cwd,
        env={**os.environ, "PATH": search_path(), "LC_ALL": "C.UTF-8", **(env or {})},
    )
    if result.returncode:
        raise LabError(f"{program(words)} failed ({result.returncode}): {last_words(result)}")
    return result.stdout


def program(words: Sequence[str]) -> str:
    """The tool a command line is about, without what only wraps it.

    >>> program(["/usr/bin/unshare", "--mount", "--", "debootstrap", "bookworm"])
    'debootstrap'
    """
    after = words[words.index("--") + 1 :] if "--" in words[:-1] else words
    return Path(after[0]).name


def last_words(result: subprocess.CompletedProcess[str]) -> str:
    said = (result.stderr.strip() or result.stdout.strip()).splitlines()
    errors = [line.strip() for line in said if line.startswith(("E: ", "ERROR", "error"))]
    return (errors or [line.strip() for line in said[-1:]] or ["it said nothing"])[0]
