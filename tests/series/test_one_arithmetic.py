"""No file outside `series` subtracts two readings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.series.subtractions import divisions, subtractions

SOURCE = Path(__file__).parents[2] / "src" / "sexton"
#: Files that hold no readings of a node, with what they subtract instead.
NO_READINGS = {
    "cli/profile/capture.py": "times of samples",
    "cli/profile/info.py": "samples of two flame graphs of one capture",
    "cli/profile/timeline.py": "times of samples",
    "explorer/files/capture.py": "columns and shares of a picture, all of the same moment",
    "explorer/files/profile.py": "keys of cells, packed for a page",
    "explorer/server/tour.py": "spans of a page",
    "explorer/tiles/pyramid.py": "columns and numbers of tiles",
    "explorer/tiles/time_order.py": "spans of a picture",
    "model/counters.py": "the same arithmetic for sources, which are below series",
    "model/settings.py": "sets of names",
    "prevent/audit/__init__.py": "sets of names",
    "prevent/audit/unit_files.py": "minutes of a calendar",
    "profile/difference.py": "running sums over a tree of stacks",
    "profile/heat.py": "places in an array",
    "profile/heatmap.py": "places in an array",
    "profile/perf/kallsyms.py": "addresses",
    "profile/perf/named_samples.py": "places in an array",
    "profile/perf/records.py": "offsets in a file",
    "profile/perf/walk_numpy.py": "places in an array",
    "profile/significance.py": "shares and ranks of a test",
    "profile/spikes/aligned.py": "moments of samples, and cells of a grid",
    "profile/spikes/baseline.py": "a level, and its mean",
    "profile/spikes/describe.py": "cells of a grid",
    "profile/spikes/find.py": "cells of a grid",
    "profile/spikes/grid.py": "cells of a grid",
    "profile/spikes/windows.py": "running sums over a tree of stacks",
    "profile/stack_tree.py": "places in an array",
    "profile/symbols/cache.py": "sizes of files",
    "profile/symbols/symtab.py": "addresses",
    "profile/symbols/table.py": "places in an array",
    "reports/svg/colours.py": "colours",
    "reports/svg/flame_picture.py": "shares of two captures",
    "reports/text/flame.py": "shares of two captures",
    "reports/text/verdict.py": "widths of a terminal",
    "store/annex.py": "moments, by two clocks",
    "store/arrays.py": "places in an array",
    "store/compaction.py": "moments of segments, and places in an array",
    "store/recording.py": "moments, by two clocks",
    "store/runs.py": "places in an array",
}
#: What looks like it and is not.
ALLOWED = {
    "cli/screen.py": {"left -= length": "columns of a terminal that are left"},
    "cure/reclaim/collateral.py": {
        "cache - shmem": "two fields of one reading",
        "int(words[-3]) - int(words[-2])": "two fields of one reading",
    },
    "cure/reclaim/cost.py": {
        "before.seconds - after.seconds": "how long two walks of ours took",
        "read.seconds - last": "how long two walks of ours took",
    },
    "detect/churn.py": {
        "edges[1] - edges[0]": "moments of readings",
        "later - earlier": "moments of deaths",
        "max(self.times_s, default=0.0) - min(self.times_s, default=0.0)": "moments of deaths",
    },
    "detect/detectors/cgroups/zombie_memcgs.py": {
        "left - fresh": "parts of one count of dying cgroups"
    },
    "detect/detectors/memory/oom_kills.py": {
        "ages[0] - ages[-1]": "moments of kills",
        "first - last": "moments of kills",
    },
    "detect/detectors/cpu/saturated_core.py": {"batches[1] - batches[0]": "moments of readings"},
    "detect/detectors/network/tcp_loss.py": {
        "counted['aborts_on_timeout'] - counted['attempt_fails']": "steps of two counters",
        "counted['retransmitted_segments'] - counted['syn_retransmits']": "steps of two counters",
    },
    "detect/growth.py": {
        "left[parent] -= number": "dying cgroups that are not yet attributed",
        "limit - total": "a limit, and how near it is",
    },
    "detect/detectors/memory/memory_pressure.py": {
        "tasks - moved.moved.get('direct', 0)": "steps of two counters"
    },
    "detect/ledger.py": {"edges[1] - edges[0]": "moments of readings"},
    "detect/owners.py": {"counted.get(path, 0) - here": "the dying of two counts of one moment"},
    "detect/oom.py": {"line.age_s - to.age_s": "moments of log lines"},
    "explain/aligned/chance.py": {
        "events - usual": "rates before events, and the usual ones",
        "mine - usual[:, at, None]": "rates before events, and the usual ones",
        "table[rows, less + same] - table[rows, less]": "a table of probabilities",
    },
    "explain/aligned/layout.py": {
        "b - a": "moments of events",
        "step - middle": "moments of events",
    },
    "explain/aligned/measure.py": {
        "np.diff(kept, prepend=-2)": "places in an array",
        "right - left": "places in an array",
    },
    "explain/links/cgroups/oom_kill_removes_cgroups.py": {
        "family.deaths - number": "a part of the same events"
    },
    "explain/links/network/starved_napi_drops_connections.py": {"last - first": "moments"},
    "explain/event_times.py": {
        "after - before": "moments of events",
        "b - a": "moments of events",
        "other - gap": "lengths of gaps between events",
    },
    "explain/story.py": {"link.covers[1] - link.covers[0]": "things of one finding"},
    "explain/why.py": {
        "2 - found.is_problem - (found.verdict is Verdict.PRESENT)": "a rank",
    },
    "explorer/lanes/events.py": {"MOST - self._number.get(kind, 0)": "a limit of marks"},
    "explorer/tiles/build.py": {
        "pair[1] - pair[0]": "moments, by two clocks",
        "last - first": "moments, by two clocks; columns of a picture",
        "np.cumsum(number) - number": "places in an array",
    },
    "export/exposition.py": dict.fromkeys(
        ("now - then", "value.sum - before.sum"), "totals that must not fall; no rate"
    ),
    "profile/recorded.py": {
        "np.diff(times)": "moments of samples: do they go backwards?",
        "np.diff(depth)": "places in a tree",
    },
    "record/ship.py": {"again_s - _LEAST_WAIT_S": "a time to wait"},
    "record/stacks.py": {"held -= file.bytes": "sizes of files that are removed"},
    "replay/prometheus/rows.py": {
        "edge - past": "moments of scrapes",
        "later - earlier": "moments of scrapes",
    },
    "replay/prometheus/window.py": {"span[1] - span[0]": "moments"},
    "replay/span.py": dict.fromkeys(
        ("pair[1] - pair[0]", "_offset(after.start) - _offset(before.end)"),
        "moments, by two clocks",
    ),
    "replay/span_reader.py": {
        "last - first": "moments of readings",
        "b[1] - a[2]": "moments of segments",
        "np.diff(kept, prepend=kept[0] - 1)": "places in an array",
    },
    "replay/stacks.py": {"part[1] - part[0]": "moments of samples"},
    "replay/tail.py": {"before - self._kept.some[kind]": "moments of readings"},
    "replay/window.py": dict.fromkeys(
        (
            "high - low",
            "ends[1][0] - ends[0][0]",
            "high - low - (ends[1][0] - ends[0][0])",
        ),
        "moments, by two clocks",
    ),
    "reports/text/settings.py": {
        "room - max(len(value) - cell, 0)": "columns of a terminal that are left"
    },
    "sources/bpf/program.py": {"self._labels[offset] - place": "places in a program"},
    "sources/cgroupfs/estimate.py": {
        "number(host, f'{directory}/memory.usage_in_bytes')"
        " - number(host, f'{directory}/memory.kmem.usage_in_bytes')": "two files at one moment",
    },
    "sources/cgroupfs/residual.py": {
        "number(self._host, f'{top}{path}/memory.current')"
        " - sum((number(self._host, f'{top}{child}/memory.current') for child in children))":
        "a cgroup and its children at one moment",
        "own.hierarchical - own.local - below": "a cgroup and its children at one moment",
        "own.hierarchical - own.local": "a cgroup and its children at one moment",
    },
    "sources/kmsg/own.py": {"most - least": "moments of log lines"},
    "sources/systemd/units.py": {"after - before": "moments of a timer, both in one reading"},
    "store/journal.py": {"last - first": "places in a file"},
    "store/repeats.py": {
        "np.diff(changes([*keys, mono], len(mono)), append=len(mono))": "places in an array"
    },
    "store/sealed.py": {"np.diff(codes[order], prepend=-1)": "places in an array"},
    "store/signing.py": {"right.after - before.last": "numbers of segments"},
    "store/summary.py": {
        "entry['last'][0] - entry['first'][0]": "moments of segments",
        "last['read_mono_s'] - first['read_mono_s']": "moments of readings",
        "last[1] - last[0]": "moments, by two clocks",
    },
}  # fmt: skip
#: Who may subtract with `sexton.model.counters`, and why not with `series`.
COUNTERS = {
    "record/budget.py": "the recorder's own CPU time",
    "record/preflight.py": "what one reading of a source took",
    "series/paging.py": "series",
    "series/pressure.py": "series",
    "series/restarts.py": "series",
    "series/steps.py": "series",
    "sources/bpf/budget.py": "a source, below series: what its probe costs",
    "sources/bpf/softirq_wait.py": "a source, below series: runs of its own probe",
    "sources/procfs/tasks.py": "a source, below series: whose threads to read",
    "sources/tracefs/ring.py": "a source, below series: what its ring lost",
    "store/summary.py": "the store, below series: what recording cost",
}
_COUNTERS = re.compile(r"sexton\.model\.counters\b|from sexton\.model import .*\bcounters\b")
#: What is divided by a time outside series, and is no counter's rate.
RATES = {
    "cli/profile/flame.py": {"flame.samples / flame.core_seconds": "samples of a capture"},
    "cli/progress.py": {"gone_s / total_s": "two times of ours"},
    "detect/detectors/cgroups/cgroup_churn.py": dict.fromkeys(
        ("seen.deaths / seen.seconds", "family.deaths / seen.seconds"), "events, counted one by one"
    ),
    "detect/detectors/cpu/quota_throttling.py": {
        "100 * self.stopped_s / self.seconds": "a share of two sums that series made"
    },
    "detect/detectors/cpu/saturated_core.py": {
        "100 * run.shares.given_s / run.shares.seconds": "a share of two times that series made"
    },
    "detect/cpu_users.py": {
        "shares.busy / 100 * shares.given_s / shares.seconds": "a share of times that series made"
    },
    "detect/ledger.py": {"uptime_s / period_s": "how often a period passed"},
    "explorer/files/page.py": dict.fromkeys(
        ("edge / tile_s", "edge / column_s(strip.level)"), "numbers of tiles and columns"
    ),
    "explorer/tiles/time_order.py": {
        "(part.span[1] - part.span[0]) / slice_s": "a number of slices"
    },
    "prevent/audit/restart.py": {"_DAY_S / max(period_s, 0.01)": "how often a timer elapses"},
    "profile/heatmap.py": dict.fromkeys(
        ("counts[there] / seconds[there, None]", "busy[there] / seconds[there]"),
        "samples of a capture",
    ),
    "profile/spikes/find.py": {"len(levels) / scored.period.seconds": "cells of a grid"},
    "record/budget.py": dict.fromkeys(
        (
            "100 * spent_s / (end - start)",
            "100 * spent[chosen] / (now - start)",
            "100 * owed_s / (now - start)",
        ),
        "the recorder's own CPU time",
    ),
    "record/decoding.py": {
        "cpu_s * max(now_s - begin, 0.0) / (end - begin)": "the recorder's own CPU time"
    },
    "record/preflight.py": {"(self.read_s or 0.0) / self.period_s": "the recorder's own time"},
    "replay/signals.py": {"1 / when.spent[at]": "events, counted one by one"},
    "reports/text/heat.py": {
        "(time_ns - grid.start_ns) / 1000000000.0 / grid.column_s": "a column of a picture"
    },
    "reports/text/zombies.py": {
        "census.dying * 3600 / uptime_s": "a level by the age of the node, and called so"
    },
    "sources/bpf/budget.py": dict.fromkeys(
        (
            "self.worst_ns / (self.seconds * 1000000000.0)",
            "cost.worst_percent * cost.seconds / max(CYCLE_S, cost.seconds)",
        ),
        "a source, below series: what its probe costs",
    ),
    "sources/bpf/softirq_wait.py": {
        "(now - self._read_s) * cost.whole_ns / cost.seconds":
        "a source, below series: what its probe costs"
    },
    "store/summary.py": dict.fromkeys(
        ("kernel_ms / 1000 / watched_s", "spent_ms / 1000 / watched_s",
         "self.bytes / self.watched_s"),
        "the store, below series: what recording cost",
    ),
    "web/access.py": {"(now - self._at) / rate.interval_s": "tries that a client has again"},
}  # fmt: skip
#: Places that once made their own steps, in the words they used; and other ways to do it.
CAUGHT = {
    "journal marks": """
