"""The screen of `sexton top`: all of it, on any terminal, and nothing but text."""

from __future__ import annotations

import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from sexton.cli.load import CoreLoad, core_loads, nic_loads, worst_tasks
from sexton.cli.screen import bar, fit, frame
from sexton.detect.registry import applied
from sexton.detect.settings import parse
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.event import KernelEvent
from sexton.model.rows.net import NetDevice, Nic, NicCounter
from sexton.model.rows.node import Node
from sexton.model.rows.task import Process, Thread
from sexton.model.window import Batch, SourceState, Window
from sexton.series.cores import all_cores, core_series
from tests.support.examples import examples

WALL = 1_700_000_000.0
RESET = "ena 0000:20:03.0 eth0: Device reset completed successfully \x1b[2J[bold]x[/bold]"


def batch(mono_s: float, *rows: Row) -> Batch:
    return Batch(mono_s, WALL + mono_s, rows)


def core(cpu: int, user: int, system: int, softirq: int, idle: int) -> CoreTimes:
    return CoreTimes(cpu, user, 0, system, idle, 0, 0, softirq, 0)


def census(dying: int | None, reason: str | None = None) -> CgroupCensus:
    return CgroupCensus("v1", 1, "/m", "node", 68_680, 240, dying, "x", reason)


def thread(pid: int, tid: int, cpu: int, system_ms: int, comm: str = "kubelet") -> Thread:
    return Thread(pid, tid, comm, "R", 1, 0, system_ms, cpu)


def node_of(cores: int) -> Window:
    """Core 5 is held by a kubelet thread whose leader is elsewhere; the others idle at 10 %."""
    before = [core(cpu, 0, 0, 0, 0) for cpu in range(cores)]
    after = [core(cpu, 100, 0, 0, 900) for cpu in range(cores)]
    if cores > 5:
        after[5] = core(5, 0, 980, 20, 0)
    identity = Node("node-a", "5.4.0", cores, None, 700_000.0, *[None] * 8)
    counters = [NicCounter("eth0", "total_resets", 3), NicCounter("eth0", "tx_timeout", 1)]
    return Window(
        {
            CoreTimes: [batch(0, *before), batch(1, *after)],
            Thread: [
                batch(0, thread(2113, 2113, 0, 0), thread(2113, 2120, 5, 0)),
                batch(1, thread(2113, 2113, 0, 10), thread(2113, 2120, 5, 970)),
            ],
            Node: [batch(0, identity)],
            Nic: [batch(0, Nic("eth0", True, "ena", None, None, "up"), *_virtual())],
            NetDevice: [batch(0, _device(0)), batch(1, _device(1 << 20))],
            NicCounter: [batch(0, *counters)],
            CgroupCensus: [batch(0, census(68_437)), batch(1, census(68_440))],
            KernelEvent: [batch(0, KernelEvent("ena", "nic_reset", RESET, 1, WALL))],
        }
    )


def _virtual() -> list[Nic]:
    return [Nic("veth0", False, None, None, None, "up")]


def _device(moved: int) -> NetDevice:
    return NetDevice("eth0", moved, 0, 0, 0, 2 * moved, 0, 0, moved >> 19)


def shown(window: Window, width: int, height: int) -> list[str]:
    return frame(window, width, height).plain.splitlines()


@pytest.mark.parametrize(("cores", "width", "height"), [(96, 120, 40), (2, 80, 24), (256, 80, 24)])
def test_it_fits_the_terminal(cores: int, width: int, height: int):
    lines = shown(node_of(cores), width, height)
    assert len(lines) <= height
    assert max(len(line) for line in lines) <= width


def test_every_one_of_96_cores_is_there_with_the_culprit_named_on_its_core():
    lines = shown(node_of(96), 120, 40)
    grid = [line for line in lines if " 10u" in line or "100s" in line]
    numbers = {int(line[at : at + 2]) for line in grid for at in (0, 30, 60, 90)}
    assert numbers == set(range(96))
    assert any(line.startswith(" 5 █") and "100s kubelet" in line for line in lines)
    assert any("core 5" in line and "kubelet[2113/2120] 97%" in line for line in lines)


def test_two_cores_get_a_line_each_with_their_numbers():
    lines = shown(node_of(2), 80, 24)
    assert any(line.lstrip().startswith("0 ") and "10% user" in line for line in lines)
    assert any("kubelet[2113]" in line for line in lines), "the leader burnt a little on core 0"


def test_zombies_cards_and_the_log_are_said():
    text = "\n".join(shown(node_of(96), 120, 40))
    assert "68,440 · 240 live memory cgroups · +3 in 1.0 s" in text
    assert "1.0 MiB/s out    2.0 MiB/s" in text
    assert "drops 2/s" in text
    assert "resets 3" in text
    assert "tx_timeout 1" in text
    assert "veth0" not in text
    assert "Device reset completed" in text


