"""From a diagnosis to steps: real zombies freed by a real plan, and what a plan refuses."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest

from sexton.cure import plan as planning
from sexton.cure.apply import DONE, FixContext, apply
from sexton.cure.journal import State
from sexton.cure.plan import PlanContext, PlanOptions, make_plan
from sexton.cure.remedies import remove_empty_cgroups
from sexton.cure.remedies.remove_empty_cgroups import find_empty_cgroups
from sexton.cure.units import UnitSnapshot, UnitStatus
from sexton.cure.writer import LiveWriter
from sexton.detect.detectors.cgroups import crash_looping_unit
from sexton.detect.owners import Owner
from sexton.detect.registry import Detector, Treatment, all_detectors
from sexton.errors import CommandError
from sexton.host.host import open_host
from sexton.model.audit import Need, Reason, Subject
from sexton.model.chain import Chain, Link, Strength
from sexton.model.diagnosis import Diagnosis, Step
from sexton.model.finding import Finding, Severity, Verdict
from sexton.model.rows.cgroup import (
    CgroupCensus,
    CgroupDir,
    CgroupEvent,
    CgroupResidual,
    OfflineMemcg,
)
from sexton.model.rows.unit import ServiceManager, Unit
from sexton.reports.text.fix import plan_shell, plan_text
from sexton.reports.text.verdict import verdict_text
from sexton.sources.procfs.node import Identity
from tests.cure.test_apply import Calm
from tests.detect.detectors.test_cgroup_churn import life
from tests.support.windows import make_window
from tests.support.zombies import ZombieMaker, scratch_cgroup, zombies

ZOMBIES = Finding("zombie_memcgs", Verdict.PRESENT, Severity.CRITICAL, "many are dying")
HEALTHY = Finding("zombie_memcgs", Verdict.ABSENT, Severity.INFO, "3 are dying")


def diagnosis(*findings: Finding) -> Diagnosis:
    (node,) = Identity(open_host()).collect()
    now = time.time()
    return Diagnosis(node, now - 10, now, findings, (), (), (), (), ())


def window(paths: list[str], live: list[str]):
    census = CgroupCensus("v1", 1, "/sys/fs/cgroup/memory", "node", 1000, 10, 990, "x", None)
    rows = [
        census,
        *(CgroupDir(path, number, 0) for number, path in enumerate(["/", *live])),
        *(OfflineMemcg(path) for path in paths),
    ]
    return make_window([(0.0, rows), (5.0, rows)])


def of(maker: ZombieMaker, **options: bool):
    dead = [f"{maker.path}/z{number}" for number in range(50)]
    context = PlanContext(open_host(), (), PlanOptions(**options))
    return make_plan(diagnosis(ZOMBIES), window(dead, [maker.path]), context)


def test_nothing_wrong_is_nothing_to_do():
    plan = make_plan(diagnosis(HEALTHY), make_window([]), PlanContext(open_host()))
    assert (plan.steps, plan.refusals, plan.notes) == ((), (), ())
    assert plan.diagnosis_root == "No problem found"


PARTS = {
    "_stop_units": Treatment.STOP_UNITS,
    "_free": Treatment.FREE_ZOMBIES,
    "_remove_leftovers": Treatment.REMOVE_EMPTY,
}


@pytest.mark.parametrize("detector", all_detectors(), ids=lambda each: each.id)
def test_a_plan_does_what_a_detector_declares_and_the_verdict_names_such_a_plan(
    detector: Detector, monkeypatch: pytest.MonkeyPatch
):
    done: list[Treatment] = []
    for name, treatment in PARTS.items():
        monkeypatch.setattr(planning, name, lambda *_, it=treatment, **__: done.append(it))
    problem = Finding(detector.id, Verdict.PRESENT, Severity.CRITICAL, "bad")
    sick = replace(diagnosis(problem), plan=(Step("look", "why", "none"),))
    make_plan(sick, make_window([]), PlanContext(open_host()))
    assert tuple(done) == detector.treatments
    assert ("sexton fix plan" in verdict_text(sick)) == bool(done)


def test_a_diagnosis_of_another_boot_is_refused_with_what_to_do():
    found = diagnosis(ZOMBIES)
    other = replace(found, node=replace(found.node, boot_id="another", hostname="far"))
    with pytest.raises(CommandError, match="make the plan on that node"):
        make_plan(other, make_window([]), PlanContext(open_host()))
    with pytest.raises(CommandError, match="no boot ID"):
        make_plan(replace(found, node=None), make_window([]), PlanContext(open_host()))


def test_zombies_whose_parent_nobody_knows_are_not_freed_somewhere():
    plan = make_plan(diagnosis(ZOMBIES), make_window([]), PlanContext(open_host()))
    assert plan.automatic == ()
    assert [step.remedy for step in plan.steps] == ["reboot_node"]
    assert "sexton zombies --watch" in plan.notes[0]


def test_those_right_below_the_root_are_refused_and_the_blunt_tool_is_named():
    seen = window(["/a1", "/a2", "/a3"], [])
    plan = make_plan(diagnosis(ZOMBIES), seen, PlanContext(open_host()))
    (refusal,) = plan.refusals
    assert (refusal.target, refusal.override) == ("/", "--allow-drop-caches")
    assert not plan.automatic
    allowed = make_plan(
        diagnosis(ZOMBIES), seen, PlanContext(open_host(), (), PlanOptions(allow_drop_caches=True))
    )
    assert [step.remedy for step in allowed.automatic] == ["drop_caches"]
    assert allowed.automatic[0].risk == "high"
    assert "cache" in allowed.automatic[0].cannot_undo


def owner(path: str, dying: int | None, strength: Strength = Strength.PROVEN) -> Owner:
    return Owner(path, dying, 4096, "traced", strength, None)


def test_a_handful_elsewhere_is_not_worth_what_the_living_there_would_pay():
    many = [owner("/a.slice", 500), owner("/b.slice", 240), owner("/a.slice", 200)]
    few = [owner("/c.slice", 30), owner("/d.slice", 4, Strength.LIKELY)]
    chosen, others = planning._parents([*many, *few, owner("/e.slice", None, Strength.POSSIBLE)])
    assert [item.path for item in chosen] == ["/a.slice", "/b.slice"]
    assert chosen[0] is many[0], "the first that was named stands for its path"
    assert others == 34


def test_leftover_bytes_choose_no_parent_whatever_else_is_known():
    live_cache = replace(owner("/big.slice", None, Strength.POSSIBLE), bytes=15 << 30)
    guessed = replace(owner("/ledger.slice", 1_526, Strength.POSSIBLE), bytes=1 << 20)
    assert planning._parents([live_cache, guessed]) == ([], 0), "a guess is no basis for a step"
    counted = replace(owner("/small.slice", 1_500, Strength.LIKELY), bytes=6 << 20)
    assert planning._parents([live_cache, guessed, counted]) == ([counted], 0)


def test_a_plan_with_nothing_but_bytes_has_no_step_and_says_whose_they_are():
    rows = [CgroupResidual("/big.slice", 15 << 30, "upper bound"), CgroupResidual("/a", 1, "x")]
    plan = make_plan(diagnosis(ZOMBIES), make_window([(0.0, rows)]), PlanContext(open_host()))
    assert [step.remedy for step in plan.steps] == ["reboot_node"]
    assert "15.0 GiB below /big.slice, which is only a guess" in plan.notes[0]
    assert "sexton zombies --watch" in plan.notes[0]


def test_a_plan_says_how_many_it_leaves_where_they_are():
    dead = [f"/sexton-test-none/z{number}" for number in range(90)]
    seen = window([*dead, "/other/y1", "/other/y2"], ["/sexton-test-none", "/other"])
    plan = make_plan(diagnosis(ZOMBIES), seen, PlanContext(open_host()))
    assert [refusal.target for refusal in plan.refusals] == ["/sexton-test-none"], "it is not there"
    assert "2 more zombies under other parents" in plan.notes[0]


@pytest.mark.alone
@pytest.mark.root
def test_real_zombies_are_freed_by_a_real_plan_and_counted_on_both_sides(tmp_path):
    with zombies(300, "page cache") as maker:
        plan = of(maker)
        step, reboot = plan.steps
        assert (step.remedy, step.target) == ("reclaim_zombies", maker.path)
        assert "no running cgroups below it" in step.risk_why
        assert step.cannot_undo == ""
        assert (reboot.remedy, reboot.automatic) == ("reboot_node", False)
        host = open_host()
        said: list[str] = []
        fix = FixContext(
            host,
            LiveWriter(host),
            State(str(tmp_path / "fix")),
            progress=said.append,
            watch=lambda *_: Calm(),
        )
        applied = apply(plan, fix, 60)
        (done,) = applied.steps
        assert (done.state, applied.why) == (DONE, "")
        ((_, held, read),) = done.proofs
        assert held is True, read
        assert "freed" in done.message
        assert "purged" not in done.message
        assert any("round 1" in line for line in said)


@pytest.mark.root
def test_zombies_held_by_tmpfs_without_swap_get_no_step_but_the_files_that_may_hold_them():
    if len(Path("/proc/swaps").read_text().splitlines()) > 1:
        pytest.skip("this machine has swap: reclaim could write their pages there")
    with zombies(30, "tmpfs") as maker:
        large = maker.pins / "large"
        large.write_bytes(b"x" * (3 << 20))
        plan = of(maker)
        assert plan.automatic == ()
        refusal = next(item for item in plan.refusals if item.target == maker.path)
        assert "is tmpfs and there is no swap: reclaim cannot free them" in refusal.reason
        step = next(item for item in plan.steps if item.remedy == "delete_tmpfs_files")
        assert not step.automatic
        about = f"# {large}: 3.0 MiB, owner root (uid 0), last written"
        assert any(command.startswith(about) for command in step.commands), step.commands
        assert f"rm -r -- {large}" in step.commands
        assert f"rm -r -- {large}" in plan_text(plan, 100)
        assert f"# rm -r -- {large}" in plan_shell(plan)


@pytest.mark.alone
@pytest.mark.root
def test_of_a_mixture_page_cache_is_freed_and_the_files_that_hold_the_rest_are_listed(tmp_path):
    if len(Path("/proc/swaps").read_text().splitlines()) > 1:
        pytest.skip("this machine has swap: reclaim could write their pages there")
    with zombies(300, "tmpfs") as maker:
        on_disk = Path(tempfile.mkdtemp(prefix="sexton-test-", dir="/var/tmp"))  # not tmpfs
        ZombieMaker(maker.layout, maker.parent, on_disk).make(300, "disk%d")
        os.sync()  # a dirty page cannot be reclaimed
        plan = of(maker)
        assert [step.remedy for step in plan.automatic] == ["reclaim_zombies"]
        listed = next(item for item in plan.steps if item.remedy == "delete_tmpfs_files")
        assert f"under {maker.path} is tmpfs" in listed.risk_why
        assert any(command.startswith(f"# {maker.pins}: 1.2 MiB") for command in listed.commands)
        host = open_host()
        state = State(str(tmp_path / "fix"))
        fix = FixContext(host, LiveWriter(host), state, watch=lambda *_: Calm())
        (done,) = apply(plan, fix, 60).steps
        shutil.rmtree(on_disk)
        assert done.state == DONE
        assert "--thorough" not in done.message, "nothing frees tmpfs without swap"
        assert any("and there is no swap: sexton fix plan lists" in line for line in done.details)


@pytest.mark.root
def test_many_small_tmpfs_files_are_listed_together_even_where_only_bytes_name_the_parent():
    if len(Path("/proc/swaps").read_text().splitlines()) > 1:
        pytest.skip("this machine has swap: reclaim could write their pages there")
    with zombies(300, "tmpfs") as maker:  # a page each: none of them is large
        rows = [CgroupResidual(maker.path, 300 << 12, "upper bound")]
        seen = make_window([(0.0, rows)])
        plan = make_plan(diagnosis(ZOMBIES), seen, PlanContext(open_host()))
        assert (plan.automatic, plan.refusals) == ((), ())
        step = next(item for item in plan.steps if item.remedy == "delete_tmpfs_files")
        assert f"still charged to dying cgroups under {maker.path} is tmpfs" in step.risk_why
        about = f"# {maker.pins}: 1.2 MiB in 300 files of less than 1.0 MiB, owner root (uid 0)"
        assert any(command.startswith(about) for command in step.commands), step.commands
        assert f"find {maker.pins} -xdev -type f -size -1024k -delete" in step.commands


@pytest.mark.root
def test_a_parent_with_pods_below_it_is_refused_unless_that_is_accepted():
    with zombies(30, "page cache") as maker:
        pods = maker.parent / "kubepods.slice"
        pods.mkdir()
        try:
            plan = of(maker)
            assert plan.automatic == ()
            refusal = next(item for item in plan.refusals if item.target == maker.path)
            assert "pods run here" in refusal.reason
            assert refusal.override == "--accept-collateral"
            accepted = of(maker, accept_collateral=True)
            (step,) = accepted.automatic
            assert step.risk == "high"
            assert "kubepods.slice" in step.risk_why
        finally:
            os.rmdir(pods)


@pytest.mark.root
def test_empty_cgroups_are_removed_and_one_that_somebody_moved_into_stays(tmp_path):
    with scratch_cgroup() as (layout, own):
        names = ("run-1.scope", "run-2.scope", "run-3.scope")
        for name in names:
            (own / name).mkdir()
        host = open_host()
        below = f"/{own.relative_to(layout.mount_point)}"
        found = find_empty_cgroups(host, below, youngest_s=0.0)
        assert sorted(cgroup.name for cgroup in found) == sorted(names)
        plan = replace(
            make_plan(diagnosis(HEALTHY), make_window([]), PlanContext(host)),
            steps=(remove_empty_cgroups.propose("1-remove", found),),
        )
        with subprocess.Popen(["sleep", "60"]) as somebody:
            try:
                (own / "run-2.scope" / "cgroup.procs").write_text(str(somebody.pid))
                fix = FixContext(
                    host, LiveWriter(host), State(str(tmp_path / "fix")), watch=lambda *_: Calm()
                )
                applied = apply(plan, fix, 60)
                said = applied.steps[0].message
                assert applied.why == ""
                assert said.startswith("removed 2 empty cgroups; 1 not removed")
                assert "no longer empty" in said
                assert [path.name for path in own.iterdir() if path.is_dir()] == ["run-2.scope"]
            finally:
                somebody.kill()


LOOP = Finding(
    "crash_looping_unit", Verdict.PRESENT, Severity.CRITICAL, "it loops",
    entities={"unit": ("leak.service", "other.service")},
)  # fmt: skip


class Units:
    """systemd's answers about units that run and that nobody needs."""

    def __init__(self, monkeypatch) -> None:
        monkeypatch.setattr(planning, "snapshot_unit", self.state)
        monkeypatch.setattr(planning.Probes, "unit", lambda _, name: self.standing(name))

    def standing(self, name: str) -> UnitStatus:
        return UnitStatus(name, (name,), "loaded", "activating", "enabled",
                        f"/lib/{name}", 9, True, (), (), ())  # fmt: skip

    def state(self, name: str, host=None) -> UnitSnapshot:
        return UnitSnapshot(name, name, (name,), "loaded", "activating", "auto-restart", "enabled",
                          f"/lib/{name}", (), (), (), "", 9, 90.0,
                          ("/etc/systemd/system", "/lib"), ())  # fmt: skip


