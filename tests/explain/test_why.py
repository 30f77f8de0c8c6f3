"""A diagnosis seen from one thing: what concerns it, and only that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sexton.detect.registry import all_detectors, answering
from sexton.explain.diagnosis import diagnose
from sexton.explain.subject import KINDS, candidates, names_for, names_of
from sexton.explain.why import answer, likeliest, through
from sexton.model.chain import Chain, Contest, Link, Rival, Strength
from sexton.model.diagnosis import Diagnosis, Exit
from sexton.model.finding import Finding, Missing, Severity, Verdict
from sexton.model.row import Row
from sexton.model.rows.cgroup import CgroupCpu
from sexton.model.rows.cpu import CoreTimes, ReadyTasks
from sexton.model.rows.node import Node
from sexton.model.rows.task import Process, ProcessCgroup, Thread
from sexton.model.rows.trace import StackCount
from sexton.model.why import Subject, Why
from sexton.model.window import Batch, Window
from tests.support.fixtures import FIXTURES
from tests.support.incident import UPTIME_S, WALL_S, incident
from tests.support.windows import load_window, make_window

CHAIN = ("crash_looping_unit", "zombie_memcgs", "slow_memcg_stats", "saturated_core",
         "starved_napi", "nic_resets")  # fmt: skip


def asked(said: str, window: Window) -> Why:
    diagnosis = diagnose(window)
    meant = likeliest(candidates(said, names_of(window, diagnosis.findings)), diagnosis)
    return answer(meant[0], diagnosis, window, meant[1:])


@pytest.mark.parametrize(
    ("said", "concerned"),
    [
        ("core 5", ("saturated_core", "starved_napi", "nic_resets")),
        ("eth0", ("starved_napi", "nic_resets")),
        ("eth0:5", ("starved_napi", "nic_resets")),
        ("ecs", ("crash_looping_unit", "zombie_memcgs")),
        ("kubelet", ("saturated_core",)),
        ("kubelet[2113]", ("saturated_core",)),
        ("nic_resets", ("nic_resets",)),
    ],
)
def test_from_anywhere_in_it_the_same_chain_is_seen(said: str, concerned: tuple[str, ...]):
    why = asked(said, incident())
    assert why.findings == concerned
    assert why.chains[0].findings == CHAIN
    assert why.exit is Exit.PROBLEM


@pytest.mark.parametrize("said", ["core 7", "/system.slice/u7.service"])
def test_a_bystander_is_left_alone(said: str):
    why = asked(said, incident())
    assert (why.findings, why.chains, why.exit) == ((), (), Exit.HEALTHY)


@pytest.mark.parametrize(
    ("said", "exit"), [("core 1", Exit.PROBLEM), ("core 0", Exit.HEALTHY), ("sshd", Exit.PROBLEM)]
)
def test_tasks_that_wait_for_one_core_are_seen_from_it_and_from_them(said: str, exit: Exit):
    window, _ = load_window(FIXTURES / "detectors" / "contended_core" / "present.json")
    why = asked(said, window)
    assert why.exit is exit
    assert why.findings == (("contended_core",) if exit is Exit.PROBLEM else ())


def neighbours(at: int) -> list[Row]:
    """Two units: one takes the CPU time, with its workers below its cgroup; one is a bystander."""
    places = {10: "/system.slice/noisy.service/w", 99: "/system.slice/calm.service"}
    return [
        *(CoreTimes(cpu, 1000 * at, 0, 0, 0, 0, 0, 0, 0) for cpu in range(2)),
        ReadyTasks(25, 0),
        CgroupCpu("/system.slice", round(1e6 * at * 2.0), None),
        CgroupCpu("/system.slice/noisy.service", round(1e6 * at * 1.9), None),
        Process(10, 1, "worker", "S", 5, 0, 0, 0, 4, False),
        Process(99, 1, "calm", "S", 5, 0, 0, 0, 1, False),
        *(Process(pid, 1, "gone", "S", 5, 0, 0, 0, 1, False) for pid in (11,)),
        *(ProcessCgroup(pid, path, False) for pid, path in places.items() if at == 3),
    ]


@pytest.mark.parametrize(
    ("said", "is_concerned"),
    [
        ("task worker", True),
        ("worker[10]", True),
        ("/system.slice/noisy.service/w", True),
        ("noisy", True),
        ("calm[99]", False),
        ("/system.slice/calm.service", False),
        ("gone", False),  # no reading shows its cgroup
    ],
)
def test_what_is_wrong_with_a_unit_concerns_its_tasks_and_the_cgroups_below(
    said: str, is_concerned: bool
):
    window = make_window([(float(at), neighbours(at)) for at in range(13)])
    named = diagnose(window).by_id["cpu_pressure"].entities
    # As a finding that names no task at all, to which only its unit leads.
    diagnosis = diagnose(window)
    bare = replace(diagnosis.by_id["cpu_pressure"], entities={**named, "task": ()})
    others = [item for item in diagnosis.findings if item.id != "cpu_pressure"]
    diagnosis = replace(diagnosis, findings=(*others, bare))
    meant = likeliest(candidates(said, names_for(said, window)), diagnosis)
    why = answer(meant[0], diagnosis, window)
    assert ("cpu_pressure" in why.findings) is is_concerned


@pytest.mark.parametrize(
    ("subject", "is_concerned"),
    [
        (Subject("unit", "a.service"), True),
        (Subject("cgroup", "/system.slice/a.service"), True),
        (Subject("cgroup", "/system.slice"), True),
        (Subject("cgroup", "/system.slice/a.service/inner"), False),
        (Subject("unit", "b.service"), False),
        (Subject("task", "other"), False),
    ],
)
def test_what_is_wrong_with_a_task_concerns_its_unit(subject: Subject, is_concerned: bool):
    places = {7: "/system.slice/a.service", 8: "/system.slice/b.service"}
    rows = [
        Process(7, 1, "hog", "R", 5, 0, 0, 0, 1, False),
        Process(8, 1, "other", "S", 5, 0, 0, 0, 1, False),
        *(ProcessCgroup(pid, path, False) for pid, path in places.items()),
    ]
    window = make_window([(1.0, rows), (2.0, rows)])
    why = answer(subject, made([finding("held", task=("hog[7/9]",))]), window)
    assert (why.findings == ("held",)) is is_concerned


def test_without_the_source_that_would_show_it_the_answer_is_unknown():
    window = incident()
    diagnosis = diagnose(window)
    blind = Finding("saturated_core", Verdict.UNKNOWN, Severity.INFO, "not read",
                    missing=(Missing("/proc/stat", "sudo cat"),))  # fmt: skip
    others = [item for item in diagnosis.findings if item.id != "saturated_core"]
    hidden = replace(diagnosis, findings=(*others, blind), chains=())
    why = answer(Subject("core", "7"), hidden, window)
    assert why.exit is Exit.CANNOT_TELL
    assert Missing("/proc/stat", "sudo cat") in why.missing
    assert answer(Subject("unit", "ecs.service"), hidden, window).exit is Exit.PROBLEM


@pytest.mark.parametrize(("away", "near"), [(-30.0, True), (30.0, True), (9e3, False)])
def test_a_moment_is_concerned_by_what_was_there_within_a_minute(away: float, near: bool):
    window = incident(zombies=False, looping=False)
    why = answer(Subject("moment", "then", WALL_S + away), diagnose(window), window)
    assert ("saturated_core" in why.findings) is near


def test_a_function_is_concerned_by_the_core_that_was_caught_in_it():
    window = incident()
    frames = ("css_next_descendant_pre", "mem_cgroup_iter", "memcg_numa_stat_show")
    stacks = tuple(
        StackCount(
            UPTIME_S + second, core, 2113, 2140, "kubelet", frames if core == 5 else ("x",), 97
        )
        for second in range(2, 8)
        for core in (5, 6)
    )
    kinds = (CoreTimes, Node, Process, Thread)
    batches = {kind: window.batches(kind) or () for kind in kinds}
    sampled = Window({**batches, StackCount: [Batch(UPTIME_S + 10.0, WALL_S + 10.0, stacks)]})
    why = asked("mem_cgroup_iter", sampled)
    assert (why.about.kind, why.findings) == ("function", ("saturated_core",))
    assert [moment.mono_s for moment in why.occasions.moments] == [UPTIME_S + 8.0]
    assert asked("function x", sampled).findings == ()


def finding(name: str, **entities: tuple[str, ...]) -> Finding:
    return Finding(name, Verdict.PRESENT, Severity.CRITICAL, f"{name} is so", entities)


def link(cause: str, effect: str, *shared: str) -> Link:
    return Link(f"{cause}_{effect}", cause, effect, Strength.LIKELY, "so", shared)


def made(findings: list[Finding], *chains: Chain) -> Diagnosis:
    return Diagnosis(None, 0.0, 10.0, tuple(findings), chains, (), (), (), ())


def test_a_chain_through_another_core_is_not_this_core_s():
    findings = [finding("a"), finding("b", core=("5", "7")), finding("c", core=("5",))]
    whole = Chain((link("a", "b"), link("b", "c", "5")))
    diagnosis = made(findings, whole)
    assert through(Subject("core", "5"), ("b", "c"), diagnosis) == (whole,)
    assert [item.findings for item in through(Subject("core", "7"), ("b",), diagnosis)] == [
        ("a", "b")
    ]


def test_the_cut_part_of_a_chain_is_not_listed_twice():
    findings = [finding("a"), finding("b", nic=("eth0", "eth1"), queue=("eth0:1",)),
                finding("c", nic=("eth0", "eth1"), queue=("eth0:1",))]  # fmt: skip
    one, two = link("a", "b"), link("b", "c", "eth0:1")
    diagnosis = made(findings, Chain((one, two)), Chain((one,)))
    assert through(Subject("nic", "eth1"), ("b", "c"), diagnosis) == (Chain((one,)),)
    assert through(Subject("nic", "eth0"), ("b", "c"), diagnosis) == (Chain((one, two)),)


def test_a_second_looping_unit_does_not_inherit_the_first_one_s_dead():
    loops = finding("loops", unit=("a.service", "b.service"))
    dead = finding("dead", unit=("a.service",), cgroup=("/system.slice/a.service",))
    diagnosis = made([loops, dead], Chain((link("loops", "dead", "a.service"),)))
    assert through(Subject("unit", "a.service"), ("loops", "dead"), diagnosis)
    assert through(Subject("unit", "b.service"), ("loops",), diagnosis) == ()


def test_contests_are_those_of_the_chain_and_of_no_other():
    diagnosis = diagnose(incident())
    rivals = (Rival("x", Strength.LIKELY, True, "s"), Rival("y", Strength.POSSIBLE, False, "t"))
    contests = (Contest("saturated_core", rivals), Contest("tcp_loss", rivals))
    why = answer(Subject("core", "5"), replace(diagnosis, contests=contests), incident())
    assert why.contests == contests[:1]


def test_of_two_of_one_name_the_one_that_is_in_trouble_is_meant():
    diagnosis = made([finding("saturated_core", task=("kubelet[1]",))])
    both = (Subject("unit", "kubelet.service"), Subject("task", "kubelet"))
    assert likeliest(both, diagnosis)[0].kind == "task"
    assert likeliest(both, made([]))[0].kind == "unit"


def test_every_kind_has_its_questions_and_every_question_a_detector():
    asked = {kind for detector in all_detectors() for kind in detector.answers or ()}
    assert asked == {*KINDS} - {"symptom", "pod"}
    assert answering("pod") == answering("cgroup")
    for kind in asked:
        ranks = [
            detector.answers[kind]
            for detector in all_detectors()
            if kind in (detector.answers or ())
        ]
        assert ranks.count(1) == 1, f"one detector is decisive for a {kind}"
        assert len(ranks) == len({*ranks}), f"no two detectors share a rank for a {kind}"
