"""What was done to free zombies, round by round, in numbers a person can check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from sexton.cure.ordering import Ordered
from sexton.cure.protected import Rule
from sexton.cure.reclaim.count import NODE, Dying
from sexton.cure.reclaim.estimate import STALL_S, Estimate
from sexton.cure.reclaim.stakes import Stakes
from sexton.cure.reclaim.walk import Walk, slope_us, told
from sexton.model.text import count, seconds, size


@dataclass(frozen=True, slots=True)
class Limits:
    """How far freeing may go.

    `seconds` is the whole, `round_s` one order; `stall_s` how long an order may run without freeing
    one; `rounds` how many times some bites; `target` the number at which it is enough. `first_s` is
    v1's first bite; `first_bytes` and `most_bite_bytes` are of v2's, `most_bytes` of all of them
    (`None`: twice what the dead hold, and 32 MiB); `most_lost_bytes` is what the living may lose
    before it stops (`None`: a twentieth, and 16 MiB at least). `thorough` goes on where only the
    cache of the living stands before the dead. `protected` are the owner's own rules, and
    `accept_collateral` lifts the refusal they and the built-in ones cause. `stop_if` is asked ten
    times a second for a reason to stop.
    """

    seconds: float = 60.0
    round_s: float = 10.0
    stall_s: float = STALL_S
    rounds: int = 20
    target: int = 0
    first_s: float = 0.0005
    first_bytes: int = 1 << 20
    most_bite_bytes: int = 64 << 20
    most_bytes: int | None = None
    most_lost_bytes: int | None = None
    accept_collateral: bool = False
    thorough: bool = False
    protected: tuple[Rule, ...] = ()
    stop_if: Callable[[], str | None] | None = None


class Order(NamedTuple):
    """One write: what to which file, and what came of it."""

    file: str
    value: str
    came: Ordered


@dataclass(frozen=True, slots=True)
class Round:
    """Orders between two counts, and the walk timed on both sides of them."""

    number: int
    orders: tuple[Order, ...]
    before: Dying
    after: Dying
    walk_before: tuple[Walk, ...]
    walk_after: tuple[Walk, ...]

    @property
    def seconds(self) -> float:
        """By the wall clock; less than this is the processor's, where it had to wait."""
        return sum(each.came.seconds for each in self.orders)

    @property
    def cpu_s(self) -> float:
        return sum(each.came.cpu_s for each in self.orders)

    @property
    def freed(self) -> int | None:
        """`None` where the number is unknown; never less than 0, for others die meanwhile."""
        if self.before.number is None or self.after.number is None:
            return None
        return max(0, self.before.number - self.after.number)

    @property
    def freed_bytes(self) -> int:
        """By how much less the dead hold, as far as that can be told."""
        if self.before.bytes is None or self.after.bytes is None:
            return 0
        return max(0, self.before.bytes - self.after.bytes)

    @property
    def us_each(self) -> float | None:
        """Microseconds of one core per zombie freed."""
        return self.cpu_s * 1e6 / self.freed if self.freed else None

    @property
    def us_walked(self) -> float | None:
        """Microseconds of one core per zombie there was: what reclaim's own walk costs."""
        return self.cpu_s * 1e6 / self.before.number if self.before.number else None

    @property
    def sentence(self) -> str:
        last = self.orders[-1] if self.orders else None
        what = f"{last.file} {last.value}: {last.came.why}" if last else "nothing"
        if len(self.orders) > 1:
            what = f"{len(self.orders)} bites, last {what}"
        if self.freed is None:
            done = f"{size(self.freed_bytes)} less held by the dead"
        else:
            done = f"{self.freed:,} freed, {self.after.number:,} left {self.after.scope}"
        each = f", {self.us_each:.0f} µs each" if self.us_each is not None else ""
        return f"round {self.number}: {done} in {seconds(self.seconds)}{each} ({what})"


