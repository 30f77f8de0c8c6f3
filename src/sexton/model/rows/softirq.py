"""How long network work waits for its core."""

from __future__ import annotations

from sexton.model.row import Row, row


@row
class SoftirqWait(Row):
    """Waits of one softirq vector ("NET_RX", "NET_TX") on one core, from raise to entry.

    `waits`, `raises`, `total_us` and `buckets` count from when the probe was loaded; several raises
    before one entry are one wait, measured from the oldest. `buckets[0]` holds waits below 1 us,
    `buckets[n]` those from 2**(n-1) us to below 2**n us and `buckets[25]` all from 16.8 s up;
    empty buckets at the end are left out. `longest_us` is the longest wait that *ended* since the
    reading before, `None` where none did; `pending_us` is how long the oldest raise that was not
    yet entered has been waiting at the moment of reading, `None` where nothing waits.
    """

    entity = ("cpu", "vector")

    cpu: int
    vector: str
    raises: int
    waits: int
    total_us: int
    longest_us: int | None
    pending_us: int | None
    buckets: tuple[int, ...]


@row
class ProbeCost(Row):
    """What the softirq probe does, and what it costs the node inside the kernel.

    `mode` is "on", "1 s in 10" or "off", `watched` whether it measured in the time up to this
    reading, `why` what led to the mode where that is not "on". The rest is of the last second that
    was sampled, `None` before the first: `run_ns` in our programs on all cores, `runs` of them,
    `sampled_s` how long that second was; `worst_core` and `worst_core_percent` are the core that
    paid most and its share of time, averaged over the seconds in which the probe rests. `method`
    is "run_time_ns" where the kernel measured and "estimate" where it cannot. `spent_ms` is what
    that comes to since the probe was loaded, each second taken as the sampled one before it. Both
    include what it takes to call the programs, which `run_ns` leaves out.
    """

    mode: str
    watched: bool
    why: str
    method: str
    run_ns: int | None
    runs: int | None
    sampled_s: float | None
    worst_core: int | None
    worst_core_percent: float | None
    spent_ms: float | None
