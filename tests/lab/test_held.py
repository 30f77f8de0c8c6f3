"""`lab.held`: its parts; the whole of it runs in a VM (`lab.vm run 6.1 v2 check_held`)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from lab import held
from lab.claims import Claims
from lab.deadlines import LAB_VM
from lab.held import Held, Order
from sexton.cli.main import VERBS

RT_RUNTIME = Path("/proc/sys/kernel/sched_rt_runtime_us")
#: These read no node, or are shown by others: `profile` and `recording` read files, `collect`
#: prints a script.
ELSEWHERE = {"profile", "recording", "serve", "demo", "config", "collect", "completion"}


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
    code = "import sys; sys.argv[1:] = ['sexton']; sys.stdin.read()"
    left = subprocess.Popen(
        [sys.executable, "-c", code, "sexton"], stdin=subprocess.PIPE, start_new_session=True
    )
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