for unit, marks in by_unit.items():
    steps = [(b.wall_s - a.wall_s) / (b.counter - a.counter) for a, b in pairwise(marks)]
""",
    "bytes of an owner": """
def _grown(row, earlier):
    before = earlier.get(row.path)
    return row.bytes - before.bytes if before.method == row.method else None
""",
    "a property": """
class Growth:
    @property
    def by(self):
        return self.last - self.first
""",
    "first and last of a list": """
(start, first, before), (end, last, after) = counted[0], counted[-1]
at, number, _ = next((c for c in reversed(counted[:-1]) if end - c[0] >= 1.0), counted[0])
step = 100.0 * (last - number) / max(number, 1) / (end - at)
""",
    "a float of it": "gone = float(before) - now",
    "points": "change = points[-1][1] - points[0][1]",
    "least squares": """
def slope_of(points):
    mean = sum(value for _, value in points) / len(points)
    return sum((at - middle) * (value - mean) for at, value in points) / spread
""",
    "costs by source": """
moved = {name: cost - before.get(name, 0.0) for name, cost in costs.items() if name not in resting}
""",
    "running sums": """
known = np.nan_to_num(by_step)
total = np.cumsum(known)
sums = np.concatenate([total - known, total])[self.order]
""",
    "running sums at two moments": """
