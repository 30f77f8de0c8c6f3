"""Free the dying memory cgroups below one parent, bite by bite, until that is of no more use.

Before anything: what is at stake is read again, and where protected units or pods live below the
parent it is refused unless that was accepted. Then bites, small ones first, twice as large while
they free something. On v2 a bite is so many bytes for `memory.reclaim`, with ``swappiness=0`` where
the kernel knows it (6.11), because swapping out frees no zombie: a swap entry holds it as a page
did. On v1 `force_empty` knows no measure and would go on to take all that the living have; there a
bite is so many milliseconds of it. A bite is called off as soon as the count stands still. Eight of
them are a round, with the dead counted and the walk timed on both sides.

It ends when enough are freed, when three bites in a row free nothing, when `Limits.stop_if` says
so, at the deadline, when the living have lost more than they may, or when v2's bites have asked for
as much as the dead can hold. By then what is left is held by pages that cannot be had (tmpfs,
locked, dirty), or by pages on *active* lists: those the kernel opens only when the inactive ones of
the whole subtree run low (prepare_scan_control in mm/vmscan.c), that is, after the cache of the
living. `Limits.thorough` pays that price.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sexton.cure.ordering import CUT, DONE, LINGERING, REFUSED, STOPPED, Ordered, Terms
from sexton.cure.reclaim.count import NODE, PARENT, Dying, Parent, gauge, settled, usage
from sexton.cure.reclaim.estimate import FRUITLESS, estimate
from sexton.cure.reclaim.rounds import Freed, Limits, Order, Round
from sexton.cure.reclaim.stakes import Stakes, refusals, stakes
from sexton.cure.reclaim.walk import time_walk
from sexton.cure.writer import Writer
from sexton.errors import CommandError
from sexton.host.host import Host
from sexton.host.reader import exists
from sexton.model.text import size
from sexton.sources.cgroupfs.estimate import PAGE
from sexton.sources.cores import Spared, off_the_nic

Tell = Callable[[str], None]
FORCE_EMPTY = "memory.force_empty"
RECLAIM = "memory.reclaim"
NO_SWAP = "swappiness=0"
STUCK = "what is left cannot be reclaimed"
#: Bites between two counts and two timings of the walk.
BITES = 8
#: Bytes that bites may ask for beyond what the dead hold: the living are asked as well.
SLACK_BYTES = 32 << 20
#: On v1 the count is the whole node's, where a few others come and go meanwhile: a bite that frees
#: less than this share of it freed nothing.
WORTH = 0.005
#: What the living may lose: so many bytes or this part of what they have, whichever is more; and
#: for one zombie. Their own comings and goings are in it.
LEAST_LOST_BYTES = 16 << 20
LOST_SHARE = 20
DEAR_BYTES = 256 << 10
_REASON_EVERY_S = 0.1
#: The kernel lets go of them in bursts (a grace period each): a silence of some bursts is the end.
_QUIET_S = 0.1
_BURSTS = 4
#: A bite that had the processor for less than this share of its time did not get to work.
_WORKED = 0.5
_MOST_IDLE = 20


def refused(found: Stakes, accept_collateral: bool) -> str | None:
    """Why nothing may be freed there; `None` where it may."""
    reasons = refusals(found)
    if not reasons or accept_collateral:
        return None
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    return f"{reasons[0].target}: {reasons[0].reason}{more}; {reasons[0].override} to do it anyway"


def order_file(host: Host, parent: Parent) -> str:
    """The control file that frees there; `CommandError` where this kernel has none."""
    name = FORCE_EMPTY if parent.version == 1 else RECLAIM
    if not exists(host.files, f"{parent.directory}/{name}"):
        advice = "drop_caches or a reboot is what is left"
        since = "" if parent.version == 1 else " (it came with 5.19)"
        raise CommandError(f"{parent.path}: this kernel has no {name}{since}; {advice}")
    return name


def free(
    host: Host,
    path: str,
    limits: Limits,
    writer: Writer,
    tell: Tell = lambda _: None,
) -> Freed:
    """Free below the cgroup at `path`; what was freed and what was not, measured."""
    host = replace(host, memo={})
    before = stakes(host, path, limits.protected)
    parent = before.parent
    name = order_file(host, parent)
    reason = refused(before, limits.accept_collateral)
    if reason is not None:
        raise CommandError(reason)
    spared = off_the_nic(host)
    work = _Work(host, parent, limits, writer, name, spared)
    began = time.monotonic()
    work.run(before.dying, tell)
    after = stakes(replace(host, memo={}), path, limits.protected, before.split)
    return Freed(
        before=before,
        after=after,
        estimate=estimate(before, limits.stall_s),
        rounds=tuple(work.rounds),
        seconds=time.monotonic() - began,
        cores=_cores(spared),
        why_stopped=work.why,
    )


def _cores(spared: Spared) -> str:
    if spared.cpus is None:
        return spared.note.strip("()")
    return f"core {','.join(map(str, sorted(spared.cpus)))}: {spared.note}"


@dataclass(slots=True)
class _Work:
    """One freeing under way. A bite of `_size` is a number of bytes on v2, of seconds on v1."""

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
    _asked_bytes: int = 0
    _size: float = 0.0
    _fruitless: int = 0
    _idle: int = 0
    _swapless: bool = True
    _living: int | None = None

    def run(self, count: Dying, tell: Tell) -> None:
        self._living = count.living_bytes
        self._size = self._first
        walk = time_walk(self.host, self.parent)
        self._end_s = time.monotonic() + self.limits.seconds
        while not self.why:
            if len(self.rounds) >= self.limits.rounds:
                self.why = f"{self.limits.rounds} rounds were all that was allowed"
                break
            orders, after = self._bites(count)
            if not orders:
                break
            walked = time_walk(self.host, self.parent)
            done = Round(len(self.rounds) + 1, tuple(orders), count, after, walk, walked)
            self.rounds.append(done)
            tell(done.sentence)
            count, walk = after, walked

    @property
    def _first(self) -> float:
        return self.limits.first_bytes if self.parent.version == 2 else self.limits.first_s

    def _bites(self, count: Dying) -> tuple[list[Order], Dying]:
        """Up to `BITES` orders, and the count after them."""
        orders: list[Order] = []
        most = self.limits.most_bytes
        if most is None:
            most = 2 * (count.bytes or 0) + SLACK_BYTES if not self.limits.thorough else 1 << 62
        while len(orders) < BITES and not self.why:
            if self._is_enough(count):
                break
            if self.limits.stop_if is not None and (reason := self.limits.stop_if()):
                self.why = reason
                break
            if time.monotonic() >= self._end_s:
                self.why = f"the deadline of {self.limits.seconds:g} s is over"
                break
            amount = min(int(self._size), most - self._asked_bytes)
            if self.parent.version == 2 and amount < PAGE:
                self.why = "as much was asked for as the dead can hold"
                break
            done = self._order(amount, count)
            if self._swapless and done.came.error == errno.EINVAL and NO_SWAP in done.value:
                self._swapless = False  # before 6.11
                continue
            orders.append(done)
            self._asked_bytes += amount
            before, count = count, settled(self.host, self.parent)
            self._judge(done, before, count)
        return orders, count

    def _is_enough(self, count: Dying) -> bool:
        if count.number is not None and count.number <= self.limits.target:
            self.why = "none is left" if not count.number else "enough were freed"
        elif count.scope == NODE and count.bytes is not None and count.bytes < PAGE:
            self.why = "the dead below it hold nothing any more"
        return bool(self.why)

    def _order(self, amount: int, before: Dying) -> Order:
        """One write, called off when it frees nothing any more, or somebody says so."""
        if self.parent.version == 2:
            value, bite_s = (f"{amount} {NO_SWAP}" if self._swapless else str(amount)), 0.0
        else:
            value, bite_s = "0", self._size
        left_s = max(0.05, min(self.limits.round_s, self._end_s - time.monotonic()))
        watch = _Watch(self, before)
        terms = Terms(left_s, self.spared.cpus, watch.go_on, bite_s=bite_s)
        came = self.writer.order(f"{self.parent.directory}/{self.name}", value, terms)
        if came.how == LINGERING:
            self.why = "the order was killed and is still inside the kernel: wait, and count again"
        elif came.how == STOPPED and watch.reason:
            self.why = watch.reason
        elif came.how == REFUSED and came.error not in (errno.EAGAIN, errno.EINVAL):
            self.why = f"the kernel refused: {came.why}"
        return Order(self.name, value, came)

    def _judge(self, done: Order, before: Dying, after: Dying) -> None:
        """Was it of use; and how large is the next bite?"""
        came = done.came
        fell = _fell(before, after)
        if fell and (self.limits.thorough or _worth(before, after)):
            self._fruitless = self._idle = 0
            self._size = min(2 * self._size, max(self._first, self._half(came, before, after)))
        elif (
            not fell
            and came.how in (CUT, STOPPED)
            and came.cpu_s < _WORKED * min(self._size, came.seconds)
        ):
            self._idle += 1
        else:
            self._fruitless += 1
            # v2's pages may have to grow old first, and its bytes are bounded. On v1 it may be that
            # the dead of this parent are gone, and from now on only the living would pay.
            grow = self.parent.version == 2 or self.limits.thorough
            self._size = 2 * self._size if grow else self._first
        largest = self.limits.most_bite_bytes if self.parent.version == 2 else self.limits.round_s
        self._size = min(self._size, largest)
        if not self.why:
            self.why = self._useless(came) or self._dear(after)

    def _useless(self, came: Ordered) -> str:
        """Why there is no point in another bite; "" where there may be."""
        if self._idle >= _MOST_IDLE:
            return f"{_MOST_IDLE} bites in a row only waited: this node is too busy for it"
        if not self._fruitless:
            return ""
        if self.parent.version == 1 and came.how == DONE:
            return f"the last bite went to the end and freed nothing: {STUCK}"
        if self._fruitless >= FRUITLESS and not self.limits.thorough:
            return f"{FRUITLESS} bites in a row freed nothing: {STUCK}, or only after the living"
        if self._fruitless >= FRUITLESS and came.error == errno.EAGAIN:
            return f"there was no more to reclaim: {STUCK}"
        if self._fruitless >= (FRUITLESS if came.how == STOPPED else 3 * FRUITLESS):
            return f"even larger bites freed nothing: {STUCK}"
        return ""

    @property
    def most_lost(self) -> int | None:
        """What the living may lose in all; `None` where that is not to be asked."""
        if self.limits.thorough or self._living is None:
            return None
        if self.limits.most_lost_bytes is not None:
            return self.limits.most_lost_bytes
        return max(LEAST_LOST_BYTES, self._living // LOST_SHARE)

    def _dear(self, now: Dying) -> str:
        """Have the living lost more than they may?"""
        most = self.most_lost
        if most is None or self._living is None or now.living_bytes is None:
            return ""
        lost = self._living - now.living_bytes
        if lost <= most:
            return ""
        return f"the living have lost {size(lost)}, and for what is left they would lose more"

    def _half(self, came: Ordered, before: Dying, after: Dying) -> float:
        """A bite that would free about half of what may be left: past the last of the dead a bite
        is all at the expense of the living, whose cache goes at gigabytes a second."""
        if self.parent.version == 2:
            return float(after.bytes or 0) / 2
        freed = (before.number or 0) - (after.number or 0)
        left = after.number if after.bytes is None else after.bytes // PAGE
        left = min(left or 0, after.number or 0)
        return left / 2 * (came.cpu_s or came.seconds) / freed if freed > 0 else self._first


def _fell(before: Dying, after: Dying) -> bool:
    """Did a bite free some? On v1 the bytes are this parent's, and the number is not."""
    fewer = lighter = None
    if before.number is not None and after.number is not None:
        fewer = before.number - after.number
    if before.bytes is not None and after.bytes is not None:
        lighter = before.bytes - after.bytes
    if fewer is not None and (before.scope == PARENT or lighter is None):
        worth = 1 if before.scope == PARENT else max(1, (before.number or 0) * WORTH)
        return fewer >= worth
    if lighter is None:
        return False
    return lighter >= max(PAGE, (before.bytes or 0) * WORTH) and (fewer is None or fewer > 0)


