"""A core spends its time in softirq: more packets than it can process.

**What is seen.** Per core, the share of each step that went to softirq (`/proc/stat`), how long it
stayed high, and what the network stack did meanwhile on that core (`/proc/net/softnet_stat`):
packets processed a second, packets dropped from a full backlog, polls cut short (`time_squeeze`).
The core's ksoftirqd is named where it ran, and the interface whose queue's interrupt fires there
if that interface received at least half of the packets.

**Why it hurts.** Softirqs come before every task: whatever is bound to that core waits, and what
arrives faster than it is processed is dropped. It is a different problem from a task that holds a
core in the kernel (system time, `saturated_core`), with a different cure; both look like one busy
core.

**What would make it wrong.** A network node at work spends a good part of some cores in softirq,
without a loss: half of a core is *info*, a fifth is nothing. Timers, RCU and block completions are
softirqs too: with few packets the summary says so, and it is at most *info*. Threaded NAPI polls in
system time and is not seen here. Kernels that count time by ticks hit or miss short softirqs. Steal
time may make a core look full. An interface of another network namespace cannot be named.

**Check by hand.** ``mpstat -P ALL 1 5`` (%soft against %sys), ``top`` for ksoftirqd/N,
``cat /proc/net/softnet_stat`` twice (columns 1 to 3), ``sar -n DEV 1 5``.

**What to do.** Find the senders: ``sudo tcpdump -c 2000 -nn -i NIC | awk '{print $3}' | sort | uniq
-c | sort -rn | head``. Then spread it: more queues (``ethtool -L``), receive packet steering
(``/sys/class/net/NIC/queues/rx-0/rps_cpus``), or fewer rules per packet. Raising
``net.core.netdev_max_backlog`` only makes the queue longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from shlex import quote
from typing import NamedTuple

import numpy as np

from sexton.detect import nics
from sexton.detect.detectors.cpu import saturated_core
from sexton.detect.findings import absent, and_more, names, not_seen, too_few_readings, unread
from sexton.detect.registry import READS, Advice, Averages, Stage, Threshold, detector
from sexton.detect.runs import AROUND_S
from sexton.detect.waits import LOSSES
from sexton.model.diagnosis import Step
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.cpu import CoreTimes, SoftnetCpu
from sexton.model.rows.net import NetDevice, NicQueue
from sexton.model.rows.task import Thread
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window, columns_of
from sexton.series.cores import CoreSeries, Shares, bridged_series
from sexton.series.rates import (
    Run,
    Steps,
    counts_on,
    hidden_s,
    lasts,
    mostly_in,
    runs,
    steps_of,
    totals_in,
)
from sexton.series.tasks import task_steps, used

NAME = "softirq_flood"

NOTED = Threshold("noted", 50, "% of a core", "a busy interface's core; less is everyday work")
FLOODED = Threshold(
    "flooded", 80, "% of a core", "what is left is not enough for other work bound to it"
)
LASTING = Threshold("lasting", 3, "s in a row", "bursts of a second or two are ordinary traffic")
DROPPED = Threshold("dropped", 100, "packets", "any burst loses fewer; from here on senders notice")
PACKETS = Threshold(
    "packets", 5_000, "packets/s", "a core carries a hundred times as many; fewer are no flood"
)
BROUGHT = Threshold(
    "brought", 50, "% of the packets", "an interface that received less is not the one to name"
)
_SHOWN = 8
_BACKLOG = ("processed", *LOSSES)


class _Net(NamedTuple):
    """How a core's backlog counters moved in a flood; `seconds` of it have readings."""

    seconds: float
    rate: float
    dropped: int | None
    squeezed: int | None


class _Flood(NamedTuple):
    """Consecutive steps of one core above a limit."""

    core: int
    start: float
    end: float
    shares: Shares
    net: _Net | None

    @property
    def seconds(self) -> float:
        return self.end - self.start

    @property
    def is_packets(self) -> bool:
        """True unless the counters show that packets were few."""
        return self.net is None or self.net.rate >= PACKETS.value

    @property
    def hurts(self) -> bool:
        drops = self.net is not None and (self.net.dropped or 0) >= DROPPED.value
        return self.is_packets and (drops or self.shares.softirq >= FLOODED.value)


def _hidden_s(window: Window) -> float:
    """Seconds without a reading in which a core spent long enough in softirq."""
    series = bridged_series(window)
    if series is None or not len(series.cores):
        return 0.0
    most = 100 * np.nan_to_num(series.softirq).max(axis=0) / NOTED.value
    return hidden_s(window, (series.start, series.end), most, LASTING.value)


