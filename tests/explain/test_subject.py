"""What people type, and which thing of the node they mean by it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import CommandError
from sexton.explain.subject import (
    KINDS,
    WORDS,
    _is_task,
    candidates,
    concerns,
    names_for,
    names_of,
    nearest,
)
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupDir, OfflineMemcg
from sexton.model.rows.event import FLAGGED, KernelEvent
from sexton.model.rows.kubernetes import Container, Pod
from sexton.model.rows.net import NetDevice
from sexton.model.rows.task import Process, Thread
from sexton.model.rows.trace import StackCount
from sexton.model.why import Subject
from sexton.model.window import Batch, Window
from tests.support.incident import incident

NAMES = {
    "core": ("0", "5", "95"),
    "nic": ("eth0", "lo"),
    "queue": ("eth0:5",),
    "irq": ("61",),
    "unit": ("ecs.service", "kubelet.service", "logs.timer", "logs.service"),
    "task": ("kubelet[2113]", "kubelet[2113/2140]", "ecs-agent[77]"),
    "cgroup": ("/system.slice/ecs.service", "/kubepods/pod1/c1"),
    "pod": ("prod/api-7c9f4d5b6-x2k4z", "prod/db-0", "test/db-0"),
    "mount": ("/", "/data"),
    "device": ("sda1", "nvme0n1"),
    "job": ("job 17 died",),
    "symptom": ("zombie_memcgs", "nic_resets"),
}


@pytest.mark.parametrize(
    ("said", "kind", "name"),
    [
        ("core 5", "core", "5"),
        ("core5", "core", "5"),
        ("cpu 05", "core", "5"),
        ("CPU#5", "core", "5"),
        ("eth0", "nic", "eth0"),
        ("interface eth0", "nic", "eth0"),
        ("eth0:5", "queue", "eth0:5"),
        ("irq 61", "irq", "61"),
        ("ecs", "unit", "ecs.service"),
        ("ecs.service", "unit", "ecs.service"),
        ("  ecs.service ", "unit", "ecs.service"),
        ("logs.timer", "unit", "logs.timer"),
        ("pod prod/db-0", "pod", "prod/db-0"),
        ("prod/db-0", "pod", "prod/db-0"),
        ("pod api-7c9f4d5b6-x2k4z", "pod", "prod/api-7c9f4d5b6-x2k4z"),
        ("kubelet", "unit", "kubelet.service"),
        ("task kubelet", "task", "kubelet"),
        ("kubelet[2113]", "task", "kubelet[2113]"),
        ("pid 2113", "task", "[2113]"),
        ("/system.slice/ecs.service/", "cgroup", "/system.slice/ecs.service"),
        ("/sys/fs/cgroup/memory/kubepods", "cgroup", "/kubepods"),
        ("/data/", "mount", "/data"),
        ("filesystem /", "mount", "/"),
        ("sda1", "device", "sda1"),
        ("/dev/nvme0n1", "device", "nvme0n1"),
        ("disk sda1", "device", "sda1"),
        ("job 17", "job", "job 17 died"),
        ("zombie memcgs", "symptom", "zombie_memcgs"),
        ("nic-resets", "symptom", "nic_resets"),
    ],
)
def test_what_people_type_finds_what_they_mean(said: str, kind: str, name: str):
    found = candidates(said, NAMES)[0]
    assert (found.kind, found.name) == (kind, name)


@pytest.mark.parametrize("said", ["core 500", "5", "61", "eth1", "cgroup ecs", "pid 9", "", " "])
def test_what_is_not_there_is_not_found(said: str):
    assert candidates(said, NAMES) == ()


def test_a_name_of_two_kinds_is_offered_as_both():
    assert [candidate.kind for candidate in candidates("kubelet", NAMES)] == ["unit", "task"]


@pytest.mark.parametrize(
    ("said", "near"),
    [("esc", "ecs.service"), ("eht0", "eth0"), ("kublet", "kubelet.service"),
     ("zombies", "zombie_memcgs"), ("CORE", "core 0")],
)  # fmt: skip
def test_a_typo_gets_similar_names(said: str, near: str):
    assert near in nearest(said, NAMES)
    assert nearest("qqqqqq", NAMES) == ()


POD = "/kubepods/burstable/pod0a1b2c3d-1111-2222-3333-444455556666"
CONTAINER = f"{POD}/{'0f3a' * 16}"


@pytest.mark.parametrize(
    ("said", "path"),
    [
        ("pod0a1b2c3d-1111-2222-3333-444455556666", POD),
        ("0a1b2c3d-1111-2222-3333-444455556666", POD),
        ("0A1B2C3D_1111_2222_3333_444455556666", POD),
        ("0f3a" * 16, CONTAINER),
        ("0f3a0f3a0f3a", CONTAINER),
        ("cgroup 0f3a0f3a0f3a", CONTAINER),
        ("job-7", "/batch/job-7"),
    ],
)
def test_a_cgroup_is_found_by_its_last_name_or_an_id_in_it(said: str, path: str):
    names = {"cgroup": (CONTAINER, "/batch/job-7/rank-0", "/other")}
    assert [(each.kind, each.name) for each in candidates(said, names)] == [("cgroup", path)]


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("sda", "sda"),
        ("/dev/sda", "sda"),
        ("sda1", "sda1"),
        ("disk nvme0n1", "nvme0n1"),
        ("md1", ""),
    ],
)
def test_a_disk_is_found_though_only_its_partitions_are_mounted(said: str, name: str):
    names = {"device": ("sda1", "nvme0n1p2", "md12")}
    assert [each.name for each in candidates(said, names)] == [name] * bool(name)


def test_what_a_disk_logged_concerns_its_partitions_and_the_other_way_round():
    logged = finding(device=("nvme0", "sdb1"))
    for name in ("nvme0", "nvme0n1p2", "sdb", "sdb1"):
        assert concerns(logged, Subject("device", name))
    for name in ("nvme01", "sdb2", "sdbb"):
        assert not concerns(logged, Subject("device", name))


def test_a_name_of_several_cgroups_gets_their_paths_however_long():
    others = (f"{POD}/app", f"{POD.replace('0a1b', 'ffff')}/app")
    assert candidates("app", {"cgroup": others}) == ()
    assert set(nearest("app", {"cgroup": others})) == set(others)


def test_every_word_settles_a_kind_that_there_is():
    assert set(WORDS.values()) == set(KINDS)


def test_everything_of_the_node_has_its_name():
    names = names_of(incident(), ())
    assert names["core"] == tuple(map(str, range(96)))
    assert names["unit"] == ("ecs.service",)
    assert names["nic"] == ("eth0",)
    assert set(names["task"]) == {"kubelet[2113]", "kubelet[2113/2140]"}
    assert "/system.slice/u7.service" in names["cgroup"]


def test_hostile_names_can_be_typed_as_printed_or_raw():
    raw = "a\x1b[2J\udcff"
    process = Process(7, 1, raw, "S", 0, 0, 0, None, 1, False)
    rows = {
        Process: [Batch(1.0, 1.0, (process,))],
        NetDevice: [Batch(1.0, 1.0, (NetDevice("\u202eeth", 0, 0, 0, 0, 0, 0, 0, 0),))],
        CgroupDir: [Batch(1.0, 1.0, (CgroupDir("/x\ny", 2, 0),))],
    }
    names = names_of(Window(rows), ())
    every = [name for other in names.values() for name in other]
    assert all(name.isprintable() for name in every)
    for said in (raw, "a\\x1b[2J\\xff"):
        assert candidates(said, names) == (Subject("task", "a\\x1b[2J\\xff"),)
    assert candidates("/x\ny", names) == (Subject("cgroup", "/x\\ny"),)


def window_of(*rows: Row) -> Window:
    tables: dict[type[Row], list[Row]] = {}
    for row in rows:
        tables.setdefault(type(row), []).append(row)
    return Window({kind: [Batch(1.0, 1.0, tuple(found))] for kind, found in tables.items()})


OOM = (
    "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,"
    "oom_memcg=/batch.slice,task_memcg=/batch.slice/job-7,task=trainer,pid=914,uid=0"
)


@pytest.mark.parametrize(
    ("said", "row"),
    [
        # A process that began and ended between two readings of all processes.
        ("stress-ng", Thread(814, 814, "stress-ng", "R", 7, 0, 900, 1)),
        ("task stress-ng", Thread(814, 814, "stress-ng", "R", 7, 0, 900, 1)),
        ("pid 814", Thread(814, 814, "stress-ng", "R", 7, 0, 900, 1)),
        ("stress-ng[814]", StackCount(3, 1, 814, 815, "stress-ng", ("cgroup_rstat_flush",), 9)),
        ("job-7", CgroupDir("/batch.slice/job-7.scope/inner", 9, 0)),
        ("batch.slice", CgroupDir("/batch.slice/job-7.scope/inner", 9, 0)),
        ("/batch.slice/job-7", OfflineMemcg("/batch.slice/job-7")),
        # Only a finding can name these: the log has them.
        ("trainer[914]", KernelEvent("oom_kill", "oom", OOM, None, None)),
        ("task trainer", KernelEvent("oom_kill", "oom", OOM, None, None)),
        ("/sys/fs/cgroup/batch.slice/job-7", KernelEvent("oom_kill", "oom", OOM, None, None)),
    ],
)
def test_whatever_has_rows_has_a_name(said: str, row: Row):
    others = (Process(7, 1, "sshd", "S", 0, 0, 0, None, 1, False), row)
    names = names_for(said, window_of(*others))
    assert candidates(said, names) or isinstance(row, KernelEvent)
    with pytest.raises(CommandError, match="no such name"):
        names_for("stress-mg" if "stress" in said else "trainee", window_of(*others))


def test_a_typo_of_a_symptom_needs_no_finding():
    with pytest.raises(CommandError, match="similar: zombie_memcgs"):
        names_for("zombie_memcg", window_of())


def test_a_pattern_of_ones_own_is_asked_for_by_the_id_of_its_finding():
    seen = window_of(KernelEvent("bmc-confused", FLAGGED, "ipmi_si: confused", None, None))
    names = names_for("pattern_bmc_confused", seen)
    assert candidates("pattern_bmc_confused", names) == (
        Subject("symptom", "pattern_bmc_confused"),
    )
    with pytest.raises(CommandError, match="similar: pattern_bmc_confused"):
        names_for("pattern_bmc_confusd", seen)


def finding(**entities: tuple[str, ...]) -> Finding:
    return Finding("x", Verdict.PRESENT, Severity.WARNING, "x", entities)


@pytest.mark.parametrize(
    ("subject", "entities", "said"),
    [
        (Subject("core", "5"), {"core": ("3", "5")}, True),
        (Subject("core", "5"), {"irq": ("5",), "core": ("55",)}, False),
        (Subject("nic", "eth0"), {"queue": ("eth0:5",)}, True),
        (Subject("nic", "eth0"), {"queue": ("eth01:5",)}, False),
        (Subject("unit", "a.service"), {"cgroup": ("/system.slice/a.service/sub",)}, True),
        (Subject("unit", "a.service"), {"cgroup": ("/system.slice/aa.service",)}, False),
        (Subject("cgroup", "/system.slice/a.service"), {"unit": ("a.service",)}, True),
        (Subject("cgroup", "/kubepods"), {"cgroup": ("/kubepods/pod1",)}, True),
        (Subject("cgroup", "/kubepods"), {"cgroup": ("/kubepods2/pod1",)}, False),
        (Subject("task", "kubelet"), {"task": ("kubelet[1/2]",)}, True),
        (Subject("task", "kube"), {"task": ("kubelet[1/2]",)}, False),
        (Subject("symptom", "x"), {}, True),
    ],
)
def test_a_finding_is_about_a_thing_or_about_a_part_of_it(
    subject: Subject, entities: dict[str, tuple[str, ...]], said: bool
):
    assert concerns(finding(**entities), subject) is said


@given(st.text(max_size=60), st.lists(st.text(max_size=20), max_size=5))
def test_junk_is_never_more_than_not_found(said: str, others: list[str]):
    names = {**NAMES, "task": tuple(others), "cgroup": tuple(others)}
    for subject in candidates(said, names):
        assert subject.words.isprintable()
    assert len(nearest(said, names)) <= 5


@given(st.text("a[/]1", max_size=9), st.text("a[/]1", min_size=1, max_size=6))
def test_no_task_is_missed_for_how_its_name_begins(name: str, said: str):
    found = [each for each in candidates(f"task {said}", {"task": (name,)}) if each.kind == "task"]
    assert bool(found) == (_is_task(said, name) or _is_task(f"task {said}", name))


def test_a_pod_is_named_with_its_namespace_where_two_have_its_name():
    assert candidates("pod db-0", NAMES) == ()
    assert nearest("prod/db-1", NAMES)[0] == "prod/db-0"
    assert "prod/api-7c9f4d5b6-x2k4z" in nearest("api-7c9f", NAMES)


def test_a_window_knows_pods_of_both_tables_and_findings_about_their_workload():
    rows = (Pod("u", "prod", "db-0"), Container("i", "prod", "api-7c9f4d5b6-x2k4z", "app", None, 0))
    window = Window({kind: [Batch(1.0, 1.0, (row,))] for row in rows for kind in (type(row),)})
    assert set(names_of(window)["pod"]) == {"prod/db-0", "prod/api-7c9f4d5b6-x2k4z"}
    left = Finding("x", Verdict.PRESENT, Severity.WARNING, "s", {"pod": ("prod/api-*",)})
    assert concerns(left, Subject("pod", "prod/api-7c9f4d5b6-x2k4z"))
    assert not concerns(left, Subject("pod", "prod/db-0"))
