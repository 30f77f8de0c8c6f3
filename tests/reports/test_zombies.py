"""`sexton zombies`: the numbers of the detectors, in order, and unknown never as zero."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sexton.cli.main import main
from sexton.model.row import Row
from sexton.model.rows.cgroup import (
    CgroupCensus,
    CgroupDir,
    CgroupEvent,
    CgroupResidual,
    CgroupStat,
    OfflineMemcg,
)
from sexton.model.rows.kubernetes import Container, Pod
from sexton.model.rows.node import Node
from sexton.model.window import Batch, SourceState, Window
from sexton.reports.text.zombies import tally, zombies_json, zombies_text

HOSTILE = b"/x/\xff\x1b[2J<b>".decode("utf-8", "surrogateescape")


def batch(mono_s: float, *rows: Row) -> Batch:
    return Batch(mono_s, 1.7e9 + mono_s, rows)


def census(dying: int | None, scope: str = "node", reason: str | None = None) -> CgroupCensus:
    live = 240
    total = None if dying is None else dying + live
    return CgroupCensus("v2", 2, "/sys/fs/cgroup", scope, total, live, dying, "cgroup.stat", reason)


def sick() -> Window:
    listed = [OfflineMemcg("/system.slice/ecs.service")] * 68_000 + [OfflineMemcg(HOSTILE)] * 300
    return Window(
        {
            CgroupCensus: [batch(0, census(68_430)), batch(5, census(68_440))],
            CgroupDir: [batch(0, CgroupDir("/", 1, 2), CgroupDir("/system.slice", 2, 0))],
            CgroupStat: [
                batch(
                    5,
                    CgroupStat("/", 239, 68_440, None),
                    CgroupStat("/system.slice", 30, 68_100, None),
                )
            ],
            CgroupResidual: [batch(5, CgroupResidual("/system.slice", 3 << 30, "upper bound"))],
            OfflineMemcg: [batch(0, *listed)],
            CgroupEvent: [batch(0), batch(5)],
            Node: [batch(0, Node("n", "k", 2, None, 698_400.0, *[None] * 8))],
        }
    )


def blind() -> Window:
    reason = "this is a cgroup namespace: 512 node-wide against 1 directory are not comparable"
    state = SourceState("cgroupfs.residual", "memory.stat", "denied", "Permission denied")
    return Window(
        {CgroupCensus: [batch(0, census(None, "subtree", reason))]},
        [state],
        {CgroupResidual: "cgroupfs.residual"},
    )


def text_of(window: Window, width: int = 88) -> str:
    return zombies_text(tally(window), window, width)


def test_a_sick_node_says_how_many_who_what_and_how_fast():
    text = text_of(sick())
    lines = text.splitlines()
    assert lines[0] == "68,440 zombies on this node"
    assert len(lines) <= 25
    assert text.count("not zombie processes") == 1
    assert "+10 in 5.0 s" in text
    assert "+7,200 an hour at this rate" in text
    assert "353 an hour on average since boot (8 d 2 h)" in " ".join(text.split())
    assert "at most 3.0 GiB" in text
    (owner,) = [line for line in lines if "ecs.service" in line]
    assert "68,000" in owner
    assert "proven" in owner


def test_the_counts_add_up_and_the_rest_is_said():
    counted = tally(sick())
    assert sum(owner.dying or 0 for owner in counted.owners) + (counted.left_over or 0) == 68_440


@pytest.mark.parametrize("width", [20, 60, 88, 120, 500])
def test_lines_keep_to_the_width_but_for_what_is_to_be_copied(width: int):
    for line in text_of(sick(), width).splitlines():
        assert len(line) <= min(max(width, 60), 120) or "→" in line or "sexton" in line


def test_hostile_names_are_escaped_in_text_and_json():
    counted = tally(sick())
    for output in (zombies_text(counted, sick()), json.dumps(zombies_json(counted))):
        assert "\x1b" not in output
        assert "\udcff" not in output
    assert "\\xff\\x1b[2J<b>" in zombies_text(counted, sick(), 120)


def test_json_keeps_its_contract():
    found = zombies_json(tally(sick()))
    assert {"schema", "hierarchy", "total", "live", "dying", "bytes", "owners"} <= found.keys()
    assert found["schema"] == "sexton.zombies/1"
    assert (found["hierarchy"], found["total"], found["live"]) == ("v2", 68_680, 240)
    assert (found["dying"], found["bytes"]) == (68_440, 3 << 30)
    assert {"path", "dying", "bytes", "method"} <= found["owners"][0].keys()
    assert (found["reason"], found["bytes_reason"]) == (None, None)


def test_what_cannot_be_known_is_null_with_its_reason():
    counted = tally(blind())
    found = zombies_json(counted)
    assert (found["dying"], found["total"], found["bytes"]) == (None, None, None)
    assert found["live"] == 240
    assert "cgroup namespace" in found["reason"]
    assert "Permission denied" in found["bytes_reason"]
    assert not counted.counted
    text = zombies_text(counted, blind())
    assert text.startswith("The number of zombies is unknown.")
    assert "are not comparable" in " ".join(text.split())
    assert "nsenter" in text


def test_what_would_name_them_is_its_own_command():
    state = SourceState("t", "tracefs", "denied", "not permitted", "sudo sexton diagnose  # root")
    rows = {CgroupCensus: [batch(0, census(600)), batch(5, census(600))]}
    text = text_of(Window(rows, [state], {CgroupEvent: "t"}))
    assert "→ sudo sexton zombies\n" in text


def test_nothing_at_all_is_unknown_and_not_none():
    window = Window({})
    found = zombies_json(tally(window))
    assert found["dying"] is None
    assert found["hierarchy"] is None
    assert found["reason"]


def test_a_clean_node_is_short():
    window = Window({CgroupCensus: [batch(0, census(0)), batch(5, census(0))]})
    text = text_of(window)
    assert text.startswith("No zombies on this node")
    assert "none in 5.0 s" in text
    assert len(text.splitlines()) <= 10


def test_many_owners_are_summed_up_in_one_line():
    parents = [f"/p{number}" for number in range(40)]
    window = Window(
        {
            CgroupCensus: [batch(0, census(4000)), batch(5, census(4000))],
            CgroupDir: [batch(0, *(CgroupDir(path, 9, 0) for path in parents))],
            OfflineMemcg: [
                batch(0, *(OfflineMemcg(f"{path}/dead") for path in parents for _ in range(100)))
            ],
        }
    )
    text = text_of(window)
    assert "and 30 others (--json)" in text
    assert len(text.splitlines()) <= 25


def test_the_command_counts_here_or_says_why_not(capsys: pytest.CaptureFixture[str]):
    status = main(["zombies", "--json", "--seconds", "0.3"])
    found = json.loads(capsys.readouterr().out)
    assert status == (0 if found["dying"] is not None else 3)
    assert found["dying"] is not None or found["reason"]


def test_the_command_on_an_empty_tree_cannot_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["zombies", "--root", str(tmp_path), "--seconds", "0.2"]) == 3
    captured = capsys.readouterr()
    assert "zombies is unknown" in captured.out
    assert captured.err == ""


NODE = Path(__file__).parents[1] / "fixtures" / "nodes" / "6.1-v2-crash.tar.gz"


def test_the_command_counts_what_an_archive_holds(capsys: pytest.CaptureFixture[str]):
    assert main(["zombies", str(NODE), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["dying"] == 742
    assert [owner["unit"] for owner in found["owners"]] == ["demo-crash.service"]


@pytest.mark.parametrize(
    ("more", "says"),
    [(["--watch"], "live node"), (["--root", "/tmp"], "--root"), (["--seconds", "2"], "--seconds")],
)
def test_an_archive_is_not_watched_again(
    capsys: pytest.CaptureFixture[str], more: list[str], says: str
):
    assert main(["zombies", str(NODE), *more]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1


POD = "/kubepods/burstable/pod" + "a" * 32


def left_by_pod(*names: Row) -> Window:
    events = [
        CgroupEvent("rmdir", at, f"{POD}/{at:064x}", int((1 + at / 100) * 1e9)) for at in range(6)
    ]
    states = [SourceState("kubernetes.pod_logs", "/var/log/pods", "denied", "Permission denied")]
    batches: dict[type[Row], list[Batch]] = {
        CgroupCensus: [batch(0.0, census(3)), batch(10.0, census(9))],
        CgroupEvent: [batch(2.0, *events), batch(10.0)],
        CgroupDir: [batch(10.0, CgroupDir("/", 1, 1), CgroupDir(POD, 2, 0))],
    }
    for row in names:
        batches.setdefault(type(row), []).append(batch(0.0, row))
    return Window(batches, states, {Pod: "kubernetes.pod_logs"})


def test_owners_have_the_names_of_pods_in_text_and_json():
    containers = [Container(f"{at:064x}", "prod", "a\x1bb", "app", None, at) for at in range(6)]
    window = left_by_pod(*containers)
    text, found = zombies_text(tally(window), window, 110), zombies_json(tally(window))
    assert "container app of pod prod/a\\x1bb" in text
    (owner,) = [owner for owner in found["owners"] if owner["names"]]
    named = {key: owner[key] for key in ("path", "namespace", "pod", "container")}
    assert named == {"path": POD, "namespace": "prod", "pod": "a\\x1bb", "container": "app"}


def test_a_path_without_a_name_stays_and_says_what_would_name_it():
    window = left_by_pod()
    text, found = zombies_text(tally(window), window, 110), zombies_json(tally(window))
    assert f"{POD}/*" in text
    assert " name pods  /var/log/pods: permission denied" in text
    assert "→ sudo sexton zombies" in text
    assert "pod" not in found["owners"][0]
