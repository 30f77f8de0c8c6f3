"""The Pinterest incident as rows: HAND-MADE from the published numbers, since no kernel here can
make it (the walk was mended in 5.8). The lab makes real incidents with a substitute walker.

96 cores, cgroup v1, 68,680 memory cgroups of which 240 are live, ecs.service restarting every
10.2 s, kubelet's burning thread on core 5, eth0 queue 5 polled there, ENA 2.11's own log lines.
"""

from __future__ import annotations

from sexton.model.rows.cgroup import CgroupCensus, CgroupDir, WalkCost
from sexton.model.rows.cpu import CoreTimes, SoftnetCpu
from sexton.model.rows.event import KernelEvent, KernelLog
from sexton.model.rows.memory import Pressure, VmCounter
from sexton.model.rows.net import Nic, NicCounter, NicQueue
from sexton.model.rows.node import Node
from sexton.model.rows.task import Process, Thread
from sexton.model.rows.unit import ServiceManager, Unit
from sexton.model.window import Batch, Window
from sexton.sources.kmsg.catalogue import Recogniser
from sexton.sources.kmsg.records import LogLine

UPTIME_S = 698_000
WALL_S = 1_740_000_000.0
CORE = 5
SECONDS = 10


def incident(  # every keyword removes one link, for the twins that must not be diagnosed so
    *, zombies: bool = True, burning: bool = True, resets: bool = True, looping: bool = True
) -> Window:
    """A ten-second window on the incident's node, or on one of its twins."""
    rows: dict[type, list[Batch]] = {}

    def put(second: int, kind: type, *items: object) -> None:
        moment = (float(UPTIME_S + second), WALL_S + second)
        rows.setdefault(kind, []).append(Batch(*moment, items))

    put(0, Node, _node())
    put(0, ServiceManager, ServiceManager("systemd", "245", "D-Bus"))
    put(0, Nic, Nic("eth0", True, "ena", "2.11.0g", "0000:20:03.0", "up"))
    put(
        0,
        NicQueue,
        *(NicQueue("eth0", q, "rxtx", 56 + q, f"eth0-Tx-Rx-{q}", (q,)) for q in range(8)),
    )
    put(0, WalkCost, _walk(zombies))
    put(0, KernelLog, KernelLog(900, 0, 0, "/dev/kmsg"))
    put(0, KernelEvent, *(_log_lines() if resets else ()))
    put(0, CgroupDir, *(CgroupDir(f"/system.slice/u{n}.service", n + 2, 0) for n in range(239)))
    for second in range(SECONDS + 1):
        put(second, CoreTimes, *(_core(cpu, second, burning) for cpu in range(96)))
        put(second, Process, _kubelet(second, burning))
        put(second, Thread, *_threads(second, burning))
        put(second, NicCounter, *_counters(resets))
        put(second, VmCounter, *_vmstat(second))
        put(second, Pressure, *_pressure())
        put(second, SoftnetCpu, *(_softnet(cpu, second) for cpu in range(96)))
    for second in (0, 5, 10):
        put(second, CgroupCensus, _census(zombies, second))
        put(second, Unit, _ecs(looping, second))
    return Window(rows)


def _node() -> Node:
    return Node(
        hostname="ip-10-3-7-21",
        kernel="5.4.0-1094-aws",
        cores=96,
        boot_id="b007",
        uptime_s=UPTIME_S,
        os="Ubuntu 20.04.6 LTS",
        zone="us-east-1a",
        region="us-east-1",
        instance_type="p4d.24xlarge",
        image="ami-0",
        vendor="Amazon EC2",
        machine=None,
        container=None,
    )


def _core(cpu: int, second: int, burning: bool) -> CoreTimes:
    held = min(max(second - 2, 0), 6) if burning and cpu == CORE else 0
    system = 10_000 + second * 20 + held * 980
    user = 50_000 + second * 30
    idle = 9_000_000 + second * 1000 - held * 980
    return CoreTimes(cpu, user, 0, system, idle, 0, 0, 5_000 + second, 0)