def _ruled_out(window: Window) -> str:
    backlogs = totals_in(window, SoftnetCpu, *LOSSES)
    if backlogs is None or _hidden_s(window):
        return ""
    lost, cut = (sum(counters.get(name, 0.0) for counters in backlogs.values()) for name in LOSSES)
    if not lost and not cut:
        return "packet flood"
    return (
        f"packet flood (all cores: backlog dropped {lost:,.0f}, squeezed {count(int(cut), 'time')})"
    )


def _look(finding: Finding, _window: Window) -> list[Step]:
    nic = next(iter(finding.entities.get("nic", ())), None)
    spread = "spread them over more cores (ethtool -X, rps_cpus)"
    if nic is None:
        return [Step("sar -n DEV 1 5", f"see which interface receives them; {spread}", READS)]
    command = f"ethtool -S {quote(nic)} | grep -iE 'drop|packets'"
    return [Step(command, f"see which queue receives them; {spread}", READS)]


@detector(
    needs=(CoreTimes,),
    thresholds=(NOTED, FLOODED, LASTING, DROPPED, PACKETS, BROUGHT),
    title="softirq flood",
    story="Packets flooded a core",
    lanes=("cores", "softirq_wait", "nics"),
    about=("core", "nic", "queue", "irq", "task"),
    answers={"core": 3},
    ruled_out=_ruled_out,
    advice=Advice(Stage.LOOK, _look),
    mimics=saturated_core.NAME,
    plan_note="a plan cannot stop it; see DO NOW in sexton diagnose",
    averages=Averages((CoreTimes, SoftnetCpu), LASTING, "a flooded core"),
)
def detect(window: Window) -> Finding:
    """The core that was flooded most, and the interface that received the packets."""
    series = bridged_series(window)
    watched = 0.0 if series is None else longest_stretch(series)
    if not lasts(watched, LASTING.value):
        what = f"readings at least {LASTING.value:.0f} s apart"
        summary = f"{duration(watched)} of readings cannot separate a flood from a burst"
        return too_few_readings(NAME, summary, what)
    if series is None or np.isnan(series.softirq).all():
        what = "two readings of one core in order"
        return too_few_readings(NAME, "every core's counters went backwards or lost ticks", what)
    percent = series.percent(series.softirq)
    # A flood inside a longer busy stretch counts by itself: the stretch's mean would hide it.
    busy = [
        run
        for limit in (FLOODED.value, NOTED.value)
        for run in runs(series.times, percent >= limit)
        if run.lasts(LASTING.value)
    ]
    cores = {series.cores[run.row] for run in busy}
    read = window.columns(SoftnetCpu, _BACKLOG, lambda key: key[0] in cores) if cores else ()
    net = steps_of(read, over_gaps=counts_on(window))
    found = [made for run in busy if (made := _flood(series, run, net)) is not None]
    found.sort(key=lambda run: (not run.hurts, -run.shares.softirq * run.seconds))
    worst: dict[int, _Flood] = {}
    for run in found:
        worst.setdefault(run.core, run)
    lacking = list(unread(window, SoftnetCpu))
    if not worst:
        lacking += not_seen("whether packets flooded a core", _hidden_s(window))
        return _calm(window, series, lacking)
    return _flooded(window, list(worst.values()), lacking)


def longest_stretch(series: CoreSeries) -> float:
    """The longest time without a missing reading."""
    every = np.atleast_2d(~np.isnan(series.softirq).all(axis=0))
    return max((run.seconds for run in runs(series.times, every)), default=0.0)


def _flood(series: CoreSeries, run: Run, net: Steps) -> _Flood | None:
    shares = series.shares(run.row, slice(run.first, run.last + 1))
    if shares is None:
        return None
    core = series.cores[run.row]
    return _Flood(core, run.start, run.end, shares, _meanwhile(net, core, run))


def _meanwhile(net: Steps, core: int, run: Run) -> _Net | None:
    processed, *losses = (net.over(name, run.start, run.end).get((core,)) for name in _BACKLOG)
    if processed is None:
        return None
    dropped, squeezed = (None if lost is None else int(lost.amount) for lost in losses)
    return _Net(processed.seconds, processed.rate, dropped, squeezed)


