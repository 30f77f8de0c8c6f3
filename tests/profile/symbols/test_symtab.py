"""Symbols of programs: the same as those of nm and the linker; junk never crashes."""

from __future__ import annotations

import os
import struct
import subprocess

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.errors import SourceMalformed
from sexton.host.large_files import BytesImage
from sexton.profile.symbols.elf import Elf, build_id_in
from sexton.profile.symbols.symtab import has_symtab, read_table
from tests.fuzz import elf_target
from tests.profile.symbols.programs_of_ours import build, elf_of, name_at, run
from tests.support.examples import examples


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    return build(tmp_path_factory.mktemp("elf") / "load")


def test_functions_are_named_also_local_ones(program):
    table = read_table(elf_of(program))
    assert name_at(table, program, "main") == "main"
    assert name_at(table, program, "hidden") == "hidden"
    assert name_at(table, program, "inner") in ("inner", "outer")  # two names of one function


def test_a_program_without_position_independence_too(tmp_path):
    program = build(tmp_path / "load", flags=("-O1", "-no-pie", "-static"))
    assert name_at(read_table(elf_of(program)), program, "hidden") == "hidden"


def test_a_narrow_program_too(tmp_path):
    flags = ("-O1", "-m32", "-nostdlib", "-Wl,-e,go", "-fno-pic", "-no-pie")
    inner = "__attribute__((noinline)) int inner(int n) { return n * 3; }"
    source = f"{inner}\nint go(void) {{ return inner(2); }}"
    try:
        program = build(tmp_path / "load", source=source, flags=flags)
    except subprocess.CalledProcessError:
        pytest.skip("gcc here makes no 32-bit programs")
    assert name_at(read_table(elf_of(program)), program, "inner") == "inner"


def test_calls_to_other_files_are_named_by_their_target(program):
    table = read_table(elf_of(program))
    calls = {name for name in table.names(np.arange(len(table))) if name.endswith("@plt")}
    assert "atoi@plt" in calls or "strtol@plt" in calls
    assert "sleep@plt" in calls


def test_a_stripped_program_has_only_what_it_needs_to_run(program, tmp_path):
    run("strip", "-o", tmp_path / "load", program)
    stripped = elf_of(tmp_path / "load")
    assert has_symtab(elf_of(program))
    assert not has_symtab(stripped)
    assert name_at(read_table(stripped), program, "hidden") is None


def test_a_debug_file_names_the_program_it_was_made_of(program, tmp_path):
    run("strip", "-o", tmp_path / "load", program)
    run("objcopy", "--only-keep-debug", program, tmp_path / "load.debug")
    table = read_table(elf_of(tmp_path / "load.debug"), elf_of(tmp_path / "load"))
    assert name_at(table, program, "hidden") == "hidden"
    assert "sleep@plt" in table.names(np.arange(len(table)))


def test_the_build_id_is_that_of_readelf(program):
    result = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True)
    assert f"Build ID: {elf_of(program).build_id()}" in result.stdout


def test_the_link_to_the_debug_file_is_a_bare_name(program, tmp_path):
    (tmp_path / "x.debug").write_bytes(b"x")
    run("objcopy", f"--add-gnu-debuglink={tmp_path}/x.debug", program, tmp_path / "load")
    assert elf_of(tmp_path / "load").debug_link() == "x.debug"
    assert elf_of(program).debug_link() is None


def test_notes_may_end_in_the_middle_or_promise_too_much():
    note = struct.pack("<III4s", 4, 20, 3, b"GNU\0") + bytes(range(20))
    assert build_id_in(note) == bytes(range(20)).hex()
    assert build_id_in(struct.pack("<III8s", 5, 8, 1, b"Xen\0") + bytes(8) + note) is not None
    for junk in (b"", note[:10], note[:20], struct.pack("<III4s", 4, 2**31, 3, b"GNU\0")):
        assert build_id_in(junk) is None


def test_a_file_that_is_not_elf_is_refused():
    for content in (b"", b"\x7fELF", b"#!/bin/sh\n" * 10, b"\x7fELF" + b"\xff" * 100):
        with pytest.raises(SourceMalformed):
            Elf(BytesImage(content, "x"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(200))
@given(st.data())
def test_junk_in_a_program_is_a_table_or_an_error_and_never_a_crash(program, data):
    content = bytearray(program.read_bytes())
    elf = elf_of(program)
    tables = [0, 64, *(section.offset for section in elf.sections), len(content) - 64 * 32]
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.sampled_from(tables)) + data.draw(st.integers(0, 600))
        word = data.draw(st.sampled_from([b"\0" * 8, b"\xff" * 8, os.urandom(8), b"\x01"]))
        content[at : at + len(word)] = word
    cut = data.draw(st.integers(0, len(content))) if data.draw(st.booleans()) else len(content)
    elf_target.one(bytes(content[:cut]))
