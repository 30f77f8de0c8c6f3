"""``--root`` on trees that are empty, broken, blocking or lead out: one answer, no traceback."""

from __future__ import annotations

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.cli.main import main
from sexton.cli.screen import frame
from sexton.explain.diagnosis import diagnose
from sexton.host.host import open_host
from sexton.model.window import Window
from sexton.record.sampler import Sampler
from sexton.reports.json.diagnosis import diagnosis_json
from sexton.reports.text.verdict import verdict_text
from sexton.reports.text.zombies import tally, zombies_json, zombies_text
from sexton.sandbox import Limits
from tests.support.cli import one_line, quiet, sexton
from tests.support.examples import examples
from tests.support.unpacked import unpack

QUICK = ("--seconds", "0.2")
SECRET = "sexton-test-secret-of-this-machine"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A real node's tree, to spoil."""
    root = tmp_path / "node"
    root.mkdir()
    unpack(root)
    return root


def replace(root: Path, path: str, make: Callable[[Path], object]) -> None:
    place = root / path.lstrip("/")
    place.unlink()
    make(place)


def told(root: Path) -> dict[str, object]:
    """The diagnosis of a tree, as JSON, with the sources by id."""
    ended = sexton("diagnose", "--root", root, "--json", *QUICK)
    quiet(ended)
    answer: dict[str, object] = json.loads(ended.stdout)
    answer["states"] = {source["id"]: source for source in json.loads(ended.stdout)["sources"]}
    return answer


