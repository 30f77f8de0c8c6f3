"""What freeing did: each write, each round of writes, and the whole, for people and the journal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from sexton.cure.reclaim.collateral import Collateral
from sexton.cure.reclaim.cost import CostEstimate, StatRead, describe_reads, us_saved_per_zombie
from sexton.cure.reclaim.count import NODE, Dying
from sexton.cure.writer import WriteResult
from sexton.model.text import count, seconds, size
from sexton.series.steps import freed_between


class ControlWrite(NamedTuple):
    """One write: file, value and result."""

    file: str
    value: str
    result: WriteResult


@dataclass(frozen=True, slots=True)
class Round:
    """Writes between two counts, with statistics reads timed before and after."""

    number: int
    writes: tuple[ControlWrite, ...]
    before: Dying
    after: Dying
    reads_before: tuple[StatRead, ...]
    reads_after: tuple[StatRead, ...]

    @property
    def seconds(self) -> float:
        """Wall time; CPU time is less if it had to wait."""
        return sum(write.result.seconds for write in self.writes)

    @property
    def cpu_s(self) -> float:
        return sum(write.result.cpu_s for write in self.writes)

    @property
    def freed(self) -> int | None:
        """`None` if the number is unknown; never negative, since others may die meanwhile."""
        return freed_between(self.before.number, self.after.number)

    @property
    def freed_bytes(self) -> int:
        """By how much memory charged to zombies fell, as far as known."""
        return freed_between(self.before.bytes, self.after.bytes) or 0

    @property
    def us_per_zombie(self) -> float | None:
        """Microseconds of one core per zombie freed."""
        return self.cpu_s * 1e6 / self.freed if self.freed else None

    @property
    def us_walked(self) -> float | None:
        """Microseconds of one core per zombie present: the cost of reclaim's own walk."""
        return self.cpu_s * 1e6 / self.before.number if self.before.number else None

    @property
    def sentence(self) -> str:
        last = self.writes[-1] if self.writes else None
        what = f"{last.file} {last.value}: {last.result.why}" if last else "nothing"
        if len(self.writes) > 1:
            what = f"{len(self.writes)} passes, last {what}"
        if self.freed is None:
            done = f"zombies hold {size(self.freed_bytes)} less memory"
        else:
            done = f"{self.freed:,} freed, {self.after.number:,} left {self.after.scope}"
        text = f", {self.us_per_zombie:.0f} µs each" if self.us_per_zombie is not None else ""
        return f"round {self.number}: {done} in {seconds(self.seconds)}{text} ({what})"


@dataclass(frozen=True, slots=True)
class Freed:
    """Result of freeing. `before` and `after` show what running cgroups lost."""

    before: Collateral
    after: Collateral
    estimate: CostEstimate
    rounds: tuple[Round, ...]
    seconds: float
    cores: str
    why_stopped: str

    @property
    def freed(self) -> int | None:
        return freed_between(self.before.dying.number, self.after.dying.number)

    @property
    def cpu_s(self) -> float:
        """Seconds of one core that all writes took together."""
        return sum(reclaim_pass.cpu_s for reclaim_pass in self.rounds)

    @property
    def walk_us_per_zombie(self) -> dict[str, float]:
        """Microseconds saved per read of each statistics file and zombie freed."""
        if not self.rounds or not self.freed:
            return {}
        return us_saved_per_zombie(
            self.rounds[0].reads_before, self.rounds[-1].reads_after, self.freed
        )

    @property
    def experiment(self) -> tuple[str, ...]:
        """Effect on statistics reads, one sentence per file."""
        if not self.rounds:
            return ()
        before, after = self.rounds[0].reads_before, self.rounds[-1].reads_after
        slopes = self.walk_us_per_zombie
        return tuple(
            describe_reads(first, last, slopes.get(first.file))
            for first, last in zip(before, after, strict=True)
        )

    @property
    def lost_file_bytes(self) -> int | None:
        """Cache that running cgroups lost; never negative, since they keep working."""
        return freed_between(self.before.file_bytes, self.after.file_bytes)

    @property
    def lost_anon_bytes(self) -> int | None:
        """Anonymous memory that running cgroups lost to swap or gave back."""
        return freed_between(self.before.anon_bytes, self.after.anon_bytes)

    @property
    def swapped_bytes(self) -> int | None:
        """By how much their swap use grew."""
        return freed_between(self.after.swap_bytes, self.before.swap_bytes)

    @property
    def running_cgroups(self) -> str:
        """Memory of running cgroups before and after, as far as read; "" if there are none or
        nothing was done."""
        if not self.rounds or not (self.before.live or self.after.live):
            return ""
        parts = (("cache", "file_bytes"), ("anonymous", "anon_bytes"), ("in swap", "swap_bytes"))
        changes = (
            f"{word} {_size(getattr(self.before, name))} before,"
            f" {_size(getattr(self.after, name))} after"
            for word, name in parts
        )
        return f"running cgroups there: {'; '.join(changes)}"

    @property
    def details(self) -> tuple[str, ...]:
        """Further lines: what tmpfs still holds, running cgroups before and after, read times."""
        return tuple(filter(None, (self._on_tmpfs, self.running_cgroups, *self.experiment)))

    @property
    def _on_tmpfs(self) -> str:
        share = self.after.tmpfs_share
        if not share:
            return ""
        return f"{share} and there is no swap: sexton fix plan lists files that may hold them"

    @property
    def sentence(self) -> str:
        """What was freed and what was not."""
        left, scope = self.after.dying.number, self.after.dying.scope
        if self.freed is None or left is None:
            text = "number of dying cgroups unknown"
        else:
            text = f"{count(self.freed, 'dying cgroup')} freed, {left:,} left {scope}"
            if scope == NODE:
                text += " (v1 has no count per parent)"
        lost = ""
        # Without a write, any change is their own doing.
        if self.rounds and self.lost_file_bytes is not None and self.lost_anon_bytes is not None:
            lost = (
                f"; running cgroups lost {size(self.lost_file_bytes)} of cache and"
                f" {size(self.lost_anon_bytes)} of anonymous memory"
            )
            if self.swapped_bytes:
                lost += f", {size(self.swapped_bytes)} of it to swap"
        return f"{text}; {seconds(self.cpu_s)} of one core; stopped: {self.why_stopped}{lost}"

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
            "order_s": self.cpu_s,
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
            "rounds": [_round_json(reclaim_pass) for reclaim_pass in self.rounds],
        }


def _round_json(reclaim_pass: Round) -> dict[str, Any]:
    return {
        "orders": [[write.file, write.value, write.result.why] for write in reclaim_pass.writes],
        "dying_before": reclaim_pass.before.number,
        "dying_after": reclaim_pass.after.number,
        "seconds": reclaim_pass.seconds,
        "cpu_s": reclaim_pass.cpu_s,
        "us_per_freed": reclaim_pass.us_per_zombie,
        "us_per_walked": reclaim_pass.us_walked,
        "walk_before_s": {
            read.file: read.seconds for read in reclaim_pass.reads_before if read.measured
        },
        "walk_after_s": {
            read.file: read.seconds for read in reclaim_pass.reads_after if read.measured
        },
    }


def _size(value: int | None) -> str:
    return "unknown" if value is None else size(value)
