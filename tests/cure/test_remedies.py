"""Every remedy keeps the contract that the executor relies on."""

from __future__ import annotations

import importlib
import inspect
import json
from types import SimpleNamespace

import pytest

from sexton.cure import remedies
from sexton.cure.remedies import (
    delete_tmpfs_files,
    drop_caches,
    reboot_node,
    remove_empty_cgroups,
    stop_unit,
)
from sexton.cure.remedies.delete_tmpfs_files import TmpfsEntry, TmpfsUse
from sexton.cure.remedies.remove_empty_cgroups import REMOVE, STOP, EmptyCgroup
from sexton.cure.remedy import StepContext, remedy, remedy_names
from sexton.cure.writer import WriteResult
from sexton.errors import CommandError
from sexton.model.plan import Step
from tests.model.test_plan import step
from tests.support.trees import plant


@pytest.mark.parametrize("name", remedy_names())
def test_a_remedy_is_a_module_with_a_docstring_and_four_functions(name: str):
    module = importlib.import_module(f"{remedies.__name__}.{name}")
    assert len(module.__doc__ or "") > 40
    assert isinstance(module.RECLAIMS, bool)
    assert inspect.signature(module.propose).return_annotation == Step.__name__
    for function, number in (("prepare", 2), ("carry_out", 2), ("undo", 2)):
        assert len(inspect.signature(getattr(module, function)).parameters) == number
    assert "_" in name, "an imperative with its object: stop_unit"


@pytest.mark.parametrize("name", ["os", "../x", "", "sexton.cure.lock", "__init__"])
def test_only_what_is_in_the_folder_is_ever_imported(name: str):
    with pytest.raises(CommandError, match="unknown remedy"):
        remedy(name)


def context() -> StepContext:
    return SimpleNamespace(stop=lambda: "", host=None, writer=None)


@pytest.mark.parametrize("act", ["prepare", "carry_out"])
def test_a_plan_that_would_have_a_reboot_carried_out_gets_none(act: str):
    forged = step(remedy="reboot_node", commands=("systemctl reboot",))
    with pytest.raises(CommandError, match="never reboots"):
        getattr(reboot_node, act)(forged, context())


@pytest.mark.parametrize("act", ["prepare", "carry_out"])
def test_a_plan_that_would_have_files_deleted_deletes_none(act: str):
    forged = step(remedy="delete_tmpfs_files", commands=("rm -r /",))
    with pytest.raises(CommandError, match="deletes no file"):
        getattr(delete_tmpfs_files, act)(forged, context())


def test_the_systems_own_files_are_listed_without_a_command_that_deletes_them(tmp_path):
    entries = (
        TmpfsEntry("/run/log/journal", 9 << 20, 4, 0, 1.0),
        TmpfsEntry("/dev/shm/a b; rm -rf ~", 8 << 20, 1, 77_777, 1.0),
        TmpfsEntry("System V segment 7 (no process uses it)", 7 << 20, 1, 0, 1.0, 7),
        TmpfsEntry("/run", 6 << 20, 900, 0, 1.0, small=True),
        TmpfsEntry("/dev/shm", 5 << 20, 900, None, 1.0, small=True),
    )
    made = delete_tmpfs_files.propose("1-tmpfs", TmpfsUse(entries, False), "12 MiB is tmpfs")
    assert "rm -r -- '/dev/shm/a b; rm -rf ~'" in made.commands
    assert "ipcrm -m 7" in made.commands
    deleting = [command for command in made.commands if command.startswith(("rm", "find"))]
    assert not any("/run" in command for command in deleting)
    assert "find /dev/shm -xdev -type f -size -1024k -delete" in deleting
    assert any("900 files of less than 1.0 MiB, several owners" in line for line in made.commands)
    assert any("owner uid 77777" in command for command in made.commands)
    assert "too many to look at all of them" in made.risk_why