made: F64 = np.interp(self.polls.end, self.edges, sums)
made -= np.interp(self.polls.start, self.edges, sums)
""",
    "tasks": "moved = {key: ms - before.get(key, 0) for key, ms in used.items()}",
    "a probe's events by core": """
network = {cpu: times - sample.network[cpu] for cpu, times in self._network(content).items()}
""",
    "a probe's runs": "times = runs.times - sample.runs.times",
    "a probe's time": "Measured(runs.run_ns - sample.runs.run_ns, times, sampled)",
    "a ring": """
grown = [count - before[1].get(core, count) for core, count in counted.items()]
""",
    "by name": "after.user_ms - before.user_ms",
    "of a step": "step.after.x - step.before.x",
    "numbers": "now - was",
    "numpy": "np.diff(counter)",
    "dictionaries": "later['n'] - earlier['n']",
    "getattr": "getattr(after, name) - getattr(before, name)",
    "in place": "row.rx_bytes -= other.rx_bytes",
    "other names": "x.system_ms - y.system_ms",
    "absent as zero": "(b.dying or 0) - (a.dying or 0)",
    "times that are counters": "b.cpu_time - a.cpu_time",
    "an end that is a counter": "after.buffer_end - before.buffer_end",
    "what was read at": "now.reads_at - then.reads_at",
    "of an earlier reading": "value - self._last.get(name)",
    "of what was seen": "value - self._seen[name]",
    "of an earlier reading, by name": "value - self._before[name]",
    "in a set attribute": "self.total = value - last.get(key, 0)",
    "batches": """
