"""Demangled names; names that would expand without limit stay mangled."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.profile.symbols import demangle
from sexton.profile.symbols.demangle import MOST_CHILDREN, MOST_SECONDS, Demangler, bare
from tests.fuzz import perfmap_target

plain = Demangler().plain


@pytest.fixture(autouse=True)
def _needs_the_library():
    if demangle._library()("_Z1fv") is None:
        pytest.skip("there is no C++ library here: apt-get install libstdc++6")


@pytest.mark.parametrize(
    ("mangled", "written"),
    [
        ("_ZN3app3BoxIlE4turnEi", "app::Box<long>::turn"),
        ("_ZN3app3BoxIlE4turnEi.cold", "app::Box<long>::turn"),
        ("_ZN3app3BoxIlE4turnEi.isra.0.part.0", "app::Box<long>::turn"),
        ("_ZNK3app3BoxIlEclEi", "app::Box<long>::operator()"),
        ("_ZN3appltERKNS_3BoxIlEES3_", "app::operator<"),
        ("_ZZ4mainENKUliE_clEi", "main::{lambda(int)#1}::operator()"),
        ("_ZN3app5applyIiEElT_i", "app::apply<int>"),
        ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back"),
        ("_Znwm", "operator new"),
        ("_Znwm@plt", "operator new@plt"),
        ("_Znwm@@GLIBCXX_3.4", "operator new"),
        ("_ZN12_GLOBAL__N_13runEv", "(anonymous namespace)::run"),
        ("_ZThn16_N1A1fEv", "non-virtual thunk to A::f()"),
        ("_ZTV1A", "vtable for A"),
        ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
        ("main.main", "main.main"),
        ("_RNvC5crate4main", "crate::main"),
        ("_Rwhat", "_Rwhat"),
        ("_Z", "_Z"),
        ("_Zfoo bar", "_Zfoo bar"),
    ],
)
def test_names_are_written_as_perf_writes_them(mangled, written):
    assert plain(mangled) == written


def test_a_name_that_doubles_itself_at_every_step_is_left_alone():
    name = "_Z1fPFviiE" + "".join(f"PFvS{n}_S{n}_E" for n in range(40))
    began = time.perf_counter()
    assert plain(name) == name
    assert plain("_Z1f" + "Dp" * 3 + "i") == "_Z1f" + "Dp" * 3 + "i"
    assert time.perf_counter() - began < 20 * MOST_SECONDS, "libstdc++ alone would never return"


def test_a_function_that_returns_functions_without_end_is_stripped_as_far_as_it_goes():
    assert bare("int (*(*f<int>(long))(char))(int)") == "f<int>"
    assert bare("(*" * 5000 + "f" + ")" * 5000).startswith("(*")


@pytest.mark.parametrize("name", ["_Z1fAsrCs", "_ZssJrCCCAsrCs", "_Z1fIXsrUsEE", "_Z1fAsr9Cs"])
def test_a_broken_name_that_the_library_never_returns_from_is_left_alone(name):
    assert Demangler().plain(name) == name


def test_a_sound_name_of_that_kind_is_written_and_children_are_bounded():
    enabled = "_Z1fIiENSt9enable_ifIXsr3std11is_integralIT_EE5valueEvE4typeES1_"
    assert Demangler().plain(enabled) == "f<int>"
    assert Demangler().plain("_ZN4nurs3srcEv") == "nurs::src"
    demangler = Demangler()
    names = [f"_ZN3usr{len(word := f'f{number}')}{word}Ev" for number in range(MOST_CHILDREN + 5)]
    plain = [demangler.plain(name) for name in names]
    assert plain[:2] == ["usr::f0", "usr::f1"]
    assert plain[MOST_CHILDREN:] == names[MOST_CHILDREN:]


def test_if_fork_fails_the_name_stays_mangled(monkeypatch):
    def refuse() -> int:
        raise BlockingIOError(11, "no more processes")

    monkeypatch.setattr(demangle.os, "fork", refuse)
    assert Demangler().plain("_ZN4nurs3srcEv") == "_ZN4nurs3srcEv"
    assert Demangler().plain("_Z1fv") == "f"


def test_a_very_long_name_is_left_alone():
    name = "_ZN" + "1a" * 3000 + "E"
    assert plain(name) == name


def test_when_the_time_for_all_names_is_spent_the_rest_stays_mangled():
    known = {}
    tired = Demangler(known)
    assert tired.plain("_Znwm") == "operator new"
    tired._left_s = 0.0
    assert tired.plain("_Znwm") == "operator new"
    assert tired.plain("_Znam") == "_Znam"
    assert Demangler(known).plain("_Znam") == "operator new[]"


@given(st.text(max_size=60))
def test_junk_is_stripped_or_left_and_never_a_crash(text):
    bare(text)
    plain("_Z" + text)


@given(st.binary(max_size=300))
def test_junk_in_a_perf_map_is_a_table_and_never_a_crash(data):
    perfmap_target.one(data)
