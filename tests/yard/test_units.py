"""`systemd.units`, the restart rules and the ledger, against a real systemd."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sexton.detect.ledger import suspects
from sexton.model.chain import Strength
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCensus
from sexton.model.rows.unit import Unit
from sexton.model.window import Batch, Window, columns_of
from sexton.series import restarts
from sexton.series.restarts import FIELDS, RestartCount
from sexton.sources.systemd import show
from tests.yard.asking import ask
from tests.yard.yard import Yard

pytestmark = [pytest.mark.root, pytest.mark.systemd]

_UNIT = "[Unit]\nDefaultDependencies=no\nStartLimitIntervalSec=0\n"
CRASH = f"{_UNIT}[Service]\nExecStart=/bin/false\nRestart=always\nRestartSec=100ms\n"


def restarts_in(read: Sequence[Batch[Unit]]) -> dict[str, RestartCount]:
    columns = columns_of(read, Unit, FIELDS)
    return restarts.restarts_in([] if columns is None else [columns])


def start(yard: Yard, name: str, text: str) -> None:
    yard.install(name, text)
    yard.run("systemctl", "start", "--no-block", name)


def restarted(yard: Yard, name: str, times: int) -> None:
    yard.wait(
        f"{times} restarts of {name}",
        lambda: int(yard.show(name, "NRestarts")["NRestarts"]) >= times,
    )


def test_it_answers_over_the_system_bus(yard: Yard):
    asked = ask(yard)
    assert asked.manager.name == "systemd"
    assert asked.manager.via == "/run/dbus/system_bus_socket"
    shown = yard.run("systemctl", "--version").split()[2].strip("()")
    assert asked.manager.version == shown


def test_a_running_unit_is_as_systemctl_shows_it(yard: Yard):
    start(yard, "calm.service", f"{_UNIT}[Service]\nExecStart=/bin/sleep 1000\n")
    yard.wait("it runs", lambda: yard.show("calm.service", "SubState") == {"SubState": "running"})
    (unit,) = ask(yard).seen("calm.service")
    assert [unit] == list(show.parse(yard.run("systemctl", "show", "calm.service")))
    assert (unit.cgroup, unit.cgroup_origin) == ("/system.slice/calm.service", "systemd")
    for hierarchy in ("memory", "systemd"):
        if hierarchy in yard.cgroups:
            assert (yard.cgroups[hierarchy] / "system.slice/calm.service").is_dir()


def test_a_crash_loop_restarts_while_we_look(yard: Yard):
    start(yard, "crash.service", CRASH)
    restarted(yard, "crash.service", 3)
    asked = ask(yard, times=10, pause_s=0.2)
    counted = restarts_in(asked.units)["crash.service"]
    assert 0 < counted.count < counted.since_boot
    assert not counted.rebased
    seen = asked.seen("crash.service")
    assert (seen[-1].restart_policy, seen[-1].restart_delay_us) == ("always", 100_000)
    # A reading that falls into a run of it has no result yet.
    assert ("exit-code", 1) in {(unit.result, unit.exit_status) for unit in seen}
    yard.run("systemctl", "stop", "crash.service")


def test_a_unit_that_waits_to_restart_is_placed_by_its_slice(yard: Yard):
    slow = CRASH.replace("100ms", "1000s") + "Slice=yard-deep.slice\n"
    start(yard, "waiting.service", slow)
    yard.wait(
        "it waits", lambda: yard.show("waiting.service", "SubState") == {"SubState": "auto-restart"}
    )
    assert yard.show("waiting.service", "ControlGroup") == {"ControlGroup": ""}
    (unit,) = ask(yard).seen("waiting.service")
    assert (unit.active_state, unit.sub_state) == ("activating", "auto-restart")
    assert unit.cgroup == "/yard.slice/yard-deep.slice/waiting.service"
    assert unit.cgroup_origin == "slice + name"
    yard.run("systemctl", "stop", "waiting.service")


def test_the_guess_from_the_slice_is_where_it_really_runs(yard: Yard):
    text = f"{_UNIT}[Service]\nExecStart=/bin/sleep 1000\nSlice=yard-deep.slice\n"
    start(yard, "deep.service", text)
    yard.wait("it runs", lambda: yard.show("deep.service", "SubState") == {"SubState": "running"})
    real = yard.show("deep.service", "ControlGroup")["ControlGroup"]
    assert real == "/yard.slice/yard-deep.slice/deep.service"
    yard.run("systemctl", "stop", "deep.service")


def test_a_place_once_known_is_kept_while_it_waits(yard: Yard):
    blink = (
        f"{_UNIT}[Service]\nExecStart=/bin/sh -c 'sleep 0.4; exit 1'\n"
        "Restart=always\nRestartSec=400ms\n"
    )
    start(yard, "blink.service", blink)
    seen = ask(yard, times=25, pause_s=0.15).seen("blink.service")
    yard.run("systemctl", "stop", "blink.service")
    assert {"systemd", "last known"} <= {unit.cgroup_origin for unit in seen}
    assert {unit.cgroup for unit in seen} == {"/system.slice/blink.service"}


def test_reset_failed_takes_the_counter_down_and_is_a_new_baseline(yard: Yard):
    start(yard, "reset.service", CRASH)
    restarted(yard, "reset.service", 5)
    before = ask(yard)
    yard.run("systemctl", "stop", "reset.service")
    yard.run("systemctl", "reset-failed", "reset.service", check=False)
    yard.run("systemctl", "start", "--no-block", "reset.service")
    after = ask(yard, times=3, pause_s=1.0)
    yard.run("systemctl", "stop", "reset.service")
    counted = restarts_in(before.units + after.units)["reset.service"]
    assert counted.rebased
    assert counted.count == restarts_in(after.units)["reset.service"].count > 0


def test_a_manual_restart_does_not_count(yard: Yard):
    start(yard, "manual.service", f"{_UNIT}[Service]\nExecStart=/bin/sleep 1000\nRestart=always\n")
    before = ask(yard)
    for _ in range(3):
        yard.run("systemctl", "restart", "manual.service")
    after = ask(yard)
    first, last = before.seen("manual.service")[0], after.seen("manual.service")[0]
    assert first.main_start_us != last.main_start_us
    assert restarts_in(before.units + after.units)["manual.service"].count == 0


def test_a_timer_tells_its_period_and_its_last_run(yard: Yard):
    yard.install("tick.service", f"{_UNIT}[Service]\nType=oneshot\nExecStart=/bin/true\n")
    start(
        yard,
        "tick.timer",
        f"{_UNIT}[Timer]\nOnActiveSec=0.1\nOnUnitActiveSec=500ms\nAccuracySec=10ms\n",
    )
    yard.wait(
        "it ran",
        lambda: yard.show("tick.timer", "LastTriggerUSecMonotonic").popitem()[1] not in ("", "0"),
    )
    asked = ask(yard, times=2, pause_s=1.5)
    timer = asked.timers["tick.timer"]
    assert (timer.unit, timer.interval_us) == ("tick.service", 500_000)
    assert timer.last_trigger_us
    runs = [unit.main_start_us for unit in asked.seen("tick.service")]
    assert runs[0] != runs[1]
    yard.run("systemctl", "stop", "tick.timer")


def test_without_a_bus_root_asks_systemd_itself(own_yard: Yard):
    own_yard.run("systemctl", "stop", "dbus.socket", "dbus.service")
    own_yard.run("rm", "-f", "/run/dbus/system_bus_socket")
    start(own_yard, "crash.service", CRASH)
    asked = ask(own_yard, times=8, pause_s=0.2)
    assert asked.manager.via == "/run/systemd/private"
    assert restarts_in(asked.units)["crash.service"].count > 0


LEAK = """
[Service]
ExecStart=/bin/sh -c 'head -c 4096 /dev/zero >/dev/shm/leak.$$$$; exit 1'
MemoryAccounting=yes
Restart=always
RestartSec=20ms
"""


def dead_below(yard: Yard) -> int:
    """Dead memory cgroups below the yard's system.slice: the kernel's count on v2; on v1 the pages
    (one each) that the slice holds beyond what it and its living children hold themselves."""
    slice_dir = yard.cgroups.get("memory", yard.cgroups.get("cgroup")) / "system.slice"
    counted = slice_dir / "cgroup.stat"
    if counted.exists():
        fields = dict(line.split() for line in counted.read_text().splitlines())
        return int(fields["nr_dying_descendants"])
    held = _stat(slice_dir, "total_shmem") - _stat(slice_dir, "shmem")
    alive = sum(_stat(child, "total_shmem") for child in slice_dir.iterdir() if child.is_dir())
    return (held - alive) // 4096


def _stat(directory, field: str) -> int:
    try:
        text = (directory / "memory.stat").read_text()
    except OSError:  # it died while we looked
        return 0
    return int(dict(line.split() for line in text.splitlines()).get(field, "0"))


def test_the_ledger_names_the_unit_whose_restarts_left_the_dead(own_yard: Yard):
    own_yard.install("leak.service", _UNIT + LEAK)
    start(own_yard, "calm.service", f"{_UNIT}[Service]\nExecStart=/bin/sleep 1000\n")
    first = ask(own_yard)
    own_yard.run("systemctl", "start", "--no-block", "leak.service")
    restarted(own_yard, "leak.service", 30)
    looping = ask(own_yard, times=2)
    own_yard.run("systemctl", "stop", "leak.service")
    last = ask(own_yard)
    dying = dead_below(own_yard)
    batches: dict[type[Row], list[Batch]] = {Unit: first.units + looping.units + last.units}
    census = CgroupCensus("v1", 1, None, "node", None, None, dying, "the yard's own", None)
    moment = last.units[-1]
    batches[CgroupCensus] = [Batch(moment.mono_s, moment.wall_s, (census,))]
    (suspect,) = suspects(Window(batches))
    assert (suspect.owner, suspect.kind) == ("leak.service", "unit")
    assert suspect.path == "/system.slice/leak.service"
    assert suspect.strength is Strength.LIKELY, suspect.sentence
    assert suspect.ratio == pytest.approx(1.0, abs=0.2)
    assert dying >= 30
