"""Stacks with names: ours and perf script's, of the same capture of a real load, are equal."""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from sexton.profile.decode import decode
from sexton.profile.perf.perfdata import read_raw
from sexton.profile.symbols import SymbolOptions
from sexton.profile.symbols.symbols import Symbols
from sexton.profile.symbols.symtab import read_table
from tests.profile.symbols.programs_of_ours import elf_of
from tests.support.captures import folded, folded_by_perf, record, remove_perf_maps
from tests.support.tools import need

pytestmark = [pytest.mark.oracle, pytest.mark.root]

PYTHON = """
import time
def fold(n): return sum(i * i for i in range(n))
end = time.monotonic() + 0.7
while time.monotonic() < end: fold(2000)
"""
NODE = "function fold(n){let s=0;for(let i=0;i<n;i++){s+=i%7}return s}\
const end=Date.now()+800;while(Date.now()<end){fold(100000)}"
CXX = """
#include <cstdlib>
#include <string>
namespace app {
template <class T> struct Box { T kept; __attribute__((noinline)) T turn(int times); };
template <class T> T Box<T>::turn(int times) {
  T sum = kept;
  for (int i = 0; i < times; i++) { sum = sum * 3 + i; asm volatile("" ::"r"(&sum) : "memory"); }
  return sum;
}
template <class F> __attribute__((noinline)) long apply(F work, int times) { return work(times); }
__attribute__((noinline)) bool operator<(Box<long> const &one, Box<long> const &other) {
  return Box<long>(one).turn(500) < Box<long>(other).turn(500);
}
}
__attribute__((noinline)) long spin(int times, std::string const &text) {
  long sum = 0;
  app::Box<long> box{7};
  for (int i = 0; i < times; i++) {
    sum += box.turn(300) + atoi(text.c_str()) + (box < box);
    sum += app::apply([&](int n) { return box.turn(n); }, 300);
  }
  return sum;
}
int main() {
  long sum = 0;
  for (int i = 0; i < 2500; i++) sum += spin(100, "123");
  return sum == 42;
}
"""
GO = """
package main

type shape interface{ area(n int) int }
type square struct{ side int }

//go:noinline
func (s *square) area(n int) int {
	sum := s.side
	for i := 0; i < n; i++ {
		sum = sum*31 + i
	}
	return sum
}

//go:noinline
func each(work func(int) int) int { return work(2000) }

func main() {
	var s shape = &square{3}
	sum := 0
	for i := 0; i < 200000; i++ {
		sum += each(func(n int) int { return s.area(n) })
	}
	if sum == 42 {
		println(sum)
	}
}
"""


@pytest.fixture(autouse=True)
def _perf():
    need("perf", package="linux-perf")


def without_calls(stacks):
    """perf before 6.3 names some entries of the procedure linkage table wrongly, or "@plt", or by
    the symbol before the table, which has no size."""
    counts = Counter()
    for stack, samples in stacks.items():
        counts[re.sub(r"[^;]*@plt|\b_init\b", "@plt", stack)] += samples
    return counts


