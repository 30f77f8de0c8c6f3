"""Kernel symbols: parsing, aliases, modules, and other input."""

from __future__ import annotations

import gzip
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceDenied, SourceError, SourceMalformed
from sexton.host.reader import LiveFiles
from sexton.profile.perf import kallsyms
from sexton.profile.perf.kallsyms import parse, unpacked

TEXT = b"""0000000000000000 A fixed_percpu_data
ffffffff81000000 T startup_64
ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81000100 t do_one_initcall
ffffffff81000180 r a_constant
ffffffff81000200 T sys_read
ffffffff82000000 D jiffies
ffffffff82000040 T _etext
ffffffffc0400000 t ext4_read\t[ext4]
ffffffffc0400080 t ext4_write\t[ext4]
ffffffffc0200000 t nf_hook\t[nf_tables]
ffffffffc0300000 t bpf_prog_6deef7357e7b4530_sd_fw_egress\t[bpf]
"""


def named(text, *addresses):
    table = parse(text)
    found = table.find(np.array(addresses, np.uint64))
    return [table.names(np.array([item]))[0] if item >= 0 else None for item in found.tolist()]


def test_an_address_is_named_by_the_symbol_it_lies_in():
    assert named(TEXT, 0xFFFFFFFF81000100, 0xFFFFFFFF810001FF, 0xFFFFFFFF81000200) == [
        "do_one_initcall",
        "do_one_initcall",
        "sys_read",
    ]


def test_of_several_names_at_one_address_the_last_has_the_extent_and_wins():
    assert named(TEXT, 0xFFFFFFFF81000010) == ["_text"]


def test_below_the_first_and_behind_the_last_page_there_is_no_name():
    assert named(TEXT, 0x1000, 0xFFFFFFFF80FFFFFF, 0xFFFFFFFFC0402000) == [None, None, None]


def test_a_symbol_at_the_end_of_its_module_reaches_to_the_end_of_its_page_and_no_further():
    assert named(TEXT, 0xFFFFFFFFC0400FFF, 0xFFFFFFFFC0200FFF, 0xFFFFFFFFC0202000) == [
        "ext4_write",
        "nf_hook",
        None,
    ]


def test_modules_and_bpf_programs_are_distinguished_and_may_be_unsorted():
    table = parse(TEXT)
    at = np.array([0xFFFFFFFF81000200, 0xFFFFFFFFC0400001, 0xFFFFFFFFC0300001], np.uint64)
    assert table.module_names(table.find(at)) == ["[kernel.kallsyms]", "[ext4]", "[bpf]"]


def test_the_marks_that_distinguish_boots_and_builds_are_found_among_aliases():
    assert parse(TEXT).marks == {
        "_text": 0xFFFFFFFF81000000,
        "_stext": 0xFFFFFFFF81000000,
        "_etext": 0xFFFFFFFF82000040,
    }


def test_the_same_kernel_elsewhere_is_moved_without_its_modules():
    moved = parse(TEXT).shifted(0x1000000)
    at = np.array([0xFFFFFFFF82000200, 0xFFFFFFFFC1400001, 0xFFFFFFFFC0400001], np.uint64)
    found = moved.find(at)
    assert moved.names(found[:1]) == ["sys_read"]
    assert found[1:].tolist() == [-1, -1]
    assert moved.marks["_text"] == 0xFFFFFFFF82000000


def test_where_a_module_begins_at_a_kernel_symbol_the_better_of_both_names_the_place():
    text = b"ffffffff81000000 %c %s\nffffffff81000000 %c %s\t[m]\nffffffff81000040 t next\t[m]\n"
    for first, second, wins in (
        ((b"T", b"a"), (b"W", b"bb"), "a"),
        ((b"t", b"a"), (b"T", b"b"), "b"),
        ((b"T", b"_a"), (b"T", b"b"), "b"),
        ((b"T", b"a"), (b"T", b"bb"), "bb"),
        ((b"T", b"a"), (b"T", b"b"), "a"),
    ):
        assert named(text % (*first, *second), 0xFFFFFFFF81000001) == [wins]


