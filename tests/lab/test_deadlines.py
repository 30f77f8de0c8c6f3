"""Emulation's patience, each in a process of its own: it is for good."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lab import play
from lab.deadlines import CLOSE_S, LAB_VM, in_lab_vm
from lab.vm.payload import Job

ROOT = Path(play.__file__).parents[1]


def said_by(*program: str, **environment: str) -> str:
    ended = subprocess.run(
        [sys.executable, *program],
        capture_output=True, text=True, check=False, cwd=ROOT, env={**os.environ, **environment},
    )  # fmt: skip
    assert ended.returncode in (0, 1, 3), ended.stderr
    return ended.stdout


def test_every_deadline_is_longer_by_the_same_factor():
    before, after = said_by(
        "-c",
        """
from lab.deadlines import lengthen_deadlines
from sexton.host import runner
from sexton.host.host import open_host
from sexton.sources.systemd import units
from sexton.record.sampler import Sampler
def told():
    with Sampler(open_host()) as sampler:
        seats = [seat.source.deadline_s for seat in sampler._slots]
    print(units.DEADLINE_S, *seats)
told()
lengthen_deadlines(100)
told()
assert runner.run(["sh", "-c", "sleep 0.2; echo there"], 0.05).output == b"there\\n"
""",
    ).splitlines()
    expected = [100 * float(word) for word in before.split()]
    assert [float(word) for word in after.split()] == expected


def test_a_recorder_has_time_to_decode_its_last_stacks_and_may_cost_more():
    said = said_by(
        "-c",
        """
from lab import deadlines
deadlines.decode_all_stacks()
deadlines.relax_recorder(3)
from pathlib import Path
from sexton.record import companions, ring_dump
from sexton.record.budget import OVER_S, Budget, Spent
from sexton.record.companions import Place
from sexton.host.host import open_host
(_, decoding) = companions.chosen(stacks=True, ring=False, ship=None)
print(decoding(Place(open_host(), Path("/nonexistent"), "node", "boot", 1 << 30))._pace.close_s)
for share in (2.9, 3.1):
    budget = Budget(percent=100)
    budget.judge(0, Spent(0, 0, 0, 0), {"x": 0})
    spent = share * OVER_S
    print(budget.judge(OVER_S, Spent(spent, 0, 0, 0), {"x": spent}) is None)
""",
    ).split()
    assert said == [str(CLOSE_S), "True", "False"]


def test_whoever_waits_for_the_recorder_waits_longer_than_its_decoder():
    assert play.STOP_S > CLOSE_S
    assert Job(()).deadline_s > play.START_S + play.STOP_S + play.LIVE_S + 180


def test_only_the_labs_own_machine_is_slow(monkeypatch):
    monkeypatch.delenv(LAB_VM, raising=False)
    assert not in_lab_vm()
    monkeypatch.setenv(LAB_VM, "1")
    assert in_lab_vm()


def test_it_is_sexton_with_the_same_arguments():
    said = said_by("-m", "lab.deadlines", "--version", **{LAB_VM: "1"})
    assert said == said_by("-m", "sexton", "--version")


def test_fixing_waits_longer_by_the_same_factor_too():
    before, after = said_by(
        "-c",
        """
from lab.deadlines import lengthen_fix_deadlines
from sexton.cure import units, watchdog
from sexton.sources import services, sock_diag
def told():
    asking = (services.relations, sock_diag.read_sockets)
    waits = units.ASK_S, watchdog.OVER.value
    print(*waits, *(each.__defaults__[-1] for each in asking))
told()
lengthen_fix_deadlines(100)
told()
""",
    ).splitlines()
    expected = [100 * float(word) for word in before.split()]
    assert len(expected) == 4
    assert [float(word) for word in after.split()] == expected
