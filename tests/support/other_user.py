"""Run Sexton as another user, in other namespaces or in a real container.

Interpreter and packages are bind-mounted into a world-readable folder, in a private mount
namespace: nothing is copied, nothing is left behind, and a home directory with mode 0700 does not
matter.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import sexton

NOBODY = "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=-all"


@dataclass(frozen=True, slots=True)
class BoundInstall:
    """A folder with `python`, `src` and `site`, to be bound there first."""

    folder: Path

    @property
    def bound(self) -> dict[str, str]:
        """What is bound where below the folder."""
        return {
            "python": sys.base_prefix,
            "src": str(Path(sexton.__file__).parents[1]),
            "site": sysconfig.get_path("purelib"),
        }

    @property
    def command(self) -> list[str]:
        name = f"python{sys.version_info.major}.{sys.version_info.minor}"
        return [f"{self.folder}/python/bin/{name}", "-m", "sexton"]

    @property
    def environment(self) -> dict[str, str]:
        return {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "LC_ALL": "C.UTF-8",
            "PYTHONHOME": f"{self.folder}/python",
            "PYTHONPATH": f"{self.folder}/src:{self.folder}/site",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(
        self, *arguments: str, before: str = ":", unshare: str = "", first: str = ":", via: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run ``sexton ARGUMENTS`` through `via`, in new namespaces in which the shell did `first`.

        `before` is done by the same process outside of them.
        """
        binds = " && ".join(
            f"mount --bind {shlex.quote(source)} {shlex.quote(f'{self.folder}/{name}')}"
            for name, source in self.bound.items()
        )
        inside = f"{binds}; {first}; exec {via} {shlex.join([*self.command, *arguments])}"
        return subprocess.run(
            ["sh", "-c", f"{before} && exec unshare -m {unshare} sh -ec {shlex.quote(inside)}"],
            env=self.environment,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )


@contextlib.contextmanager
def bound_install() -> Iterator[BoundInstall]:
    """The folder, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix=f"sexton-test-{os.getpid()}-"))
    try:
        folder.chmod(0o755)
        for name in ("python", "src", "site"):
            (folder / name).mkdir()
        yield BoundInstall(folder)
    finally:
        shutil.rmtree(folder)
