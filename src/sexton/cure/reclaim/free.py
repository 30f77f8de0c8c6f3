"""Free the dying memory cgroups below one parent in small passes, until that is no longer useful.

First the collateral is read again; if protected units or pods are below the parent, it refuses
unless that was accepted. Then come reclaim passes, small ones first, doubling while they free
something. On v2 a pass is a number of bytes for `memory.reclaim`, with ``swappiness=0`` where the
kernel supports it (6.11): swapping out frees no zombie, because a swap entry holds it as a page
did. On v1 `force_empty` takes no amount and would go on to take everything running cgroups have, so
a pass is a few milliseconds of CPU time. A pass is stopped as soon as the count stands still. Eight
passes are a round, with zombies counted and statistics reads timed before and after.

On v2 a page that is gone may still leave its cgroup held: by the inode of a file that a task there
wrote (cgroup writeback). The kernel hands such inodes to a living cgroup whenever a memory cgroup
is removed, except those that are dirty at that moment, and never again until the next one is
removed (cleanup_offline_cgwbs in mm/backing-dev.c). So an empty cgroup is made below the parent and
removed before the first pass, and again after one that freed nothing.

It ends when enough are freed, after three passes in a row that free nothing, when
`Limits.stop_if` gives a reason, at the deadline, when running cgroups have lost more than allowed,
or when v2's passes have requested as much as the zombies can hold. What is left is then held by
pages that cannot be reclaimed (tmpfs, locked, dirty), or by pages on *active* lists, which the
kernel scans only when the inactive lists of the whole subtree run low (prepare_scan_control in
mm/vmscan.c), that is, after the cache of running cgroups. `Limits.thorough` pays that price.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sexton.cure.protected import Rule
from sexton.cure.reclaim.collateral import Collateral, read_collateral, refusals
from sexton.cure.reclaim.cost import FUTILE_PASSES, STALL_S, estimate_cost, time_stat_reads
from sexton.cure.reclaim.count import NODE, PARENT, Dying, Parent, gauge, settled, usage
from sexton.cure.reclaim.freed import ControlWrite, Freed, Round
from sexton.cure.writer import (
    CUT,
    DONE,
    LINGERING,
    REFUSED,
    STOPPED,
    WriteLimits,
    Writer,
    WriteResult,
)
from sexton.errors import CommandError
from sexton.host.host import Host
from sexton.host.reader import exists
from sexton.model.text import size
from sexton.series.steps import freed_between
from sexton.sources.cgroupfs.estimate import PAGE
from sexton.sources.cores import Spared, off_the_nic

Progress = Callable[[str], None]
NO_SWAP = "swappiness=0"
STUCK = "the rest cannot be reclaimed"
_OR_THOROUGH = ", or only with --thorough"
#: Passes between two counts.
PASSES = 8
#: The first pass on v2.
FIRST_BYTES = 1 << 20
#: Bytes that passes may request beyond what zombies hold: running cgroups lose pages too.
SLACK_BYTES = 32 << 20
#: On v1 the count is the node's, and others come and go: a pass that frees less than this share
#: counts as futile.
WORTH = 0.005
#: What running cgroups may lose: this many bytes or 1/LOST_SHARE of what they have, whichever is
#: more; and per zombie. Their own changes are included.
LEAST_LOST_BYTES = 16 << 20
LOST_SHARE = 20
COSTLY_BYTES = 256 << 10
_REASON_EVERY_S = 0.1
#: The kernel releases zombies in bursts (one grace period each); this many missing bursts mean the
#: end.
_QUIET_S = 0.1
_BURSTS = 4
#: A pass with less than this share of CPU time did not get to work.
_WORKED = 0.5
_MOST_IDLE = 20
#: Made and removed below the parent. Not `sexton-…`, which is protected as our own.
_EMPTY_CGROUP = "fix-hands-over-inodes"


@dataclass(frozen=True, slots=True)
class Limits:
    """How far freeing may go.

    `seconds` limits the whole, `round_s` one write; `stall_s` is how long a write may run without
    freeing any, `rounds` the number of rounds, `target` the number of zombies that is few enough.
    `first_s` is v1's first pass; `most_pass_bytes` limits v2's passes, `most_bytes` their sum
    (`None`: twice what zombies hold plus 32 MiB). `thorough` goes on when only the cache of running
    cgroups could be reclaimed first. `protected` are the configured rules; `accept_collateral`
    lifts refusals by these and the built-in ones. `stop_if` is called ten times a second and
    returns a reason to stop.
    """

    seconds: float = 60.0
    round_s: float = 10.0
    stall_s: float = STALL_S
    rounds: int = 20
    target: int = 0
    first_s: float = 0.0005
    most_pass_bytes: int = 64 << 20
    most_bytes: int | None = None
    accept_collateral: bool = False
    thorough: bool = False
    protected: tuple[Rule, ...] = ()
    stop_if: Callable[[], str | None] | None = None


def why_refused(found: Collateral, accept_collateral: bool) -> str | None:
    """Why nothing may be freed there; `None` if it may."""
    reasons = refusals(found)
    if not reasons or accept_collateral:
        return None
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return (
        f"{reasons[0].target}: {reasons[0].reason}{more}; use {reasons[0].override} to do it anyway"
    )


def reclaim_file(host: Host, parent: Parent) -> str:
    """The control file for reclaim; `CommandError` if this kernel has none."""
    name = parent.reclaim_file
    if not exists(host.files, f"{parent.directory}/{name}"):
        advice = "only drop_caches or a reboot can free them"
        since = "" if parent.version == 1 else " (added in 5.19)"
        raise CommandError(f"{parent.path}: this kernel has no {name}{since}; {advice}")
    return name


def free(
    host: Host, path: str, limits: Limits, writer: Writer, progress: Progress = lambda _: None
) -> Freed:
    """Free zombies below the cgroup at `path`; returns what was freed and what was not."""
    host = replace(host, memo={})
    before = read_collateral(host, path, limits.protected)
    parent = before.parent
    name = reclaim_file(host, parent)
    reason = why_refused(before, limits.accept_collateral)
    if reason is not None:
        raise CommandError(reason)
    spared = off_the_nic(host)
    work = _Work(host, parent, limits, writer, name, spared)
    began = time.monotonic()
    work.run(before.dying, progress)
    after = read_collateral(replace(host, memo={}), path, limits.protected, before.split)
    return Freed(
        before=before,
        after=after,
        estimate=estimate_cost(before, limits.stall_s),
        rounds=tuple(work.rounds),
        seconds=time.monotonic() - began,
        cores=_cores(spared),
        # No pass can free tmpfs without swap, however thorough.
        why_stopped=work.why.removesuffix(_OR_THOROUGH) if after.only_tmpfs else work.why,
    )


def _cores(spared: Spared) -> str:
    if spared.cpus is None:
        return spared.note.strip("()")
    return f"core {','.join(map(str, sorted(spared.cpus)))}: {spared.note}"


@dataclass(slots=True)
class _Work:
    """Freeing in progress. `_size` of a pass is bytes on v2, seconds on v1."""

    host: Host
    parent: Parent
    limits: Limits
    writer: Writer
    name: str
    spared: Spared
    rounds: list[Round] = field(default_factory=list)
    why: str = ""
    reason_at: float = 0.0
    _end_s: float = 0.0
    _requested_bytes: int = 0
    _size: float = 0.0
    _futile: int = 0
    _idle: int = 0
    _swapless: bool = True
    _handed_over: bool = False
    _live_bytes: int | None = None

    def run(self, count: Dying, progress: Progress) -> None:
        self._live_bytes = count.live_bytes
        self._size = self._first
        reads = time_stat_reads(self.host, self.parent)
        self._end_s = time.monotonic() + self.limits.seconds
        while not self.why:
            if len(self.rounds) >= self.limits.rounds:
                self.why = f"limit of {self.limits.rounds} rounds reached"
                break
            writes, after = self._passes(count)
            if not writes:
                break
            later = time_stat_reads(self.host, self.parent)
            done = Round(len(self.rounds) + 1, tuple(writes), count, after, reads, later)
            self.rounds.append(done)
            progress(done.sentence)
            count, reads = after, later

    @property
    def _first(self) -> float:
        return FIRST_BYTES if self.parent.version == 2 else self.limits.first_s

    def _passes(self, count: Dying) -> tuple[list[ControlWrite], Dying]:
        """Up to `PASSES` writes, and the count after them."""
        writes: list[ControlWrite] = []
        most = self.limits.most_bytes
        if most is None:
            most = 2 * (count.bytes or 0) + SLACK_BYTES if not self.limits.thorough else 1 << 62
        while len(writes) < PASSES and not self.why:
            if self._is_enough(count):
                break
            if self.limits.stop_if is not None and (reason := self.limits.stop_if()):
                self.why = reason
                break
            if time.monotonic() >= self._end_s:
                self.why = f"deadline of {self.limits.seconds:g} s reached"
                break
            if not self._handed_over:
                self._handed_over = True
                if self._hand_over_inodes():
                    count = settled(self.host, self.parent)
                    continue  # that may have been enough
            amount = min(int(self._size), most - self._requested_bytes)
            if self.parent.version == 2 and amount < PAGE:
                self.why = "requested as much as the zombies can hold"
                break
            done = self._write(amount, count)
            if self._swapless and done.result.error == errno.EINVAL and NO_SWAP in done.value:
                self._swapless = False  # before 6.11
                continue
            writes.append(done)
            self._requested_bytes += amount
            before, count = count, settled(self.host, self.parent)
            if not _fell(before, count) and self._hand_over_inodes():
                count = settled(self.host, self.parent)
            self._judge(done, before, count)
        return writes, count

    def _hand_over_inodes(self) -> bool:
        """Let go of inodes that hold zombies; false on v1, which has no cgroup writeback."""
        if self.parent.version == 2:
            self.writer.make_and_remove_cgroup(f"{self.parent.directory}/{_EMPTY_CGROUP}")
        return self.parent.version == 2

    def _is_enough(self, count: Dying) -> bool:
        if count.number is not None and count.number <= self.limits.target:
            self.why = "none left" if not count.number else "enough were freed"
        elif count.scope == NODE and count.bytes is not None and count.bytes < PAGE:
            self.why = "zombies below it hold no memory any more"
        return bool(self.why)

    def _write(self, amount: int, before: Dying) -> ControlWrite:
        """One write, stopped when it no longer frees anything or `stop_if` gives a reason."""
        if self.parent.version == 2:
            value, cpu_limit_s = (f"{amount} {NO_SWAP}" if self._swapless else str(amount)), 0.0
        else:
            value, cpu_limit_s = "0", self._size
        left_s = max(0.05, min(self.limits.round_s, self._end_s - time.monotonic()))
        watch = _Watch(self, before)
        limits = WriteLimits(left_s, self.spared.cpus, watch.keep_going, cpu_limit_s=cpu_limit_s)
        result = self.writer.write_control(f"{self.parent.directory}/{self.name}", value, limits)
        if result.how == LINGERING:
            self.why = "the write was killed but is still in the kernel: wait, then count again"
        elif result.how == STOPPED and watch.reason:
            self.why = watch.reason
        elif result.how == REFUSED and result.error not in (errno.EAGAIN, errno.EINVAL):
            self.why = f"the kernel refused: {result.why}"
        return ControlWrite(self.name, value, result)

    def _judge(self, done: ControlWrite, before: Dying, after: Dying) -> None:
        """Evaluate a pass and set the size of the next."""
        result = done.result
        fell = _fell(before, after)
        if fell and (self.limits.thorough or _worth(before, after)):
            self._futile = self._idle = 0
            self._size = min(2 * self._size, max(self._first, self._half(result, before, after)))
        elif (
            not fell
            and result.how in (CUT, STOPPED)
            and result.cpu_s < _WORKED * min(self._size, result.seconds)
        ):
            self._idle += 1
        else:
            self._futile += 1
            # On v2 pages may have to age first, and the bytes are bounded. On v1 the zombies of
            # this parent may be gone, so that larger passes would only hit running cgroups.
            grow = self.parent.version == 2 or self.limits.thorough
            self._size = 2 * self._size if grow else self._first
        largest = self.limits.most_pass_bytes if self.parent.version == 2 else self.limits.round_s
        self._size = min(self._size, largest)
        if not self.why:
            self.why = self._why_futile(result) or self._why_costly(after)

    def _why_futile(self, result: WriteResult) -> str:
        """Why another pass is pointless; "" if it may help."""
        if self._idle >= _MOST_IDLE:
            return f"{_MOST_IDLE} reclaim passes in a row got no CPU: the node is too busy"
        if not self._futile:
            return ""
        if self.parent.version == 1 and result.how == DONE:
            return f"the last pass completed and freed nothing: {STUCK}"
        if self._futile >= FUTILE_PASSES and not self.limits.thorough:
            return f"{FUTILE_PASSES} reclaim passes freed nothing: {STUCK}{_OR_THOROUGH}"
        if self._futile >= FUTILE_PASSES and result.error == errno.EAGAIN:
            return f"nothing more to reclaim: {STUCK}"
        if self._futile >= (FUTILE_PASSES if result.how == STOPPED else 3 * FUTILE_PASSES):
            return f"larger reclaim passes freed nothing: {STUCK}"
        return ""

    @property
    def most_lost(self) -> int | None:
        """What running cgroups may lose in total; `None` for no limit."""
        if self.limits.thorough or self._live_bytes is None:
            return None
        return max(LEAST_LOST_BYTES, self._live_bytes // LOST_SHARE)

    def _why_costly(self, now: Dying) -> str:
        """Why to stop if running cgroups have lost more than allowed; "" otherwise."""
        most, lost = self.most_lost, freed_between(self._live_bytes, now.live_bytes)
        if most is None or lost is None or lost <= most:
            return ""
        return f"running cgroups lost {size(lost)}; freeing the rest would cost more"

    def _half(self, result: WriteResult, before: Dying, after: Dying) -> float:
        """Size of a pass that frees about half of what may be left: once all zombies are gone, a
        pass only hits running cgroups, whose cache is evicted at gigabytes per second."""
        if self.parent.version == 2:
            return self._first if after.bytes is None else after.bytes / 2
        freed = freed_between(before.number, after.number)
        if after.number is None or not freed:
            return self._first
        left = after.number if after.bytes is None else min(after.bytes // PAGE, after.number)
        return left / 2 * (result.cpu_s or result.seconds) / freed


def _fell(before: Dying, after: Dying) -> bool:
    """Whether a pass freed some. On v1 the bytes are this parent's, the number is the node's."""
    fewer = freed_between(before.number, after.number)
    lighter = freed_between(before.bytes, after.bytes)
    if fewer is not None and (before.scope == PARENT or lighter is None):
        worth = 1 if before.scope == PARENT else max(1, (before.number or 0) * WORTH)
        return fewer >= worth
    if lighter is None:
        return False
    return lighter >= max(PAGE, (before.bytes or 0) * WORTH) and (fewer is None or fewer > 0)


def _worth(before: Dying, after: Dying) -> bool:
    """Whether running cgroups lost less than `COSTLY_BYTES` per zombie that a pass freed."""
    fewer = freed_between(before.number, after.number)
    lost = freed_between(before.live_bytes, after.live_bytes)
    return fewer is None or lost is None or lost <= COSTLY_BYTES * fewer


class _Watch:
    """Whether a write is still useful: called many times a second, so it must stay cheap."""

    def __init__(self, work: _Work, before: Dying) -> None:
        self._work = work
        self.reason = ""
        start = gauge(work.host, work.parent)
        self._lowest = start
        self._fell = False
        self._longest_gap_s = 0.0
        self._since = 0.0
        # On v1 the gauge includes live cgroups, which remain at the end.
        alive = None if start is None or before.number is None else start - before.number
        self._floor = None if alive is None else alive + work.limits.target
        # Usage falls below this only if running cgroups have lost what they may.
        whole, most = usage(work.host, work.parent), work.most_lost
        enough = None not in (whole, most, before.bytes)
        self._least = (whole or 0) - (before.bytes or 0) - (most or 0) if enough else 0

    def keep_going(self) -> bool:
        now = time.monotonic()
        self._since = self._since or now
        if now - self._work.reason_at > _REASON_EVERY_S:
            self._work.reason_at = now
            stop_if = self._work.limits.stop_if
            if stop_if is not None and (why := stop_if()):
                self.reason = why
                return False
        value = gauge(self._work.host, self._work.parent)
        if value is None or self._lowest is None:
            return True
        if value < self._lowest:
            if self._fell:
                self._longest_gap_s = max(self._longest_gap_s, now - self._since)
            self._fell = True
            self._lowest, self._since = value, now
        if self._floor is not None and value <= self._floor:
            return False
        if self._least > 0 and (usage(self._work.host, self._work.parent) or 0) < self._least:
            return False
        return now - self._since < self._patience_s

    @property
    def _patience_s(self) -> float:
        """Before the first is freed the full stall time; then a few of the gaps seen so far: once
        all zombies are gone, only running cgroups lose memory."""
        stall_s = self._work.limits.stall_s
        if not self._fell or self._work.limits.thorough:
            return stall_s
        return min(stall_s, max(_QUIET_S, _BURSTS * self._longest_gap_s))
