"""What is left out of a long span must change no answer: a node made up by chance, both ways."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from random import Random
from typing import Any

import pytest

from sexton.detect.waits import measured_waits, watch
from sexton.explain.diagnosis import diagnose
from sexton.model.cgroup import CgroupCensus, CgroupDir, CgroupEvent, CgroupResidual
from sexton.model.cpu import CoreTimes, Interrupt, SoftirqCount
from sexton.model.memory import Pressure, VmCounter
from sexton.model.net import NetDevice, Nic, NicCounter, NicQueue
from sexton.model.row import Row, fields_of
from sexton.model.softirq import ProbeCost, SoftirqWait
from sexton.model.task import Process, ProcessCgroup, Thread
from sexton.model.unit import ServiceManager, Unit
from sexton.model.window import Batch, Window
from sexton.replay import span
from sexton.replay import window as replay
from sexton.reports.json.diagnosis import diagnosis_json
from sexton.store.recording import Recording
from tests.support.recordings import WALL_S, write_sealed

SECONDS = 480
PARTS = 4
CORES = 3
COUNTERS = (
    "pgscan_kswapd", "pgscan_file", "pgscan_anon", "pgscan_direct", "pgfault", "pgmajfault",
    "allocstall_normal", "oom_kill", "nr_dirty", "thp_fault_alloc",
)  # fmt: skip


class Node:
    """Counters that grow by chance; now and then something happens."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.times = [[10_000, 0, 5000, 9, 9, 0, 50] for _ in range(CORES)]
        self.polls = [50_000] * CORES
        self.packets = 10**6
        self.threads = [[100, 100] for _ in range(CORES)]
        self.directories = {f"/user.slice/session-{n}.scope": 100 + n for n in range(130)}
        self.inode = 1000
        self.restarts, self.started = 3, 10**8
        self.held: dict[int, int] = {}
        self.resets = 0
        self.vmstat = dict.fromkeys(COUNTERS, 10**6)
        self.stalled_us = [10**6, 10**6]
        self.mood, self.until = (0, 0, 0, 0), 0
        self.faults = 0
        self.waits = dict.fromkeys(range(CORES), 0)

    def second(self, at: int) -> dict[type[Row], list[Row]]:
        chance = self.chance
        made: dict[type[Row], list[Row]] = defaultdict(list)
        for core in range(CORES):
            if core not in self.held and chance.random() < 0.01:
                self.held[core] = at + chance.choice((1, 2, 3, 6, 20, 150))
            burns = core in self.held
            if burns and self.held[core] <= at:
                del self.held[core]
            self.times[core][2] += chance.randint(960, 1000) if burns else chance.randint(0, 300)
            self.times[core][6] += 0 if burns else chance.randint(0, 20)
            self.polls[core] += 0 if burns and core != 2 else chance.randint(150, 900)
            self.threads[core][1] += 950 if burns else 3
            made[CoreTimes].append(CoreTimes(core, *self.times[core], 0))
            made[SoftirqCount].append(SoftirqCount(core, 1, 1, self.polls[core], 1, 1, 1, 1, 1))
            if at % 2 == 0:
                used = self.threads[core]
                made[Thread].append(Thread(50 + core, 50 + core, "kubelet", "R", 7, *used, core))
            pending = None if not burns else self.waits[core] + 900_000
            longest = self.waits[core] or chance.randint(2, 9000) if not burns else None
            self.waits[core] = pending or 0
            made[SoftirqWait].append(
                SoftirqWait(core, "NET_RX", at, at, at, longest, pending, (1, 2))
            )
        self.packets += chance.randint(0, 900)
        made[NetDevice].append(NetDevice("eth0", 1, self.packets, 0, 0, 1, 1, 0, 0))
        made[NicCounter].append(NicCounter("eth0", "total_resets", self.resets))
        self.resets += chance.random() < 0.01
        self.memory(at, made)
        watched = at % 100 > 30
        why = "" if watched else "too much"
        told = {"mode": "on", "watched": watched, "why": why, "method": "estimate"}
        made[ProbeCost].append(ProbeCost(**(dict.fromkeys(fields_of(ProbeCost)) | told)))
        return made

    def memory(self, at: int, made: dict[type[Row], list[Row]]) -> None:
        """Calm, reclaim, faults of either kind and pressure, in any mixture, around every limit."""
        chance = self.chance
        if at >= self.until:
            self.until = at + chance.choice((1, 3, 8, 40, 150))
            self.mood = tuple(chance.choice((0, 0, 1)) for _ in range(4))
        reclaim, faults, major, pressed = self.mood
        kswapd = chance.choice((0, 20_000))
        by_tasks = chance.randint(1000, 90_000) if reclaim else chance.choice((0, 500, 999))
        self.vmstat["pgscan_kswapd"] += kswapd
        self.vmstat["pgscan_file"] += kswapd + by_tasks
        self.vmstat["pgscan_direct"] += by_tasks // 3
        self.vmstat["pgfault"] += chance.randint(310_000, 900_000) if faults else 290_000
        self.vmstat["pgmajfault"] += chance.randint(520, 3000) if major else chance.randint(0, 480)
        self.faults += chance.randint(1, 600_000)
        made[VmCounter] += [VmCounter(name, value) for name, value in self.vmstat.items()]
        some = chance.choice((60_000, 110_000, 400_000, 900_000)) if pressed else 20_000
        self.stalled_us[0] += some
        self.stalled_us[1] += chance.choice((0, some // 3, some // 2, some))
        for resource, scale in (("io", 3), ("memory", 1)):
            for kind, total in zip(("some", "full"), self.stalled_us, strict=True):
                made[Pressure].append(Pressure(resource, kind, 0.0, 0.0, 0.0, scale * total))

    def scan(self, at: int) -> dict[type[Row], list[Row]]:
        chance = self.chance
        made: dict[type[Row], list[Row]] = defaultdict(list)
        for _ in range(chance.choice((0, 0, 0, 1, 3))):
            self.directories.pop(chance.choice(sorted(self.directories)))
            self.inode += 1
            self.directories[f"/docker/{self.inode:064x}"] = self.inode
        made[CgroupDir].append(CgroupDir("/", 1, 2))
        made[CgroupDir] += [CgroupDir(path, n, 0) for path, n in self.directories.items()]
        live = len(self.directories) + 1
        unknown = chance.random() < 0.3 or not 30 < at < SECONDS - 30
        dying = None if unknown else 600 + at
        made[CgroupCensus].append(
            CgroupCensus("v1", 1, "/m", "node", 9000, live, dying, "count", None)
        )
        made[ProcessCgroup].append(ProcessCgroup(1, "/", False))
        for path in chance.sample(sorted(self.directories), 2):
            made[ProcessCgroup].append(ProcessCgroup(chance.randint(2, 99), path, False))
        made[CgroupResidual] = [] if at < 90 else [CgroupResidual("/docker", at * 4096, "bytes")]
        fresh = at // 60
        made[Process] += [
            Process(50 + core, 1, "kubelet", "R", 7, 1, 1, core, 1, False, self.faults // 3 * core)
            for core in range(CORES)
        ]
        made[Process].append(
            Process(900, 1, f"job-{fresh}", "R", fresh * 60_000 + 5_000_000, 1, 1, 0, 1, False,
                    at % 60 * 90_000, at % 60 * 700)
        )  # fmt: skip
        made[ProcessCgroup].append(ProcessCgroup(900, f"/docker/job-{fresh}", False))
        grown = chance.choice((0, 0, 1, -2))
        self.restarts = max(self.restarts + grown, 0)
        self.started += 10**7 if grown and chance.random() < 0.7 else 0
        ended = self.started + 5 if chance.random() < 0.1 else 0
        names = ["steady"] + (["brief"] if 100 < at < 200 else [])
        made[Unit] += [_unit(name, 0, 5, 0) for name in names]
        made[Unit].append(_unit("loops.service", self.restarts, self.started, ended))
        made[ServiceManager].append(ServiceManager("systemd", "250", "bus"))
        counts = tuple(at + chance.randint(0, 2) for _ in range(CORES))
        made[Interrupt].append(Interrupt("30", "eth0-Tx-Rx-0", tuple(range(CORES)), counts))
        return made


def _unit(name: str, restarts: int, started: int, ended: int) -> Unit:
    return Unit(
        name, "loaded", "activating", "auto-restart", None, restarts, "always", 10**7, started,
        ended, None, "exit-code", 5, f"/system.slice/{name}", "systemd",
    )  # fmt: skip


def written(place: Path, seed: int, traced: bool) -> Recording:
    node = Node(seed)
    fixed: dict[type[Row], list[Row]] = {
        Nic: [Nic("eth0", True, "ena", "2", "0000:05", "up")],
        NicQueue: [NicQueue("eth0", n, "rxtx", 30 + n, f"q{n}", (n,)) for n in range(2)],
    }
    for part in range(PARTS):
        batches: dict[type[Row], list[Batch[Any]]] = defaultdict(list)
        for at in range(part * SECONDS // PARTS, (part + 1) * SECONDS // PARTS):
            mono = 5000.0 + at + node.chance.random() / 50
            rows = node.second(at)
            scanned = node.scan(at) if at % 5 == 0 else {}
            if at % (SECONDS // PARTS) == 0:
                rows |= fixed
            if traced:
                rows[CgroupEvent] = [
                    CgroupEvent("rmdir", at, f"/docker/{at:064x}", int(mono * 1e9))
                ] * (node.chance.random() < 0.1)
            for kind, some in rows.items():
                batches[kind].append(Batch(mono, WALL_S + mono, tuple(some)))
            for kind, some in scanned.items():  # a little later, and by a clock that is slewed
                wall = WALL_S + mono + 0.3 + node.chance.random() / 1000
                batches[kind].append(Batch(mono + 0.3, wall, tuple(some)))
        write_sealed(place, [batches], part + 1)
    return Recording(place)


def told(window: Window) -> str:
    found = diagnosis_json(diagnose(window))
    del found["cost"], found["replayed"]
    return json.dumps(_without_rows(found), indent=1)


def _without_rows(told: Any) -> Any:
    """How many rows a claim stands on: fewer where some were left out, and that is all."""
    if isinstance(told, dict):
        return {key: _without_rows(value) for key, value in told.items() if key != "rows"}
    return [_without_rows(each) for each in told] if isinstance(told, list) else told


@pytest.mark.parametrize("seed", range(6))
def test_a_night_made_up_by_chance_is_judged_the_same_condensed(tmp_path: Path, seed: int):
    recording = written(tmp_path, seed, traced=seed % 2 == 0)
    for part in (span.everything(recording), part_of(recording)):
        whole = replay.window(recording, part, 10**9).window
        condensed = replay.window(recording, part, 0).window
        assert kept(condensed, CgroupDir) < kept(whole, CgroupDir) or seed % 2
        assert kept(condensed, NicCounter) < kept(whole, NicCounter) / 2
        assert counters(condensed) < counters(whole)
        assert told(condensed).splitlines() == told(whole).splitlines()
        assert watch(condensed) == watch(whole)
        assert measured_waits(condensed, 1.0) == measured_waits(whole, 1.0)


def part_of(recording: Recording) -> span.Span:
    return span.between(recording, WALL_S + 5050.3, WALL_S + 5410.7)


def kept(window: Window, kind: type[Row]) -> int:
    return len(window.batches(kind) or ())


def counters(window: Window) -> int:
    return sum(len(batch.rows) for batch in window.batches(VmCounter) or ())


def test_the_made_up_nights_hold_what_they_are_made_for(tmp_path: Path):
    """Else the test above would prove nothing."""
    verdicts = defaultdict(set)
    for seed in range(2):
        recording = written(tmp_path / str(seed), seed, traced=seed % 2 == 0)
        window = replay.window(recording, span.everything(recording)).window
        for finding in diagnose(window).findings:
            verdicts[finding.id].add(finding.verdict.value)
        assert len({batch.rows for batch in window.batches(CgroupDir) or ()}) > 10
    assert verdicts["saturated_core"] == {"present"}
    assert verdicts["starved_napi"] == {"present"}
    assert verdicts["crash_looping_unit"] == {"present"}
    for name in ("direct_reclaim", "memory_pressure", "page_fault_storm"):
        assert verdicts[name] == {"present"}
