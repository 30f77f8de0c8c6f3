"""Compile walk.c when Sexton is installed or packaged, if there is a compiler.

Without a compiler, or if it fails, the installation continues with a notice: numpy then does the
same work, more slowly. ``python hatch_build.py`` compiles it in place, like an editable install.
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
except ImportError:  # run by hand, without hatchling
    BuildHookInterface = object

SOURCE = Path("src/sexton/profile/perf/walk.c")
LIBRARY = "_walk.so"
NOTICE = "walk.c was not compiled: profiles are read by numpy, more slowly"


def compiled(source: Path, target: Path) -> str | None:
    """Compile `source` to `target`; returns the reason if that fails. `CC` is the compiler."""
    command = shlex.split(os.environ.get("CC") or "cc")
    if not command or not shutil.which(command[0]):
        return f"{NOTICE}: no compiler ({shlex.join(command)})"
    # The CRC of the source is compiled in; native.py refuses any other library.
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
            errors = result.stderr.strip().splitlines()
            return f"{NOTICE}: {errors[0] if errors else f'{shlex.join(command)} failed'}"
        # Atomically: a process may have the old one loaded.
        made.replace(target)
    return None


class CompileWalk(BuildHookInterface):
    """The hatchling build hook; an editable install is a wheel, too."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root, SOURCE)
        if version == "editable":
            self._warn(compiled(source, source.with_name(LIBRARY)))
            return
        self._folder = tempfile.mkdtemp(prefix="sexton-walk-")
        target = Path(self._folder, LIBRARY)
        problem = compiled(source, target)
        self._warn(problem)
        if problem is None:
            inside = SOURCE.relative_to("src").with_name(LIBRARY)
            build_data["force_include"][str(target)] = str(inside)
            build_data["pure_python"] = False
            # Any Python 3 on this platform can load it.
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"py3-none-{platform}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002
        if folder := getattr(self, "_folder", None):
            shutil.rmtree(folder, ignore_errors=True)

    def _warn(self, problem: str | None) -> None:
        if problem:
            self.app.display_warning(problem)


if __name__ == "__main__":
    here = Path(__file__).parent / SOURCE
    if failed := compiled(here, here.with_name(LIBRARY)):
        print(failed, file=sys.stderr)
