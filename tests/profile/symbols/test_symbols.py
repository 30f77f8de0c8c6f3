"""Perf maps of processes, found where each process wrote its own; the vDSO."""

from __future__ import annotations

import os
import subprocess
import time

import numpy as np
import pytest

from sexton.host.reader import LiveFiles
from sexton.model.profile import Facts
from sexton.profile.perf.raw import KernelFacts, MappedFile
from sexton.profile.symbols import SymbolOptions
from sexton.profile.symbols.kernel import kernel_build_id
from sexton.profile.symbols.symbols import Symbols, innermost_pid, own_vdso, started_wall_s
from tests.profile.symbols.programs_of_ours import name_of
from tests.profile.symbols.test_programs import wait_for

MAP = "7f0000001000 100 fold file.js:1\n"


def symbols(**options):
    return Symbols(SymbolOptions(cache="", **options))


@pytest.fixture
def child():
    running = subprocess.Popen(["sleep", "60"])
    yield running.pid
    running.kill()
    running.wait()


def test_the_perf_map_of_a_running_process_is_read(child):
    path = f"/tmp/perf-{child}.map"
    with open(path, "w") as file:
        file.write(MAP)
    try:
        assert name_of(symbols().jit(child, time.time()), 0x7F0000001010) == "fold file.js:1"
        assert abs(started_wall_s(LiveFiles(), child) - time.time()) < 30
    finally:
        os.unlink(path)
    assert len(symbols().jit(child, None)) == 0


def test_a_map_in_a_named_directory_is_found(tmp_path):
    (tmp_path / "perf-999999999.map").write_text(MAP)
    found = symbols(directories=(str(tmp_path),)).jit(999999999, None)
    assert name_of(found, 0x7F0000001010) == "fold file.js:1"


def test_a_fifo_in_the_place_of_a_map_is_passed_over(tmp_path):
    os.mkfifo(tmp_path / "perf-999999999.map")
    assert len(symbols(directories=(str(tmp_path),)).jit(999999999, None)) == 0


@pytest.mark.root
def test_a_containers_map_is_found_in_its_own_tree_under_its_own_number(tmp_path):
    (tmp_path / "tmp").mkdir()
    mounts = " && ".join(
        f"mkdir -p {tmp_path}{text} && mount --rbind {text} {tmp_path}{text}"
        for text in ("/usr", "/lib", "/lib64", "/bin", "/proc")
        if os.path.isdir(text)
    )
    inside = f"exec chroot {tmp_path} /bin/sleep 61"
    enter = ["unshare", "--mount", "--pid", "--fork", "sh", "-c", f"{mounts} && {inside}"]
    running = subprocess.Popen(enter, start_new_session=True)
    try:
        pgrep = ["pgrep", "-s", str(running.pid), "-f", "^/bin/sleep 61"]
        pid = int(wait_for(lambda: subprocess.run(pgrep, capture_output=True).stdout.split())[0])
        own = innermost_pid(LiveFiles(), pid)
        assert own != pid
        (tmp_path / "tmp" / f"perf-{own}.map").write_text(MAP)
        assert name_of(symbols().jit(pid, None), 0x7F0000001010) == "fold file.js:1"
    finally:
        os.killpg(running.pid, 9)
        running.wait()


def test_the_vdso_is_named_on_the_kernel_it_was_recorded_on_and_on_no_other():
    if own_vdso(LiveFiles()) is None:
        pytest.skip("this process has no vDSO")
    here = KernelFacts(build_id=kernel_build_id(LiveFiles()) or "00")
    table = symbols().vdso(MappedFile("[vdso]"), here, Facts())
    assert "__vdso_clock_gettime" in table.names(np.arange(len(table)))
    for file, kernel in (
        (MappedFile("[vdso]"), KernelFacts(build_id="ab" * 20)),
        (MappedFile("[vdso]", "ab" * 20), here),
        (MappedFile("[vdso]"), KernelFacts()),
    ):
        assert len(symbols().vdso(file, kernel, Facts())) == 0
