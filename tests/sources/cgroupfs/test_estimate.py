"""What a walking read would cost."""

from __future__ import annotations

import os
import sys
from types import SimpleNamespace

import pytest

from sexton.errors import SourceAbsent, SourceMalformed, SourceSkipped
from sexton.host.host import Host, open_host
from sexton.host.runner import Ended
from sexton.sources import cores
from sexton.sources.cgroupfs import estimate as module
from sexton.sources.cgroupfs.estimate import JITTER_S, MOST_MEMCGS, Estimate, estimates
from sexton.sources.cgroupfs.layout import read_layout
from sexton.sources.cores import Spared
from tests.sources.cgroupfs.trees import Tree, mounts

TOP1 = "/sys/fs/cgroup/memory"
TOP2 = "/sys/fs/cgroup"
LEAF_S = 0.0001
LEAVES = ("/slice/a", "/slice/b", "/slice/c", "/docker")


class Kernel:
    """The child's reads, taking as long as a kernel that walks (or does not) would take.

    The child's own program decides what is read: only its clock and its reads are replaced.
    """

    def __init__(self, per_cgroup_s: float, dead: dict[str, int] | None = None) -> None:
        self._each = per_cgroup_s
        self._dead = dead or {}
        self.timed: list[str] = []
        self.runs = 0
        self.cpus: object = "not set"

    def run(self, argv, deadline_s, cpus=None) -> Ended:
        self.runs += 1
        self.cpus = cpus
        program, root = argv[argv.index("-c") + 1 :][:2]
        answers: list[str] = []

        def once(path: str) -> float:
            self.timed.append(path)
            if not os.path.exists(f"{root}{path}"):
                raise OSError(path)
            return LEAF_S + self._each * self._below(cut(path.rpartition("/")[0]))

        start, end = program.index("def once"), program.index("def quickest")
        setting = {
            "sys": SimpleNamespace(argv=argv[argv.index("-c") + 1 :]),
            "once": once,
            "print": lambda *words: answers.append(" ".join(map(str, words)) + "\n"),
        }
        exec(program[:start].replace("import os, sys, time", "") + program[end:], setting)
        return Ended(0, "".join(answers).encode(), b"")

    def _below(self, place: str) -> int:
        live = sum(leaf.startswith(f"{place}/") for leaf in LEAVES)
        dead = sum(n for at, n in self._dead.items() if f"{at}/".startswith(f"{place}/"))
        return live + dead


def cut(path: str) -> str:
    return path.removeprefix(TOP1)


def v1(root, dying: int, pages: dict[str, int] | None = None) -> Host:
    """Four leaves of which `pages` tells how much each directory holds."""
    tree = Tree(root)
    tree.write("/proc/1/mountinfo", mounts(f"/ {TOP1} cgroup rw,memory"))
    tree.write("/proc/cgroups", f"memory\t4\t{6 + dying}\t1\n")
    tree.namespace()
    tree.write(f"{TOP1}/release_agent")
    for path in ("", "/slice", *LEAVES):
        tree.write(f"{TOP1}{path}/memory.numa_stat", "total=0 N0=0\n")
        held = (pages or {}).get(path, 1) * 4096
        tree.write(f"{TOP1}{path}/memory.usage_in_bytes", f"{held}\n")
        tree.write(f"{TOP1}{path}/memory.kmem.usage_in_bytes", f"{held}\n")
        tree.write(f"{TOP1}{path}/cgroup.procs", "7\n")
    return open_host(str(root))


def guess(host: Host) -> Estimate:
    (found,) = estimates(host, read_layout(host))
    assert found.file == "memory.numa_stat"
    return found


@pytest.fixture
def kernel(monkeypatch):
    def make(per_cgroup_s: float, dead: dict[str, int] | None = None) -> Kernel:
        made = Kernel(per_cgroup_s, dead)
        monkeypatch.setattr(cores, "run", made.run)
        return made

    return make


def test_a_kernel_that_keeps_sums_costs_the_same_at_any_size(kernel, tmp_path):
    kernel(0.0)
    found = guess(v1(tmp_path, 70_000))
    assert (found.path, found.memcgs) == ("/slice", 4)
    assert found.estimate_s == pytest.approx(LEAF_S)


