"""Profiles to export, and their counts computed the slow way."""

from __future__ import annotations

from collections import Counter

from hypothesis import strategies as st

from sexton.model.profile import Flame, Profile
from sexton.profile.flame import flame_of
from sexton.profile.select import Selection
from tests.support.profiles import SECOND, Sample, profile_of

#: Names that would be taken for something else by a reader that trusts them.
HOSTILE = (
    "a;b 5",
    "x 1 [0] 2.5: a",
    "a\nb 7",
    "#hash",
    "\x1b[2J",
    '"},{"',
    "</script>",
    "\udcff\udcfe",
    "",
    " lead",
    "Web Content",
    "ksoftirqd/12",
)
names = st.sampled_from(HOSTILE) | st.text(max_size=15)
functions = st.sampled_from(("main", "k:net_rx_action", "?:f", "std::f(int, char) const", "k:a b"))
samples = st.builds(
    Sample,
    time_ns=st.integers(1, 3 * SECOND),
    cpu=st.integers(-1, 3),
    stack=st.lists(functions | names, max_size=5).map(tuple),
    comm=names,
    pid=st.integers(0, 3),
    weight=st.integers(1, 5),
)
lists = st.lists(samples, min_size=1, max_size=30)
PLAIN = (
    Sample(SECOND, 0, ("main", "k:vfs_read"), "app", 7),
    Sample(SECOND + 10**7, 1, ("main", "k:vfs_read"), "app", 7),
    Sample(SECOND + 2 * 10**7, 0, ("k:do_idle",), "swapper", 0),
    Sample(2 * SECOND, 0, ("main",), "Web Content", 8),
    Sample(2 * SECOND + 123, 3, (), "ksoftirqd/12", 81),
)


def plain() -> Profile:
    return profile_of(PLAIN)


def whole(profile: Profile) -> Flame:
    return flame_of(profile, Selection(idle=True))


def counted(profile: Profile, *, escape=str) -> Counter[tuple[str, ...]]:
    """Samples per stack, by name, the task first."""
    found: Counter[tuple[str, ...]] = Counter()
    frames = profile.tree.frames.names
    for row, node in enumerate(profile.node.tolist()):
        path = tuple(escape(frames[frame]) for frame in profile.tree.path(node))
        found[path] += 1 if profile.weight is None else int(profile.weight[row])
    return found