def test_what_uses_a_directory_is_asked_of_each_file_below_it():
    entries = (TmpfsEntry("/dev/shm/job 7", 8 << 20, 12, 0, 1.0),)
    made = delete_tmpfs_files.propose("1-tmpfs", TmpfsUse(entries, True), "8 MiB is tmpfs")
    # fuser on the directory itself would not show a process that has a file in it open.
    check, delete = made.commands[1:]
    assert check.startswith("find '/dev/shm/job 7' -xdev -type f -exec fuser -v {} +")
    assert delete == "rm -r -- '/dev/shm/job 7'"


def test_system_v_segments_are_found_in_the_kernels_list(tmp_path):
    listed = (
        "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid"
        "  cgid      atime      dtime      ctime                   rss                  swap\n"
        "         0          5  1600               8388608  3421  3421      0  1000  1000  1000"
        "  1000          0          0 1763300000               4194304                     0\n"
    )
    host = plant(tmp_path, {"/proc/sysvipc/shm": listed, "/proc/self/mountinfo": ""})
    (found,) = delete_tmpfs_files.find_tmpfs_use(host).entries
    assert (found.segment, found.bytes, found.uid) == (5, 4 << 20, 1000)
    assert found.path == "System V segment 5 (no process uses it)"


def test_a_node_without_a_cluster_needs_no_drain():
    assert reboot_node.propose("1-reboot", "n", False).commands == ("systemctl reboot",)


def test_a_nodes_name_cannot_reach_the_shell():
    commands = reboot_node.propose("1-reboot", "n; rm -rf /", True).commands
    assert all("'n; rm -rf /'" in command for command in commands if "kubectl" in command)


def leftover(number: int, how: str = REMOVE) -> EmptyCgroup:
    return EmptyCgroup(f"/a/run-{number}.scope", number, 0, 900.0 + number, how)


def test_empty_cgroups_are_listed_by_inode_and_at_most_some():
    many = [leftover(number) for number in range(remove_empty_cgroups.MOST + 7)]
    made = remove_empty_cgroups.propose("1-remove", many)
    assert made.title == f"remove {remove_empty_cgroups.MOST} empty cgroups"
    assert "7 are left for another plan" in made.effect
    assert made.preconditions[0].expected == "0"
    kept = json.loads(str(made.parameters["leftovers"]))
    assert kept[3][:2] == ["/a/run-3.scope", 3]
    stopped = remove_empty_cgroups.propose("1-remove", [leftover(1, STOP)])
    assert stopped.commands == ("systemctl stop run-1.scope",)


@pytest.mark.parametrize(
    "forged",
    ["", "[", "[[1]]", '[["/a/../../b", 1, 0, 1.0, "rmdir"]]', '[["/a", 1, 0, 1.0, "rm -rf"]]'],
)
def test_a_forged_list_of_cgroups_is_refused(forged: str):
    with pytest.raises(CommandError):
        remove_empty_cgroups.carry_out(step(parameters={"leftovers": forged}), context())


def test_a_step_without_its_unit_is_refused():
    with pytest.raises(CommandError, match="parameter unit is missing"):
        stop_unit.prepare(step(parameters={}), context())


@pytest.mark.parametrize(("left", "dropped"), [(99, False), (100, True), (2000, True)])
def test_the_nodes_cache_is_not_dropped_for_the_last_few_zombies(left: int, dropped: bool):
    given: list[str] = []

    def write_control(path: str, value: str, _terms: object) -> WriteResult:
        given.append(f"{value} > {path}")
        return WriteResult("done", 0, 0.1, 0.1)

    made = drop_caches.propose("5-drop-caches", 1 << 30, 1000)
    assert "skipped if less than 10 % of the zombies are left" in made.effect
    acting = SimpleNamespace(
        stop=lambda: "",
        deadline_s=lambda most: most,
        probes=SimpleNamespace(dying=lambda: left),
        writer=SimpleNamespace(write_control=write_control),
    )
    came = drop_caches.carry_out(made, acting)
    assert given == (["1 > /proc/sys/vm/drop_caches"] if dropped else [])
    assert came.get("skipped", False) is not dropped
    if not dropped:
        assert came["said"] == "skipped: only 99 of 1,000 zombies are left"
