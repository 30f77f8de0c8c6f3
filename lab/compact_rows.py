"""Which rows of a scene's recording are kept, by table; tables not named here are kept whole."""

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

#: Mounts that a census looks at; the others tell what disks and containers a machine has.
_FILE_SYSTEMS = ("cgroup", "cgroup2", "tracefs", "debugfs")
#: Counters of /proc/vmstat about reclaim, faults, compaction, swap and what is free.
_COUNTERS = (
    r"^(allocstall|compact_|drop_|kswapd_|oom_kill|pageoutrun|pgfault|pgmajfault|pgscan|pgsteal"
    r"|pgrefill|pgactivate|pgdeactivate|pswp|workingset_refault|nr_free_pages|nr_dirty$|thp_fault)"
)
#: What this project's own tests call the devices and cgroups that they speak of in the log.
_OF_A_TEST = re.compile(r"sextontest|sexton-test-")
#: A moment's grace: a line may be older than the reading that brought it.
_GRACE_S = 1.0


class Setting(NamedTuple):
    """When the recording begins (monotonic, UNIX seconds)."""

    mono_s: float
    wall_s: float


def kept_rows(kind: type[Row], found: pa.Table, setting: Setting) -> pa.Table:
    """The rows of one table that a diagnosis needs and that are of the scene."""
    rule = _RULES.get(kind)
    return found if rule is None or not found.num_rows else rule(found, setting)


def _mounts(found: pa.Table, _: Setting) -> pa.Table:
    return found.filter(pc.is_in(found.column("fstype"), pa.array(_FILE_SYSTEMS)))


def _counters(found: pa.Table, _: Setting) -> pa.Table:
    return found.filter(pc.match_substring_regex(found.column("name"), _COUNTERS))


def _kernel_lines(found: pa.Table, setting: Setting) -> pa.Table:
    """Lines from before were somebody else's (one without a time came with its reading), and so are
    those of tests that ran meanwhile: theirs by name, or of the same kind in the same second."""
    since = int((setting.mono_s - _GRACE_S) * 1e6)
    found = _not_before(found, "mono_us", since)
    family = found.column("family").to_pylist()
    moment = [None if row is None else row / 1e6 for row in found.column("mono_us").to_pylist()]
    named = [_OF_A_TEST.search(row) is not None for row in found.column("message").to_pylist()]
    theirs = [(f, m) for f, m, n in zip(family, moment, named, strict=True) if n and m is not None]
    kept = [
        not name
        and not any(f == of and m is not None and abs(m - at) < _GRACE_S for of, at in theirs)
        for f, m, name in zip(family, moment, named, strict=True)
    ]
    return found.filter(pa.array(kept, pa.bool_()))


def _alarms(found: pa.Table, _: Setting) -> pa.Table:
    words = zip(*(found.column(name).to_pylist() for name in ("about", "detail")), strict=True)
    kept = [_OF_A_TEST.search(" ".join(word)) is None for word in words]
    return found.filter(pa.array(kept, pa.bool_()))


def _journal_lines(found: pa.Table, setting: Setting) -> pa.Table:
    return _not_before(found, "wall_s", setting.wall_s - _GRACE_S)


def _not_before(found: pa.Table, name: str, since: float) -> pa.Table:
    recent = pc.greater_equal(found.column(name), since)
    return found.filter(pc.fill_null(recent, True))


def _log(found: pa.Table, setting: Setting) -> pa.Table:
    """What is left of the log begins with the scene: nothing may be concluded from before it."""
    floor = int((setting.mono_s - _GRACE_S) * 1e6)
    oldest = pc.max_element_wise(found.column("oldest_mono_us"), pa.scalar(floor), skip_nulls=False)
    return _with(found, "oldest_mono_us", oldest)


def _node(found: pa.Table, _: Setting) -> pa.Table:
    """Kernel, cores, age and operating system; not whose machine it is."""
    for name in ("zone", "region", "instance_type", "image", "vendor", "machine"):
        found = _with(found, name, pa.nulls(found.num_rows, pa.string()))
    for name, word in (("hostname", HOST), ("boot_id", BOOT)):
        found = _with(found, name, pa.array([word] * found.num_rows, pa.string()))
    return found


def _processes(found: pa.Table, _: Setting) -> pa.Table:
    """Those that ran, those that are dead or stuck, and the parents of those."""
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


#: Tables of which other people's rows are left out.
LINES: tuple[type[Row], ...] = (KernelEvent, KernelLog, ServiceEvent, RestartMark, Alarm)
_Rule = Callable[[pa.Table, Setting], pa.Table]
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
