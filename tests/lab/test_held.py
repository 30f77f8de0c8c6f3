"""`lab.held`: its parts here, and the whole of it on a real kernel in a VM."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lab import held
from lab.claims import Claims
from lab.deadlines import LAB_VM
from lab.held import Held, Order
from lab.vm import runs, verdicts
from lab.vm.payload import Job, lab_files
from lab.vm.tools import search_path
from sexton.cli.main import VERBS

RT_RUNTIME = Path("/proc/sys/kernel/sched_rt_runtime_us")
#: These read no node, or are shown by others: `profile` and `recording` read files, `collect`
#: prints a script.
#: `node-agent` is the recorder, which is played, with a reporter; `npd` reads one small file.
ELSEWHERE = {
    "audit-log",
    "node-agent",
    "npd",
    "profile",
    "recording",
    "serve",
    "demo",
    "config",
    "collect",
    "completion",
}


def test_on_any_other_machine_it_holds_no_core_and_says_why(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(LAB_VM, raising=False)
    before = RT_RUNTIME.read_text()
    assert held.main(["--out", str(tmp_path / "out")]) == held.UNFIT
    assert "only in the lab's virtual machine" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
    assert RT_RUNTIME.read_text() == before


def test_every_command_that_looks_at_the_node_is_played(tmp_path):
    played = {order.words[0] for order in held.orders(tmp_path)} | {"record", "export"}
    assert played == set(VERBS) - ELSEWHERE


def test_what_a_command_leaves_must_be_named_on_its_standard_error(tmp_path):
    claims = Claims("held")
    checked = Held(claims, tmp_path, "held")
    said = tmp_path / "said"
    code = "import sys; print('runs', flush=True); sys.stdin.read()"
    left = subprocess.Popen(
        [sys.executable, "-c", code, "sexton"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert left.stdout is not None
    assert left.stdout.readline(), "from then on it has its command line"
    try:
        session = os.getsid(left.pid)
        for words, holds in (("", False), (f"sexton: process {left.pid} ends later", True)):
            said.write_text(words)
            checked._ended(Order("top", ("top",)), (session, 0), 1.0, said)
            assert claims.results[-1]["holds"] is holds
            assert claims.results[-1]["numbers"]["left"] == [left.pid]
    finally:
        left.communicate()
    said.write_text("")
    checked._ended(Order("top", ("top",)), (session, 0), 1.0, said)
    assert claims.results[-1]["holds"]
    checked._ended(Order("top", ("top",)), (session, None), 1.0, said)
    assert not claims.results[-1]["holds"]


def test_fix_is_played_with_all_that_it_changes(tmp_path):
    played = [order.words[1] for order in held.fixes(tmp_path / "plan", "hash", tmp_path, (0,))]
    assert played == ["apply", "verify", "rollback"]


def test_the_unit_that_is_played_is_the_one_that_is_shipped():
    shipped = held.ROOT / "deploy/systemd" / held.RECORD
    assert "ExecStart=/usr/bin/sexton record" in shipped.read_text()
    assert shipped in {*lab_files()}, "it is in the virtual machine"


@pytest.mark.lab
@pytest.mark.skipif(
    shutil.which("qemu-system-x86_64", path=search_path()) is None,
    reason="needs QEMU: apt-get install qemu-system-x86",
)
@pytest.mark.parametrize(("kernel", "hierarchy"), [("6.1", "v2"), ("5.10", "v1")])
def test_every_command_ends_while_a_core_is_held_in_a_machine(
    tmp_path: Path, kernel: str, hierarchy: str
):
    run = runs.plan(kernel, hierarchy, Job(("check_held",), deadline_s=3000), tmp_path)
    (outcome,) = (verdicts.with_verdict(one) for one in runs.play(run))
    assert outcome.good, (outcome.status, outcome.wrong)
    assert outcome.wrong == ()
    document = json.loads((tmp_path / f"check_held-{kernel}-{hierarchy}/held.json").read_text())
    claims = {claim["id"] for claim in document["claims"]}
    for how in ("braked", "held"):
        assert {f"{order.name}_{how}" for order in held.orders(tmp_path)} <= claims
        assert {f"deployed_stops_{how}", f"fix-apply_{how}", f"fix_clean_{how}"} <= claims
