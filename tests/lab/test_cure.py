"""`lab.cure`: its parts here, and the whole of it on real kernels in a VM."""

from __future__ import annotations

import json
import mmap
import os
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from lab import cure
from lab.claims import Claims
from lab.cure_run import CommandResult, CureRun
from lab.deadlines import LAB_VM
from lab.kill_apply import Point, has_reached
from lab.sick_node import SickNode, changes, number_of, tree_hash, unit_files
from lab.stage import SceneFailed
from lab.vm import runs, verdicts
from lab.vm.payload import Job
from lab.vm.tools import search_path

CLAIMS = (
    "image_passes", "healthy_passes", "image_fails", "diagnosed", "audited", "booted_fails",
    "planned", "killed", "applied", "freed", "neighbour", "verified", "booted_passes", "refused",
    "rolled_back",
)  # fmt: skip


def test_on_any_other_machine_it_touches_nothing_and_says_why(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv(LAB_VM, raising=False)
    before = unit_files()
    assert cure.main(["--out", str(tmp_path)]) == cure.UNFIT
    assert "only in the lab's virtual machine" in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []
    assert unit_files() == before


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "system"
    (top / "x.wants").mkdir(parents=True)
    (top / "a.service").write_text("[Service]\n")
    (top / "x.wants/a.service").symlink_to("/usr/lib/a.service")
    return top


def seen(tree: Path) -> dict[str, str]:
    return unit_files((str(tree), f"{tree}.control"))


@pytest.mark.parametrize(
    "change",
    [
        lambda top: (top / "a.service").write_text("[Service]"),
        lambda top: (top / "a.service").chmod(0o600),
        lambda top: os.utime(top / "a.service", ns=(1, 1)),
        lambda top: os.utime(top / "x.wants/a.service", ns=(1, 1), follow_symlinks=False),
        lambda top: (top / "x.wants/a.service").unlink(),
        lambda top: (top / "a.service.d").mkdir(),
        lambda top: (top / "x.wants").chmod(0o700),
        lambda top: Path(f"{top}.control").mkdir(),
    ],
    ids=["content", "mode", "time", "link's time", "link gone", "directory", "its mode", "a tree"],
)
def test_every_change_of_the_units_directories_is_seen(tree: Path, change):
    before = seen(tree)
    assert tree_hash(before) == tree_hash(seen(tree))
    change(tree)
    assert tree_hash(before) != tree_hash(seen(tree))
    assert len(changes(before, seen(tree))) == 1


def test_what_was_made_and_removed_again_is_no_change(tree: Path):
    before = seen(tree)
    (tree / "x.wants/b.service").symlink_to("/dev/null")
    (tree / "x.wants/b.service").unlink()
    assert changes(before, seen(tree)) == []


def test_a_journal_has_come_so_far_when_the_line_is_whole(tmp_path: Path):
    journal = tmp_path / "1.jsonl"
    lines = [{"kind": "begin"}, {"kind": "before", "step": "1-stop"}, {"kind": "end"}]
    text = "".join(json.dumps(line) + "\n" for line in lines[:2])
    journal.write_text(text[:-1])
    assert not has_reached(journal, Point("before", "1-stop"))
    journal.write_text(text)
    assert has_reached(journal, Point("before", "1-stop"))
    assert not has_reached(journal, Point("done", "1-stop"))
    assert not has_reached(journal, Point("before", "2-mask"))


def test_a_number_is_found_by_the_whole_of_its_name(tmp_path: Path):
    stat = tmp_path / "cgroup.stat"
    stat.write_text("nr_descendants 44\nnr_dying_descendants 7\nnr_dying_subsys_memory 9\n")
    assert number_of(stat, "nr_dying_descendants") == 7
    assert number_of(stat, "nr_dying") == 0


def test_what_a_command_said_is_its_json_or_nothing():
    assert CommandResult(0, '{"a": 1}', 0.1).document == {"a": 1}
    assert (
        CommandResult(2, "sexton: no", 0.1).document == CommandResult(0, "[]", 0.1).document == {}
    )


def test_no_claim_is_not_a_success_and_one_that_fails_is_told(tmp_path: Path):
    claims = Claims("cure", {"hierarchy": "v2"})
    assert not claims.holds
    assert claims.check("freed", "they fall", True, before=520, after=3)
    assert claims.holds
    assert not claims.check("verified", "it is", False, why="one core is held")
    assert not claims.holds
    claims.write(tmp_path)
    document = json.loads((tmp_path / "cure.json").read_text())
    assert (document["schema"], document["hierarchy"]) == ("sexton.check/1", "v2")
    assert [claim["holds"] for claim in document["claims"]] == [True, False]
    assert document["claims"][0]["numbers"] == {"before": 520, "after": 3}
    assert document["failed"] == {"verified": ["failed: it is (one core is held)"]}


def run(tmp_path: Path) -> CureRun:
    return CureRun(SimpleNamespace(folder=tmp_path), SimpleNamespace(), Claims("cure"), tmp_path)


def test_a_phase_that_breaks_is_a_claim_that_fails_and_the_next_has_its_try(tmp_path, monkeypatch):
    def breaks(_run: CureRun) -> None:
        raise SceneFailed("not within 60 s: restarts")

    def goes_on(run: CureRun) -> None:
        run.claims.check("on", "it went on", True)

    monkeypatch.setattr(cure, "PHASES", (breaks, goes_on))
    one = run(tmp_path)
    cure.play(one)
    assert [item["id"] for item in one.claims.results] == ["breaks", "on"]
    assert "not within 60 s" in one.claims.failed["breaks"][0]
    late = run(tmp_path)
    late.began_s -= cure.LIMIT_S + 1
    cure.play(late)
    assert [*late.claims.failed] == ["breaks", "goes_on"], "nothing is begun too late"


def test_without_a_sick_node_nothing_else_is_tried(tmp_path: Path, monkeypatch):
    def illness(_run: CureRun) -> None:
        raise SceneFailed("not within 200 s: 550 zombies")

    monkeypatch.setattr(cure, "illness", illness)
    monkeypatch.setattr(cure, "PHASES", (illness, cure.found))
    one = run(tmp_path)
    cure.play(one)
    assert [*one.claims.failed] == ["illness"]


@pytest.mark.parametrize(
    ("version", "files"),
    [
        (2, {"memory.stat": "anon 9\nfile 4096\n", "memory.swap.current": "8192\n"}),
        (1, {"memory.stat": "swap 1\ntotal_cache 4096\ntotal_swap 8192\n"}),
    ],
)
def test_what_a_neighbour_has_is_read_from_its_cgroup_and_its_process(tmp_path, version, files):
    memory = mmap.mmap(-1, 8 << 20, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    for offset in range(0, len(memory), 4096):
        memory[offset] = 1
    layout = SimpleNamespace(mount_point=str(tmp_path), version=version)
    shown = SimpleNamespace(layout=layout, run=lambda *_words: f"{os.getpid()}\n")
    node = SickNode(shown)
    assert node.neighbour_memory() == dict.fromkeys(
        ("cache", "anonymous", "swapped", "swap_charged"), 0
    )
    node.home.mkdir(parents=True)
    for name, text in files.items():
        (node.home / name).write_text(text)
    found = node.neighbour_memory()
    assert (found["cache"], found["swap_charged"]) == (4096, 8192)
    assert found["anonymous"] + found["swapped"] >= 8 << 20


def test_a_gates_answer_is_told_by_rule(tmp_path: Path):
    rules = [
        {"id": "crash_loops", "outcome": "fail", "violations": [{"subject": "ecs.service"}]},
        {"id": "waivers", "outcome": "pass", "violations": []},
    ]
    result = CommandResult(1, json.dumps({"rules": rules}), 2.0)
    assert cure.violated(result, "crash_loops") == ["ecs.service"]
    assert cure.violated(result, "waivers") == []
    assert cure.violated(CommandResult(2, "", 0.1), "waivers") == []
    assert cure.gated(result)["rules"] == {"crash_loops": "fail", "waivers": "pass"}
    assert cure.gated(result)["violations"] == {"crash_loops": ["ecs.service"]}


def test_what_was_freed_is_read_from_the_journal(tmp_path: Path):
    outcome = {
        "freed": 510, "seconds": 2.0, "order_s": 0.4, "why_stopped": "none is left",
        "walk_us_per_zombie": {}, "experiment": [], "siblings": {}, "rounds": [],
    }  # fmt: skip
    lines = [{"kind": "begin"}, {"kind": "done", "step": "1-stop", "outcome": {"said": "x"}},
             {"kind": "done", "step": "4-free", "outcome": {**outcome, "freed": 5}},
             {"kind": "done", "step": "5-free", "outcome": outcome}]  # fmt: skip
    (tmp_path / "runs").mkdir()
    journal = tmp_path / "runs/a.jsonl"
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert cure.freed(tmp_path, "a")["freed"] == 510
    assert cure.freed(tmp_path, "b") == {}


@pytest.mark.lab
@pytest.mark.skipif(
    shutil.which("qemu-system-x86_64", path=search_path()) is None,
    reason="needs QEMU: apt-get install qemu-system-x86",
)
@pytest.mark.parametrize(("kernel", "hierarchy"), [("6.1", "v2"), ("5.10", "v1")])
def test_a_sick_node_is_cured_and_put_back_in_a_machine(
    tmp_path: Path, kernel: str, hierarchy: str
):
    run = runs.plan(kernel, hierarchy, Job(("check_cure",), deadline_s=900), tmp_path)
    (outcome,) = (verdicts.with_verdict(one) for one in runs.play(run))
    assert outcome.good, (outcome.status, outcome.wrong)
    assert outcome.wrong == ()
    document = json.loads((tmp_path / f"check_cure-{kernel}-{hierarchy}/cure.json").read_text())
    assert document["kernel"].startswith(f"{kernel}.")
    assert [claim["id"] for claim in document["claims"]] == [*CLAIMS]
