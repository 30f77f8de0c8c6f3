"""What `sexton profile` prints: what the models hold, all of it escaped."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from sexton.cli.profile.spikes import exit_of
from sexton.model.profile import NO_CLOCK, Event, FunctionCount, Kind
from sexton.profile.spikes.spike import Grown, Recurring, SpikeStack
from sexton.reports.text.flame import difference_lines, flame_lines
from sexton.reports.text.heat import Grid, Terminal, fewer_rows, heat_lines, marks_line, stretched
from sexton.reports.text.profile import Contents, info_text, top_lines
from sexton.reports.text.spikes import Invocation, ranges, spikes_text
from tests.cli.profile.made import (
    HOSTILE,
    START_NS,
    capture,
    difference_of,
    flame_of,
    spike,
    spikes,
)

PASTE = Invocation("perf.data", 1)


def told(
    *found, exit_code: int = 1, heat: Grid | None = None, look: Terminal | None = None, **more
):
    return spikes_text(
        capture(**more),
        spikes(*found),
        heat,
        Invocation("perf.data", exit_code),
        look or Terminal(),
    )


def test_a_spike_is_told_in_a_sentence_with_its_onset_on_the_wall(monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    import time

    time.tzset()
    text = told(spike())
    assert text.startswith("1 SPIKE  node-7   4 cores")
    flat = " ".join(text.split())
    assert "Core 3 was 99 % busy (normally 12 %) for 4.7 s from 02:01:07.32" in flat
    assert "kubelet in mem_cgroup_css_rstat_flush, 0.20 % → 88.0 % of the time." in flat
    assert "exit 1: spikes found" in text


def test_without_a_wall_clock_times_are_from_the_start():
    text = told(spike(), clock=NO_CLOCK)
    assert "for 4.7 s from +67.32" in text
    assert "no wall clock" in text


def test_the_next_command_chooses_the_spike():
    assert "sexton profile flame perf.data --from 67.32 --to 72.00 --cpu 3" in told(spike())


def test_lost_samples_are_always_told():
    assert "12 samples lost, throttled 3 times" in told(lost=12, throttled=3)
    assert "no samples lost, not throttled" in told(exit_code=0)
    assert "does not record lost samples" in told(lost=None, throttled=None)


def test_nothing_found_and_cannot_tell_are_different_words():
    assert told(exit_code=0).startswith("NO SPIKES  node-7")
    text = spikes_text(
        capture(), spikes(problems=["too short: 4 s"]), None, Invocation("x", 3), Terminal()
    )
    assert text.startswith("INCONCLUSIVE  node-7")
    assert "too short: 4 s" in text
    assert "exit 3: inconclusive" in text


@pytest.mark.parametrize(("untested", "status"), [(0, 0), (1, 3), (8, 3)])
def test_no_spikes_is_said_only_if_every_core_was_tested(untested: int, status: int):
    found = replace(spikes(), blind=untested)
    assert exit_of(found) == status
    assert exit_of(replace(spikes(spike()), blind=untested)) == 1


def test_given_moments_without_a_difference_are_not_called_free_of_spikes():
    text = spikes_text(capture(), spikes(), None, Invocation("x", 0, True), Terminal())
    assert text.startswith("NO DIFFERENCE  node-7")
    assert "exit 0: nothing differs significantly at the given times" in text


def test_the_way_it_grew_is_told_before_other_stacks():
    way = SpikeStack(("kubelet", "read", "flush"), 0.9, 0.01)
    text = told(spike(path=way))
    assert "PATH  1.0 % → 90.0 %: kubelet → read → flush" in text
    assert text.index("PATH") < text.index("STACK")


def test_a_spike_of_kernel_time_says_so():
    text = " ".join(told(spike(in_kernel=True, normal_kernel=0.05)).split())
    assert "Core 3 was 96 % in the kernel (normally 5 %)" in text
    assert "in the kernel 5 % → 96 %" in text


def test_habits_are_told_apart():
    habit = Recurring((2,), 10 * 10**9, True, 12, 0.85, 0.2, spike())
    found = spikes(spike())
    found = type(found)(found.spikes, 480, 4, 120, 0.01, [], (habit,), 1)
    text = spikes_text(capture(), found, None, PASTE, Terminal())
    assert "RECURRING" in text
    assert "core 2: every 10.0 s, 12 times, busy 20 % → 85 %, mem_cgroup" in text


def test_weaker_spikes_are_counted_not_dropped():
    assert "and 3 weaker spikes" in told(*[spike()] * 9)


def hostile_spikes():
    for name in HOSTILE:
        yield spike(
            grew=(Grown(name, name, Kind.USER, 0.5, 0.1, 0.2, 0.001),),
            stacks=(SpikeStack((name, name), 0.5, 0.1),),
            tasks=((name, 1, 0.5),),
            note=name,
        )


@pytest.mark.parametrize("width", [40, 60, 88, 200])
def test_hostile_names_are_escaped_everywhere_and_lines_keep_to_the_width(width: int):
    from sexton.model.text import printable

    text = told(*hostile_spikes(), look=Terminal(width), host=HOSTILE[0], command=HOSTILE[5])
    assert all(printable(line) == line for line in text.splitlines())
    longest = max(len(line) for line in text.splitlines())
    assert longest <= max(width, 60) + 1


def test_ranges_are_what_the_option_takes():
    assert ranges([7, 0, 1, 2]) == "0-2,7"


def grid(rows: int, columns: int) -> Grid:
    values = np.arange(rows * columns, dtype=float).reshape(rows, columns)
    values[0, 0] = np.nan
    return Grid(values, [str(row) for row in range(rows)], START_NS, 1.0)


def test_not_sampled_is_blank_and_idle_is_not():
    values = np.array([[np.nan, 0.0, 5.0, 10.0]])
    lines = list(heat_lines(Grid(values, ["0"], START_NS, 1.0), capture().times, Terminal()))
    assert lines[0] == "  0  .*@"


def test_piped_pictures_are_plain_ascii():
    for line in heat_lines(grid(6, 40), capture().times, Terminal()):
        assert line.isascii()
        assert "\x1b" not in line


def test_colours_draw_two_rows_a_line_and_end_plain():
    lines = list(heat_lines(grid(5, 10), capture().times, Terminal(80, True)))
    assert len(lines) == 3 + 1
    assert all(line.endswith("\x1b[0m") for line in lines[:3])
    assert "▀" in lines[1]


def test_many_cores_are_grouped_and_those_with_a_spike_are_not():
    many = grid(96, 4)
    few = fewer_rows(many, {"5"})
    assert len(few.labels) <= 17
    assert few.labels[:3] == ["0-4", "5", "6-12"]
    assert few.values[1, 1] == many.values[5, 1]
    assert few.values[0, 1] == many.values[:5, 1].mean()
    assert few.values[0, 0] == many.values[1:5, 0].mean()  # what was not sampled is not zero


def test_no_number_is_torn_from_its_unit():
    for width in range(40, 100):
        lines = told(spike(), look=Terminal(width)).splitlines()
        assert not any(line.strip().startswith(("% ", "s ")) for line in lines)


def test_a_mark_stands_under_its_column():
    wide = stretched(grid(2, 10), 60)
    line = marks_line(wide, [(START_NS + 3 * 10**9, "1")])
    assert line.index("1") == 4 + 3 * wide.values.shape[1] // 10


def test_a_tree_steps_in_only_where_it_forks():
    lines = list(
        flame_lines(flame_of({"t;a;b;c": 60, "t;a;b;d;e": 39, "t;a;b;thin": 1, "u;x": 900}), 80)
    )
    text = "\n".join(lines)
    assert "of 1,000 samples" in lines[0]
    assert "t → a → b" in text
    assert "├ c" in text
    assert "└ d → e" in text
    assert "thin" not in text
    assert text.index("u → x") < text.index("t → a")


def test_a_deep_stack_stays_readable_in_80_columns():
    deep = ";".join(f"function_number_{number}" for number in range(120))
    forks = {f"t;{';'.join(f'f{n}' for n in range(depth))};leaf": 50 for depth in range(1, 60)}
    for folded in ({f"t;{deep}": 5}, forks):
        assert max(len(line) for line in flame_lines(flame_of(folded), 80)) <= 80


def test_a_change_is_told_once_where_it_comes_from():
    before = {"t;a;b;c": 10, "t;x": 90}
    after = {"t;a;b;c": 90, "t;x": 10}
    lines = [line.split("  ")[-1] for line in difference_lines(difference_of(before, after, 0.001))]
    assert [line for line in lines if line in ("a", "b", "c", "x")] == ["c", "x"]


def test_no_significant_change_is_said():
    text = "\n".join(difference_lines(difference_of({"t;a": 5}, {"t;a": 6}, 0.5)))
    assert text == " no significant change (3 stacks tested)"


def test_a_large_change_that_may_be_chance_is_listed_by_size():
    before = {"t;a": 70, "t;c": 30}
    after = {"t;a": 40, "t;b": 29, "t;c": 31}
    found = replace(difference_of(before, after, 0.31), blocks=(8, 8))
    lines = list(difference_lines(found))
    assert lines[0] == " no significant change (5 stacks tested over 8 and 8 blocks of time)"
    assert lines[2].endswith("3 changes of 1.0 % or more, not significant")
    assert [line.split()[-1] for line in lines[3:9:2]] == ["a", "b", "c"]
    assert "     0 %   29.0 %     0.31  b" in lines
    assert "may be one burst" in " ".join(lines)


def test_beside_significant_changes_large_ones_of_other_stacks_are_listed():
    before = {"t;a": 60, "u;x": 40}
    after = {"t;a": 30, "u;x": 40, "v;y": 30}
    found = difference_of(before, after, 0.001)
    names = [found.tree.frames.names[frame] for frame in found.tree.frame]
    found.q[[names.index(name) for name in ("v", "y")]] = 0.2
    found.q[0] = 0.2
    text = "\n".join(difference_lines(found))
    significant, rest = text.split("1 change of 1.0 % or more, not significant")
    assert "  a\n" in significant
    assert "  y\n" in rest
    assert "in v" in rest
    assert "  a\n" not in rest


def test_a_significant_change_is_listed_although_callees_that_explain_it_may_be_chance():
    """A program that left: its samples in all are few enough to be sure of, each path's are not."""
    before = {"gone;a;b": 40, "t;x": 60}
    after = {"gone;a;b": 0, "t;x": 100}
    found = difference_of(before, after, 0.2)
    names = [found.tree.frames.names[frame] for frame in found.tree.frame]
    found.q[names.index("gone")] = 0.03
    lines = list(difference_lines(found))
    assert lines[0].endswith("  1 significant change")
    assert lines[1].split() == ["40.0", "%", "0", "%", "0.030", "gone", "(task)"]


