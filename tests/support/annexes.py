"""Segments with stacks sealed into them, from profiles made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from sexton.model.profile import Profile
from sexton.profile.heat import heat_of
from sexton.profile.recorded import annex_facts, annex_tables
from sexton.store.annex import write_annex
from tests.support.profiles import SECOND, Sample, profile_of
from tests.support.recordings import BOOT, WALL_S, simple, write_sealed

STAMP = "2026111513300407"
IDLE = ("k:start_secondary", "k:do_idle", "k:default_idle")
WALK = ("k:do_syscall_64", "k:vfs_read", "k:memcg_stat_show", "k:mem_cgroup_iter")


def samples(start_s: float = 100.0, seconds: int = 4, hertz: int = 10) -> list[Sample]:
    """Two cores: one sleeps, the other walks the dead on behalf of kubelet."""
    made = []
    for step in range(seconds * hertz):
        at = round((start_s + step / hertz) * SECOND)
        made.append(Sample(at, 0, IDLE, "swapper", 0))
        made.append(Sample(at + 1000, 1, ("main", *WALK), "kubelet", 2113, "/kubepods"))
    return made


def annex(segment: Path, profile: Profile, stamp: str = STAMP, boot_id: str = BOOT) -> Path:
    """Seal a profile into a segment."""
    edges = [int(time_ns) // 1000 / 1e6 for time_ns in (profile.time_ns[0], profile.time_ns[-1])]
    header = {
        "boot_id": boot_id,
        "start": [edges[0], edges[0] + WALL_S],
        "end": [edges[1], edges[1] + WALL_S],
        "profile": annex_facts(profile),
    }
    return write_annex(segment, f"profile-{stamp}", header, annex_tables(profile, heat_of(profile)))


def with_stacks(directory: Path, stacks: Sequence[Sample] | None = None, number: int = 1) -> Path:
    """A recording of so many segments, each with an annex; the last annex."""
    made = None
    for sequence in range(1, number + 1):
        start = 100.0 * sequence
        segment = write_sealed(directory, [simple(start), simple(start + 5)], sequence)
        profile = profile_of(samples(start) if stacks is None else stacks)
        made = annex(segment, profile, str(int(STAMP) + sequence))
    assert made is not None
    return made
