"""How much a recording will take on disk, before there is one: an estimate, and called so.

Of each table a sealed segment holds a Parquet file: about `FILE_BYTES` of it are there with one row
or with none to speak of, and each row adds what `ROW_BYTES` says. Both were measured on sealed
segments: 96 cores with random increments (`python -m lab.synthetic`) and a small idle node. Events
come when they come and are not in it.

>>> round(segment_bytes({"core_times": 11_520}) / 1000)
95
"""

from __future__ import annotations

from collections.abc import Mapping

from sexton.store.writer import SEGMENT_S

FILE_BYTES = 2_500
#: The list of readings, the manifest.
SEGMENT_BYTES = 30_000
ROW_BYTES = {
    "cgroup_dir": 1.5,
    "controller": 1.3,
    "core_times": 8.0,
    "interrupt": 10.0,
    "kernel_log": 10.0,
    "net_device": 20.0,
    "nic_counter": 1.9,
    "pressure": 8.0,
    "process": 2.8,
    "process_cgroup": 14.0,
    "run_queue": 14.4,
    "softirq_count": 12.4,
    "softirq_wait": 30.0,
    "softnet_cpu": 2.6,
    "tcp_counters": 20.0,
    "thread": 7.0,
    "unit": 2.0,
    "vm_counter": 1.3,
}
_OTHER_ROW_BYTES = 20.0
#: What a sample took here at most, decoded, kernel and user chains.
KEPT_STACK_BYTES = 10.0


def segment_bytes(rows: Mapping[str, float]) -> float:
    """A sealed segment with so many rows of each table."""
    return sum(
        FILE_BYTES + number * ROW_BYTES.get(name, _OTHER_ROW_BYTES) for name, number in rows.items()
    )


def bytes_an_hour(per_reading: Mapping[str, int], periods: Mapping[str, float]) -> float:
    """Tables by their rows in one reading, and how often each is read."""
    segments = 3600 / SEGMENT_S
    regular = {
        name: number * max(1.0, SEGMENT_S / periods[name])
        for name, number in per_reading.items()
        if number and periods[name] <= SEGMENT_S
    }
    return segments * (SEGMENT_BYTES + segment_bytes(regular))


def stacks_bytes_an_hour(cores: int, hertz: int) -> float:
    """Decoded stacks, every core sampled all the time."""
    return KEPT_STACK_BYTES * cores * hertz * 3600
