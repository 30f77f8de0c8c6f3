"""Rust v0 names: the same output as binutils, and hostile names."""

from __future__ import annotations

import shutil
import subprocess
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.profile.symbols.demangle import Demangler
from sexton.profile.symbols.rust import demangled_rust

#: Out of rustc's own library and others.
REAL = {
    "_RNvMCsfecemMpLSLk_11encoding_rsNtB2_8Encoding6encode": "<encoding_rs::Encoding>::encode",
    "_RINvNtCsgEmfK2I1SDS_4core3ptr13drop_in_placeNtNtCscXAaDyz1fZJ_8tempfile4file12PersistError"
    "ECslKGqiwnqz1t_17rustc_codegen_ssa": (
        "core::ptr::drop_in_place::<tempfile::file::PersistError>"
    ),
    "_RNvXs1g_NtCsgEmfK2I1SDS_4core3fmtRINtNtB8_6option6OptionNtCsdoLGDhjbLAL_13rustc_type_ir13"
    "UniverseIndexENtB6_5Debug3fmtCsgfqEvSTXmTp_12rustc_traits": (
        "<&core::option::Option<rustc_type_ir::UniverseIndex> as core::fmt::Debug>::fmt"
    ),
    "_RINvMNtNtCs7Ap9nkZ7LqH_18ruff_python_parser5lexer6cursorNtB3_6Cursor6eat_ifNCNvMB5_NtB5_5"
    "Lexer10lex_number0EB7_": (
        "<ruff_python_parser::lexer::cursor::Cursor>::eat_if::"
        "<<ruff_python_parser::lexer::Lexer>::lex_number::{closure#0}>"
    ),
    "_RNvXs5_NtNtCs8sGJ4AnL5LH_4jiff4util8rangeintINtB5_4ri32Knnfec29_Knfec29_ENtB5_1T2go": (
        "<jiff::util::rangeint::ri32<-1043497, 1043497> as jiff::util::rangeint::T>::go"
    ),
}
#: Made after the grammar, piece by piece.
MADE = {
    "_RNvC1a1b": "a::b",
    "_RNvC1a1b.llvm.1234": "a::b",
    "_RNSNvC1a1b4call": "a::b::{shim:call#0}",
    "_RNCNvC1a1bs_0": "a::b::{closure#1}",
    "_RINvC1a1bTEE": "a::b::<()>",
    "_RINvC1a1bTmEE": "a::b::<(u32,)>",
    "_RINvC1a1bThtEE": "a::b::<(u8, u16)>",
    "_RINvC1a1bAhj10_E": "a::b::<[u8; 16]>",
    "_RINvC1a1bSeQhPxOzE": "a::b::<[str], &mut u8, *const i64, *mut !>",
    "_RINvC1a1bFUKCmEuE": 'a::b::<unsafe extern "C" fn(u32)>',
    "_RINvC1a1bFmEbE": "a::b::<fn(u32) -> bool>",
    "_RINvC1a1bFG_RL0_mEuE": "a::b::<for<'a> fn(&'a u32)>",
    "_RINvC1a1bDNtC1c1DEL_E": "a::b::<dyn c::D>",
    "_RINvC1a1bDNtC1c1Dp4ItemmEL_E": "a::b::<dyn c::D<Item = u32>>",
    "_RINvC1a1bKb1_Kc41_Kj0_E": "a::b::<true, 'A', 0>",
    "_RINvC1a1bL_pE": "a::b::<'_, _>",
    "_RNvC1au9bcher_kva": "a::bücher",
    "_RYmNtC1a1T": "<u32 as a::T>",
}


@pytest.mark.parametrize(("mangled", "written"), [*REAL.items(), *MADE.items()])
def test_names_are_written_as_binutils_writes_them(mangled, written):
    assert demangled_rust(mangled) == written
    assert Demangler().plain(mangled) == written
    assert Demangler().plain(f"{mangled}@plt") == f"{written}@plt"


@pytest.mark.oracle
def test_binutils_agrees():
    filt = shutil.which("c++filt")
    if filt is None:
        pytest.skip("c++filt is not installed: apt-get install binutils")
    names = [name for name in {**REAL, **MADE} if "." not in name]
    result = subprocess.run([filt, "-i"], input="\n".join(names), capture_output=True, text=True)
    assert result.stdout.split("\n")[: len(names)] == [demangled_rust(name) for name in names]


def test_a_name_that_doubles_itself_at_every_step_is_left_alone():
    # Each tuple has the one before it twice, by its place.
    name, place = "INvC1a1bTmmE", 8
    for _ in range(40):
        here = len(name)
        back = base_62(place)
        name += f"TB{back}B{back}E"
        place = here
    began = time.perf_counter()
    assert demangled_rust(f"_R{name}E") is None
    assert time.perf_counter() - began < 60, "unfolded it would be 2^40 long"


def base_62(number):
    digits = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    number -= 1
    text = ""
    while True:
        text = digits[number % 62] + text
        number //= 62
        if not number:
            return f"{text}_"


def test_a_name_nested_without_end_is_left_alone():
    assert demangled_rust("_RINvC1a1b" + "R" * 3000 + "mE") is None
    assert demangled_rust("_RINvC1a1bB7_E") is None  # it stands for itself
    assert Demangler().plain("_RINvC1a1b" + "S" * 3000 + "mE").startswith("_RINv")


@given(st.text("RINvCMXYBsTEFGDLKpmAQOPu_0123456789ab", max_size=60))
def test_junk_is_a_name_or_none_and_never_a_crash(text):
    demangled_rust(f"_R{text}")
    demangled_rust(f"_RINvC1a1b{text}E")