@dataclass(frozen=True, slots=True)
class Freed:
    """The whole of it. `before` and `after` are the stakes on both sides: what the living lost."""

    before: Stakes
    after: Stakes
    estimate: Estimate
    rounds: tuple[Round, ...]
    seconds: float
    cores: str
    why_stopped: str

    @property
    def freed(self) -> int | None:
        first, last = self.before.dying.number, self.after.dying.number
        return None if first is None or last is None else max(0, first - last)

    @property
    def order_s(self) -> float:
        """Seconds of one core that all orders took together."""
        return sum(each.cpu_s for each in self.rounds)

    @property
    def walk_us_per_zombie(self) -> dict[str, float]:
        """By how much one read of each file of statistics got quicker for each zombie freed."""
        if not self.rounds or not self.freed:
            return {}
        return slope_us(self.rounds[0].walk_before, self.rounds[-1].walk_after, self.freed)

    @property
    def experiment(self) -> tuple[str, ...]:
        """What freeing did to the walk, a sentence for each file of statistics."""
        if not self.rounds:
            return ()
        before, after = self.rounds[0].walk_before, self.rounds[-1].walk_after
        slopes = self.walk_us_per_zombie
        return tuple(
            told(first, last, slopes.get(first.file))
            for first, last in zip(before, after, strict=True)
        )

    @property
    def lost_file_bytes(self) -> int | None:
        """Cache of the living that went: never more than they had, for they go on meanwhile."""
        return _less(self.before.file_bytes, self.after.file_bytes)

    @property
    def lost_anon_bytes(self) -> int | None:
        """Anonymous memory of the living that went to swap or was given back."""
        return _less(self.before.anon_bytes, self.after.anon_bytes)

    @property
    def swapped_bytes(self) -> int | None:
        """By how much more of the living is out on swap."""
        return _less(self.after.swap_bytes, self.before.swap_bytes)

    @property
    def living(self) -> str:
        """What those who live there held before and after, as far as it was read; "" where nobody
        lives or nothing was done."""
        if not self.rounds or not (self.before.live or self.after.live):
            return ""
        parts = (("cache", "file_bytes"), ("anonymous", "anon_bytes"), ("in swap", "swap_bytes"))
        told = (
            f"{word} {_size(getattr(self.before, name))} before,"
            f" {_size(getattr(self.after, name))} after"
            for word, name in parts
        )
        return f"the living there: {'; '.join(told)}"

    @property
    def told(self) -> tuple[str, ...]:
        """What belongs to the sentence: the living before and after, and the experiment."""
        return tuple(filter(None, (self.living, *self.experiment)))

    @property
    def sentence(self) -> str:
        """What was freed and what was not, plainly."""
        left, scope = self.after.dying.number, self.after.dying.scope
        if self.freed is None or left is None:
            told = "the number of dying cgroups is unknown here"
        else:
            told = f"{count(self.freed, 'dying cgroup')} freed, {left:,} left {scope}"
            if scope == NODE:
                told += " (v1 counts no other way)"
        lost = ""
        # Without an order nothing of it was our doing: they come and go by themselves.
        if self.rounds and self.lost_file_bytes is not None and self.lost_anon_bytes is not None:
            lost = (
                f"; the living lost {size(self.lost_file_bytes)} of cache and"
                f" {size(self.lost_anon_bytes)} of anonymous memory"
            )
            if self.swapped_bytes:
                lost += f", {size(self.swapped_bytes)} of it to swap"
        return f"{told}; {seconds(self.order_s)} of one core; stopped: {self.why_stopped}{lost}"

    def as_json(self) -> dict[str, Any]:
        """For the journal and the audit log."""
        return {
            "parent": self.before.parent.path,
            "version": self.before.parent.version,
            "freed": self.freed,
            "dying_before": self.before.dying.number,
            "dying_after": self.after.dying.number,
            "scope": self.after.dying.scope,
            "held_before_bytes": self.before.dying.bytes,
            "held_after_bytes": self.after.dying.bytes,
            "seconds": self.seconds,
            "order_s": self.order_s,
            "cores": self.cores,
            "why_stopped": self.why_stopped,
            "walk_us_per_zombie": self.walk_us_per_zombie,
            "experiment": list(self.experiment),
            "siblings": {
                "file_before_bytes": self.before.file_bytes,
                "file_after_bytes": self.after.file_bytes,
                "anon_before_bytes": self.before.anon_bytes,
                "anon_after_bytes": self.after.anon_bytes,
                "swap_before_bytes": self.before.swap_bytes,
                "swap_after_bytes": self.after.swap_bytes,
            },
            "rounds": [_round_json(each) for each in self.rounds],
        }


def _round_json(each: Round) -> dict[str, Any]:
    return {
        "orders": [[order.file, order.value, order.came.why] for order in each.orders],
        "dying_before": each.before.number,
        "dying_after": each.after.number,
        "seconds": each.seconds,
        "cpu_s": each.cpu_s,
        "us_per_freed": each.us_each,
        "us_per_walked": each.us_walked,
        "walk_before_s": {walk.file: walk.seconds for walk in each.walk_before if walk.measured},
        "walk_after_s": {walk.file: walk.seconds for walk in each.walk_after if walk.measured},
    }


def _size(value: int | None) -> str:
    return "unknown" if value is None else size(value)


def _less(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else max(0, before - after)
