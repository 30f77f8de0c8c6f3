"""Shared by all of lab.vm: the error class, progress lines, and running tools."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

#: The Debian package of each tool.
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
    """The lab cannot continue; the text is one line that says why and what to do."""


def log(text: str) -> None:
    sys.stderr.write(f"[lab {time.monotonic() - _BEGAN:6.1f} s] {text}\n")
    sys.stderr.flush()


def search_path() -> str:
    """PATH plus the sbin directories, which a user's PATH may lack."""
    have = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join([*have, *(place for place in _SYSTEM if place not in have)])


def require(*tools: str) -> None:
    """Raises with an apt-get line that installs all missing tools."""
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
    """Run a tool and return its standard output; a failure raises with its last error line."""
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
        raise LabError(f"{program(words)} failed ({result.returncode}): {last_error(result)}")
    return result.stdout


def program(words: Sequence[str]) -> str:
    """The name of the actual tool in a command line, without wrappers.

    >>> program(["/usr/bin/unshare", "--mount", "--", "debootstrap", "bookworm"])
    'debootstrap'
    """
    after = words[words.index("--") + 1 :] if "--" in words[:-1] else words
    return Path(after[0]).name


def last_error(result: subprocess.CompletedProcess[str]) -> str:
    lines = (result.stderr.strip() or result.stdout.strip()).splitlines()
    errors = [line.strip() for line in lines if line.startswith(("E: ", "ERROR", "error"))]
    return (errors or [line.strip() for line in lines[-1:]] or ["no output"])[0]
