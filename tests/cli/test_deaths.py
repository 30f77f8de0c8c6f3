"""`sexton zombies --watch`: each death once, and a zombie only after the grace."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.cli.deaths import Ledger, Outcome, _as_json, _line, _require_trace, watch
from sexton.errors import CommandError
from sexton.host.host import open_host
from sexton.model.rows.cgroup import CgroupCensus, CgroupEvent
from sexton.model.rows.kubernetes import Pod
from sexton.model.window import SourceState, Window
from sexton.record.sampler import Sampler
from sexton.sources.registry import sources_of
from tests.support.cli import reader_of
from tests.support.windows import make_window

S = 1_000_000_000


def event(kind: str, cgroup_id: int, at_s: float, path: str = "/a") -> CgroupEvent:
    return CgroupEvent(kind, cgroup_id, path, int(at_s * S))


def test_a_release_ends_a_death_and_paths_do_not_join():
    ledger = Ledger()
    events = [
        event("mkdir", 1, 0.5),
        event("rmdir", 1, 1.0),
        event("mkdir", 2, 1.1),
        event("release", 1, 1.25),
        event("rmdir", 2, 1.5),
    ]
    (told,) = ledger.feed(events, 2.0)
    assert (told.kind, told.path, told.died_s, told.after_s) == ("released", "/a", 1.0, 0.25)
    assert (ledger.births, ledger.deaths, ledger.released) == (2, 2, 1)
    assert "1 pending" in ledger.totals


def test_a_zombie_is_reported_once_and_after_five_seconds():
    ledger = Ledger()
    assert list(ledger.feed([event("rmdir", 1, 10.0)], 14.9)) == []
    (told,) = ledger.feed([], 15.1)
    assert told.kind == "zombie"
    assert list(ledger.feed([], 99.0)) == []
    (freed,) = ledger.feed([event("release", 1, 100.0)], 100.0)
    assert (freed.kind, freed.after_s) == ("freed", 90.0)
    assert ledger.totals == "1 removed · 0 freed · 1 zombie · 1 of them freed later"


def test_a_late_release_read_in_one_go_was_a_zombie_first():
    ledger = Ledger()
    kinds = [
        value.kind for value in ledger.feed([event("rmdir", 1, 1), event("release", 1, 9)], 10)
    ]
    assert kinds == ["zombie", "freed"]
    assert ledger.zombies == {}


def test_printed_times_never_run_backwards():
    ledger = Ledger()
    events = [event("rmdir", 1, 1), event("rmdir", 2, 4), event("release", 2, 4.5)]
    events += [event("rmdir", 3, 7), event("release", 3, 7.2), event("release", 1, 8)]
    told = list(ledger.feed(events, 9.0))
    assert [entry.kind for entry in told] == ["released", "zombie", "released", "freed"]
    assert [entry.at_s for entry in told] == pytest.approx([4.5, 7.2, 7.2, 8.0])


@pytest.mark.parametrize("kind", ["released", "zombie", "doubtful", "freed"])
def test_paths_are_aligned_whatever_the_line_says(kind):
    lines = [_line(Outcome(kind, "/a", 0.0, after_s), Window({})) for after_s in (5.4, 86_399)]
    moment = time.strftime("%H:%M:%S", time.localtime(5.4))
    assert lines[0].startswith(f" {moment}  ")
    assert {line.index("/a") for line in lines} == {56}


def test_a_pod_is_named_beside_its_path():
    ledger = Ledger()
    ledger.names.add([Pod("a" * 32, "prod", "api\x1b")])
    died = Outcome("zombie", f"/kubepods/pod{'a' * 32}/x", 0.0, 5.4)
    part = ledger.names.of(died.path)
    assert _line(died, Window({}), part).endswith("/x  (pod prod/api\\x1b)")
    found = json.loads(_as_json(died, Window({}), part))
    assert (found["namespace"], found["pod"]) == ("prod", "api\\x1b")
    assert "container" not in found


def test_after_a_gap_a_missing_release_proves_nothing():
    ledger = Ledger()
    assert list(ledger.feed([event("rmdir", 1, 1.0)], 2.0)) == []
    ledger.gap(40)
    (told, sure) = ledger.feed([event("rmdir", 2, 3.0)], 9.0)
    assert (told.kind, sure.kind) == ("doubtful", "zombie")
    assert ledger.totals == "2 removed · 0 freed · 1 zombie · 1 unknown · 40 events lost"


def test_a_release_of_something_that_died_before_is_no_death():
    ledger = Ledger()
    assert list(ledger.feed([event("release", 7, 1.0)], 1.0)) == []
    assert ledger.deaths == 0


def test_another_hosts_tree_cannot_be_watched(tmp_path: Path):
    with pytest.raises(CommandError) as caught:
        watch(str(tmp_path), 1.0)
    assert caught.value.exit_code == 3


def test_where_the_trace_hangs_it_names_the_command_that_says_why():
    provider = sources_of(CgroupEvent)[0]
    hung = SourceState(provider.id, provider.path, "timeout", "no answer in 1 s; abandoned")
    with pytest.raises(CommandError, match="sudo sexton diagnose names a task") as caught:
        _require_trace(make_window([], states=[hung]))
    assert "sudo sexton zombies" not in str(caught.value)


@pytest.mark.root
def test_without_rights_it_is_one_line_with_the_grant(tracefs):
    told, answer = os.pipe()
    sources_of(CgroupEvent)  # every import is made while we may still read them
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            watch("/", 1.0)
            os.write(answer, b"it could be followed")
        except CommandError as error:
            os.write(answer, f"{error.exit_code} {error}".encode())
        finally:
            os._exit(0)
    os.close(answer)
    os.waitpid(child, 0)
    with os.fdopen(told) as lines:
        (line,) = lines.read().splitlines()
    assert line.startswith("3 cannot trace cgroup removals: ")
    assert "sudo" in line


@pytest.fixture
def tracefs(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "tracefs"
    place.mkdir()
    subprocess.run(["mount", "-t", "tracefs", "nodev", str(place)], check=True)
    yield place
    # Lazily: another sexton on the node may have found the mount and be reading it.
    subprocess.run(["umount", "-l", str(place)], check=True)


@pytest.fixture
def yard(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A memory cgroup and a tmpfs of our own."""
    with Sampler(open_host(), sources_of(CgroupCensus)) as sampler:
        (census,) = sampler.run(0).latest(CgroupCensus)
    top = Path(f"{census.mount_point}/sexton-test-{os.getpid()}-watch")
    pages = tmp_path / "pages"
    pages.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(pages)], check=True)
    top.mkdir()
    if census.version == 2:
        (top / "cgroup.subtree_control").write_text("+memory")
    yield top, pages
    subprocess.run(["umount", str(pages)], check=True)
    _remove(top)