@pytest.mark.parametrize("command", ["diagnose", "zombies", "sources", "top"])
def test_a_root_that_is_none_is_one_line(command: str, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    for root, why in (
        (tmp_path / "gone", "No such file or directory"),
        (file, "Not a directory"),
        (loop, "Too many levels of symbolic links"),
        ("", "No such file or directory"),
    ):
        ended = sexton(command, "--root", root)
        assert why in one_line(ended.stderr)
        assert (ended.returncode, ended.stdout) == (2, b"")


@pytest.mark.parametrize("command", ["diagnose", "zombies"])
def test_an_empty_root_cannot_be_told_of(command: str, tmp_path: Path) -> None:
    ended = sexton(command, "--root", tmp_path, *QUICK)
    quiet(ended, allowed=[3])


def test_a_root_without_processes_has_no_defunct_ones_to_count(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    findings = {finding["id"]: finding["verdict"] for finding in told(tmp_path)["findings"]}  # type: ignore[attr-defined]
    assert findings["defunct_processes"] == "unknown"


@pytest.mark.parametrize("command", ["sources", "top"])
def test_an_empty_root_is_shown_as_it_is(command: str, tmp_path: Path) -> None:
    quiet(sexton(command, "--root", tmp_path), allowed=[0])


def test_a_tree_that_may_only_be_read_is_enough(tree: Path) -> None:
    for folder, _, names in os.walk(tree):
        for name in names:
            if not os.path.islink(os.path.join(folder, name)):
                os.chmod(os.path.join(folder, name), 0o444)
        os.chmod(folder, 0o555)
    before = sorted((str(path), path.lstat().st_mtime_ns) for path in tree.rglob("*"))
    ended = sexton("diagnose", "--root", tree, "--json", *QUICK)
    quiet(ended, allowed=[1])
    assert sorted((str(path), path.lstat().st_mtime_ns) for path in tree.rglob("*")) == before


@pytest.mark.parametrize(
    "make",
    [
        lambda place: place.symlink_to("/dev/zero"),
        lambda place: place.symlink_to("/"),
        lambda place: place.symlink_to(place.name),
        lambda place: place.symlink_to("../" * 40 + "proc/stat"),
        lambda place: os.mkfifo(place),
        lambda place: place.mkdir(),
        lambda place: os.truncate(os.open(place, os.O_CREAT | os.O_WRONLY), 1 << 40),
    ],
    ids=["device", "root", "loop", "upwards", "fifo", "directory", "huge"],
)
def test_a_file_that_is_none_is_named_and_the_rest_is_judged(
    tree: Path, make: Callable[[Path], object]
) -> None:
    replace(tree, "/proc/stat", make)
    answer = told(tree)
    state = answer["states"]["procfs.stat"]  # type: ignore[index]
    assert state["state"] in ("malformed", "absent")
    assert state["detail"]
    assert answer["exit"] == 1, "the zombies are still there"


def test_no_link_leads_out_of_the_tree(tree: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET + "\n")
    for path in ("/proc/sys/kernel/hostname", "/etc/os-release"):
        replace(tree, path, lambda place: place.symlink_to(secret))
    replace(tree, "/proc/1/comm", lambda place: place.symlink_to("../../../secret"))
    for command in ("diagnose", "zombies"):
        ended = sexton(command, "--root", tree, "--json", *QUICK)
        quiet(ended)
        assert SECRET.encode() not in ended.stdout
    shown = sexton("top", "--root", tree)
    quiet(shown)
    assert SECRET.encode() not in shown.stdout


def test_a_cgroup_whose_name_has_a_newline_is_one_line_everywhere(tree: Path) -> None:
    folder = tree / "sys/fs/cgroup/system.slice"
    hostile = folder / "a\nb \x1b[2J\udcff<script>[bold red].service"
    hostile.mkdir()
    for path in (folder / "demo-crash.service").iterdir():
        (hostile / path.name).write_bytes(path.read_bytes())
    (hostile / "cgroup.stat").write_text("nr_descendants 0\nnr_dying_descendants 700\n")
    shown = sexton("zombies", "--root", tree, *QUICK, env={"COLUMNS": "200"})
    quiet(shown, allowed=[0])
    assert b"a\\nb \\x1b[2J\\xff<script>[bold red].service" in shown.stdout
    for command in (("diagnose",), ("diagnose", "--json"), ("zombies", "--json")):
        quiet(sexton(*command, "--root", tree, *QUICK))
    quiet(sexton("top", "--root", tree))


# --- every file broken in every way ---------------------------------------------------------------


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[str]]]:
    """A tree, and its files with those that differ in numbers alone put together."""
    root = tmp_path_factory.mktemp("spoiled")
    alike = defaultdict(list)
    for path in unpack(root):
        alike[re.sub(r"\d+", "N", path)].append(path)
    return root, [alike[shape] for shape in sorted(alike)]


def read_twice(root: Path, spoil: Callable[[], None]) -> Window:
    """Two readings ten seconds apart, the second after `spoil`."""
    with Sampler(open_host(str(root))) as sampler:
        sampler.host.moment = (100.0, 1e9)
        sampler.read_due(1e9)
        spoil()
        sampler.host.moment = (110.0, 1e9 + 10)
        sampler.read_all()
        return sampler.window()


JUNK = st.one_of(
    st.just(lambda content: b""),
    st.binary(max_size=300).map(lambda junk: lambda content: junk),
    st.integers(0, 5000).map(lambda cut: lambda content: content[:cut]),
    st.integers(1, 5000).map(lambda many: lambda content: b"\0" * many),
    st.sampled_from([b"-1", b"0", b"x", b"NaN", b"1e400", b"9" * 30, b"9" * 5000, b"\xff"]).map(
        lambda word: lambda content: re.sub(rb"\d+", word, content)
    ),
    st.sampled_from([b"\n", b"\0", b"\x1b[2J"]).map(
        lambda word: lambda content: content.replace(b" ", word)
    ),
    st.just(lambda content: content.replace(b"\n", b" ")),
    st.just(lambda content: b"\n".join(reversed(content.split(b"\n")))),
    st.just(lambda content: content * 3),
)


