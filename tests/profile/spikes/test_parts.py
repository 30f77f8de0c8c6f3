"""The parts of the search, each on small cases made by hand."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sexton.model.profile import Heat, Profile
from sexton.profile.captures import Opened
from sexton.profile.heat import heat_of, within
from sexton.profile.spikes import SpikeOptions, find
from sexton.profile.spikes.baseline import Period, angle, degrees, find_period, seasonal, share
from sexton.profile.spikes.describe import fall, rise, stretch, weights
from sexton.profile.spikes.grid import NoData, grid_of
from sexton.profile.spikes.growth import p_grown
from sexton.profile.spikes.windows import Range, Window, count, cut, matched, parts_of, window_of

from .simulated import FIRST, SECOND, Simulated, Stall, simulate, steady, tree_of


def heat(rows: list[tuple[int, int, int, int]]) -> Heat:
    """Of (second, cpu, samples, busy)."""
    second, cpu, samples, busy = np.array(rows).T
    return Heat(
        second,
        cpu.astype(np.int32),
        samples.astype(np.int32),
        busy.astype(np.int32),
        np.zeros(len(rows), np.int32),
        np.zeros((len(rows), 50), np.uint16),
    )


def test_a_timer_that_ticks_in_idle_shows_lost_seconds() -> None:
    rows = [(second, 0, 97, 3) for second in range(10) if second != 4]
    rows.append((10, 0, 12, 12))
    grid = grid_of([heat(rows)], None, 97)
    assert np.flatnonzero(grid.trials[0] == 0).tolist() == [4, 10]


def test_a_counter_that_stops_in_idle_shows_sleep() -> None:
    rows = [(second, 0, 2, 2) for second in range(0, 10, 2)] + [(7, 0, 97, 97)]
    rows += [(second, 1, 96, 96) for second in range(10) if second != 5]
    grid = grid_of([heat(sorted(rows))], None, 97)
    # Nobody was sampled in second 5 of either core: that is a hole and no sleep.
    assert np.flatnonzero(grid.trials[0] == 0).tolist() == [5]
    assert grid.trials[0, 3] == 97
    assert grid.busy[0].tolist() == [2, 0, 2, 0, 2, 0, 2, 97, 2, 0]


def test_a_second_in_two_pieces_is_added_up() -> None:
    first = heat([(0, 0, 97, 10), (1, 0, 40, 5)])
    second = heat([(1, 0, 57, 7), (2, 0, 97, 20)])
    grid = grid_of([first, second], None, 97)
    assert grid.trials.tolist() == [[97, 97, 97]]
    assert grid.busy.tolist() == [[10, 12, 20]]


def test_chosen_cores_are_kept_and_strange_numbers_bear_no_table() -> None:
    rows = [(0, 0, 97, 1), (0, 5, 97, 2), (0, 1 << 30, 97, 3)]
    assert grid_of([heat(rows)], frozenset({5}), 97).busy.tolist() == [[2]]
    assert grid_of([heat(rows)], None, 97).cpus.tolist() == [0, 5, 1 << 30]
    with pytest.raises(NoData, match="span months"):
        grid_of([heat([(0, 0, 97, 1), (1 << 40, 0, 97, 1)])], None, 97)
    many = [(0, core, 97, 1) for core in range(30)] + [(1_000_000, 0, 97, 1)]
    with pytest.raises(NoData, match="use --from, --to or --cpu"):
        grid_of([heat(many)], None, 97)


@given(st.integers(0, 97))
def test_an_angle_is_a_share(hits: int) -> None:
    assert float(share(angle(hits, 97))) == pytest.approx(hits / 97, abs=0.006)


def test_seconds_that_repeat_each_other_are_worth_fewer() -> None:
    random = np.random.default_rng(0)
    free = random.normal(0, 1, 60)
    assert degrees(free, 1.0) > 4 * degrees(np.repeat(free[:10], 6), 1.0)


def test_the_change_is_placed_where_the_rate_changes() -> None:
    hits = np.array([0, 1, 0, 0, 2, 2, 1, 2, 2, 2.0])
    weight = weights(hits, np.full(10, 2.0), 0.1, 0.95)
    assert rise(weight) == 4
    assert fall(weight[::-1]) == 6
    assert stretch(np.concatenate([weight, weight[:4]])) == (4, 10)


def test_a_place_nobody_sampled_is_not_the_onset() -> None:
    weight = weights(np.array([0, 0, 0, 2, 2.0]), np.array([2, 2, 0, 2, 2.0]), 0.1, 0.9)
    assert rise(weight) == 3
    assert rise(np.zeros(0)) == fall(np.zeros(0)) == 0


@given(st.lists(st.floats(-5, 5), max_size=30))
def test_the_largest_stretch_is_the_largest(weight: list[float]) -> None:
    start, end = stretch(np.array(weight))
    sums = [sum(weight[a:b]) for a in range(len(weight) + 1) for b in range(a, len(weight) + 1)]
    assert sum(weight[start:end]) == pytest.approx(max(sums), abs=1e-9)


def test_noise_has_rarely_a_period_and_a_clock_has_its_own() -> None:
    random = np.random.default_rng(1)
    told = sum(find_period(random.normal(0, 1, 120)) is not None for _ in range(200))
    assert told <= 2
    clock = random.normal(0, 0.2, 200)
    clock[np.arange(4.0, 200, 12.5).astype(int)] += 2
    period = find_period(clock)
    assert period is not None
    assert period.seconds == pytest.approx(12.5, abs=0.2)
    assert find_period(np.zeros(100)) is None
    assert find_period(np.ones(4)) is None


def test_a_season_is_what_other_periods_had_there() -> None:
    z = np.tile([0.1, 0.1, 0.9, 0.1, 0.1], 8)
    z[20] = 0.95
    usual = seasonal(z, Period(5.0, 1.0))
    assert usual[22] == usual[2] == 0.9
    assert usual[20] == 0.1


def test_calm_windows_are_near_of_equal_length_and_touch_nothing_loud() -> None:
    rows = [(second, cpu, 97, 9) for second in range(100) for cpu in (0, 1)]
    grid = grid_of([heat(rows)], None, 97)
    loud = np.zeros((2, 100), np.bool_)
    loud[0, 49:55] = loud[0, 70] = True
    found = matched(grid, loud, [0], (50 * SECOND, 53 * SECOND + SECOND // 2), None)
    assert len(found.windows) == 20
    assert found.note == ""
    for window in found.windows:
        assert window.end_ns - window.start_ns == 3_500_000_000
        assert window.trials == pytest.approx(97 * 3.5)
        columns = range(window.start_ns // SECOND, -(-window.end_ns // SECOND))
        assert not loud[0, columns].any()
    starts = sorted(window.start_ns for window in found.windows)
    assert all(two - one >= 3_500_000_000 for one, two in pairwise(starts))


def test_calm_windows_lie_whole_periods_away() -> None:
    grid = grid_of([heat([(second, 0, 97, 9) for second in range(400)])], None, 97)
    loud = np.zeros((1, 400), np.bool_)
    span = (200 * SECOND, 202 * SECOND)
    found = matched(grid, loud, [0], span, Period(20.0, 0.9))
    assert {(window.start_ns // SECOND - 200) % 20 for window in found.windows} == {0}
    assert "each a whole number of periods away" in found.note


def test_other_cores_are_compared_with_and_a_note_says_so() -> None:
    rows = [(second, cpu, 97, 9) for second in range(12) for cpu in range(6)]
    grid = grid_of([heat(rows)], None, 97)
    loud = np.zeros((6, 12), np.bool_)
    loud[0] = True
    loud[3, 5] = True
    found = matched(grid, loud, [0], (5 * SECOND, 6 * SECOND), None)
    assert [window.cpus for window in found.windows] == [(1,), (2,), (4,), (5,)]
    assert found.note == "only 0 on the same core, 4 on other cores at the same time"
    loud[:] = True
    assert matched(grid, loud, [0], (5 * SECOND, 6 * SECOND), None).note.startswith("no calm")


def test_a_window_beyond_the_capture_or_with_lost_seconds_is_none() -> None:
    rows = [(second, 0, 97, 9) for second in range(10) if second != 4]
    grid = grid_of([heat(rows)], None, 97)
    assert window_of(grid, [0], 3 * SECOND, 5 * SECOND) is None
    assert window_of(grid, [0], 8 * SECOND, 11 * SECOND) is None
    assert window_of(grid, [0], -SECOND, SECOND) is None
    assert window_of(grid, [0], 0, SECOND) == Window(0, SECOND, (0,), 97.0)


def test_a_tree_cut_to_some_nodes_keeps_their_paths() -> None:
    tree, place = tree_of([("a", "f", "g"), ("a", "f", "h", "g"), ("b", "g"), ("b", "x")])
    nodes = np.sort([place["a", "f", "h", "g"], place["b", "x"]])
    smaller, at = cut(tree, nodes)
    paths = [tuple(smaller.frames.names[frame] for frame in smaller.path(node)) for node in at]
    assert paths == [("a", "f", "h", "g"), ("b", "x")]
    assert len(smaller) == 7
    assert smaller.end.tolist() == [7, 5, 5, 5, 5, 7, 7]
    assert "all" in smaller.frames.names


def test_counts_are_those_of_the_samples() -> None:
    capture = simulate(np.random.default_rng(0), steady(2, 20, 0.5), (Stall(1, 5.0, 2.0),))
    profile = capture.profile
    start = FIRST * SECOND
    windows = [
        Window(start + 5 * SECOND, start + 7 * SECOND, (1,), 194.0),
        Window(start + 6 * SECOND, start + 9 * SECOND, (0, 1), 582.0),
    ]
    parts = parts_of(capture, Range(start, start + 20 * SECOND, None, None))
    counts = count(parts, windows)
    names = [thread.comm for thread in profile.threads]
    for at, window in enumerate(windows):
        inside = (profile.time_ns >= window.start_ns) & (profile.time_ns < window.end_ns)
        inside &= np.isin(profile.cpu, window.cpus)
        who = [names[item] for item in profile.thread[inside]]
        assert counts.own[at].sum() == sum(name != "swapper" for name in who)
        assert sum(tally[at] for (comm, _), tally in counts.tasks.items() if comm == "web") == (
            who.count("web")
        )
    assert counts.totals()[:, 0].tolist() == counts.own.sum(axis=1).tolist()
    assert count([], windows).own.tolist() == [[0], [0]]


def test_growth_is_judged_by_what_calm_windows_vary_not_by_samples_alone() -> None:
    trials = np.full(11, 300.0)
    wild = np.array([90, 0, 80, 5, 70, 60, 10, 0, 85, 40, 20])[:, None]
    tame = np.array([90, 10, 12, 9, 11, 10, 8, 12, 10, 9, 11])[:, None]
    assert float(p_grown(wild, trials, 1)[0]) > 0.02
    assert float(p_grown(tame, trials, 1)[0]) < 1e-6


def test_one_calm_window_leaves_sampling_and_none_leaves_nothing() -> None:
    seen = np.array([[90], [10]])
    assert float(p_grown(seen, np.array([300.0, 300.0]), 1)[0]) < 1e-10
    assert p_grown(seen[:1], np.array([300.0]), 1).tolist() == [1.0]


class OnePiece:
    """A `Piece` of `Opened`."""

    def __init__(self, profile: Profile) -> None:
        self._profile = profile
        self.start_ns, self.end_ns = int(profile.time_ns[0]), int(profile.time_ns[-1])
        self.clock = profile.facts.clock
        self.events = profile.events
        self.samples = len(profile)

    def heat(self) -> Heat:
        return heat_of(self._profile)

    def profile(self, start_ns: int | None = None, end_ns: int | None = None) -> Profile:
        return self._profile


def half(profile: Profile, rows: slice) -> Profile:
    names = ("time_ns", "cpu", "thread", "cgroup", "event", "node")
    columns = {name: getattr(profile, name)[rows] for name in names}
    rest = {name: getattr(profile, name) for name in ("threads", "cgroups", "events", "tree")}
    return Profile(**columns, **rest, weight=None, facts=profile.facts)


@pytest.mark.parametrize("options", [SpikeOptions(), SpikeOptions(at=((FIRST + 63) * SECOND,))])
def test_a_spike_across_two_pieces_is_that_of_the_whole(options: SpikeOptions) -> None:
    capture = simulate(np.random.default_rng(3), steady(3, 120, 0.3), (Stall(1, 58.4, 4.0),))
    profile = capture.profile
    middle = int(np.searchsorted(profile.time_ns, (FIRST + 60) * SECOND + SECOND // 3))
    pieces = [half(profile, slice(0, middle)), half(profile, slice(middle, None))]
    # What the second piece calls a node is another number there.
    second = simulate(np.random.default_rng(3), steady(3, 120, 0.3), (Stall(1, 58.4, 4.0),))
    assert len(second.profile.tree) == len(profile.tree)
    whole = find(Simulated.of(profile), options)
    parted = find(Opened([OnePiece(piece) for piece in pieces]), options)
    assert len(whole.spikes) == 1
    assert parted.spikes[0].grew == whole.spikes[0].grew
    assert parted.spikes[0].onset_ns == whole.spikes[0].onset_ns
    assert parted.spikes[0].tasks == whole.spikes[0].tasks
    assert parted.cells == whole.cells


class OnlyHeat:
    """Heat without the samples it was made of: a segment whose stacks are gone."""

    hertz = 97

    def __init__(self, held: Heat) -> None:
        self._held = held

    def heats(self, start_ns: int | None, end_ns: int | None) -> list[Heat]:
        return [within(self._held, start_ns, end_ns)]

    def profiles(self, start_ns: int | None, end_ns: int | None) -> list[Profile]:
        return []


junk = st.lists(
    st.tuples(st.integers(-5, 40), st.integers(-1, 3), st.integers(0, 200), st.integers(0, 300)),
    min_size=1,
    max_size=120,
    unique_by=lambda row: row[:2],
)


#: Four runs on core 1, of which only the smallest has enough similar ones to be called frequent.
ONE_FREQUENT = [
    *[(3, 0, 140, 127), (6, 0, 163, 0), (13, 0, 3, 34), (31, 0, 34, 0), (35, 0, 187, 0)],
    *[(37, 0, 28, 0), (1, 1, 119, 259), (17, 1, 48, 260), (23, 1, 53, 205), (29, 1, 133, 41)],
    *[(33, 1, 160, 172), (36, 1, 57, 102), (-3, 2, 70, 159), (9, 2, 195, 275), (18, 2, 165, 37)],
    (0, 3, 157, 0),
]


@example(ONE_FREQUENT, None)
@given(junk, st.sampled_from([None, (3 * SECOND,), (20 * SECOND, 21 * SECOND + 7)]))
def test_counts_that_make_no_sense_break_nothing(
    rows: list[tuple[int, int, int, int]], events: tuple[int, ...] | None
) -> None:
    options = SpikeOptions(at=events, window_ns=(2 * SECOND, SECOND))
    found = find(OnlyHeat(heat(sorted(rows))), options)
    assert found.fdr == 0.01
    for spike in found.spikes:
        assert spike.onset_ns < spike.end_ns
        assert spike.grew == ()


def test_a_spike_whose_stacks_are_gone_is_reported_without_them() -> None:
    rows = [(second, 0, 97, 96 if 50 <= second < 54 else 2) for second in range(120)]
    (spike,) = find(OnlyHeat(heat(rows)), SpikeOptions()).spikes
    assert spike.start_ns == 50 * SECOND
    assert spike.busy == pytest.approx(96 / 97, abs=0.01)
    assert (spike.grew, spike.stacks, spike.tasks, spike.path) == ((), (), (), None)
    assert spike.note.startswith("samples of that time are gone: what grew is unknown")