def _kubelet(second: int, burning: bool) -> Process:
    held = min(max(second - 2, 0), 6) if burning else 0
    return Process(2113, 1, "kubelet", "S", 4_000, 90_000, 80_000 + held * 980, 3, 60, False)


def _threads(second: int, burning: bool) -> list[Thread]:
    held = min(max(second - 2, 0), 6) if burning else 0
    leader = Thread(2113, 2113, "kubelet", "S", 4_000, 1_000, 1_000, 3)
    reader = Thread(2113, 2140, "kubelet", "R", 4_100, 1_000, 70_000 + held * 980, CORE)
    return [leader, reader]


def _vmstat(second: int) -> list[VmCounter]:
    """Nobody reclaims, and faults come as ever: the look-alikes are judged, and absent."""
    still = ("pgscan_direct", "pgscan_kswapd", "pgsteal_direct", "allocstall_normal", "oom_kill")
    moving = {"pgfault": 20_000, "pgmajfault": 3, "nr_free_pages": 0}
    return [
        *(VmCounter(name, 0) for name in still),
        *(VmCounter(name, 1_000_000 + rate * second) for name, rate in moving.items()),
    ]


def _pressure() -> list[Pressure]:
    return [Pressure("memory", kind, 0.0, 0.0, 0.0, 1_000) for kind in ("some", "full")]


def _softnet(cpu: int, second: int) -> SoftnetCpu:
    return SoftnetCpu(cpu, 1_000_000 + 900 * second, 0, 12, None, None, None)


def _census(zombies: bool, second: int) -> CgroupCensus:
    total = (68_680 + second // 10) if zombies else 252
    return CgroupCensus(
        hierarchy="v1",
        version=1,
        mount_point="/sys/fs/cgroup/memory",
        scope="node",
        total=total,
        live=240,
        dying=total - 240,
        method="/proc/cgroups minus directories",
        reason=None,
    )


def _walk(zombies: bool) -> WalkCost:
    estimate = 4.8 if zombies else 0.0168
    skipped = "memory.numa_stat at the root: would stall about 4.8 s; not caused"
    return WalkCost(
        "memory.numa_stat",
        "/user.slice",
        40,
        40 * estimate / (68_680 if zombies else 252),
        estimate,
        None if zombies else 0.017,
        skipped if zombies else "",
    )


def _ecs(looping: bool, second: int) -> Unit:
    restarts = 68_411 + second // 10 if looping else 0
    started = (UPTIME_S - 4 + (10 if second >= 10 else 0)) * 1_000_000
    return Unit(
        name="ecs.service",
        load_state="loaded",
        active_state="activating" if looping else "active",
        sub_state="auto-restart" if looping else "running",
        file_state="enabled",
        restarts=restarts,
        restart_policy="on-failure",
        restart_delay_us=10_000_000,
        main_start_us=started if looping else 60_000_000,
        main_exit_us=started + 200_000 if looping else 0,
        active_enter_us=started if looping else 60_000_000,
        result="exit-code" if looping else "success",
        exit_status=5 if looping else 0,
        cgroup="/system.slice/ecs.service",
        cgroup_origin="slice + name" if looping else "systemd",
    )


def _log_lines() -> list[KernelEvent]:
    starved = (
        "ena 0000:20:03.0 eth0: TX q 5 is paused for too long (threshold 5000000). "
        "Time since last napi 6596000 usec. napi scheduled: 1"
    )
    done = "ena 0000:20:03.0 eth0: Device reset completed successfully, Driver info: 2.11.0g"
    at = (UPTIME_S + 7) * 1_000_000
    lines = [LogLine(at, WALL_S + 7, starved), LogLine(at + 900_000, WALL_S + 7.9, done)]
    recogniser = Recogniser()
    return [event for line in lines if (event := recogniser.event(line)) is not None]


def _counters(resets: bool) -> list[NicCounter]:
    moved = 3 if resets else 0
    names = (
        "total_resets",
        "suspected_poll_starvation",
        "wd_expired",
        "missing_intr",
        "tx_timeout",
    )
    return [
        NicCounter("eth0", name, moved if number < 2 else 0) for number, name in enumerate(names)
    ]