def test_the_headline_counts_the_changes_that_are_listed():
    found = difference_of({"t;a;b;c": 10, "t;x": 90}, {"t;a;b;c": 90, "t;x": 10}, 0.001)
    assert next(difference_lines(found)).endswith("  2 significant changes")


def test_too_few_blocks_of_time_are_said():
    found = replace(difference_of({"t;a": 9}, {"t;b": 9}, np.nan), blocks=(2, 24))
    text = "\n".join(difference_lines(found))
    assert "not tested (2 and 24 blocks of time; 4 on each side are needed)" in text
    assert "2 changes of 1.0 % or more, not tested" in text


def test_what_could_not_be_tested_is_shown_and_said_to_be_so():
    text = "\n".join(difference_lines(difference_of({"t;a": 5}, {"t;b": 6}, np.nan)))
    assert "not tested (no timestamps" in text
    assert "0 %  100.0 %        -  b" in text


def test_functions_are_listed_with_where_they_are():
    found = [FunctionCount("vfs_read", "[kernel.kallsyms]", Kind.KERNEL, 30, 60)]
    lines = list(top_lines(found, 100, 10, 80))
    assert lines[1].split() == ["30.0", "%", "60.0", "%", "30", "vfs_read", "kernel"]


def test_info_tells_of_a_capture_without_times_or_cores():
    none = replace(capture(clock=NO_CLOCK, host=None, cores=None, release=None), end_ns=None)
    held = Contents([(Event("samples"), 7)], [("a", 7)], [(-1, 7)], 3, 5, 0, 0)
    text = info_text(none, held, Terminal())
    assert "perf.data   no timestamps · 7" in text.replace("46,560", "7")
    assert "CORES    unknown" in text
    assert "none: samples have no timestamps" in text
