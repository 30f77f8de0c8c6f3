"""A core spends its time in softirq: more packets than it can carry.

**What is seen.** Per core, the share of each step that went to softirq (`/proc/stat`), how long it
stayed high, and what the network stack did meanwhile on that core (`/proc/net/softnet_stat`):
packets processed a second, packets dropped from a full backlog, polls cut short (`time_squeeze`).
The core's ksoftirqd is named where it ran, and the interface whose queue's interrupt fires there
where that interface brought at least half of the packets.

**Why it hurts.** Softirqs come before every task: whatever is bound to that core waits, and what
comes in faster than it is carried is dropped. It is another illness than a task that burns a core
in the kernel (system time, `saturated_core`), with another cure, and both look like one busy core.

**What would make it wrong.** A network node at work spends a good part of some cores in softirq,
without a loss: half of a core is *info*, a fifth is nothing. Timers, RCU and block completions are
softirqs too: without packets it is called so, and is no more than *info*. Threaded NAPI polls in
system time and is not seen here. Kernels that count time by ticks hit or miss short softirqs. Steal
time may make a core look full. An interface of another network namespace cannot be named.

**Check by hand.** ``mpstat -P ALL 1 5`` (%soft against %sys), ``top`` for ksoftirqd/N,
``cat /proc/net/softnet_stat`` twice (columns 1 to 3), ``sar -n DEV 1 5``.

**What to do.** Find who sends: ``sudo tcpdump -c 2000 -nn -i NIC | awk '{print $3}' | sort | uniq
-c | sort -rn | head``. Then spread it: more queues (``ethtool -L``), receive packet steering
(``/sys/class/net/NIC/queues/rx-0/rps_cpus``), or fewer rules per packet. Raising
``net.core.netdev_max_backlog`` only makes the queue longer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from sexton.detect import nics
from sexton.detect.core_steps import core_steps
from sexton.detect.registry import detector, missing, unknown
from sexton.detect.threshold import Threshold
from sexton.model.cpu import CoreTimes, SoftnetCpu
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.net import NetDevice, NicQueue
from sexton.model.task import Thread
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Batch, Window
from sexton.series.steps import Step, steps

NAME = "softirq_flood"
NOTED = Threshold("noted", 50, "% of a core", "a busy interface's core; less is everyday's work")
FLOODED = Threshold(
    "flooded", 80, "% of a core", "what is left is not enough for whatever else is bound to it"
)
LASTING = Threshold("lasting", 3, "s in a row", "bursts of a second or two are ordinary traffic")
DROPPED = Threshold(
    "dropped", 100, "packets", "fewer are lost in any burst; from there on senders notice"
)
PACKETS = Threshold(
    "packets", 5_000, "packets/s", "a core carries a hundred times as many; fewer are no flood"
)
BROUGHT = Threshold(
    "brought", 50, "% of the packets", "an interface that brought less is not the one to name"
)
#: Readings come a little early or late: nine tenths of a limit is that limit.
_SLACK = 0.9
_SHOWN = 8


class _Slice(NamedTuple):
    """One core between two readings, in milliseconds."""

    core: int
    start: float
    end: float
    softirq_ms: int
    system_ms: int
    user_ms: int

    @property
    def share(self) -> float:
        """In softirq, in per cent of the core."""
        return self.softirq_ms / 10 / (self.end - self.start)


class _Net(NamedTuple):
    """What a core's backlog did in a run, in so many seconds of readings."""

    seconds: float
    processed: int
    dropped: int
    squeezed: int

    @property
    def rate(self) -> float:
        return self.processed / self.seconds if self.seconds else 0.0


class _Run(NamedTuple):
    """Neighbouring slices of one core above a limit."""

    slices: tuple[_Slice, ...]
    net: _Net | None

    @property
    def core(self) -> int:
        return self.slices[0].core

    @property
    def start(self) -> float:
        return self.slices[0].start

    @property
    def end(self) -> float:
        return self.slices[-1].end

    @property
    def seconds(self) -> float:
        return self.end - self.start

    def share(self, field: str) -> float:
        spent: int = sum(getattr(each, field) for each in self.slices)
        return spent / 10 / self.seconds

    @property
    def is_packets(self) -> bool:
        """Unless the counters say otherwise."""
        return self.net is None or self.net.rate >= PACKETS.value

    @property
    def hurts(self) -> bool:
        drops = self.net is not None and self.net.dropped >= DROPPED.value
        return self.is_packets and (drops or self.share("softirq_ms") >= FLOODED.value)


