"""The recorder's bench: whom it runs, in which order, and what it makes of the numbers."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from bench.recorder import ours, peers
from bench.recorder.account import Cost, size_of
from bench.recorder.flood import Flooded
from bench.recorder.peers import PEERS, Peer, RunSpec
from bench.recorder.plan import PARTS, Plan, add_options, plan
from bench.recorder.report import Stacks, peer_table, promises
from bench.recorder.watch import Watched, order


def planned(*arguments: str) -> Plan:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return plan(parser.parse_args(arguments))


def watched(name: str, share: float | None, peak_mb: float = 20, kept: float = 1000) -> Watched:
    peer = Peer(name, "something", lambda spec: "never")
    if share is None:
        return Watched(peer, (), (), "because")
    run = Cost(
        window_s=10,
        cpu_s=share / 10,
        start_cpu_s=0.5,
        peak_bytes=int(peak_mb * 1e6),
        steady_bytes=int(peak_mb * 1e6),
        written_bytes=4096,
        whole_s=15,
        left_behind=0,
        failure="",
    )
    return Watched(peer, (run,), (kept,))


def everyone(plain: float | None, full_mb: float) -> list[Watched]:
    return [
        watched(ours.PLAIN_NAME, plain),
        watched("atop -w", 8.0),
        watched(ours.STACKS_NAME, 2.0, kept=21_000),
        watched(ours.FULL_NAME, 2.5, full_mb),
    ]


def test_ours_runs_at_least_twice_with_peers_between():
    names = [item.name for item in order(planned())]
    first, last = names.index(ours.PLAIN_NAME), len(names) - names[::-1].index(ours.PLAIN_NAME) - 1
    assert {peer.name for peer in PEERS} <= set(names[first + 1 : last])


def test_every_part_is_wanted_unless_some_are_named():
    assert all(planned().wants(part) for part in PARTS)
    assert not planned("--parts", "flood,replay").wants("watch")


def test_a_part_that_is_not_there_is_refused():
    with pytest.raises(SystemExit, match="flod"):
        planned("--parts", "flod")


def test_a_peer_that_is_not_installed_says_how_to_get_it(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(peers, "find", lambda name: None)
    for peer in PEERS:
        reason = peer.prepare(RunSpec(tmp_path, 5))
        assert isinstance(reason, str)
        assert "not installed" in reason


def test_peers_watch_once_a_second_for_the_same_time(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(peers, "find", lambda name: f"/nowhere/{name}")
    runs = {peer.name: peer.prepare(RunSpec(tmp_path, 15)) for peer in PEERS}
    assert {run.program.seconds for run in runs.values()} == {15}
    assert runs["sadc -S ALL"].program.argv[1:5] == ("-S", "ALL", "1", "16")
    assert runs["atop -w"].program.argv[-2:] == ("1", "15")
    assert runs["below record"].program.argv[-2:] == ("--interval-s", "1")
    assert runs["node_exporter"].scraper is runs["node_exporter"].program.tick
    assert "--collector.processes" in runs["node_exporter +3"].program.argv
    assert all("127.0.0.1" in runs[name].program.argv[1] for name in runs if "node" in name)


def test_a_sexton_without_the_verb_is_told_apart(tmp_path: Path):
    old = tmp_path / "sexton"
    old.write_text("#!/bin/sh\nexit 2\n")
    old.chmod(0o755)
    assert "record" in ours.absent(str(old))
    old.write_text("#!/bin/sh\nexit 0\n")
    assert ours.absent(str(old)) == ""
    assert "No such file" in ours.absent(str(tmp_path / "none"))


def test_promises_of_cpu_and_memory_are_held_against_the_issues_limits():
    assert not any(line.missed for line in promises(everyone(0.9, 299)))
    missed = [line.what for line in promises(everyone(0.95, 301)) if line.missed]
    assert missed == ["record, CPU of one core", "record with stacks, probe and ring, peak memory"]


def test_what_the_machines_speed_cannot_change_is_the_ratio_to_a_peer():
    assert promises(everyone(2.0, 100))[-1].ratio == pytest.approx(0.25)


def test_a_recorder_that_did_not_run_leaves_its_promises_unmeasured():
    cpu, steady, memory, full = promises(everyone(None, 100))
    assert cpu.unmeasured
    assert steady.unmeasured
    assert memory.unmeasured
    assert "because" in cpu.row()
    assert not full.unmeasured


def test_the_table_holds_ours_against_each_peer():
    table = peer_table([*everyone(2.0, 100), watched("below record", None)])
    assert (
        "| `atop -w` | something | 8.00 % | 0.50 s | 20 MB | 1.0 kB/s | 0.3 kB/s | 0.25 |" in table
    )
    assert "| `below record` | something | not run: because |" in table


def test_stacks_count_interrupts_on_every_core_and_processes_on_one():
    plain, _, stacks, _ = everyone(1.0, 100)
    told = Stacks(plain, stacks, 0.3, 2)
    assert told.line().ratio == pytest.approx(2.0 / 2 + 0.3)
    assert told.line().missed
    text = " ".join(told.on(96).split())
    assert "extrapolated from 2 and not measured" in text
    assert "0.50 % of one core and 10 kB/s for each core here" in text
    assert "48 % of one core and 1.0 MB/s there" in text
    assert "Together 0.81 % of that machine" in text


def test_stacks_whose_interrupts_nobody_could_price_are_not_called_cheap():
    plain, _, stacks, _ = everyone(1.0, 100)
    told = Stacks(plain, stacks, None, 2)
    assert told.line().unmeasured
    assert "not extrapolated" in told.on(96)


def test_a_flood_is_held_against_the_quiet_around_each_round():
    line = Flooded("x", (90.0, 50.0, 80.0), (100.0, 50.0, 100.0)).line()
    assert line.ratio == pytest.approx(0.9)
    assert "0.80–1.00" in line.row()


def test_bytes_of_a_directory_are_those_of_all_files_below_it(tmp_path: Path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "one").write_bytes(bytes(10))
    (tmp_path / "a" / "b" / "two").write_bytes(bytes(32))
    assert size_of(tmp_path) == 42
    assert size_of(tmp_path / "a" / "one") == 10