def test_nothing_from_the_kernel_is_taken_for_markup_or_moves_the_cursor():
    console = Console(file=io.StringIO(), force_terminal=False, width=120, markup=False)
    console.print(frame(node_of(96), 120, 40))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "\x1b" not in text
    assert "\\x1b[2J[bold]x[/bold]" in text


def test_cores_that_do_not_fit_are_chosen_by_load_and_it_says_so():
    lines = shown(node_of(256), 80, 24)
    assert any("busiest of 256" in line for line in lines)
    assert any("  5 100s" in line for line in lines)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_what_needs_rights_names_the_screens_own_command_and_never_cuts_it(width):
    grant = "sudo sexton diagnose  # needs CAP_SYSLOG, or kernel.dmesg_restrict=0"
    state = SourceState("kmsg.log", "/dev/kmsg", "denied", "Operation not permitted", grant)
    lines = shown(Window({}, [state], {KernelEvent: "kmsg.log"}), width, 24)
    (line,) = [line for line in lines if line.startswith(" kernel log")]
    assert line.endswith(" → sudo sexton top")
    assert "diagnose" not in line


def test_what_is_unknown_says_why():
    state = SourceState("kmsg.log", "/dev/kmsg", "denied", "Operation not permitted", "run as root")
    window = Window(
        {CgroupCensus: [batch(0, census(None, "this is a cgroup namespace"))]},
        [state],
        {KernelEvent: "kmsg.log"},
    )
    text = "\n".join(shown(window, 100, 24))
    assert "measuring" in text
    assert "zombies  unknown: this is a cgroup namespace" in text
    assert "Operation not permitted" in text
    assert "run as root" in text


def test_a_counter_that_went_backwards_gives_no_rate():
    window = Window({NetDevice: [batch(0, _device(1 << 20)), batch(1, _device(0))]})
    (load,) = nic_loads(window)
    assert load.rx_bytes is None
    backwards = Window({CoreTimes: [batch(0, core(0, 9, 9, 9, 9)), batch(1, core(0, 1, 1, 1, 1))]})
    assert core_loads(backwards) == ()


def test_the_average_is_the_share_of_the_time_that_all_cores_were_given():
    before = [core(0, 0, 0, 0, 0), core(1, 0, 0, 0, 0)]
    after = [core(0, 1000, 0, 0, 0), core(1, 0, 0, 0, 250)]  # taken offline after a quarter
    window = Window({CoreTimes: [batch(0, *before), batch(1, *after)]})
    series = core_series(window)
    assert series is not None
    (share,) = all_cores(series).over(0.0, 1.0).values()
    assert share.user == pytest.approx(80)
    assert "80% busy on average" in "\n".join(shown(window, 100, 24))


def test_a_process_of_one_thread_stands_for_it_and_one_of_many_does_not():
    def process(pid: int, threads: int, user_ms: int) -> Process:
        return Process(pid, 1, "p", "R", 1, user_ms, 0, 3, threads, False)

    window = Window(
        {
            Process: [
                batch(0, process(7, 1, 0), process(8, 20, 0)),
                batch(1, process(7, 1, 500), process(8, 20, 900)),
            ]
        }
    )
    assert {cpu: task.pid for cpu, task in worst_tasks(window).items()} == {3: 7}


def test_the_bar_is_as_long_as_asked_and_keeps_the_kinds_apart():
    assert bar(CoreLoad(0, 0.5, 0.25, 0.25), 8).plain == "██▒▒░░░░"
    assert bar(CoreLoad(0, 0.0, 0.02, 0.0), 20).plain == "█" + " " * 19
    assert bar(CoreLoad(0, 0.0, 0.02, 0.0), 4).plain == "    "
    assert bar(CoreLoad(0, 1.0, 1.0, 1.0), 5).plain == "█████"


def test_a_core_is_held_by_the_limit_in_force():
    busy = CoreLoad(0, 0.0, 0.5, 0.35)
    assert not busy.is_held
    assert CoreLoad(0, 0.0, 0.6, 0.35).is_held
    mine = parse("[thresholds]\nsaturated_core.kernel_share = 80", "/etc/sexton/config.toml", WALL)
    with applied(mine):
        assert busy.is_held


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 1024), st.integers(40, 300), st.integers(1, 80))
def test_the_grid_never_outgrows_its_room(cores: int, width: int, rows: int):
    grid = fit(cores, width, rows)
    assert 1 <= grid.rows <= rows
    assert grid.columns * grid.cell + 2 * (grid.columns - 1) <= width
    assert grid.columns * grid.rows >= min(cores, rows)


@settings(max_examples=examples(40), deadline=None)
@given(st.integers(1, 130), st.integers(40, 200), st.integers(10, 60))
def test_any_node_fits_any_terminal(cores: int, width: int, height: int):
    lines = shown(node_of(cores), width, height)
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
