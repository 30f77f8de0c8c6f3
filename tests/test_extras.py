"""Each extra brings what its commands need (ADR 0033): they run without all other packages."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
from pathlib import Path

import pytest

from tests.prevent.gate.making import image
from tests.support.cli import ENVIRONMENT, SEXTON
from tests.support.recordings import simple, write_sealed

#: Hides every package that is not allowed, from this process and from those it starts.
HIDE = """
import os, sys
allowed = set(os.environ["SEXTON_TEST_ALLOWED"].split())
known = set(os.environ["SEXTON_TEST_KNOWN"].split())
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        top = name.partition(".")[0]
        if top in known and top not in allowed:
            return None
        return found.find_spec(name, path, target)
found = sys.meta_path[-1]
sys.meta_path[-1] = Finder
"""
NODE = (
    "diagnose --seconds 0.2 --no-trace",
    "zombies --seconds 0.2",
    "top --frames 1",
    "sources",
    "audit --seconds 0.2",
    "gate --seconds 0.2",
    "collect",
    "profile top STACKS",
)
RECORDER = (
    "diagnose --from RECORDING",
    "why core 0 --from RECORDING",
    "recording verify RECORDING",
    "recording export RECORDING --out OUT",
)
EXPORTER = ("export --from RECORDING --once OUT.prom",)
ANALYST = ("serve --openapi", "gate --root IMAGE", "audit --root IMAGE")
COMMANDS = {"": NODE, "recorder": RECORDER, "exporter": EXPORTER, "analyst": (*RECORDER, *ANALYST)}
#: What the servers of an extra import, without starting one.
SERVERS = {
    "exporter": ("sexton.export.server", "sexton.record.recorder"),
    "analyst": ("sexton.explorer.server.server",),
}
_REQUIREMENT = re.compile(r"([\w.-]+)(?:\[([\w,]+)\])?")
_EXTRA = re.compile(r"""extra\s*==\s*["']([\w-]+)["']""")


def packages(name: str, extras: frozenset[str]) -> set[str]:
    """The distributions that installing this one brings, itself included."""
    found: set[str] = set()
    pending = [(name, extras)]
    seen = set()
    while pending:
        name, extras = pending.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        found.add(name)
        try:
            requirements = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # for another system
            continue
        for line in requirements:
            needed = _EXTRA.search(line)
            if needed is None or needed[1] in extras:
                match = _REQUIREMENT.match(line)
                assert match is not None
                more = frozenset(filter(None, (match[2] or "").split(",")))
                pending.append((re.sub(r"[-_.]+", "-", match[1]).lower(), more))
    return found


def modules(distributions: set[str]) -> set[str]:
    return {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if any(re.sub(r"[-_.]+", "-", owner).lower() in distributions for owner in owners)
    }


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("extras")
    (made / "sitecustomize.py").write_text(HIDE)
    (made / "recording").mkdir()
    write_sealed(made / "recording", [simple(1.0)])
    (made / "stacks").write_text("swapper;do_idle 3\njava;main;read 4\n")
    image(made / "image")
    return made


def environment(place: Path, extra: str) -> dict[str, str]:
    brought = packages("sexton", frozenset({extra} if extra else ()))
    known = set(importlib.metadata.packages_distributions()) - {"_virtualenv", "sitecustomize"}
    return {
        **ENVIRONMENT,
        "PYTHONPATH": str(place),
        "SEXTON_TEST_ALLOWED": " ".join(modules(brought)),
        "SEXTON_TEST_KNOWN": " ".join(known - {"sexton"}),
    }


@pytest.mark.parametrize(
    ("extra", "command"),
    [(extra, command) for extra, commands in COMMANDS.items() for command in commands],
)
def test_a_command_runs_with_what_its_extra_brings(
    place: Path, tmp_path: Path, extra: str, command: str
) -> None:
    words = {
        "RECORDING": str(place / "recording"),
        "STACKS": str(place / "stacks"),
        "IMAGE": str(place / "image"),
        "OUT": str(tmp_path / "out"),
        "OUT.prom": str(tmp_path / "out.prom"),
    }
    ended = subprocess.run(
        [*SEXTON, *(words.get(word, word) for word in command.split())],
        env=environment(place, extra),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode in (0, 1, 3), ended.stderr
    assert "pip install" not in ended.stdout + ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("extra", SERVERS)
def test_a_server_is_imported_with_what_its_extra_brings(place: Path, extra: str) -> None:
    program = f"import {', '.join(SERVERS[extra])}, sexton.web.settings, yaml, bcrypt"
    subprocess.run([SEXTON[0], "-c", program], env=environment(place, extra), check=True)


def test_an_extra_that_is_missing_is_named(place: Path) -> None:
    """So that packages are hidden at all."""
    for command, extra in (("diagnose --from", "recorder"), ("export --once x.prom --from", "exp")):
        ended = subprocess.run(
            [*SEXTON, *command.split(), str(place / "recording")],
            env=environment(place, "" if extra == "recorder" else "recorder"),
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ended.returncode, ended.stdout) == (2, "")
        assert f"pip install 'sexton[{extra}" in ended.stderr


def test_a_node_exports_and_a_recorder_has_no_server() -> None:
    assert packages("sexton", frozenset({"node"})) == packages("sexton", frozenset({"exporter"}))
    brought = packages("sexton", frozenset({"recorder"}))
    assert not brought & {"starlette", "uvicorn", "prometheus-client", "bcrypt", "pyyaml"}
    assert {"numpy", "jeepney", "rich", "pyarrow"} <= brought