def _worth(before: Dying, after: Dying) -> bool:
    """Did the living pay less than `DEAR_BYTES` for each that was freed?"""
    if None in (before.living_bytes, after.living_bytes, before.number, after.number):
        return True
    lost = (before.living_bytes or 0) - (after.living_bytes or 0)
    return lost <= DEAR_BYTES * ((before.number or 0) - (after.number or 0))


class _Watch:
    """Is an order still of use? Asked many times a second, and it must stay cheap."""

    def __init__(self, work: _Work, before: Dying) -> None:
        self._work = work
        self.reason = ""
        start = gauge(work.host, work.parent)
        self._lowest = start
        self._fell = False
        self._longest_gap_s = 0.0
        self._since = 0.0
        # On v1 the gauge counts the living, too: as many as there were are left at the end.
        alive = None if start is None or before.number is None else start - before.number
        self._floor = None if alive is None else alive + work.limits.target
        # Less than this is left below the parent only if the living have lost what they may.
        whole, most = usage(work.host, work.parent), work.most_lost
        enough = None not in (whole, most, before.bytes)
        self._least = (whole or 0) - (before.bytes or 0) - (most or 0) if enough else 0

    def go_on(self) -> bool:
        now = time.monotonic()
        self._since = self._since or now
        if now - self._work.reason_at > _REASON_EVERY_S:
            self._work.reason_at = now
            asked = self._work.limits.stop_if
            if asked is not None and (why := asked()):
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
        """Until the first is freed, as long as allowed; then some of the gaps there were: past the
        last of the dead only the living pay."""
        stall_s = self._work.limits.stall_s
        if not self._fell or self._work.limits.thorough:
            return stall_s
        return min(stall_s, max(_QUIET_S, _BURSTS * self._longest_gap_s))
