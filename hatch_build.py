"""Compiles walk.c when Sexton is installed or packed, where there is a compiler.

Without one, or when it fails, the installation goes on with a notice: numpy then does the same
work, only slower. ``python hatch_build.py`` compiles it where it lies, as an editable install does.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import zlib
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # run by hand, where hatchling is not needed
    BuildHookInterface = object

SOURCE = Path("src/sexton/profile/perf/walk.c")
LIBRARY = "_walk.so"
NOTICE = "walk.c was not compiled, profiles will be read more slowly, by numpy"


def compiled(source: Path, target: Path) -> str | None:
    """Compiles `source` into `target`, or says why it could not. `CC` names the compiler."""
    command = shlex.split(os.environ.get("CC") or "cc")
    if not command or not shutil.which(command[0]):
        return f"{NOTICE}: no compiler ({shlex.join(command)})"
    # The library says from which source it comes, and native.py takes no other.
    crc = zlib.crc32(source.read_bytes())
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".walk-") as folder:
        made = Path(folder, LIBRARY)
        flags = ["-std=c99", "-O2", "-fPIC", "-shared", f"-DSEXTON_CRC={crc}u"]
        result = subprocess.run(
            [*command, *flags, "-o", str(made), str(source)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if result.returncode or not made.exists():
            said = result.stderr.strip().splitlines()
            return f"{NOTICE}: {said[0] if said else f'{shlex.join(command)} failed'}"
        # In one step: a process may have the old one loaded.
        made.replace(target)
    return None


class CompileWalk(BuildHookInterface):
    """What hatchling calls for a wheel; an editable install is a wheel, too."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root, SOURCE)
        if version == "editable":
            self._tell(compiled(source, source.with_name(LIBRARY)))
            return
        self._folder = tempfile.mkdtemp(prefix="sexton-walk-")
        target = Path(self._folder, LIBRARY)
        problem = compiled(source, target)
        self._tell(problem)
        if problem is None:
            inside = SOURCE.relative_to("src").with_name(LIBRARY)
            build_data["force_include"][str(target)] = str(inside)
            build_data["pure_python"] = False
            # Any Python 3 can load it, on this kind of machine.
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if folder := getattr(self, "_folder", None):
            shutil.rmtree(folder, ignore_errors=True)

    def _tell(self, problem: str | None) -> None:
        if problem:
            self.app.display_warning(problem)


if __name__ == "__main__":
    here = Path(__file__).parent / SOURCE
    if failed := compiled(here, here.with_name(LIBRARY)):
        print(failed, file=sys.stderr)