def assert_equal_but_for_strays(ours, theirs):
    """perf throws a whole stack away when a user frame pointer that leads astray gives an address
    it takes for a marker, and shows the bare task. We keep the frames: the kernel's among them are
    sound. Such samples are few, and one by one the same on both sides."""
    missing, more = theirs - ours, ours - theirs
    assert all(";" not in stack for stack in missing), missing
    by_task = Counter()
    for stack, samples in more.items():
        by_task[stack.partition(";")[0]] += samples
    assert by_task == missing
    assert missing.total() <= max(3, theirs.total() // 100)


def compare(capture):
    raw = read_raw(capture)
    profile = decode(raw, Symbols(SymbolOptions(cache="")))
    ours, theirs = without_calls(folded(profile)), without_calls(folded_by_perf(capture))
    assert_equal_but_for_strays(ours, theirs)
    assert not raw.facts.problems
    return ours, profile


def test_a_task_that_is_all_kernel(tmp_path):
    load = ["dd", "if=/dev/zero", "of=/dev/null", "bs=64k", "count=80000"]
    ours, profile = compare(record(tmp_path / "perf.data", load))
    assert any("read_zero" in stack for stack in ours)
    assert "[kernel.kallsyms]" in profile.tree.frames.modules


def test_many_small_system_calls_and_forks(tmp_path):
    load = [
        "sh",
        "-c",
        "i=0; while [ $i -lt 600 ]; do cat /proc/self/stat >/dev/null; i=$((i+1)); done",
    ]
    ours, _ = compare(record(tmp_path / "perf.data", load))
    assert len(ours) > 30


def test_an_interpreter(tmp_path):
    ours, _ = compare(record(tmp_path / "perf.data", [sys.executable, "-c", PYTHON]))
    assert any("_PyEval_EvalFrameDefault" in stack for stack in ours)


def test_cxx_names_are_written_as_perf_writes_them(tmp_path):
    compiler = need("g++", package="g++")
    (tmp_path / "load.cpp").write_text(CXX)
    build = ["-O1", "-fno-omit-frame-pointer", "-o", "load", "load.cpp"]
    subprocess.run([compiler, *build], cwd=tmp_path, check=True, timeout=120)
    ours, _ = compare(record(tmp_path / "perf.data", [tmp_path / "load"]))
    assert any(stack.endswith(";app::Box<long>::turn") for stack in ours)
    assert any(";app::operator<;" in stack for stack in ours)


@pytest.fixture(scope="module")
def go_program(tmp_path_factory):
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        pytest.skip("go is not installed")
    folder = tmp_path_factory.mktemp("go")
    (folder / "load.go").write_text(GO)
    environment = {
        **os.environ,
        "CGO_ENABLED": "0",
        "GOFLAGS": "-buildvcs=false",
        "GO111MODULE": "off",
    }
    for name, flags in (("load", []), ("stripped", ["-ldflags=-s -w"])):
        build = [go, "build", *flags, "-o", name, "load.go"]
        subprocess.run(build, cwd=folder, check=True, env=environment, timeout=300)
    return folder


@pytest.mark.whole
def test_a_go_program(tmp_path, go_program):
    ours, _ = compare(record(tmp_path / "perf.data", [go_program / "load"]))
    assert any("main.(*square).area" in stack for stack in ours)


@pytest.mark.whole
def test_a_stripped_go_program_is_named_by_its_own_table_where_perf_has_no_name(
    tmp_path, go_program
):
    capture = record(tmp_path / "perf.data", [go_program / "stripped"])
    profile = decode(read_raw(capture), Symbols(SymbolOptions(cache="")))
    ours = folded(profile)
    assert any("main.main;main.each;main.(*square).area" in run for run in ours)
    assert not any("main." in stack for stack in folded_by_perf(capture))
    assert sum(ours.values()) == sum(folded_by_perf(capture).values())


@pytest.mark.whole
def test_both_tables_of_a_go_program_name_its_functions_alike(go_program):
    whole, stripped = (read_table(elf_of(go_program / name)) for name in ("load", "stripped"))
    told = elf_of(go_program / "load").section(b".text")
    places = np.arange(told.offset, told.offset + told.size, 16, dtype=np.uint64)
    by_symtab, by_go = whole.find(places), stripped.find(places)
    both = (by_symtab >= 0) & (by_go >= 0)
    assert both.sum() > 0.9 * len(places)
    different = {
        (one, other)
        for one, other in zip(
            whole.names(by_symtab[both]), stripped.names(by_go[both]), strict=True
        )
        # The runtime's table leaves out what a generic function is made for and the linker's marks.
        if re.sub(r"\[.*\]", "[...]", one).removesuffix(".abi0") != other
        and not one.startswith("type:")
    }
    assert not different, sorted(different)[:20]


def test_an_interpreter_that_compiles_tells_its_functions_by_a_map(tmp_path):
    node = need("node", package="nodejs")
    # It leaves a log where it runs.
    command = ["env", "-C", tmp_path, node, "--perf-basic-prof", "-e", NODE]
    load = record(tmp_path / "perf.data", command)
    pids = {space.pid for space in read_raw(load).spaces}
    try:
        ours, profile = compare(load)
    finally:
        remove_perf_maps(pids)
    assert any("fold" in stack for stack in ours)
    assert "[jit]" in profile.tree.frames.modules


def test_of_several_names_at_one_kernel_address_both_choose_the_same(tmp_path):
    # For two seconds: on a fast machine a number of rounds gave too few samples.
    rounds = "while :; do find /proc/self /sys/class >/dev/null; done"
    load = ["sh", "-c", f"timeout 2 sh -c '{rounds}'; :"]
    capture = record(tmp_path / "perf.data", load)
    draw = random.Random(5)
    lines = []
    for line in Path("/proc/kallsyms").read_text().splitlines():
        address, _, name = line.split(" ", 2)
        here = [line]
        if "\t" not in name and draw.random() < 0.5:
            for number in range(draw.randint(1, 3)):
                alias = draw.choice(["", "_", "__"]) + draw.choice(["other_", "o_"]) + name
                here.append(f"{address} {draw.choice('tTwWdDbBrRA')} {alias}{number}")
        draw.shuffle(here)
        lines += here
    (tmp_path / "symbols").write_text("\n".join(lines) + "\n")
    chosen = SymbolOptions(kallsyms=str(tmp_path / "symbols"), cache="")
    ours = without_calls(folded(decode(read_raw(capture), Symbols(chosen))))
    theirs = folded_by_perf(capture, "--kallsyms", str(tmp_path / "symbols"))
    assert ours == without_calls(theirs)
    assert any(re.search(r"\bo(ther)?_\w+\d", stack) for stack in ours)
