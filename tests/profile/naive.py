"""The analyses computed the slow way, sample by sample, to compare the fast ones with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hypothesis import strategies as st

from sexton.model.profile import Flame
from sexton.profile.idle import is_idle_function, is_idle_task
from sexton.profile.select import Selection
from tests.support.profiles import SECOND, Sample, function, path_of

FUNCTIONS = (
    *("main", "read", "work", "poll_idle"),
    *("k:do_idle", "k:native_safe_halt", "k:net_rx_action", "k:[unknown]", "k:read"),
    "?:default_idle",
)
samples = st.builds(
    Sample,
    time_ns=st.integers(0, 3 * SECOND) | st.sampled_from([0, SECOND - 1, SECOND, 19_999_999]),
    cpu=st.integers(-1, 3),
    stack=st.lists(st.sampled_from(FUNCTIONS), max_size=6).map(tuple),
    comm=st.sampled_from(["app", "swapper", "swapper/3", "ksoftirqd/1", "kworker/0:1"]),
    pid=st.integers(0, 3),
    cgroup=st.sampled_from(["", "/a", "/a/b", "/kubepods/pod1"]),
    event=st.sampled_from(["cpu-clock", "cycles:P"]),
    weight=st.integers(1, 5),
)
lists = st.lists(samples, max_size=40)


def idle(sample: Sample) -> bool:
    if not sample.stack or not is_idle_task(sample.comm):
        return False
    name, module, _ = function(sample.stack[-1])
    return is_idle_function(name) and module != "/bin/app"


def chosen(sample: Sample, selection: Selection) -> bool:
    asked = selection
    return (
        (asked.start_ns is None or sample.time_ns >= asked.start_ns)
        and (asked.end_ns is None or sample.time_ns < asked.end_ns)
        and (asked.cpus is None or sample.cpu in asked.cpus)
        and (asked.pids is None or sample.pid in asked.pids)
        and (asked.task is None or bool(asked.task.search(sample.comm)))
        and (asked.cgroup is None or (bool(sample.cgroup and asked.cgroup.search(sample.cgroup))))
        and (
            asked.stack is None
            or any(asked.stack.search(function(item)[0]) for item in sample.stack)
        )
        and (asked.event is None or sample.event == asked.event)
        and (asked.idle or not idle(sample))
    )


def by_path(picked: Sequence[Sample]) -> Counter[object]:
    """Samples per whole stack."""
    return Counter(path_of(sample) for sample in picked)


def paths_of(flame: Flame) -> Counter[object]:
    """The same of a flame graph, each stack walked on its own."""
    frames = flame.tree.frames
    found: Counter[object] = Counter()
    for node, count in enumerate(flame.own.tolist()):
        if count:
            path = tuple(
                (frames.names[f], frames.modules[f], int(frames.kinds[f]))
                for f in flame.tree.path(node)
            )
            found[path] += count
    return found
