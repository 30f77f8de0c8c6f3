"""What a recorder reads, and how often.

A source's own period suits ten seconds of `diagnose`. Over hours, less is enough for some: fast
counters are read every second, walks and tables every ten, what hardly changes every two minutes,
and expensive sources once an hour. While an alarm is active, tables are read every second too.
"""

from __future__ import annotations

from dataclasses import replace

from sexton.sources.registry import Source, disabled, enabled_sources

EVERY_S = 1.0
TABLES_S = 10.0
#: For what hardly changes.
STEADY_S = 120.0
HOURLY_S = 3600.0
#: Once an hour: they query the journal or make the kernel walk all cgroups.
_EXPENSIVE = (
    "cgroupfs.walk_cost",
    "cgroupfs.residual",
    "debugfs.lru_gen",
    "kmsg.journal",
    "kmsg.sessions",
)
#: Read every second while an alarm is active, and at once when it is raised.
CLOSER = ("procfs.tasks", "cgroupfs.census", "procfs.interrupts", "systemd.units")
#: Never paused: without them nothing else could be explained.
ESSENTIAL = ("procfs.stat", "kmsg.log", "procfs.cgroups", "cgroupfs.root_stat", "procfs.node")
#: Run as a companion instead.
_NOT_SAMPLED = ("perf.stacks",)


def recorded_sources(*, probe: bool = True, trace: bool = True) -> tuple[Source, ...]:
    """The sources of a recording with the period each is read at."""
    chosen = []
    for source in enabled_sources("--probe"):
        if source.id in _NOT_SAMPLED:
            continue
        option = ""
        if source.id.startswith("bpf.") and not probe:
            option = "--no-probe"
        elif source.id.startswith("tracefs.") and not trace:
            option = "--no-trace"
        if option:
            grant = f"sexton record  # without {option}"
            source = disabled(source, f"disabled by {option}", grant)
        period_s = period_of(source)
        # All sources read every second must finish within it.
        deadline_s = min(source.deadline_s, EVERY_S) if period_s == EVERY_S else source.deadline_s
        chosen.append(replace(source, period_s=period_s, deadline_s=deadline_s))
    return tuple(chosen)


def period_of(source: Source) -> float:
    """How often the recorder reads a source without an alarm."""
    if source.id in _EXPENSIVE:
        return HOURLY_S
    if source.period_s == 0:
        return STEADY_S
    return EVERY_S if source.period_s <= EVERY_S else max(TABLES_S, source.period_s)
