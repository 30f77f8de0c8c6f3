r"""perf script text: every sample with time, core and stack, for FlameScope and similar tools.

As ``perf script --ns -F comm,pid,tid,cpu,time,event,ip,sym,dso`` prints it::

    ksoftirqd/12 81/81 [012] 16783.425353123: cpu-clock:
                   0 net_rx_action ([kernel.kallsyms])
                   0 kthread ([kernel.kallsyms])

Addresses are not kept and printed as 0. Readers split the first line at spaces, numbers and colons,
and a thread can choose its name to confuse them. In such a name, spaces (and a leading ``#``, a
comment) are replaced by ``_``; others keep their spaces ("Web Content"). Control characters are
escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from sexton.model.profile import I64, Bools, Profile, Thread
from sexton.model.text import printable
from sexton.profile.export import Parts, paths, require_times, shown, weights_of

_PIECE = 1 << 12
_NS = 1_000_000_000
#: Parts of a name that a reader could take for a pid, core, time or event.
_MISLEADING = re.compile(r" (?=[\d\[/-])|: |:$| {2}|^ | $")


def from_profiles(parts: Parts) -> Iterator[bytes]:
    """The text of all parts in order."""
    for profile, rows in parts:
        require_times(profile, "perf script text")
        yield from _text(profile, rows)


def safe_comm(name: str) -> str:
    r"""The name of a thread, safe for readers.

    >>> safe_comm("Web Content"), safe_comm("x 1 [0] 2.5: a:"), safe_comm("#a"), safe_comm("")
    ('Web Content', 'x_1_[0]_2.5:_a:', '_a', '[unknown]')
    >>> safe_comm("a\nb  7")
    'a\\nb__7'
    """
    name = shown(name)
    if _MISLEADING.search(name):
        name = name.replace(" ", "_")
    return f"_{name[1:]}" if name.startswith("#") else name


def _text(profile: Profile, rows: Bools | None) -> Iterator[bytes]:
    who = [_who(thread) for thread in profile.threads]
    events = [f": {_event(event.name)}: \n" for event in profile.events]
    chosen = np.arange(len(profile)) if rows is None else np.flatnonzero(rows)
    chains = _chains(profile, chosen)
    counts = weights_of(profile, rows)
    for start in range(0, len(chosen), _PIECE):
        some = chosen[start : start + _PIECE]
        lines = []
        for thread, cpu, time, event, node, count in zip(
            profile.thread[some].tolist(),
            profile.cpu[some].tolist(),
            profile.time_ns[some].tolist(),
            profile.event[some].tolist(),
            profile.node[some].tolist(),
            counts[start : start + _PIECE].tolist(),
            strict=True,
        ):
            core = f"[{cpu:03d}] " if cpu >= 0 else ""
            when = f"{time // _NS:5d}.{time % _NS:09d}"
            lines.append(f"{who[thread]}{core}{when}{events[event]}{chains[node]}\n" * count)
        yield "".join(lines).encode()


def _event(name: str) -> str:
    return printable(name).replace(" ", "_") or "samples"


def _who(thread: Thread) -> str:
    both = f"{thread.pid:5d}/{thread.tid:<5d}" if thread.pid >= 0 else f"{thread.tid:5d}"
    return f"{safe_comm(thread.comm)} {both} "


def _chains(profile: Profile, chosen: I64) -> dict[int, str]:
    """The lines of each stack, innermost first."""
    frames = profile.tree.frames
    names = (shown(name) for name in frames.names)
    modules = (printable(module) or "[unknown]" for module in frames.modules)
    lines = [f"\t{0:16x} {n} ({m})\n" for n, m in zip(names, modules, strict=True)]
    wanted = np.zeros(len(profile.tree), np.bool_)
    wanted[profile.node[chosen]] = True
    # The first of a path is the task, which is in the first line of the sample.
    return {
        node: "".join([lines[frame] for frame in path[:0:-1]])
        for node, path in paths(profile.tree, wanted)
    }