def test_a_kernel_that_walks_is_extrapolated_by_the_number_of_cgroups(kernel, tmp_path):
    kernel(70e-6)
    found = guess(v1(tmp_path, 68_674))
    assert found.estimate_s == pytest.approx(68_679 * 70e-6, rel=0.01)


def test_what_jitter_may_have_hidden_is_in_the_most(kernel, tmp_path):
    kernel(0.0)
    found = guess(v1(tmp_path, 68_674))
    assert found.most_s == pytest.approx(LEAF_S + JITTER_S / 3 * 68_679)


def test_the_root_is_never_read_to_find_out(kernel, tmp_path):
    made = kernel(70e-6)
    guess(v1(tmp_path, 68_674))
    assert made.timed
    assert f"{TOP1}/memory.numa_stat" not in made.timed


def test_a_leaf_that_may_hide_many_dead_is_not_timed(kernel, tmp_path):
    made = kernel(70e-6, {"/docker": 60_000})
    guess(v1(tmp_path, 60_000, {"/docker": 60_000}))
    assert f"{TOP1}/slice/a/memory.numa_stat" in made.timed
    assert not [path for path in made.timed if "/docker" in path]


def test_kernel_memory_and_swap_may_hide_the_dead_as_well(kernel, tmp_path):
    made = kernel(70e-6)
    host = v1(tmp_path, 60_000, {"/docker": 60_000})  # all of it is kernel memory in these trees
    (tmp_path / f"{TOP1}/slice/a/memory.memsw.usage_in_bytes".lstrip("/")).write_text(
        f"{60_000 * 4096}\n"
    )
    guess(host)
    assert f"{TOP1}/slice/b/memory.numa_stat" in made.timed
    assert not [path for path in made.timed if "/docker" in path or "/slice/a" in path]


def test_where_every_leaf_may_hide_many_nothing_is_timed_and_that_is_said(kernel, tmp_path):
    made = kernel(70e-6)
    host = v1(tmp_path, 60_000, dict.fromkeys(("/slice", *LEAVES), MOST_MEMCGS))
    for _ in range(2):  # another source needs it, too
        with pytest.raises(SourceSkipped, match="may have more than"):
            estimates(host, read_layout(host))
    assert made.runs == 0


def test_a_node_with_few_dead_is_timed_whatever_its_leaves_hold(kernel, tmp_path):
    kernel(70e-6)
    host = v1(tmp_path, 40, dict.fromkeys(("/slice", *LEAVES), 1_000_000))
    assert guess(host).memcgs == 4


def test_a_parent_that_may_hide_many_dead_is_not_timed(kernel, tmp_path):
    made = kernel(70e-6, {"/slice": 60_000})
    found = guess(v1(tmp_path, 68_674, {"/slice": 60_000}))
    assert f"{TOP1}/slice/memory.numa_stat" not in made.timed
    assert found.memcgs == 1
    assert found.estimate_s == found.most_s == pytest.approx(LEAF_S * 68_680)


def test_pages_of_a_running_leaf_do_not_excuse_its_parent(kernel, tmp_path):
    made = kernel(70e-6, {"/slice/a": 60_000})
    guess(v1(tmp_path, 60_000, {"/slice": 60_000, "/slice/a": 60_000}))
    assert f"{TOP1}/slice/memory.numa_stat" not in made.timed
    assert f"{TOP1}/slice/a/memory.numa_stat" not in made.timed


def test_a_leaf_so_slow_that_the_subtree_might_stall_leaves_it_alone(kernel, tmp_path, monkeypatch):
    made = kernel(0.0)
    monkeypatch.setattr(module, "MOST_RISK_S", LEAF_S * 3)
    assert guess(v1(tmp_path, 40)).memcgs == 1
    assert f"{TOP1}/slice/memory.numa_stat" not in made.timed


