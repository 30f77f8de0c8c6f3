"""Which rows of a scene's recording are kept, by table; other tables are kept whole."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lab.scrub import BOOT, HOST
from sexton.model.row import Row
from sexton.model.rows.cgroup import Mount
from sexton.model.rows.event import KernelEvent, KernelLog, ServiceEvent
from sexton.model.rows.memory import VmCounter
from sexton.model.rows.node import Node
from sexton.model.rows.recorder import Alarm
from sexton.model.rows.task import Process
from sexton.model.rows.unit import RestartMark

#: Mounts that Sexton needs; others would show the machine's disks and containers.
_FILE_SYSTEMS = ("cgroup", "cgroup2", "tracefs", "debugfs")
#: Counters of /proc/vmstat about reclaim, faults, compaction, swap and free memory.
_COUNTERS = (
    r"^(allocstall|compact_|drop_|kswapd_|oom_kill|pageoutrun|pgfault|pgmajfault|pgscan|pgsteal"
    r"|pgrefill|pgactivate|pgdeactivate|pswp|workingset_refault|nr_free_pages|nr_dirty$|thp_fault)"
)
#: Names that this project's tests use in the kernel log for devices and cgroups.
_TEST_NAMES = re.compile(r"sextontest|sexton-test-")
#: A line may be this much older than the reading that delivered it.
_GRACE_S = 1.0


class RecordingStart(NamedTuple):
    """When the recording starts (monotonic, UNIX seconds)."""

    mono_s: float
    wall_s: float


def kept_rows(kind: type[Row], found: pa.Table, start: RecordingStart) -> pa.Table:
    """The rows of a table that belong to the scene and that a diagnosis needs."""
    rule = _RULES.get(kind)
    return found if rule is None or not found.num_rows else rule(found, start)


def _mounts(found: pa.Table, _: RecordingStart) -> pa.Table:
    return found.filter(pc.is_in(found.column("fstype"), pa.array(_FILE_SYSTEMS)))


def _counters(found: pa.Table, _: RecordingStart) -> pa.Table:
    return found.filter(pc.match_substring_regex(found.column("name"), _COUNTERS))


def _kernel_lines(found: pa.Table, start: RecordingStart) -> pa.Table:
    """Drop lines from before the scene (lines without a time are kept), and lines of tests that ran
    meanwhile: by name, or of the same family within a second of such a line."""
    since = int((start.mono_s - _GRACE_S) * 1e6)
    found = _not_before(found, "mono_us", since)
    family = found.column("family").to_pylist()
    moment = [None if row is None else row / 1e6 for row in found.column("mono_us").to_pylist()]
    named = [_TEST_NAMES.search(row) is not None for row in found.column("message").to_pylist()]
    theirs = [(f, m) for f, m, n in zip(family, moment, named, strict=True) if n and m is not None]
    kept = [
        not name
        and not any(f == of and m is not None and abs(m - at) < _GRACE_S for of, at in theirs)
        for f, m, name in zip(family, moment, named, strict=True)
    ]
    return found.filter(pa.array(kept, pa.bool_()))


def _alarms(found: pa.Table, _: RecordingStart) -> pa.Table:
    words = zip(*(found.column(name).to_pylist() for name in ("about", "detail")), strict=True)
    kept = [_TEST_NAMES.search(" ".join(word)) is None for word in words]
    return found.filter(pa.array(kept, pa.bool_()))


def _journal_lines(found: pa.Table, start: RecordingStart) -> pa.Table:
    return _not_before(found, "wall_s", start.wall_s - _GRACE_S)


def _not_before(found: pa.Table, name: str, since: float) -> pa.Table:
    recent = pc.greater_equal(found.column(name), since)
    return found.filter(pc.fill_null(recent, True))


def _log(found: pa.Table, start: RecordingStart) -> pa.Table:
    """Let the log start with the scene, so that nothing is concluded about the time before."""
    floor = int((start.mono_s - _GRACE_S) * 1e6)
    oldest = pc.max_element_wise(found.column("oldest_mono_us"), pa.scalar(floor), skip_nulls=False)
    return _with(found, "oldest_mono_us", oldest)


def _node(found: pa.Table, _: RecordingStart) -> pa.Table:
    """Keep kernel, cores, age and operating system; drop what identifies the machine."""
    for name in ("zone", "region", "instance_type", "image", "vendor", "machine"):
        found = _with(found, name, pa.nulls(found.num_rows, pa.string()))
    for name, word in (("hostname", HOST), ("boot_id", BOOT)):
        found = _with(found, name, pa.array([word] * found.num_rows, pa.string()))
    return found


def _processes(found: pa.Table, _: RecordingStart) -> pa.Table:
    """Keep processes that ran, are dead or are stuck, and their parents."""
    pid, start, ppid = (found.column(n).to_numpy() for n in ("pid", "start_ms", "ppid"))
    spent = found.column("user_ms").to_numpy() + found.column("system_ms").to_numpy()
    who = np.unique(np.stack([pid, start]), axis=1, return_inverse=True)[1].reshape(-1)
    least, most = (np.full(who.max() + 1, edge, np.int64) for edge in (np.iinfo(np.int64).max, -1))
    np.minimum.at(least, who, spent)
    np.maximum.at(most, who, spent)
    ran = (most > least)[who]
    odd = np.isin(found.column("state").to_numpy(zero_copy_only=False), ("Z", "X", "D"))
    wanted_rows = ran | odd
    return found.filter(pa.array(wanted_rows | np.isin(pid, ppid[wanted_rows])))


def _with(found: pa.Table, name: str, column: pa.Array | pa.ChunkedArray) -> pa.Table:
    place = found.schema.get_field_index(name)
    return found.set_column(place, found.schema.field(place), column)


#: Tables with unrelated rows to leave out.
LINES: tuple[type[Row], ...] = (KernelEvent, KernelLog, ServiceEvent, RestartMark, Alarm)
_Rule = Callable[[pa.Table, RecordingStart], pa.Table]
_RULES: Mapping[type[Row], _Rule] = {
    Mount: _mounts,
    VmCounter: _counters,
    KernelEvent: _kernel_lines,
    ServiceEvent: _journal_lines,
    RestartMark: _journal_lines,
    KernelLog: _log,
    Node: _node,
    Process: _processes,
    Alarm: _alarms,
}
