"""systemd's units: over a (fake) bus, out of an archive, and where there is no systemd."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sexton.errors import SourceAbsent, SourceDenied, SourceMalformed, SourceTimeout
from sexton.host.host import Host
from sexton.host.reader import FileStatus
from sexton.model.rows.unit import ServiceManager, Timer, Unit
from sexton.sources.systemd import show, units
from sexton.sources.systemd.units import Units
from tests.sources.systemd.conftest import Fake
from tests.support.fixtures import kernel_text
from tests.support.trees import plant

CRASH = {
    "state": "activating",
    "sub": "auto-restart",
    "NRestarts": ("u", 97),
    "ExecMainStartTimestampMonotonic": ("t", 1_000),
    "ExecMainExitTimestampMonotonic": ("t", 2_000),
    "ExecMainStatus": ("i", 1),
    "Result": ("s", "exit-code"),
    "ControlGroup": ("s", ""),
    "Slice": ("s", "system.slice"),
    "ActiveEnterTimestampMonotonic": ("t", 0),
    "Restart": ("s", "always"),
    "RestartUSec": ("t", 100_000),
    "UnitFileState": ("s", "enabled"),
}
QUIET = CRASH | {
    "state": "active",
    "sub": "running",
    "NRestarts": ("u", 0),
    "ControlGroup": ("s", "/system.slice/quiet.service"),
}


def by_name(rows: Any) -> dict[str, Any]:
    return {row.name: row for row in rows}


def test_a_crash_loop_is_read_in_full(fake: Fake):
    server, host = fake({"crash.service": CRASH})
    reading = Units(host)
    rows = by_name(reading.collect())
    reading.close()
    assert rows["systemd"] == ServiceManager("systemd", "252", "/run/dbus/system_bus_socket")
    assert rows["crash.service"] == Unit(
        name="crash.service",
        load_state="loaded",
        active_state="activating",
        sub_state="auto-restart",
        file_state="enabled",
        restarts=97,
        restart_policy="always",
        restart_delay_us=100_000,
        main_start_us=1_000,
        main_exit_us=2_000,
        active_enter_us=0,
        result="exit-code",
        exit_status=1,
        cgroup="/system.slice/crash.service",
        cgroup_origin="slice + name",
    )
    assert "GetAll" not in server.called


def test_the_second_reading_of_a_quiet_unit_reads_its_restarts_only(fake: Fake):
    server, host = fake({"quiet.service": QUIET, "crash.service": CRASH})
    reading = Units(host)
    first = by_name(reading.collect())
    server.got.clear()
    second = by_name(reading.collect())
    reading.close()
    assert first["quiet.service"] == second["quiet.service"]
    lines = [name for path, name in server.got if path == "quiet_2eservice"]
    assert lines == ["NRestarts"]
    again = [name for path, name in server.got if path == "crash_2eservice"]
    assert "ExecMainStartTimestampMonotonic" in again
    assert "Restart" not in again


def test_a_unit_that_begins_to_crash_is_read_again_and_keeps_its_last_cgroup(fake: Fake):
    odd = QUIET | {"ControlGroup": ("s", "/odd.slice/quiet.service")}
    server, host = fake({"quiet.service": odd})
    reading = Units(host)
    reading.collect()
    server.units["quiet.service"] |= {
        "state": "activating",
        "sub": "auto-restart",
        "NRestarts": ("u", 1),
        "ControlGroup": ("s", ""),
        "ExecMainStartTimestampMonotonic": ("t", 9_000),
    }
    unit = by_name(reading.collect())["quiet.service"]
    reading.close()
    assert (unit.restarts, unit.main_start_us, unit.sub_state) == (1, 9_000, "auto-restart")
    assert (unit.cgroup, unit.cgroup_origin) == ("/odd.slice/quiet.service", "last known")


def test_a_systemd_without_nrestarts_leaves_it_unknown(fake: Fake):
    old = {name: value for name, value in QUIET.items() if name != "NRestarts"}
    _, host = fake({"quiet.service": old})
    reading = Units(host)
    unit = by_name(reading.collect())["quiet.service"]
    reading.close()
    assert unit.restarts is None
    assert unit.restart_policy == "always"


def test_a_systemd_without_patterns_is_queried_for_the_whole_list(fake: Fake):
    server, host = fake({"quiet.service": QUIET, "a.mount": {}})
    server.refused["ListUnitsByPatterns"] = "org.freedesktop.DBus.Error.UnknownMethod"
    reading = Units(host)
    rows = by_name(reading.collect())
    reading.close()
    assert set(rows) == {"systemd", "quiet.service"}


def test_a_unit_that_is_not_found_is_not_queried(fake: Fake):
    server, host = fake({"ghost.service": {"load": "not-found", "state": "inactive"}})
    reading = Units(host)
    unit = by_name(reading.collect())["ghost.service"]
    reading.close()
    assert (unit.restarts, unit.cgroup, unit.cgroup_origin) == (None, None, "")
    assert server.got == []


def test_a_timer_gives_its_period_and_last_run(fake: Fake):
    timer = {
        "sub": "waiting",
        "Unit": ("s", "job.service"),
        "TimersMonotonic": ("a(stt)", [("OnBootUSec", 1, 2), ("OnUnitActiveUSec", 60_000_000, 3)]),
        "LastTriggerUSec": ("t", 0),
        "NextElapseUSecRealtime": ("t", 0),
        "LastTriggerUSecMonotonic": ("t", 777),
    }
    calendar = timer | {
        "TimersMonotonic": ("a(stt)", []),
        "LastTriggerUSec": ("t", 1_000_000),
        "NextElapseUSecRealtime": ("t", 31_000_000),
    }
    server, host = fake({"job.timer": timer, "day.timer": calendar})
    reading = Units(host)
    rows = by_name(reading.collect())
    assert rows["job.timer"] == Timer("job.timer", "job.service", 777, 60_000_000)
    assert rows["day.timer"] == Timer("day.timer", "job.service", 777, 30_000_000)
    server.units["job.timer"]["LastTriggerUSecMonotonic"] = ("t", 888)
    assert by_name(reading.collect())["job.timer"].last_trigger_us == 888
    reading.close()


def test_after_a_failure_the_next_reading_connects_anew(fake: Fake):
    server, host = fake({"quiet.service": QUIET})
    server.refused["ListUnitsByPatterns"] = "org.freedesktop.DBus.Error.AccessDenied"
    reading = Units(host)
    with pytest.raises(SourceDenied):
        reading.collect()
    server.refused.clear()
    assert "quiet.service" in by_name(reading.collect())
    reading.close()
    assert server.called.count("Hello") == 2


def test_a_deadline_after_the_counters_leaves_them_and_makes_nothing_up(fake: Fake, monkeypatch):
    monkeypatch.setattr(units, "DEADLINE_S", 0.5)
    odd = CRASH | {"ControlGroup": ("s", "/odd.slice/crash.service")}
    server, host = fake({"crash.service": odd, "quiet.service": QUIET})
    reading = Units(host)
    full = by_name(reading.collect())
    server.units["crash.service"]["NRestarts"] = ("u", 99)
    server.silent.add("Result")
    partial = by_name(reading.collect())
    server.silent.clear()
    monkeypatch.setattr(units, "DEADLINE_S", 20)
    again = by_name(reading.collect())
    reading.close()
    crash = partial["crash.service"]
    assert (crash.restarts, crash.main_start_us, crash.exit_status) == (99, None, None)
    assert (crash.cgroup, crash.cgroup_origin) == ("/odd.slice/crash.service", "last known")
    assert crash.restart_policy == "always"
    assert partial["quiet.service"] == full["quiet.service"]
    assert again["crash.service"].main_start_us == 1_000
    assert server.called.count("Hello") == 2


def test_counters_that_were_not_read_before_the_deadline_are_no_answer(fake: Fake, monkeypatch):
    monkeypatch.setattr(units, "DEADLINE_S", 0.5)
    server, host = fake({"crash.service": CRASH})
    server.silent.add("NRestarts")
    with pytest.raises(SourceTimeout):
        Units(host).collect()


def test_an_archive_is_read_from_systemctl_show(tmp_path: Path):
    host = plant(
        tmp_path,
        {
            show.PATH: kernel_text("systemd.show", "6.1"),
            "/commands/systemctl_version": "systemd 252 (252.39-1~deb12u2)\n+PAM\n",
        },
    )
    rows = by_name(Units(host).collect())
    assert rows["systemd"] == ServiceManager("systemd", "252", show.PATH)
    assert rows["demo-crash.service"].restarts == 99


def test_an_archive_remembers_a_cgroup_from_one_snapshot_to_the_next(tmp_path: Path):
    running = "Id=a.service\nControlGroup=/odd.slice/a.service\nSlice=odd.slice\n"
    waiting = "Id=a.service\nControlGroup=\nSlice=system.slice\n"
    host = plant(tmp_path, {show.PATH: running})
    reading = Units(host)
    reading.collect()
    plant(tmp_path, {show.PATH: waiting})
    unit = by_name(reading.collect())["a.service"]
    assert (unit.cgroup, unit.cgroup_origin) == ("/odd.slice/a.service", "last known")


def test_an_archive_in_which_systemctl_failed_is_not_a_node_without_units(tmp_path: Path):
    host = plant(tmp_path, {show.PATH: "Failed to connect to bus\n"})
    with pytest.raises(SourceMalformed):
        Units(host).collect()


def test_no_systemd_is_an_answer_and_names_what_is_pid_1(tmp_path: Path):
    host = plant(tmp_path, {"/proc/1/comm": "runit\n"})
    assert Units(host).collect() == [ServiceManager("runit", None, "/proc/1/comm")]


def test_systemd_whose_run_is_hidden_is_denied(tmp_path: Path):
    host = plant(tmp_path, {"/proc/1/comm": "systemd\n"})
    with pytest.raises(SourceDenied):
        Units(host).collect()


def test_without_any_evidence_the_source_is_absent(tmp_path: Path):
    with pytest.raises(SourceAbsent):
        Units(plant(tmp_path, {})).collect()


class ContainerFiles:
    """What a container without systemd sees of /proc."""

    def __init__(self, namespace: str) -> None:
        self.namespace = namespace

    def read(self, path: str, limit: int = 0) -> bytes:
        assert path == "/proc/1/comm"
        return b"pause\n"

    def names(self, path: str) -> list[str]:
        raise SourceAbsent(path)

    def link(self, path: str) -> str:
        assert path == "/proc/self/ns/pid"
        return self.namespace

    def status(self, path: str) -> FileStatus:
        raise SourceAbsent(path)


def test_a_pid_namespace_hides_the_nodes_own_pid_1():
    first = Host(ContainerFiles("pid:[4026531836]"), live=True)
    assert Units(first).collect() == [ServiceManager("pause", None, "/proc/1/comm")]
    inner = Host(ContainerFiles("pid:[4026532000]"), live=True)
    with pytest.raises(SourceAbsent, match="PID namespace"):
        Units(inner).collect()
