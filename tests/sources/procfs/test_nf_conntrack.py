"""`/proc/net/stat/nf_conntrack` and the limit beside it."""

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.host import Host, open_host
from sexton.model.rows.net import NOT_TRACKING, Conntrack
from sexton.sources.procfs.nf_conntrack import COUNT, MAXIMUM, NfConntrack, parse
from tests.support.fixtures import kernel_text, kernels
from tests.support.trees import plant

STAT = "entries found drop early_drop insert_failed\n0000000a 1 2 3 4\n0000000a 10 20 30 40\n"


@pytest.mark.parametrize("path", kernels("procfs.nf_conntrack"), ids=lambda path: path.stem)
def test_every_kernel_has_all_of_it(path):
    row = parse(path.read_text(), 262_144)
    assert row.count > 0
    assert None not in (row.drops, row.early_drops, row.insert_failed)


def test_there_were_two_kernels_to_read():
    assert len(kernels("procfs.nf_conntrack")) >= 2


def test_a_full_table_of_6_18_counts_its_drops():
    row = parse(kernel_text("procfs.nf_conntrack", "6.18"), 262_144)
    assert row.count == row.maximum == 262_144
    assert (row.drops, row.early_drops) == (300, 0)


@pytest.mark.parametrize(("kernel", "drops", "early"), [("6.1", 32, 3), ("5.10", 31, 4)])
def test_a_full_table_of_24_on_older_kernels_counts_both_kinds(kernel, drops, early):
    row = parse(kernel_text("procfs.nf_conntrack", kernel), 24)
    assert (row.count, row.drops, row.early_drops) == (24, drops, early)


def test_entries_are_the_tables_and_the_rest_is_added_up_over_cores():
    assert parse(STAT, 64) == Conntrack(10, 64, 0x22, 0x33, 0x44)


def test_columns_a_kernel_does_not_have_are_none():
    assert parse("entries new\n00000003 0\n", None) == Conntrack(3, None, None, None, None)


def test_through_a_root_it_is_inits_namespace(tmp_path):
    host = plant(tmp_path, {"/proc/1/net/stat/nf_conntrack": STAT, MAXIMUM: "64\n"})
    assert list(NfConntrack(host).collect()) == [parse(STAT, 64)]


def test_without_the_statistics_the_count_still_tells(tmp_path):
    host = plant(tmp_path, {MAXIMUM: "64\n", COUNT: "60\n", "/proc/1/net/dev": ""})
    assert list(NfConntrack(host).collect()) == [Conntrack(60, 64, None, None, None)]


def test_no_module_is_absent_and_a_tree_says_only_that_it_has_it_not(tmp_path):
    files = plant(tmp_path, {"/proc/1/net/dev": ""}).files
    for live, why in ((True, NOT_TRACKING), (False, "not in this tree")):
        with pytest.raises(SourceAbsent) as caught:
            list(NfConntrack(Host(files, live=live)).collect())
        assert caught.value.detail == why


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("found new\n1 2\n", 1),
        ("entries drop\n00000001\n", 2),
        ("entries drop\n00000001 2\n00000001 zz\n", 3),
        ("entries drop\n00000001 1ffffffff\n", 2),
        ("entries drop\n-1 0\n", 2),
        ("entries drop\n", 0),
    ],
)
def test_a_broken_table_is_named(text, line):
    with pytest.raises(SourceMalformed) as caught:
        parse(text, 1)
    assert caught.value.line == line


@pytest.mark.parametrize("limit", ["", "many", "-1", "9" * 30, "1 2", "²"])
def test_a_broken_limit_is_malformed(tmp_path, limit):
    host = plant(tmp_path, {"/proc/1/net/stat/nf_conntrack": STAT, MAXIMUM: limit})
    with pytest.raises(SourceMalformed):
        list(NfConntrack(host).collect())


def test_this_machine_has_a_table_or_tracks_nothing():
    if not Path(COUNT).exists():
        with pytest.raises(SourceAbsent, match="not loaded"):
            list(NfConntrack(open_host()).collect())
        return
    (row,) = NfConntrack(open_host()).collect()
    assert 0 <= row.count <= int(Path(MAXIMUM).read_text())


@given(cut=st.integers(0, 1200), junk=st.text(max_size=40))
def test_junk_is_a_row_or_malformed(cut, junk):
    good = kernel_text("procfs.nf_conntrack", "6.18")
    with contextlib.suppress(SourceMalformed):
        parse(good[:cut] + junk + good[cut + 7 :], 64)
