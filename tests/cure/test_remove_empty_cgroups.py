"""Empty live cgroups, for real: which are found, and how they go without becoming zombies."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lab.zombie_maker import CannotMakeZombies, scratch_cgroup
from sexton.cure.apply import FixContext, apply
from sexton.cure.journal import State
from sexton.cure.preconditions import Probes
from sexton.cure.protected import Rule
from sexton.cure.remedies.remove_empty_cgroups import (
    REMOVE,
    EmptyCgroup,
    find_empty_cgroups,
    left_of,
    propose,
    remove,
)
from sexton.cure.writer import DryWriter, LiveWriter
from sexton.errors import CommandError
from sexton.host.host import open_host
from sexton.sources.cgroupfs.layout import Layout
from tests.model.test_plan import plan

pytestmark = pytest.mark.root
SCOPE = "run-r0f3a77bc0e6d4b1e.scope"
WRITE = "import os, sys; os.write(os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT), bytes(1 << 20))"


@pytest.fixture
def parent() -> Iterator[Path]:
    try:
        with scratch_cgroup("test-sexton") as (_, made):
            yield made
    except CannotMakeZombies as reason:
        pytest.skip(str(reason))


def found(parent: Path, **more: object) -> dict[str, EmptyCgroup]:
    rows = find_empty_cgroups(open_host(), f"/{parent.name}", **{"youngest_s": 0.0, **more})
    return {row.path.removeprefix(f"/{parent.name}/"): row for row in rows}


def test_only_empty_leaves_that_look_like_scopes_or_containers_are_found(parent: Path):
    full = "session-7.scope"
    container = "docker-" + "0f" * 32 + ".scope"
    for name in (SCOPE, full, container, "plain", "a.service", "user.slice", "deep/x.scope"):
        (parent / name).mkdir(parents=True)
    (parent / "deep/x.scope/inner").mkdir()
    child = subprocess.Popen(["sleep", "100"])
    try:
        (parent / full / "cgroup.procs").write_text(str(child.pid))
        rows = found(parent)
        assert set(rows) == {SCOPE, container}
        assert rows[SCOPE].inode == (parent / SCOPE).stat().st_ino
        assert set(found(parent, extra=(Rule("run-r*", "ours"),))) == {container}
    finally:
        child.kill()
        child.wait()


def test_what_may_be_young_is_left_alone(parent: Path):
    (parent / SCOPE).mkdir()
    assert found(parent, youngest_s=600.0) == {}
    time.sleep(0.05)
    assert set(found(parent, youngest_s=0.05)) == {SCOPE}


@pytest.mark.parametrize("name", [SCOPE, "\x1b[2J<b>.scope", "a b'$(x).scope"])
def test_one_is_removed_whatever_its_name(parent: Path, name: str):
    (parent / name).mkdir()
    row = found(parent)[name]
    assert row.how == REMOVE
    done = remove(open_host(), row, LiveWriter(open_host()))
    assert done.how == REMOVE
    assert not (parent / name).exists()
    assert remove(open_host(), row, LiveWriter(open_host())).how == "already gone"


def test_one_that_holds_pages_is_emptied_first_and_becomes_no_zombie(parent: Path):
    home = parent / SCOPE
    home.mkdir()
    with tempfile.NamedTemporaryFile(dir="/var/tmp", prefix="test-sexton-") as file:

        def move() -> None:
            (home / "cgroup.procs").write_text("0")

        subprocess.run([sys.executable, "-c", WRITE, file.name], preexec_fn=move, check=True)
        os.sync()
        _wait_empty(home)
        row = found(parent)[SCOPE]
        assert row.held_bytes >= 1 << 20
        done = remove(open_host(), row, LiveWriter(open_host()))
        assert not home.exists()
        assert done.held_bytes < 1 << 18


def _wait_empty(home: Path) -> None:
    end = time.monotonic() + 60
    while (home / "cgroup.procs").read_text().strip() and time.monotonic() < end:
        time.sleep(0.01)


def test_one_that_somebody_moved_into_or_made_anew_is_left_alone(parent: Path):
    home = parent / SCOPE
    home.mkdir()
    row = found(parent)[SCOPE]
    child = subprocess.Popen(["sleep", "100"])
    try:
        (home / "cgroup.procs").write_text(str(child.pid))
        with pytest.raises(CommandError, match="no longer empty"):
            remove(open_host(), row, LiveWriter(open_host()))
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
    _wait_empty(home)
    home.rmdir()
    home.mkdir()
    with pytest.raises(CommandError, match="replaced by a new cgroup"):
        remove(open_host(), row, LiveWriter(open_host()))
    assert home.exists()


def test_the_step_is_proven_only_if_each_of_them_is_gone(parent: Path, tmp_path: Path):
    names = ("a-1.scope", "a-2.scope")
    for name in names:
        (parent / name).mkdir()
    step = propose("1-remove", list(found(parent).values()))
    host = open_host()
    child = subprocess.Popen(["sleep", "100"])
    try:
        (parent / names[0] / "cgroup.procs").write_text(str(child.pid))
        fix = FixContext(host, LiveWriter(host), State(str(tmp_path / "fix")), (), print)
        made = plan(boot_id=Probes(host).read("boot_id"), evidence_until_unix=time.time(),
                    steps=(replace(step, preconditions=()),))  # fmt: skip
        applied = apply(made, fix, 60)
        assert applied.steps[0].proofs == (("each is gone", False, "1 of 2 removed"),)
        assert "no longer empty" in applied.steps[0].message
        assert applied.exit == 1
        assert left_of(host, step) == 1
    finally:
        child.kill()
        child.wait()
    _wait_empty(parent / names[0])
    (parent / names[0]).rmdir()
    (parent / names[0]).mkdir()
    assert left_of(host, step) == 0, "that is a new one"


def test_a_dry_run_removes_nothing(parent: Path):
    (parent / SCOPE).mkdir()
    dry = DryWriter()
    remove(open_host(), found(parent)[SCOPE], dry)
    assert ("remove cgroup", f"{parent}/{SCOPE}") in [deed[:2] for deed in dry.actions]
    assert (parent / SCOPE).exists()


def test_in_a_namespace_nobody_is_called_empty(parent: Path, monkeypatch: pytest.MonkeyPatch):
    (parent / SCOPE).mkdir()
    pod = Layout("v1", 1, str(parent), False, "this is a cgroup namespace", "go out")
    monkeypatch.setattr("sexton.cure.remedies.remove_empty_cgroups.read_layout", lambda _: pod)
    with pytest.raises(CommandError, match="cannot tell which cgroups are empty"):
        find_empty_cgroups(open_host(), "/")
    with pytest.raises(Exception, match="only on the node itself"):
        find_empty_cgroups(open_host(str(parent)), "/")