def _flooded(window: Window, worst: Sequence[_Flood], lacking: list[Missing]) -> Finding:
    run = worst[0]
    queues = [row for flood in worst for row in _queues(window, flood)]
    daemons = [task for flood in worst if (task := _ksoftirqd(window, flood)) is not None]
    if run.is_packets and not queues:
        lacking += unread(window, NicQueue)
    return Finding(
        NAME,
        Verdict.PRESENT,
        Severity.WARNING if run.hurts else Severity.INFO,
        f"core {run.core}{and_more(worst, 'core')} spent {min(run.shares.softirq, 100):.0f} % of"
        f" {duration(run.seconds)} in softirq{_packets(run, queues)}",
        entities={
            "core": tuple(str(flood.core) for flood in worst),
            "nic": names(row.nic for row in queues),
            "queue": names(f"{row.nic}:{row.queue}" for row in queues),
            "irq": names(str(row.irq) for row in queues),
            "task": tuple(name for name, _ in daemons),
        },
        start=window.wall(run.start),
        end=window.wall(run.end),
        evidence=(
            *(line for flood in worst[:_SHOWN] for line in _evidence(flood)),
            *(_of_daemon(name, share) for name, share in daemons[:_SHOWN]),
            *_interfaces(window, run),
        ),
        missing=tuple(lacking),
    )


def _packets(run: _Flood, queues: Sequence[NicQueue]) -> str:
    if run.net is None:
        return ""
    if not run.is_packets:
        if not run.net.rate:
            return ", not caused by packets: none arrived"
        return f", at only {run.net.rate:,.0f} packets a second"
    lost = f", {run.net.dropped:,} dropped" if run.net.dropped else ""
    through = f" through {queues[0].nic}:{queues[0].queue}" if queues else ""
    return f": {run.net.rate:,.0f} packets a second{through}{lost}"


def _queues(window: Window, run: _Flood) -> Sequence[NicQueue]:
    """Queues whose interrupts fire on that core, of interfaces that received the packets."""
    if run.net is None or not run.is_packets:
        return ()
    brought = dict(_received(window, run))
    enough = run.net.rate * BROUGHT.value / 100
    return [
        row
        for row in nics.serving_cores(window).get(run.core, ())
        if "rx" in row.direction and brought.get(row.nic, 0.0) >= enough
    ]


def _received(window: Window, run: _Flood) -> list[tuple[str, float]]:
    """Packets per second received by each interface during the flood, the busiest first."""
    read = window.between(NetDevice, run.start - AROUND_S, run.end + AROUND_S)
    columns = columns_of(read, NetDevice, ("rx_packets",))
    if columns is None:
        return []
    found = steps_of([columns]).over("rx_packets", run.start, run.end)
    rates = [(str(name), amount.rate) for (name,), amount in found.items()]
    return sorted(rates, key=lambda pair: (-pair[1], pair[0]))


def _ksoftirqd(window: Window, run: _Flood) -> tuple[str, float] | None:
    """The core's softirq daemon and its share of the run in per cent; `None` if it did not run."""
    comm = f"ksoftirqd/{run.core}"
    read = window.between(Thread, run.start - AROUND_S, run.end + AROUND_S)
    inside = (
        step
        for step in task_steps(read)
        if step.row.comm == comm and mostly_in(step, run.start, run.end)
    )
    for mine in used(inside).values():
        if mine.amount:
            return f"{comm}[{mine.row.pid}]", min(mine.percent, 100.0)
    return None


def _evidence(run: _Flood) -> Iterable[Evidence]:
    yield Evidence(
        f"core {run.core} in softirq",
        f"softirq {run.shares.softirq:.0f} % · system {run.shares.system:.0f} %"
        f" · user {run.shares.user:.0f} %",
        f"softirq < {NOTED.value:.0f} %",
        f"% of a core over {duration(run.seconds)}",
        "/proc/stat",
        run.shares.softirq,
        "time is counted in ticks, without the hypervisor's steal",
    )
    net = run.net
    if net is None:
        return
    for number, what, normal, unit, wrong_if in (
        (
            net.rate,
            "carried",
            f"< {PACKETS.value:,.0f}",
            "packets/s",
            "large packets were coalesced (GRO)",
        ),
        (net.dropped, "dropped from its backlog", "0", "packets", "nothing was waiting for them"),
        (net.squeezed, "cut its polls short", "a few", "times", "busy, and nothing was lost"),
    ):
        if number is None:
            continue
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


def _interfaces(window: Window, run: _Flood) -> Iterable[Evidence]:
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


def _calm(window: Window, series: CoreSeries, lacking: Sequence[Missing]) -> Finding:
    normal = f"< {NOTED.value:.0f} % for {LASTING.value:.0f} s"
    wrong_if = f"the flood was outside these {duration(window.seconds)}"
    core, most = saturated_core.busiest_step(series, series.softirq, "in softirq", normal, wrong_if)
    return absent(NAME, f"no core flooded; most in softirq: {core}", [most], lacking)