@detector(needs=(CoreTimes,), thresholds=(NOTED, FLOODED, LASTING, DROPPED, PACKETS, BROUGHT))
def detect(window: Window) -> Finding:
    """The core that was flooded most, by which interface."""
    watched = _watched(window.batches(CoreTimes) or ())
    if watched < LASTING.value * _SLACK:
        lacking = Missing(
            f"readings at least {LASTING.value:.0f} s apart", "sexton diagnose --seconds 10"
        )
        summary = f"{duration(watched)} of readings cannot tell a flood from a burst"
        return unknown(NAME, summary, (lacking,))
    slices = list(_slices(window))
    if not slices:
        lacking = Missing("two readings of one core in order", "sexton diagnose --seconds 10")
        return unknown(NAME, "every core's counters went backwards", (lacking,))
    net = _backlog(window)
    # A flood inside a longer busy stretch counts by itself: the stretch's mean would hide it.
    found = [
        _Run(run, _meanwhile(net[run[0].core], run))
        for limit in (FLOODED.value, NOTED.value)
        for run in _runs(slices, limit)
        if run[-1].end - run[0].start >= LASTING.value * _SLACK
    ]
    found.sort(key=lambda run: (not run.hurts, -run.share("softirq_ms") * run.seconds))
    worst: dict[int, _Run] = {}
    for run in found:
        worst.setdefault(run.core, run)
    lacking_net = [] if window.batches(SoftnetCpu) else [missing(window.why_missing(SoftnetCpu))]
    if not worst:
        return _calm(window, slices, lacking_net)
    return _flooded(window, list(worst.values()), lacking_net)


def _watched(batches: Sequence[Batch[CoreTimes]]) -> float:
    """The longest time with no reading left out: what was left out tells nothing."""
    longest, start = 0.0, batches[0].mono_s
    for batch in batches:
        start = start if batch.follows else batch.mono_s
        longest = max(longest, batch.mono_s - start)
    return longest


def _slices(window: Window) -> Iterator[_Slice]:
    for step in core_steps(window):
        softirq, system = step.delta("softirq_ms"), step.delta("system_ms")
        if softirq is not None and system is not None:
            user = (step.delta("user_ms") or 0) + (step.delta("nice_ms") or 0)
            core = step.after.cpu
            yield _Slice(core, step.start_mono, step.end_mono, softirq, system, user)


def _runs(slices: Iterable[_Slice], limit: float) -> Iterator[tuple[_Slice, ...]]:
    """Per core, slices at or above the limit that touch each other."""
    going: dict[int, list[_Slice]] = {}
    for each in slices:
        if each.share < limit:
            continue
        run = going.get(each.core)
        if run is not None and run[-1].end != each.start:
            yield tuple(going.pop(each.core))
        going.setdefault(each.core, []).append(each)
    yield from map(tuple, going.values())


def _backlog(window: Window) -> dict[int, list[Step[SoftnetCpu]]]:
    found: dict[int, list[Step[SoftnetCpu]]] = defaultdict(list)
    for _, step in steps(window.batches(SoftnetCpu) or (), lambda row: row.cpu):
        found[step.after.cpu].append(step)
    return found


def _meanwhile(found: Sequence[Step[SoftnetCpu]], run: Sequence[_Slice]) -> _Net | None:
    """Steps that lie in the run by half and more: both tables are read a moment apart."""
    inside = [each for each in found if _inside(each.start_mono, each.end_mono, run)]
    if not inside:
        return None
    return _Net(
        sum(each.seconds for each in inside),
        sum(each.delta("processed") or 0 for each in inside),
        sum(each.delta("dropped") or 0 for each in inside),
        sum(each.delta("time_squeeze") or 0 for each in inside),
    )


def _inside(start: float, end: float, run: Sequence[_Slice]) -> bool:
    return min(end, run[-1].end) - max(start, run[0].start) >= (end - start) / 2


def _flooded(window: Window, worst: Sequence[_Run], lacking: list[Missing]) -> Finding:
    run = worst[0]
    queues = [row for each in worst for row in _queues(window, each)]
    daemons = [task for each in worst if (task := _ksoftirqd(window, each)) is not None]
    if run.is_packets and not queues and window.batches(NicQueue) is None:
        lacking.append(missing(window.why_missing(NicQueue)))
    others = f" (and {count(len(worst) - 1, 'more core')})" if len(worst) > 1 else ""
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.WARNING if run.hurts else Severity.INFO,
        f"core {run.core}{others} spent {min(run.share('softirq_ms'), 100):.0f} % of"
        f" {duration(run.seconds)} in softirq{_packets(run, queues)}",
        entities={
            "core": tuple(str(each.core) for each in worst),
            "nic": _unique(row.nic for row in queues),
            "queue": _unique(f"{row.nic}:{row.queue}" for row in queues),
            "irq": _unique(str(row.irq) for row in queues),
            "task": tuple(name for name, _ in daemons),
        },
        start=window.wall(run.start),
        end=window.wall(run.end),
        evidence=(
            *(line for each in worst[:_SHOWN] for line in _evidence(each)),
            *(_of_daemon(name, share) for name, share in daemons[:_SHOWN]),
            *_interfaces(window, run),
        ),
        missing=tuple(lacking),
    )