for a, b in pairwise(window.batches(CoreTimes)):
    for row, other in zip(a.rows, b.rows):
        other.idle_ms - row.idle_ms
""",
}
#: The same for rates.
DIVIDED = {
    "of an interface": """
moved = [step.delta(field) for field in fields]
rate = sum(moved) / step.seconds
""",
    "of a backlog": "(step.delta('processed') or 0) / step.seconds",
    "of reclaim": "(moved.by_tasks or 0) / moved.seconds",
    "of a task": "share = (step.delta('user_ms') or 0) / 10 / step.seconds",
    "of a level": "100.0 * change(number, last) / max(number, 1) / (end - at)",
    "of polls": "polls.moved['net_rx'][outside] / polls.seconds[outside]",
    "of a window": "total / window.seconds",
    "of a count": "count / step.seconds",
    "at least a second": "total / max(spent_s, 1.0)",
    "in per cent": "percent_of(total, watched)",
    "in a comprehension": """
[us / 1e3 / step.seconds for step in steps if (us := step.delta('throttled_us')) is not None]
""",
}
PASSED = (
    "after.mono_s - before.mono_s",
    "width - room",
    "row.total_bytes - row.free_bytes",
    "window.end - row.wall_s",
    "len(rows) - 1",
)


def test_no_file_outside_series_subtracts_two_readings():
    found = {
        f"{where}: {expression}"
        for path in sorted(SOURCE.rglob("*.py"))
        if (where := path.relative_to(SOURCE).as_posix()) not in NO_READINGS
        and not where.startswith("series/")
        for expression in subtractions(path.read_text("utf-8"))
        if expression not in ALLOWED.get(where, {})
    }
    assert found == set(), "make it a function of sexton.series"


def test_only_sources_the_store_and_series_subtract_with_the_functions_below_series():
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if _COUNTERS.search(path.read_text("utf-8"))
    }
    assert found == COUNTERS.keys()


def test_no_file_outside_series_divides_a_step_by_its_seconds():
    found = {
        f"{where}: {expression}"
        for path in sorted(SOURCE.rglob("*.py"))
        if not (where := path.relative_to(SOURCE).as_posix()).startswith("series/")
        for expression in divisions(path.read_text("utf-8"))
        if expression not in RATES.get(where, {})
    }
    assert found == set(), "make it a function of sexton.series"


@pytest.mark.parametrize("where", NO_READINGS)
def test_an_exemption_of_a_file_is_needed(where: str):
    assert list(subtractions((SOURCE / where).read_text("utf-8")))


@pytest.mark.parametrize("where", ALLOWED)
def test_an_exemption_is_needed(where: str):
    assert ALLOWED[where].keys() <= {*subtractions((SOURCE / where).read_text("utf-8"))}


@pytest.mark.parametrize("where", RATES)
def test_an_exempted_rate_is_still_made(where: str):
    assert {*RATES[where]} == {*divisions((SOURCE / where).read_text("utf-8"))}


@pytest.mark.parametrize("code", CAUGHT.values(), ids=CAUGHT)
def test_it_is_caught(code: str):
    assert list(subtractions(code))


@pytest.mark.parametrize("code", PASSED)
def test_it_is_no_step(code: str):
    assert not list(subtractions(code))


@pytest.mark.parametrize("code", DIVIDED.values(), ids=DIVIDED)
def test_a_rate_is_caught(code: str):
    assert list(divisions(code))


@pytest.mark.parametrize("code", ["row.total / row.count", "total / cores", "3600 / 24"])
def test_it_is_no_rate(code: str):
    assert not list(divisions(code))