def test_narrow_addresses_of_other_machines_are_read_too():
    assert named(
        b"c0008000 T stext\nc0008100 t go\t[m]\nC0009000 T up\n", 0xC0008004, 0xC0009000
    ) == ["stext", "up"]


def test_lines_without_sense_are_left_out_and_the_rest_is_read():
    text = b"\n\xff\xfe\nzzz T x\nffffffff81000000\nffffffff8100000g T bad\n" + TEXT + b"half"
    assert len(parse(text)) == len(parse(TEXT))


def test_addresses_hidden_from_us_are_denied_and_no_symbols_malformed():
    with pytest.raises(SourceDenied, match="kptr_restrict"):
        parse(b"0000000000000000 T _text\n0000000000000000 t go\n")
    for text in (b"", b"\n", b"hello\n", b"ffffffff81000000 R only_data\n"):
        with pytest.raises(SourceMalformed):
            parse(text)


def test_a_gzip_is_unpacked_and_a_torn_or_endless_one_refused(monkeypatch):
    packed = gzip.compress(TEXT)
    assert unpacked(packed) == TEXT
    for torn in (packed[:-9], packed[:20], packed[:10] + b"\xff" * 30):
        with pytest.raises(SourceMalformed):
            unpacked(torn)
    monkeypatch.setattr(kallsyms, "MOST_BYTES", 100)
    with pytest.raises(SourceMalformed, match="more than 100 bytes"):
        unpacked(packed)


def slow(text):
    """What perf does, one symbol at a time: start, name of each that names something."""
    rows = []
    for line in text.decode().splitlines():
        address, kind, name = line.split(" ", 2)
        if kind in "TtWwDdBb":
            rows.append([int(address, 16), None, kind, *name.partition("\t")[::2]])
    rows.sort(key=lambda row: row[0])
    for number, row in enumerate(rows):
        following = rows[number + 1] if number + 1 < len(rows) else None
        border = following is None or row[4] != following[4]
        row[1] = (row[0] + 4096 + 4095) // 4096 * 4096 if border else following[0]
    chosen = {}
    for row in rows:
        best = chosen.get(row[0])
        chosen[row[0]] = row if best is None or rank(row) > rank(best) else best
    return [(start, row[1], row[3]) for start, row in sorted(chosen.items())]


def rank(row):
    start, end, kind, name, _ = row
    underscores = len(name) - len(name.lstrip("_"))
    return end > start, kind != "W", kind.isupper(), -underscores, len(name)


def test_agrees_with_one_symbol_at_a_time_on_random_tables():
    draw = random.Random(7)
    for _ in range(200):
        lines = []
        for _ in range(draw.randint(1, 40)):
            address = 0xFFFFFFFF81000000 + draw.randint(0, 12) * 64
            module = draw.choice(["", "", "", "\t[a]", "\t[b]"])
            name = "_" * draw.randint(0, 2) + draw.choice("abcdef") * draw.randint(1, 4)
            lines.append(f"{address:016x} {draw.choice('TtWwDdBbRr')} {name}{module}\n")
        text = "".join(lines).encode()
        expected = slow(text)
        if not expected:
            continue
        table = parse(text)
        every = np.arange(len(table))
        told = list(zip(table.start.tolist(), table.end.tolist(), table.names(every), strict=True))
        assert told == expected


@given(st.binary(max_size=200), st.integers(0, len(TEXT)))
def test_junk_is_a_table_or_an_error_and_never_a_crash(junk, cut):
    for text in (junk, TEXT[:cut] + junk + TEXT[cut:], b"\x1f\x8b" + junk):
        try:
            table = parse(unpacked(text))
        except SourceError:
            continue
        table.names(np.arange(len(table)))
        assert (table.start[1:] > table.start[:-1]).all()


@pytest.mark.root
def test_this_kernels_own_table_is_read_whole():
    table = kallsyms.read(LiveFiles())
    assert len(table) > 1000
    assert "_text" in table.marks