def chained() -> Diagnosis:
    link = Link("crash_loop_leaves_zombies", "crash_looping_unit", "zombie_memcgs",
                Strength.PROVEN, "each restart leaves one", ("leak.service",))  # fmt: skip
    return replace(diagnosis(LOOP, ZOMBIES), chains=(Chain((link,)),))


def test_only_the_unit_that_leaves_zombies_is_stopped_where_that_is_known(monkeypatch):
    Units(monkeypatch)
    plan = make_plan(chained(), make_window([]), PlanContext(open_host()))
    assert {item.target for item in plan.automatic} == {"leak.service"}
    assert any("other.service crash-loops too" in note for note in plan.notes)
    both = make_plan(diagnosis(LOOP), make_window([]), PlanContext(open_host()))
    assert {item.target for item in both.automatic} == {"leak.service", "other.service"}


@pytest.mark.parametrize("status", [0, 1])
def test_a_plan_says_if_a_unit_exits_cleanly_between_its_restarts(monkeypatch, status: int):
    Units(monkeypatch)
    result = "success" if status == 0 else "exit-code"
    unit = Unit(
        "leak.service", "loaded", "activating", "auto-restart", "enabled", 500, "always", 100_000,
        99_000_000, 99_500_000, 99_000_000, result, status, "/system.slice/leak.service", "systemd",
    )  # fmt: skip
    rows = [ServiceManager("systemd", "252", "bus"), unit]
    finding = crash_looping_unit.detect(make_window([(100.0, rows)]))
    plan = make_plan(diagnosis(finding), make_window([]), PlanContext(open_host()))
    said = "it exits cleanly, so this may be intended" in str(plan.steps[0])
    assert said is (status == 0)