@settings(max_examples=examples(100))
@given(data=st.data())
def test_one_broken_file_leaves_a_verdict_and_no_bug(
    data: st.DataObject, shapes: tuple[Path, list[list[str]]]
) -> None:
    root, alike = shapes
    path = data.draw(st.sampled_from(alike).flatmap(st.sampled_from))
    broken = data.draw(JUNK)
    place = root / path.lstrip("/")
    content = place.read_bytes()
    try:
        window = read_twice(root, lambda: place.write_bytes(broken(content)) and None)
    finally:
        place.write_bytes(content)
    failed = [state for state in window.states.values() if state.state in ("failed", "timeout")]
    assert failed == []
    answer = diagnose(window)
    counted = tally(window)
    json.dumps([diagnosis_json(answer), zombies_json(counted)], allow_nan=False)
    shown = verdict_text(answer) + zombies_text(counted, window, 88) + frame(window, 100, 40).plain
    shown.encode()
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", shown)


@pytest.mark.parametrize(
    ("path", "source", "detector"),
    [
        ("/proc/stat", "procfs.stat", "saturated_core"),
        ("/proc/1/mountinfo", "cgroupfs.census", "zombie_memcgs"),
        ("/proc/cgroups", "cgroupfs.census", "zombie_memcgs"),
    ],
)
def test_what_an_essential_answer_lacked_is_named_in_the_verdict(
    tree: Path, path: str, source: str, detector: str
) -> None:
    (tree / path.lstrip("/")).write_bytes(b"cpu0 \xff\x00\x1b[2J\nmemory\n36 x\n")
    ended = sexton("diagnose", "--root", tree, *QUICK)
    quiet(ended, allowed=[1, 3])
    answer = told(tree)
    assert answer["states"][source]["state"] == "malformed"  # type: ignore[index]
    (finding,) = (item for item in answer["findings"] if item["id"] == detector)  # type: ignore[attr-defined]
    assert finding["verdict"] == "unknown"
    assert path.rpartition("/")[2].encode() in ended.stdout


COUNTERS = (
    "/proc/stat",
    "/proc/softirqs",
    "/proc/interrupts",
    "/proc/vmstat",
    "/proc/schedstat",
    "/proc/1/net/dev",
    "/proc/1/net/snmp",
    "/proc/1/net/netstat",
    "/commands/ethtool_S_eth0",
)


def test_counters_that_go_backwards_give_no_negative_number(tree: Path) -> None:
    """A driver was reset, a suspended machine resumed: what is left is no rate, and no problem."""

    def halve() -> None:
        for path in COUNTERS:
            place = tree / path.lstrip("/")
            small = re.sub(
                rb"\b\d{3,}\b", lambda number: b"%d" % (int(number[0]) // 2), place.read_bytes()
            )
            place.write_bytes(small)

    window = read_twice(tree, halve)
    assert [state for state in window.states.values() if state.state == "failed"] == []
    answer = diagnose(window)
    evidence = [item for finding in answer.findings for item in finding.evidence]
    assert [item for item in evidence if (item.number or 0) < 0] == []
    problems = {finding.id for finding in answer.findings if finding.is_problem}
    assert problems <= {"zombie_memcgs"}, "which were there before"
    assert not re.search(r"[ (]-\d", verdict_text(answer) + frame(window, 100, 40).plain)


@pytest.mark.parametrize(
    "command",
    ["diagnose --seconds 0.1", "zombies --seconds 0.1", "top --frames 1", "sources", "why core 0"],
)
def test_a_tree_that_is_no_nodes_is_read_within_limits(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cgroups").write_text("memory 1 70000 1\n")
    seen: list[Limits] = []
    monkeypatch.setattr("sexton.cli.image.confine", seen.append)
    main([*command.split(), "--root", str(tmp_path)])
    assert {(limits.memory_bytes, limits.live) for limits in seen} == {(500 << 20, False)}
    assert all(limits.writable == () for limits in seen)
    assert command.startswith("top") == (seen[0].cpu_s is None)
