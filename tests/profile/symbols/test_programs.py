"""Which file is accepted as the mapped one, and where it is found."""

from __future__ import annotations

import lzma
import os
import shutil
import subprocess
import time

import numpy as np
import pytest

from sexton.profile.perf.raw import MappedFile
from sexton.profile.symbols import SymbolOptions
from sexton.profile.symbols.cache import Cache
from sexton.profile.symbols.programs import Programs
from tests.profile.symbols.programs_of_ours import build, mapped, name_at, run


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("original") / "load")


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def programs(cache=None, **options):
    return Programs(SymbolOptions(**options), Cache(cache and str(cache)))


def test_a_file_with_the_right_build_id_is_read(program):
    found = programs()
    assert name_at(found.table(mapped(program)), program, "hidden") == "hidden"
    assert found.problems() == []


def test_a_file_that_changed_is_not_used_and_reported_once(program, tmp_path):
    told = mapped(program)._replace(path=str(tmp_path / "load"))
    build(tmp_path / "load", source="int main(void) { return 0; }")
    found = programs()
    assert len(found.table(told)) == 0
    (line,) = found.problems()
    assert line == f"{tmp_path}/load: changed since the capture, so their functions are [unknown]"
    assert found.problems() == []


def test_without_a_build_id_the_inode_must_match(program):
    inode = os.stat(program).st_ino
    assert len(programs().table(MappedFile(str(program), None, 0, 1, inode))) > 0
    assert len(programs().table(MappedFile(str(program), None, 0, 1, inode + 1))) == 0
    assert len(programs().table(MappedFile(str(program)))) > 0


def test_without_a_build_id_a_file_written_to_since_is_not_the_same(program):
    written = os.stat(program).st_mtime
    mapped_file = MappedFile(str(program), None, 0, 1, os.stat(program).st_ino)
    assert len(programs().table(mapped_file, until_wall_s=written + 1)) > 0
    assert len(programs().table(mapped_file, until_wall_s=written - 1)) == 0
    assert len(programs().table(mapped(program), until_wall_s=written - 1)) > 0


def test_a_file_that_is_gone_is_found_in_a_directory_that_was_named(program, tmp_path):
    gone = mapped(program)._replace(path="/nowhere/bin/load")
    assert len(programs().table(gone)) == 0
    by_path = tmp_path / "by-path" / "nowhere" / "bin"
    by_name = tmp_path / "by-name"
    by_id = tmp_path / "by-id" / ".build-id" / gone.build_id[:2] / gone.build_id[2:]
    for folder, name in ((by_path, "load"), (by_name, "load"), (by_id, "elf")):
        folder.mkdir(parents=True)
        shutil.copy(program, folder / name)
    for name in ("by-path", "by-name", "by-id"):
        table = programs(directories=(str(tmp_path / name),)).table(gone)
        assert name_at(table, program, "hidden") == "hidden"


def test_perfs_own_store_is_searched(program, tmp_path):
    gone = mapped(program)._replace(path="/nowhere/load (deleted)")
    folder = tmp_path / "home" / ".debug" / ".build-id" / gone.build_id[:2] / gone.build_id[2:]
    folder.mkdir(parents=True)
    shutil.copy(program, folder / "elf")
    assert name_at(programs().table(gone), program, "hidden") == "hidden"


def test_a_stripped_program_is_named_by_its_debug_file(program, tmp_path):
    run("objcopy", "--only-keep-debug", program, tmp_path / "load.debug")
    run("strip", "-o", tmp_path / "bare", program)
    bare = mapped(tmp_path / "bare")
    assert name_at(programs().table(bare), program, "hidden") is None
    folder = tmp_path / "store" / ".build-id" / bare.build_id[:2]
    folder.mkdir(parents=True)
    shutil.copy(tmp_path / "load.debug", folder / f"{bare.build_id[2:]}.debug")
    table = programs(directories=(str(tmp_path / "store"),)).table(bare)
    assert name_at(table, program, "hidden") == "hidden"


def test_the_debug_file_may_be_at_the_debug_link_but_must_be_of_the_same_build(program, tmp_path):
    run("objcopy", "--only-keep-debug", program, tmp_path / "load.debug")
    run("strip", "-o", tmp_path / "bare", program)
    link = f"--add-gnu-debuglink={tmp_path}/load.debug"
    run("objcopy", link, tmp_path / "bare", tmp_path / "linked")
    (tmp_path / ".debug").mkdir()
    (tmp_path / "load.debug").rename(tmp_path / ".debug" / "load.debug")
    linked = mapped(tmp_path / "linked")
    assert name_at(programs().table(linked), program, "hidden") == "hidden"
    other = build(tmp_path / "other", source="int main(void) { return 0; }")
    run("objcopy", "--only-keep-debug", other, tmp_path / ".debug" / "load.debug")
    assert name_at(programs().table(linked), program, "hidden") is None


def test_a_stripped_program_may_carry_a_small_debug_file_within(program, tmp_path):
    run("objcopy", "--only-keep-debug", program, tmp_path / "load.debug")
    run("strip", "-o", tmp_path / "bare", program)
    add = f"--add-section=.gnu_debugdata={tmp_path}/packed"
    for content, named in (
        (lzma.compress((tmp_path / "load.debug").read_bytes()), "hidden"),
        (b"\xfd7zXZ\0 torn", None),
    ):
        (tmp_path / "packed").write_bytes(content)
        run("objcopy", add, tmp_path / "bare", tmp_path / "load")
        table = programs().table(mapped(tmp_path / "load"))
        assert name_at(table, program, "hidden") == named
        assert "sleep@plt" in table.names(np.arange(len(table)))