@pytest.mark.parametrize(
    ("died", "noted"),
    [
        (["/lab.slice/leak.service/task1", "/lab.slice/leak.service"], False),
        (["/lab.slice/leak.service/task1", "/kubepods/pod1"], True),
        ([], True),
    ],
    ids=["all of it", "another as well", "who is not known"],
)
def test_churn_of_the_unit_that_is_stopped_is_nobody_elses_to_mend(monkeypatch, died, noted: bool):
    Units(monkeypatch)
    churn = Finding("cgroup_churn", Verdict.PRESENT, Severity.WARNING, "20 died as task*")
    found = replace(chained(), findings=(LOOP, ZOMBIES, churn))
    lives = [
        life(100 * which + number, path, 2.0 * number)
        for which, path in enumerate(died)
        for number in range(1, 11)
    ]
    events = [event for group in lives for event in group]
    seen = make_window([(0.0, []), (30.0, events)], empty=[CgroupEvent])
    plan = make_plan(found, seen, PlanContext(open_host()))
    assert any("20 died as task*" in note for note in plan.notes) is noted


@pytest.mark.parametrize(
    ("verdict", "said"),
    [
        (Need.UNNEEDED, "nothing here needs it (ECS tasks: none)"),
        (Need.UNKNOWN, "unknown whether anything here needs it (sexton audit)"),
    ],
)
def test_a_step_says_what_is_known_of_who_needs_the_unit(monkeypatch, verdict: Need, said: str):
    Units(monkeypatch)
    subject = Subject("leak.service", verdict, reasons=(Reason("ECS tasks", "none", "cgroups"),))
    context = PlanContext(open_host(), needs={"leak.service": subject})
    plan = make_plan(chained(), make_window([]), context)
    assert said in plan.steps[0].risk_why


def test_a_unit_that_is_needed_is_refused_until_that_is_accepted(monkeypatch):
    Units(monkeypatch)
    reasons = (Reason("ECS tasks", "3", "cgroups"),)
    needs = {"leak.service": Subject("leak.service", Need.NEEDED, reasons=reasons)}
    plan = make_plan(chained(), make_window([]), PlanContext(open_host(), needs=needs))
    assert plan.automatic == ()
    assert plan.refusals[0].reason.startswith("it is needed here (ECS tasks: 3)")
    assert plan.refusals[0].override == "--accept-collateral"
    accepted = PlanContext(open_host(), (), PlanOptions(accept_collateral=True), needs)
    assert make_plan(chained(), make_window([]), accepted).automatic


def test_a_mask_waits_for_the_stop(monkeypatch):
    Units(monkeypatch)
    plan = make_plan(chained(), make_window([]), PlanContext(open_host()))
    assert [step.id for step in plan.steps] == ["1-stop", "2-mask", "3-reboot"]
    assert plan.steps[1].preconditions[1].after == "1-stop"
