"""Naming the addresses of raw captures: frames, unknown addresses, threads."""

from __future__ import annotations

import random
import subprocess

import numpy as np
import pytest

from sexton.model.profile import Kind
from sexton.profile.decode import decode, threads_of
from sexton.profile.perf.raw import KernelFacts, KernelSymbol, MappedFile, Maps, Space
from sexton.profile.symbols import SymbolOptions
from sexton.profile.symbols.symbols import Symbols
from tests.profile.symbols.programs_of_ours import build, mapped, offset_of
from tests.support.captures import Sample, folded, raw_of

KALLSYMS = b"""ffffffff81000000 T _text
ffffffff81000100 T sys_read
ffffffff81000200 T sys_write
ffffffff82000000 T _etext
ffffffffc0400000 t ext4_read\t[ext4]
"""
READ, WRITE, EXT4 = 0xFFFFFFFF81000104, 0xFFFFFFFF81000204, 0xFFFFFFFFC0400004


@pytest.fixture
def symbols(tmp_path):
    (tmp_path / "kallsyms").write_bytes(KALLSYMS)
    return Symbols(SymbolOptions(kallsyms=str(tmp_path / "kallsyms"), cache=""))


def maps(*rows):
    start, end, pgoff, file = zip(*rows, strict=True)
    return Maps(
        *(np.array(item, np.uint64) for item in (start, end, pgoff)), np.array(file, np.int32)
    )


def frames(profile):
    table = profile.tree.frames
    return set(zip(table.names, table.modules, table.kinds.tolist(), strict=True))


def test_kernel_modules_and_bpf_programs_have_their_names(symbols):
    program = KernelSymbol(0xFFFFFFFFC0401000, 0xFFFFFFFFC0401100, "bpf_prog_ab12_count")
    chain = ((0, EXT4), (0, program.start), (0, READ), (0, 0xFFFFFFFFF0000000))
    raw = raw_of([Sample(5, 0, 1, 1, "dd", chain)], kernel=KernelFacts(ksymbols=[program]))
    profile = decode(raw, symbols)
    assert folded(profile) == {"dd;[unknown];sys_read;bpf_prog_ab12_count;ext4_read": 1}
    assert frames(profile) == {
        ("", "", Kind.ROOT),
        ("dd", "", Kind.TASK),
        ("[unknown]", "[kernel.kallsyms]", Kind.KERNEL),
        ("sys_read", "[kernel.kallsyms]", Kind.KERNEL),
        ("bpf_prog_ab12_count", "[bpf]", Kind.KERNEL),
        ("ext4_read", "[ext4]", Kind.KERNEL),
    }


def test_two_addresses_of_one_function_are_one_frame_and_frames_are_sorted_by_name(symbols):
    chains = [((0, READ),), ((0, READ + 4),), ((0, WRITE),)]
    raw = raw_of([Sample(n, 0, 1, 1, "a", chain) for n, chain in enumerate(chains)])
    profile = decode(raw, symbols)
    assert folded(profile) == {"a;sys_read": 2, "a;sys_write": 1}
    assert profile.tree.frames.names == ("", "a", "sys_read", "sys_write")


def test_without_kernel_symbols_names_are_unknown_and_a_problem_says_what_to_pass(tmp_path):
    nothing = Symbols(SymbolOptions(kallsyms=str(tmp_path / "none"), cache=""))
    profile = decode(raw_of([Sample(0, 0, 1, 1, "a", ((0, READ),))]), nothing)
    assert folded(profile) == {"a;[unknown]": 1}
    (problem,) = profile.facts.problems
    assert "kernel functions are [unknown]" in problem


def test_a_program_is_named_at_the_place_it_was_mapped_to(symbols, tmp_path):
    program = build(tmp_path / "load")
    listed = subprocess.run(["nm", program], check=True, capture_output=True, text=True).stdout
    address = next(
        int(line.split()[0], 16) for line in listed.splitlines() if line.endswith(" main")
    )
    offset = offset_of(program, address)
    base = 0x7F0000000000
    space = Space(7, maps((base, base + 0x4000, 0, 0), (base + 0x10000, base + 0x14000, 0x1000, 0)))
    at = base + 0x10000 + offset - 0x1000
    chain = ((1, at + 1), (1, base + 0x10), (1, base + 0x14000), (-1, at))
    raw = raw_of([Sample(0, 0, 7, 7, "load", chain)], spaces=[space], files=[mapped(program)])
    profile = decode(raw, symbols)
    assert folded(profile) == {"load;[unknown];[unknown];[unknown];main": 1}
    assert {module for name, module, _ in frames(profile) if name == "[unknown]"} == {
        str(program),
        "[unknown]",
    }
    assert profile.facts.problems == []


def test_a_missing_program_keeps_its_module_and_is_reported(symbols):
    space = Space(7, maps((0x400000, 0x500000, 0, 0)))
    file = MappedFile("/no/such/program", "ab" * 20)
    raw = raw_of([Sample(0, 0, 7, 7, "x", ((1, 0x400010),))], spaces=[space], files=[file])
    profile = decode(raw, symbols)
    assert ("[unknown]", "/no/such/program", Kind.USER) in frames(profile)
    (problem,) = profile.facts.problems
    assert problem.startswith("/no/such/program: not found")


def test_code_a_process_made_is_named_by_its_map_at_its_own_addresses(tmp_path):
    (tmp_path / "perf-7.map").write_text("7f0000001000 100 fold file.js:1\n")
    (tmp_path / "perf-8.map").write_text("7f0000001000 100 other file.js:9\n")
    named = Symbols(SymbolOptions(directories=(str(tmp_path),), cache="", root=str(tmp_path)))
    spaces = [Space(pid, maps((0x7F0000001000, 0x7F0000002000, 0x1000, 0))) for pid in (7, 8)]
    samples = [
        Sample(0, 0, 7, 7, "node", ((1, 0x7F0000001080), (1, 0x7F0000001180))),
        Sample(0, 0, 8, 8, "node", ((2, 0x7F0000001080),)),
    ]
    profile = decode(raw_of(samples, spaces=spaces, files=[MappedFile("//anon")]), named)
    assert folded(profile) == {"node;[unknown];fold file.js:1": 1, "node;other file.js:9": 1}
    assert ("fold file.js:1", "[jit]", Kind.USER) in frames(profile)
    assert ("[unknown]", "//anon", Kind.USER) in frames(profile)
    assert profile.facts.problems == []


def test_a_capture_without_samples_is_an_empty_profile(symbols):
    profile = decode(raw_of([]), symbols)
    assert len(profile) == 0
    assert len(profile.tree) == 1


def test_a_thread_under_two_names_or_in_two_processes_is_several():
    draw = random.Random(3)
    for scale in (1, 10_000_000):
        samples = [
            Sample(n, 0, draw.choice((5, 6)), draw.randint(0, 4) * scale, draw.choice("ab"), ())
            for n in range(200)
        ]
        raw = raw_of(samples)
        threads, thread = threads_of(raw.columns, raw.comms)
        assert len(set(threads)) == len(threads)
        told = [threads[item] for item in thread.tolist()]
        assert told == [(sample.pid, sample.tid, sample.comm) for sample in samples]