def test_a_quick_leaf_does_not_excuse_a_parent_with_many_dead(kernel, tmp_path, monkeypatch):
    made = kernel(0.0)
    monkeypatch.setattr(sys.modules[__name__], "LEAF_S", 1e-6)  # hot; the dead would be cold
    assert guess(v1(tmp_path, 60_000, {"/slice": 60_000})).memcgs == 1
    assert f"{TOP1}/slice/memory.numa_stat" not in made.timed


def test_v2_goes_by_the_kernels_own_count_of_the_dying(kernel, tmp_path):
    made = kernel(0.0)
    tree = Tree(tmp_path)
    tree.write("/proc/1/mountinfo", mounts(f"/ {TOP2} cgroup2 rw"))
    tree.write("/proc/cgroups", "memory\t0\t9\t1\n")
    tree.write(f"{TOP2}/cgroup.controllers", "memory\n")
    for path, dying in (("", 60_000), ("/docker", 59_990), ("/idle", 10)):
        stat = f"nr_descendants 2\nnr_dying_descendants {dying}\n"
        tree.write(f"{TOP2}{path}/cgroup.stat", stat)
        tree.write(f"{TOP2}{path}/memory.numa_stat", "anon N0=0\n")
    found = guess(open_host(str(tmp_path)))
    assert found.path == "/idle"
    assert {path.rpartition("/")[0] for path in made.timed} == {f"{TOP2}/idle"}


def test_all_is_timed_by_one_child_off_the_cores_of_the_nic(kernel, tmp_path, monkeypatch):
    made = kernel(0.0)
    monkeypatch.setattr(cores, "off_the_nic", lambda _: Spared(frozenset({1}), ""))
    host = v1(tmp_path, 40)
    first = guess(host)
    assert guess(host) == first
    assert made.runs == 1
    assert made.cpus == {1}


def test_timings_are_carried_on_to_the_number_there_is_by_then(kernel, tmp_path):
    kernel(70e-6)
    host = v1(tmp_path, 40)
    few = guess(host)
    (tmp_path / "proc/cgroups").write_text("memory\t4\t68680\t1\n")
    host.memo.pop("census")
    assert guess(host).estimate_s > few.estimate_s * 100


def test_a_real_child_reads_real_files_and_no_link(tmp_path):
    host = v1(tmp_path, 40)
    found = guess(host)
    assert (found.path, found.memcgs) == ("/slice", 4)
    assert 0 < found.measured_s < 1
    for path in ("/slice", *LEAVES):
        place = tmp_path / f"{TOP1}{path}/memory.numa_stat".lstrip("/")
        place.unlink()
        place.symlink_to("/proc/self/status")
    host.memo.clear()
    with pytest.raises(SourceAbsent):
        guess(host)


def test_without_a_leaf_that_has_the_files_it_is_absent(kernel, tmp_path):
    kernel(0.0)
    host = v1(tmp_path, 40)
    for path in LEAVES:
        (tmp_path / f"{TOP1}{path}/memory.numa_stat".lstrip("/")).unlink()
    with pytest.raises(SourceAbsent, match="no cgroup below the root has this file"):
        guess(host)


def test_a_child_that_prints_junk_is_malformed(tmp_path, monkeypatch):
    monkeypatch.setattr(cores, "run", lambda *_, **__: Ended(0, b"\n99 x\n", b""))
    with pytest.raises(SourceMalformed):
        guess(v1(tmp_path, 40))


def test_a_child_that_fails_says_why(tmp_path, monkeypatch):
    monkeypatch.setattr(cores, "run", lambda *_, **__: Ended(1, b"", b"x\nOSError: no\n"))
    with pytest.raises(SourceAbsent, match="OSError: no"):
        guess(v1(tmp_path, 40))


def test_the_walking_files_are_not_opened_by_ourselves(tmp_path, monkeypatch):
    host = v1(tmp_path, 60_000)
    opened: list[str] = []
    read = type(host.files).read

    def spy(files, path, *given):
        opened.append(path)
        return read(files, path, *given)

    monkeypatch.setattr(type(host.files), "read", spy)
    guess(host)
    assert opened
    assert not [path for path in opened if path.endswith(("memory.stat", "memory.numa_stat"))]
