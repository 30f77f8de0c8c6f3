"""Which units start, by their files alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sexton.model.audit import EnabledUnit
from sexton.prevent.audit.enabled import Enabled
from sexton.prevent.audit.unit_files import UnitTree
from sexton.prevent.image import ImageDirectory
from tests.prevent.audit.trees import ECS_DEB, PLAIN, Tree
from tests.support.tools import need


def units(tree: Tree) -> dict[str, EnabledUnit]:
    files = ImageDirectory(str(tree.root))
    return {unit.name: unit for unit in Enabled(UnitTree(files)).units}


def ways(unit: EnabledUnit) -> list[tuple[str, str]]:
    return [(way.kind, way.by) for way in unit.how]


def test_a_link_in_wants_enables_and_a_file_alone_does_not(tree: Tree):
    tree.unit("a.service")
    tree.unit("b.service", by=None)
    found = units(tree)
    assert set(found) == {"a.service"}
    (way,) = found["a.service"].how
    assert (way.kind, way.by) == ("wants", "multi-user.target")
    assert way.at == "/etc/systemd/system/multi-user.target.wants/a.service"
    assert found["a.service"].fragment == "/usr/lib/systemd/system/a.service"


def test_what_an_enabled_unit_requires_is_started_too_and_says_by_whom(tree: Tree):
    tree.unit("ecs.service", ECS_DEB)
    tree.unit("docker.service", by=None)
    assert ways(units(tree)["docker.service"]) == [("requires", "ecs.service")]


@pytest.mark.parametrize("how", ["null", "empty"])
def test_a_masked_unit_does_not_start(tree: Tree, how: str):
    tree.unit("a.service")
    if how == "null":
        tree.link("/etc/systemd/system/a.service", "/dev/null")
    else:
        tree.write("/etc/systemd/system/a.service", "")
    assert units(tree) == {}


def test_timers_sockets_and_paths_start_their_services(tree: Tree):
    tree.unit("t.timer", "[Timer]\nOnUnitActiveSec=10s\nUnit=job.service\n", "timers.target")
    tree.unit("s.socket", "[Socket]\nListenStream=1\n", "sockets.target")
    tree.unit("p.path", "[Path]\nPathExists=/x\n", "paths.target")
    for name in ("job", "s", "p"):
        tree.unit(f"{name}.service", by=None)
    found = units(tree)
    assert ways(found["job.service"]) == [("timer", "t.timer")]
    assert ways(found["s.service"]) == [("socket", "s.socket")]
    assert ways(found["p.service"]) == [("path", "p.path")]
    assert found["t.timer"].timer_s == 10.0
    assert [fault.id for fault in found["t.timer"].faults] == ["frequent-timer"]


def test_an_alias_is_the_unit_it_leads_to(tree: Tree):
    tree.unit("real.service", by=None)
    tree.link("/etc/systemd/system/other.service", "/lib/systemd/system/real.service")
    tree.link("/etc/systemd/system/multi-user.target.wants/other.service", "../other.service")
    found = units(tree)
    assert set(found) == {"real.service"}
    assert found["real.service"].aliases == ("other.service",)


def test_an_instance_is_read_from_its_template(tree: Tree):
    tree.unit("job@.service", "[Service]\nExecStart=/usr/bin/job %i\nRestart=always\n", by=None)
    wants = "/etc/systemd/system/multi-user.target.wants"
    tree.link(f"{wants}/job@one.service", "/lib/systemd/system/job@.service")
    found = units(tree)["job@one.service"]
    assert found.program == "/usr/bin/job"
    assert found.restart.restart == "always"


def test_drop_ins_change_what_the_file_says_and_etc_wins(tree: Tree):
    tree.unit("ecs.service", ECS_DEB)
    assert units(tree)["ecs.service"].faults
    tree.write("/usr/lib/systemd/system/ecs.service.d/10.conf", "[Service]\nRestartSec=1s\n")
    tree.write("/etc/systemd/system/ecs.service.d/10.conf", "[Service]\nRestart=no\n")
    found = units(tree)["ecs.service"]
    assert found.faults == ()
    assert found.drop_ins == ("/etc/systemd/system/ecs.service.d/10.conf",)
    assert found.restart.delay_s == 10.0, "the hidden drop-in is not read"


@pytest.mark.parametrize("name", ["service.d", "ecs-.service.d"])
def test_drop_ins_for_many_units_count(tree: Tree, name: str):
    tree.unit("ecs-a.service", ECS_DEB)
    tree.write(f"/etc/systemd/system/{name}/x.conf", "[Unit]\nStartLimitIntervalSec=1h\n")
    assert units(tree)["ecs-a.service"].faults == ()


def test_the_managers_own_limits_count(tree: Tree):
    tree.unit("ecs.service", ECS_DEB)
    tree.write("/etc/systemd/system.conf", "[Manager]\nDefaultStartLimitIntervalSec=10min\n")
    assert units(tree)["ecs.service"].faults == ()


def test_without_a_machine_id_the_first_boot_enables_by_preset(tree: Tree):
    for name in ("a.service", "ecs.service"):
        tree.unit(name, by=None)
    tree.write("/usr/lib/systemd/system-preset/90-x.preset", "disable ecs.service\nenable *\n")
    assert units(tree) == {}
    for state in ("uninitialized\n", None):
        if state is None:
            (tree.root / "etc/machine-id").unlink()
        else:
            tree.write("/etc/machine-id", state)
        found = units(tree)
        assert ways(found["a.service"]) == [("preset", "multi-user.target")]
        assert "ecs.service" not in found
    tree.write("/etc/machine-id", "")
    assert units(tree) == {}, "an empty file is no first boot"


def test_init_scripts_become_units_where_the_generator_is(tree: Tree):
    tree.write("/etc/init.d/old", "#!/bin/sh\n")
    tree.link("/etc/rc3.d/S01old", "../init.d/old")
    assert units(tree) == {}
    tree.write("/usr/lib/systemd/system-generators/systemd-sysv-generator", b"\x7fELF")
    found = units(tree)["old.service"]
    assert ways(found) == [("sysv", "rc3.d")]
    assert found.fragment == "/etc/init.d/old"


def test_generators_are_never_run_and_strange_ones_are_named(tree: Tree, tmp_path: Path):
    mark = tmp_path / "ran"
    place = tree.root / "usr/lib/systemd/system-generators/mystery"
    tree.write("/usr/lib/systemd/system-generators/mystery", f"#!/bin/sh\ntouch {mark}\n")
    place.chmod(0o755)
    found = Enabled(UnitTree(ImageDirectory(str(tree.root))))
    assert found.unseen == ["units from generators, which are not run: mystery"]
    assert not mark.exists()


def test_cloud_inits_target_comes_from_its_generator(tree: Tree):
    tree.write("/usr/lib/systemd/system/cloud-init.target", "[Unit]\n")
    tree.unit("cloud-final.service", by=None)
    wants = "/usr/lib/systemd/system/cloud-init.target.wants/cloud-final.service"
    tree.link(wants, "../cloud-final.service")
    assert units(tree) == {}
    tree.write("/usr/lib/systemd/system-generators/cloud-init-generator", "")
    assert ways(units(tree)["cloud-final.service"]) == [("wants", "cloud-init.target")]


def test_what_only_d_bus_starts_is_there_and_not_at_boot(tree: Tree):
    tree.unit("hostnamed.service", by=None)
    tree.write(
        "/usr/share/dbus-1/system-services/org.x.service",
        "[D-BUS Service]\nName=org.x\nSystemdService=hostnamed.service\n",
    )
    found = units(tree)["hostnamed.service"]
    assert ways(found) == [("bus", "org.x")]
    assert not found.at_boot


def test_targets_of_shutdown_and_rescue_start_nothing(tree: Tree):
    tree.unit("last.service", by="shutdown.target")
    tree.unit("rescue-shell.service", by="rescue.target")
    assert units(tree) == {}


def test_a_default_target_that_is_not_multi_user_is_followed(tree: Tree):
    tree.write("/usr/lib/systemd/system/appliance.target", "[Unit]\nWants=only.service\n")
    tree.unit("only.service", by=None)
    tree.unit("vendor.service", by=None)
    place = "/usr/lib/systemd/system/multi-user.target.wants/vendor.service"
    tree.link(place, "../vendor.service")
    tree.link("/etc/systemd/system/default.target", "/lib/systemd/system/appliance.target")
    assert set(units(tree)) == {"only.service"}


def test_a_missing_program_is_seen(tree: Tree):
    tree.unit("a.service", PLAIN.format(name="a"))
    assert units(tree)["a.service"].program_missing is True
    tree.write("/usr/bin/a", b"\x7fELF")
    assert units(tree)["a.service"].program_missing is False


def test_dependencies_in_a_circle_end(tree: Tree):
    tree.unit("a.service", "[Unit]\nWants=b.service\n[Service]\nExecStart=/a\n")
    tree.unit("b.service", "[Unit]\nRequires=a.service\n[Service]\nExecStart=/b\n", by=None)
    assert set(units(tree)) == {"a.service", "b.service"}


def test_a_hostile_tree_of_units_is_read_to_its_end(tree: Tree, tmp_path: Path):
    (tmp_path / "secret").write_text("[Service]\nExecStart=/the/hosts\n")
    system = tree.root / "etc/systemd/system"
    tree.unit("fine.service")
    tree.link("/etc/systemd/system/out.service", str(tmp_path / "secret"))
    tree.link("/etc/systemd/system/up.service", "../" * 30 + str(tmp_path / "secret").lstrip("/"))
    tree.link("/etc/systemd/system/loop-a.service", "loop-b.service")
    tree.link("/etc/systemd/system/loop-b.service", "loop-a.service")
    os.mkfifo(system / "fifo.service")
    with (system / "sparse.service").open("wb") as stream:
        stream.truncate(10 << 30)
    (system / "dir.service").mkdir()
    tree.write("/etc/systemd/system/huge.service", b"[Unit]\n" + b"A=b\\\n" * 300_000)
    tree.write("/etc/systemd/system/junk.service", bytes(range(256)) * 100)
    (system / os.fsdecode(b"\x1b[2J\xff.service")).write_text(PLAIN)
    wants = "/etc/systemd/system/multi-user.target.wants"
    for name in ("out", "up", "loop-a", "fifo", "sparse", "dir", "huge", "junk"):
        tree.link(f"{wants}/{name}.service", f"../{name}.service")
    (system / "many.service.d").mkdir()
    tree.link("/etc/systemd/system/fine.service.d", "/")
    held = len(os.listdir("/proc/self/fd"))
    found = Enabled(UnitTree(ImageDirectory(str(tree.root))))
    assert len(os.listdir("/proc/self/fd")) - held <= 1, "the root itself"
    by_name = {unit.name: unit for unit in found.units}
    assert by_name["fine.service"].program == "/usr/bin/fine.service"
    assert not any(unit.program == "/the/hosts" for unit in found.units)
    assert not any("\x1b" in unit.name for unit in found.units)
    notes = "\n".join((*found.tree.notes, *found.tree.unread))
    for word in ("a FIFO", "larger than", "not unit names", "a directory"):
        assert word in notes, word


@pytest.mark.oracle
def test_systemctl_itself_calls_the_same_units_enabled(tree: Tree):
    """Every unit that systemctl's own offline reading calls enabled is in ours."""
    need("systemctl", package="systemd")
    tree.unit("a.service")
    tree.unit("b.service", by=None)
    tree.unit("masked.service")
    tree.link("/etc/systemd/system/masked.service", "/dev/null")
    tree.unit(
        "t.timer", "[Timer]\nOnCalendar=daily\n[Install]\nWantedBy=timers.target\n", "timers.target"
    )
    tree.unit("ecs.service", ECS_DEB)
    output = subprocess.run(
        ["systemctl", f"--root={tree.root}", "list-unit-files", "--no-legend", "--no-pager"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    states = {words[0]: words[1] for line in output.splitlines() if (words := line.split())}
    theirs = {name for name, state in states.items() if state == "enabled"}
    assert theirs == {"a.service", "t.timer", "ecs.service"}
    assert theirs == set(units(tree)), states