def _packets(run: _Run, queues: Sequence[NicQueue]) -> str:
    if run.net is None:
        return ""
    if not run.is_packets:
        return f", and not by packets ({run.net.rate:,.0f} a second)"
    lost = f", {run.net.dropped:,} dropped" if run.net.dropped else ""
    through = f" through {queues[0].nic}:{queues[0].queue}" if queues else ""
    return f": {run.net.rate:,.0f} packets a second{through}{lost}"


def _queues(window: Window, run: _Run) -> Sequence[NicQueue]:
    """The queues whose interrupts fire on that core, of interfaces that brought the packets."""
    if run.net is None or not run.is_packets:
        return ()
    brought = dict(_received(window, run))
    enough = run.net.rate * BROUGHT.value / 100
    return [
        row
        for row in nics.serving_cores(window).get(run.core, ())
        if "rx" in row.direction and brought.get(row.nic, 0.0) >= enough
    ]


def _received(window: Window, run: _Run) -> list[tuple[str, float]]:
    """Packets a second that came in through each interface meanwhile, the busiest first."""
    spans: dict[str, list[tuple[int, float]]] = defaultdict(list)
    for _, step in steps(window.batches(NetDevice) or (), lambda row: row.name):
        moved = step.delta("rx_packets")
        if moved is not None and _inside(step.start_mono, step.end_mono, run.slices):
            spans[step.after.name].append((moved, step.seconds))
    rates = {
        name: sum(moved for moved, _ in some) / sum(each for _, each in some)
        for name, some in spans.items()
    }
    return sorted(rates.items(), key=lambda pair: (-pair[1], pair[0]))


def _ksoftirqd(window: Window, run: _Run) -> tuple[str, float] | None:
    """The core's softirq daemon, and its share of the run in per cent, where it ran."""
    spent = seen = 0.0
    name = ""
    comm = f"ksoftirqd/{run.core}"
    for _, step in steps(
        window.batches(Thread) or (), lambda row: (row.pid, row.tid, row.start_ms)
    ):
        if step.after.comm == comm and _inside(step.start_mono, step.end_mono, run.slices):
            spent += (step.delta("system_ms") or 0) / 10
            seen += step.seconds
            name = f"{comm}[{step.after.pid}]"
    return (name, min(spent / seen, 100.0)) if spent else None


def _evidence(run: _Run) -> Iterable[Evidence]:
    yield Evidence(
        f"core {run.core} in softirq",
        f"softirq {run.share('softirq_ms'):.0f} % · system {run.share('system_ms'):.0f} %"
        f" · user {run.share('user_ms'):.0f} %",
        f"softirq < {NOTED.value:.0f} %",
        f"% of a core over {duration(run.seconds)}",
        "/proc/stat",
        run.share("softirq_ms"),
        "time is counted by ticks, and the hypervisor's steal is in none of them",
    )
    net = run.net
    if net is None:
        return
    for number, what, normal, unit, wrong_if in (
        (net.rate, "carried", f"< {PACKETS.value:,.0f}", "packets/s", "large ones were joined"),
        (net.dropped, "dropped from its backlog", "0", "packets", "nobody needed them"),
        (net.squeezed, "cut its polls short", "a few", "times", "busy, and nothing was lost"),
    ):
        yield Evidence(
            f"core {run.core} {what}",
            f"{number:,.0f}",
            normal,
            f"{unit} in {duration(net.seconds)}",
            "/proc/net/softnet_stat",
            number,
            wrong_if,
        )


def _of_daemon(name: str, share: float) -> Evidence:
    return Evidence(
        f"{name} ran",
        f"{share:.0f} %",
        "< 5 %",
        "% of a core",
        "/proc/PID/task/TID/stat",
        share,
        "softirqs that run inside interrupts or tasks are not in it",
    )


def _interfaces(window: Window, run: _Run) -> Iterable[Evidence]:
    received = _received(window, run)
    if received and run.is_packets:
        name, rate = received[0]
        yield Evidence(
            f"busiest interface, {name}, received",
            f"{rate:,.0f}",
            "any",
            "packets/s",
            "/proc/net/dev",
            rate,
            "the packets came through another network namespace's interface",
        )


def _calm(window: Window, slices: Sequence[_Slice], lacking: Sequence[Missing]) -> Finding:
    worst = max(slices, key=lambda each: each.share)
    share = min(worst.share, 100.0)
    return Finding(
        NAME,
        Verdict.ABSENT,
        Severity.INFO,
        f"no core flooded; most in softirq: core {worst.core}, {share:.0f} % over"
        f" {duration(worst.end - worst.start)}",
        evidence=(
            Evidence(
                "worst core in softirq, one step",
                f"{share:.0f} %",
                f"< {NOTED.value:.0f} % for {LASTING.value:.0f} s",
                "% of a core",
                "/proc/stat",
                share,
                f"the flood was outside these {duration(window.seconds)}",
            ),
        ),
        missing=tuple(lacking),
    )


def _unique(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(names))
