"""The payload of a run: this project's wheel, the lab and the job, as an initramfs archive.

The kernel unpacks it after the initramfs, whose init copies it into the root file system. So a code
change needs a new wheel of a megabyte, not a new image.
"""

from __future__ import annotations

import compileall
import importlib.util
import py_compile
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lab.vm.cache import build_folder, files_key
from lab.vm.cpio import Cpio
from lab.vm.rootfs import PROJECT, PYTHON, SITE, install
from lab.vm.tools import LabError, log, run

GUEST = Path(__file__).parent / "guest"
#: How many versions of the project the cache keeps.
KEPT = 6
_HOME = "usr/local/lib/sexton-lab"
_UNIT = "sexton-lab.service"
_WHEEL_FILES = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "constraints.txt")


@dataclass(frozen=True, slots=True)
class Job:
    """The scenes for the guest to play, and their limits."""

    scenes: tuple[str, ...]
    deadline_s: int = 1800
    settle_s: int = 5
    slot_mb: int = 256
    #: Also diagnose live, at the end of each scene that is still active.
    live: bool = False

    def text(self) -> str:
        """As shell variables for the guest.

        >>> print(Job(("idle", "busy"), 60).text(), end="")
        SCENES="idle busy"
        DEADLINE_S=60
        SETTLE_S=5
        SLOT_MB=256
        FLAGS=""
        """
        flags = "--live" if self.live else ""
        return (
            f'SCENES="{" ".join(self.scenes)}"\nDEADLINE_S={self.deadline_s}\n'
            f'SETTLE_S={self.settle_s}\nSLOT_MB={self.slot_mb}\nFLAGS="{flags}"\n'
        )


def payload(site: Path, job: Job) -> bytes:
    """The archive; `site` is the result of `site_tree`."""
    cpio = Cpio()
    cpio.tree(f"payload/{SITE}", site)
    cpio.file(f"payload/{_HOME}/play-all", (GUEST / "play-all").read_bytes(), 0o755)
    cpio.file(f"payload/{_HOME}/job", job.text().encode())
    units = "payload/etc/systemd/system"
    cpio.file(f"{units}/{_UNIT}", (GUEST / _UNIT).read_bytes())
    cpio.link(f"{units}/graphical.target.wants/{_UNIT}", f"../{_UNIT}")
    return cpio.packed()


def site_tree(cache: Path) -> Path:
    """The unpacked project wheel and the lab; rebuilt when their sources change."""
    tree = cache / f"site-{files_key(PROJECT, project_files())}"
    if tree.exists():
        return tree
    log("building the project's wheel")
    with build_folder(tree) as folder:
        made, wheels = folder / "site", folder / "wheels"
        # Use hatchling from the development environment if present, to save a download.
        here = ["--no-build-isolation"] if importlib.util.find_spec("hatchling") else []
        run(
            [
                sys.executable,
                "-m",
                "pip",
                "wheel",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                *here,
                "--wheel-dir",
                str(wheels),
                ".",
            ],
            env={"PIP_CONSTRAINT": "constraints.txt"},
            cwd=PROJECT,
        )
        built = [str(path) for path in wheels.glob("sexton-*.whl")]
        if len(built) != 1:
            raise LabError(f"pip wheel built {len(built)} wheels of this project instead of one")
        install(built, made, "--no-deps")
        for path in lab_files():
            target = made / path.relative_to(PROJECT)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
        if f"{sys.version_info[0]}.{sys.version_info[1]}" == PYTHON:
            checked = py_compile.PycInvalidationMode.UNCHECKED_HASH
            compileall.compile_dir(made, quiet=2, invalidation_mode=checked)
        made.touch()
        made.rename(tree)
    _prune(cache)
    return tree


def _prune(cache: Path) -> None:
    """Keep only the last few trees: every code change adds one."""
    trees = sorted(cache.glob("site-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in trees[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def project_files() -> Iterator[Path]:
    """All sources of the project's wheel and of the lab."""
    for name in _WHEEL_FILES:
        path = PROJECT / name
        if path.exists():
            yield path
    yield from _source_files(PROJECT / "src")
    yield from lab_files()


def lab_files() -> Iterator[Path]:
    """The lab, and the unit that is shipped: `lab.held` plays it."""
    yield from _source_files(PROJECT / "lab")
    yield PROJECT / "deploy/systemd/sexton-record.service"


def _source_files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*"):
        # A development tree contains _walk.so; the wheel compiles its own.
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so":
            yield path
