"""Which kallsyms may name a capture: only one that is proven to be of its kernel and boot."""

from __future__ import annotations

import gzip

import pytest

from sexton.profile.perf.raw import KernelFacts
from sexton.profile.symbols import SymbolOptions
from sexton.profile.symbols import kernel as kernels
from sexton.profile.symbols.cache import Cache
from sexton.profile.symbols.kernel import CaptureKernel, Kernels

TEXT = b"""ffffffff81000000 T _text
ffffffff81000100 T sys_read
ffffffff82000040 T _etext
ffffffffc0400000 t ext4_read\t[ext4]
ffffffffc0500000 t bpf_prog_ab12_x\t[bpf]
"""
START, END = 0xFFFFFFFF81000000, 0xFFFFFFFF82000040
BUILD, OTHER = "ab" * 20, "cd" * 20


def facts(start=START, end=END, build_id=BUILD):
    return KernelFacts(text_symbol="_text", text_address=start, end=end, build_id=build_id)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """This machine, as a file for /proc/kallsyms and a build id and release to be set."""
    (tmp_path / "kallsyms").write_bytes(TEXT)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(kernels.kallsyms, "PATH", str(tmp_path / "kallsyms"))

    def set_running(build_id=BUILD, release="6.1.0"):
        monkeypatch.setattr(kernels, "kernel_build_id", lambda files: build_id)
        monkeypatch.setattr(kernels, "kernel_release", lambda files: release)

    set_running()
    return set_running


def named(facts_, *, options=None, release="6.1.0", capture="", at=0xFFFFFFFF81000104):
    found = Kernels(options or SymbolOptions(), Cache(None))
    table = found.table(CaptureKernel(facts_, release, capture))
    if table is None:
        return None, found.problems()
    symbol = table.find([at])
    return table.names(symbol)[0] if symbol[0] >= 0 else "[unknown]", found.problems()


def test_the_running_kernel_names_what_was_recorded_on_it(here):
    assert named(facts()) == ("sys_read", [])


def test_another_build_is_not_used_and_the_problem_says_what_to_pass(here):
    name, (problem,) = named(facts(build_id=OTHER))
    assert name is None
    assert "another kernel" in problem
    assert "--kallsyms FILE" in problem


def test_the_same_build_of_an_earlier_boot_is_shifted(here):
    shift = 0x3000000
    moved = facts(START + shift, END + shift)
    assert named(moved, at=0xFFFFFFFF81000104 + shift) == ("sys_read", [])
    assert named(moved, at=0xFFFFFFFFC0400004)[0] == "[unknown]"


def test_without_a_build_id_release_and_address_must_both_agree(here):
    assert named(facts(build_id=None)) == ("sys_read", [])
    assert named(facts(build_id=None), release="5.10.0")[0] is None
    assert named(facts(START + 0x1000000, build_id=None))[0] is None
    assert named(KernelFacts())[0] is None


def test_a_capture_truncated_before_its_metadata_uses_a_kernel_with_the_same_text_range(here):
    name, (problem,) = named(facts(build_id=None), release=None)
    assert name == "sys_read"
    assert "the capture does not name its kernel" in problem
    for other in (facts(end=END + 64, build_id=None), facts(end=None, build_id=None)):
        name, (problem,) = named(other, release=None)
        assert name is None
        assert "cannot confirm that the running kernel was recorded" in problem


def test_without_kaslr_the_end_of_the_text_distinguishes_builds(here, tmp_path):
    (tmp_path / "given").write_bytes(TEXT)
    given = SymbolOptions(kallsyms=str(tmp_path / "given"))
    name, (problem,) = named(facts(end=END + 64, build_id=None), options=given)
    assert name is None
    assert "another boot or kernel" in problem


def test_a_given_file_is_used_if_its_text_address_is_that_of_the_capture(here, tmp_path):
    (tmp_path / "snapshot.gz").write_bytes(gzip.compress(TEXT))
    here(build_id=OTHER)
    given = SymbolOptions(kallsyms=str(tmp_path / "snapshot.gz"))
    assert named(facts(), options=given) == ("sys_read", [])
    assert named(KernelFacts(), options=given) == ("sys_read", [])
    name, (problem,) = named(facts(START + 4096), options=given)
    assert name is None
    assert "_text at 0xffffffff81000000, in the capture at 0xffffffff81001000" in problem


def test_a_given_file_that_cannot_be_read_is_reported_and_nothing_else_is_tried(here, tmp_path):
    for path, said in (("none", "No such file"), ("junk", "no kernel symbol")):
        (tmp_path / "junk").write_text("junk\n")
        given = SymbolOptions(kallsyms=str(tmp_path / path))
        name, (problem,) = named(facts(), options=given)
        assert name is None
        assert said in problem


def test_a_snapshot_beside_the_capture_is_found(here, tmp_path):
    here(build_id=OTHER)
    (tmp_path / "stacks").mkdir()
    capture = str(tmp_path / "stacks" / "perf.data.1")
    wrong = TEXT.replace(b"ffffffff81000000", b"ffffffff91000000")
    (tmp_path / "stacks" / "kallsyms-aaaa.gz").write_bytes(gzip.compress(wrong))
    (tmp_path / "stacks" / "kallsyms-bbbb.gz").write_bytes(b"\x1f\x8btorn")
    assert named(facts(), capture=capture)[0] is None
    (tmp_path / "stacks" / "kallsyms-cccc.gz").write_bytes(gzip.compress(TEXT))
    assert named(facts(), capture=capture) == ("sys_read", [])


def test_perfs_own_copy_is_found_by_build_id(here, tmp_path):
    here(build_id=OTHER)
    folder = tmp_path / "home" / ".debug" / "[kernel.kallsyms]" / BUILD
    folder.mkdir(parents=True)
    (folder / "kallsyms").write_bytes(TEXT)
    assert named(facts()) == ("sys_read", [])


def test_under_another_root_this_machines_kernel_is_not_used(here, tmp_path):
    assert named(facts(), options=SymbolOptions(root=str(tmp_path)))[0] is None


def test_hidden_addresses_are_reported(here, tmp_path):
    (tmp_path / "kallsyms").write_bytes(b"0000000000000000 T _text\n0000000000000000 T sys_read\n")
    name, (problem,) = named(facts())
    assert name is None
    assert "kptr_restrict" in problem


def test_an_unpacked_snapshot_is_kept_and_found_again_until_it_changes(here, tmp_path, monkeypatch):
    path = tmp_path / "snapshot.gz"
    path.write_bytes(gzip.compress(TEXT))
    options = SymbolOptions(kallsyms=str(path))
    cache = Cache(str(tmp_path / "cache"))

    def names():
        table = Kernels(options, cache).table(CaptureKernel(facts(), None, ""))
        return table.names(table.find([0xFFFFFFFF81000104]))

    assert names() == ["sys_read"]
    with monkeypatch.context() as broken:
        broken.setattr(kernels.kallsyms, "unpacked", None)
        assert names() == ["sys_read"]
    path.write_bytes(gzip.compress(TEXT.replace(b"sys_read", b"sys_open_by_another_name")))
    assert names() == ["sys_open_by_another_name"]
