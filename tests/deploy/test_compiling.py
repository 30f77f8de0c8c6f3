"""walk.c is compiled where there is a compiler, and nobody needs one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LIBRARY = "sexton/profile/perf/_walk.so"


@pytest.fixture(scope="module")
def tree(tmp_path_factory) -> Path:
    """What a wheel is made from, apart, so that nothing here is touched."""
    copy = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "man", copy / "man")
    return copy


def packed(tree: Path, into: Path, compiler: str) -> tuple[Path, str]:
    """The wheel, and what was said while it was made."""
    result = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)],
        cwd=tree,
        env={**os.environ, "CC": compiler},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    (wheel,) = into.glob("*.whl")
    return wheel, result.stdout + result.stderr


def engine_of(wheel: Path, folder: Path) -> str:
    """Which engine says to be there when only the wheel's files are."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    code = "from sexton.profile.perf import native; print(native.__file__, native.engine())"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.defpath},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert shown[0].startswith(str(folder)), "another Sexton was asked"
    return shown[1]


def test_a_wheel_has_the_library_and_says_for_which_machine(tree: Path, tmp_path: Path):
    wheel, _ = packed(tree, tmp_path / "dist", "cc")
    assert LIBRARY in zipfile.ZipFile(wheel).namelist()
    assert wheel.stem.split("-")[2:4] == ["py3", "none"]
    assert wheel.stem.split("-")[4].startswith("linux_")
    assert engine_of(wheel, tmp_path / "there") == "c"
    pages = {Path(name).name for name in zipfile.ZipFile(wheel).namelist() if "/man/man1/" in name}
    assert pages == {page.name for page in (ROOT / "man").iterdir()}


@pytest.mark.parametrize("compiler", ["/bin/false", "no-such-compiler", "cc -not-an-option"])
def test_without_a_compiler_a_wheel_is_made_for_every_machine_and_says_so(
    tree: Path, tmp_path: Path, compiler: str
):
    # As after an editable install: what lies there compiled must not slip in.
    (tree / "src" / LIBRARY).write_bytes(b"of another time")
    wheel, said = packed(tree, tmp_path / "dist", compiler)
    assert "walk.c was not compiled" in said
    assert LIBRARY not in zipfile.ZipFile(wheel).namelist()
    assert wheel.stem.endswith("py3-none-any")
    assert engine_of(wheel, tmp_path / "there") == "numpy"


def test_compiling_in_place_replaces_an_older_library(tmp_path: Path):
    place = tmp_path / "src/sexton/profile/perf"
    place.mkdir(parents=True)
    shutil.copy(ROOT / "src/sexton/profile/perf/walk.c", place)
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    library = place / "_walk.so"
    library.write_bytes(b"of another time")
    command = [sys.executable, str(tmp_path / "hatch_build.py")]
    failing = subprocess.run(
        command, env={"CC": "/bin/false", "PATH": os.defpath}, capture_output=True, text=True
    )
    assert (failing.returncode, library.read_bytes()) == (0, b"of another time")
    assert "read by numpy, more slowly: /bin/false failed" in failing.stderr
    assert subprocess.run(command, env={"PATH": os.defpath}, check=True).returncode == 0
    assert library.read_bytes()[:4] == b"\x7fELF"
    assert sorted(path.name for path in place.iterdir()) == ["_walk.so", "walk.c"]


@pytest.mark.parametrize("newer", [None, "src/sexton/profile/perf/walk.c", "hatch_build.py"])
def test_setup_compiles_again_what_changed_and_nothing_else(tmp_path: Path, newer: str | None):
    python, stamp = tmp_path / ".venv/bin/python", tmp_path / ".venv/.sexton-core"
    needed = ("scripts/setup", "pyproject.toml", "constraints.txt", "hatch_build.py")
    for name in (*needed, "src/sexton/profile/perf/walk.c"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
        os.utime(tmp_path / name, (1000, 1000))
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\necho "$1" >>{tmp_path}/calls\n')
    python.chmod(0o755)
    (tmp_path / ".venv/.sexton-place").write_text(str(tmp_path.resolve()))
    stamp.touch()
    os.utime(stamp, (2000, 2000))
    if newer:
        os.utime(tmp_path / newer, (3000, 3000))
    for _ in range(2):
        subprocess.run([tmp_path / "scripts/setup", "core"], check=True)
    calls = (tmp_path / "calls").read_text().split("\n")
    assert calls.count("hatch_build.py") == (1 if newer else 0)


def test_walk_c_is_one_small_file():
    assert len((ROOT / "src/sexton/profile/perf/walk.c").read_text().splitlines()) <= 300