def test_names_outlive_the_file_in_the_cache(program, tmp_path):
    shutil.copy(program, tmp_path / "load")
    told = mapped(tmp_path / "load")
    programs(tmp_path / "cache").table(told)
    os.unlink(tmp_path / "load")
    table = programs(tmp_path / "cache").table(told)
    assert name_at(table, program, "hidden") == "hidden"


def test_a_stripped_program_in_the_cache_does_not_hide_a_debug_file_that_came_later(
    program, tmp_path
):
    run("strip", "-o", tmp_path / "bare", program)
    bare = mapped(tmp_path / "bare")
    programs(tmp_path / "cache").table(bare)
    folder = tmp_path / "store" / ".build-id" / bare.build_id[:2]
    folder.mkdir(parents=True)
    run("objcopy", "--only-keep-debug", program, folder / f"{bare.build_id[2:]}.debug")
    table = programs(tmp_path / "cache", directories=(str(tmp_path / "store"),)).table(bare)
    assert name_at(table, program, "hidden") == "hidden"


def test_under_a_root_nothing_of_this_machine_is_read(program, tmp_path):
    told = mapped(program)
    (tmp_path / "root").mkdir()
    assert len(programs(root=str(tmp_path / "root")).table(told)) == 0
    inside = tmp_path / "root" / str(program).lstrip("/")
    inside.parent.mkdir(parents=True)
    inside.symlink_to(program)
    assert len(programs(root=str(tmp_path / "root")).table(told)) == 0
    inside.unlink()
    shutil.copy(program, inside)
    assert len(programs(root=str(tmp_path / "root")).table(told)) > 0


def test_a_fifo_a_device_and_junk_at_the_path_are_reported_as_problems(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "junk").write_bytes(b"\x7fELF\x02\x01" + b"\xff" * 200)
    found = programs()
    for path in (tmp_path / "fifo", tmp_path / "junk", "/dev/zero", "/proc/kmsg", "[heap", "x\0y"):
        assert len(found.table(MappedFile(str(path), "ab" * 20))) == 0
    lines = found.problems()
    assert any(
        line.endswith("not readable as ELF, so their functions are [unknown]") for line in lines
    )
    assert any(f"{tmp_path}/fifo" in line for line in lines)


def test_another_file_of_the_same_name_in_a_directory_is_not_reported_as_changed(program, tmp_path):
    build(tmp_path / "load", source="int main(void) { return 0; }")
    (tmp_path / "junk").write_bytes(b"junk")
    found = programs(directories=(str(tmp_path),))
    for name in ("load", "junk"):
        assert len(found.table(mapped(program)._replace(path=f"/nowhere/{name}"))) == 0
    (line,) = found.problems()
    assert line.startswith("/nowhere/load, /nowhere/junk: not found")


def test_no_descriptor_is_left_open_for_any_number_of_processes(program):
    found = programs()
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        found.table(MappedFile(f"/nowhere/{number}", "ab" * 20), [os.getpid(), os.getppid()])
        found.table(mapped(program), [os.getpid()])
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_the_kernel_maps_itself_is_not_missed():
    found = programs()
    assert len(found.table(MappedFile("[vsyscall]"))) == 0
    assert found.problems() == []


def test_hostile_names_are_escaped_in_problems_and_many_are_counted():
    found = programs()
    for number in range(5):
        found.table(MappedFile(f"/no/\x1b[2J{number}", "ab" * 20))
    (line,) = found.problems()
    assert line.startswith("/no/\\x1b[2J0, /no/\\x1b[2J1, /no/\\x1b[2J2 and 2 more: not found")


@pytest.mark.root
def test_a_container_s_program_is_read_through_its_root_while_it_runs(program, tmp_path):
    root = tmp_path / "container"
    (root / "opt").mkdir(parents=True)
    static = build(root / "opt" / "only-there", flags=("-O1", "-static", "-Wl,--build-id"))
    told = mapped(static)._replace(path="/opt/only-there")
    enter = [
        "unshare",
        "--mount",
        "--pid",
        "--fork",
        "chroot",
        str(root),
        "/opt/only-there",
        "wait",
    ]
    running = subprocess.Popen(enter, start_new_session=True)
    try:
        pid = inside_of(running, "only-there")
        assert len(programs().table(told)) == 0
        table = programs(tmp_path / "cache").table(told, [999_999_999, pid])
        assert name_at(table, static, "hidden") == "hidden"
    finally:
        os.killpg(running.pid, 9)
        running.wait()
    wait_for(lambda: not os.path.exists(f"/proc/{pid}/exe"))
    assert len(programs().table(told, [pid])) == 0
    assert len(programs(tmp_path / "cache").table(told, [pid])) > 0


def inside_of(running, comm):
    """The pid, as this machine sees it, of a program under `running`."""
    pgrep = ["pgrep", "-s", str(running.pid), "-x", comm]
    found = wait_for(lambda: subprocess.run(pgrep, capture_output=True).stdout.split())
    return int(found[0])


def wait_for(condition):
    until = time.monotonic() + 180
    while not (found := condition()):
        assert time.monotonic() < until, "it never came about"
        time.sleep(0.02)
    return found