def _remove(group: Path) -> None:
    """`rmdir` may answer EBUSY for some milliseconds after the last exit."""
    for _ in range(600):
        try:
            group.rmdir()
            return
        except OSError:
            time.sleep(0.05)
    group.rmdir()


def _die(yard: tuple[Path, Path], name: str, *, hold: bool) -> None:
    top, pages = yard
    group = top / name
    group.mkdir()
    if hold:
        work = f"echo $$ > '{group}/cgroup.procs'; head -c 8192 /dev/zero > '{pages}/{name}'"
        subprocess.run(["sh", "-c", work], check=True)
    _remove(group)


@pytest.mark.root
@pytest.mark.parametrize(
    "end", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.whole)]
)
def test_watch_prints_real_deaths_and_removes_its_trace_instance(
    tracefs, yard, end: signal.Signals
):
    child = subprocess.Popen(
        [sys.executable, "-m", "sexton", "zombies", "--watch", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 180
    while not _armed(tracefs, f"sexton-{reader_of(child)}-"):
        assert time.monotonic() < deadline, "it never traced"
        time.sleep(0.05)
    mine = f"sexton-{reader_of(child)}-"
    document = _die_until_told(child, yard)
    child.send_signal(end)
    child.communicate(timeout=90)
    assert document == {"kept": "zombie", "clean": "released"}
    assert child.returncode == 0
    assert not [path for path in (tracefs / "instances").iterdir() if path.name.startswith(mine)]


def _die_until_told(child: subprocess.Popen[str], yard: tuple[Path, Path]) -> dict[str, str]:
    """Die again where the command says that events were lost: other tests may remove thousands of
    cgroups at the same time."""
    document: dict[str, str] = {}
    lines = queue.SimpleQueue[str]()
    assert child.stdout is not None
    threading.Thread(target=lambda: [*map(lines.put, child.stdout)], daemon=True).start()
    is_lost, deaths = True, 0
    while len(document) < 2:
        if is_lost:
            deaths += 1
            for kind in ("kept", "clean"):
                _die(yard, f"{kind}{deaths}", hold=kind == "kept")
        fact = json.loads(lines.get(timeout=60))
        is_lost = fact["state"] == "lost"
        if yard[0].name in fact.get("path", "") and fact["state"] != "doubtful":
            document[Path(fact["path"]).name.rstrip("0123456789")] = fact["state"]
    return document


def _armed(tracefs: Path, name: str) -> bool:
    mine = [path for path in (tracefs / "instances").iterdir() if path.name.startswith(name)]
    enabled = [path / "events/cgroup/cgroup_release/enable" for path in mine]
    # A new instance has a name before it has events.
    return any(path.exists() and path.read_text().strip() == "1" for path in enabled)
