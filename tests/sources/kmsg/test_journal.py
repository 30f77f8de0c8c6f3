"""Restarts in the journal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceDenied, SourceMalformed, SourceTimeout
from sexton.host.archive import ArchiveFiles
from sexton.host.host import ON_THE_NODE, Host, open_host
from sexton.host.runner import Ended
from sexton.model.rows.unit import RestartMark
from sexton.sources.kmsg.journal import Restarts, answer, parse
from tests.support.fixtures import kernel_text
from tests.support.trees import plant


def entry(**fields: object) -> str:
    whole = {
        "MESSAGE": "a.service: Scheduled restart job, restart counter is at 7.",
        "UNIT": "a.service",
        "_PID": "1",
        "__REALTIME_TIMESTAMP": "1700000000500000",
        **fields,
    }
    return json.dumps(whole)


@pytest.mark.parametrize("kernel", ["5.10", "6.1"])
def test_real_restarts_are_read_with_rising_counters(kernel: str):
    marks = list(parse(kernel_text("kmsg.journal", kernel)))
    assert {mark.unit for mark in marks} == {"demo-crash.service"}
    counters = [mark.counter for mark in marks]
    assert len(counters) >= 3
    assert counters == list(range(counters[0], counters[0] + len(counters)))
    assert [mark.wall_s for mark in marks] == sorted(mark.wall_s for mark in marks)


def test_a_process_cannot_forge_a_restart():
    assert list(parse(entry(_PID="4711"))) == []


def test_a_message_of_bytes_is_read():
    message = [*b"b.service: Scheduled restart job, restart counter is at 2."]
    text = entry(MESSAGE=message, UNIT="b.service", NOTE="restart counter")
    assert [mark.counter for mark in parse(text)] == [2]


def test_a_line_separator_inside_a_message_breaks_no_line():
    text = entry(NOTE="a\u2028b\x85c").replace("\\u2028", "\u2028").replace("\\u0085", "\x85")
    assert "\u2028" in text
    assert [mark.counter for mark in parse(text)] == [7]


def test_two_snapshots_give_each_restart_once(tmp_path: Path):
    host = plant(tmp_path, {"/commands/journal_json": entry() + "\n"})
    reading = Restarts(host)
    assert list(reading.collect()) == [RestartMark("a.service", 7, 1_700_000_000.5)]
    assert list(reading.collect()) == []


def test_no_journal_is_absent(tmp_path: Path):
    files = plant(tmp_path, {"/etc/os-release": ""}).files
    with pytest.raises(SourceAbsent):
        Restarts(Host(files, live=True)).collect()
    with pytest.raises(SourceAbsent):
        Restarts(Host(files, live=False)).collect()


def test_a_user_without_rights_is_denied_and_not_empty():
    hint = b"Hint: You are currently not seeing messages from other users and the system.\n"
    for errors in (hint, b"No journal files were opened due to insufficient permissions.\n"):
        with pytest.raises(SourceDenied):
            answer(Ended(0, b"", errors))


def test_a_journal_that_fails_says_why():
    with pytest.raises(SourceMalformed, match="Failed to add match"):
        answer(Ended(1, b"", b"Failed to add match 'x': Invalid argument\n"))


def test_nothing_found_is_an_empty_answer():
    assert answer(Ended(1, b"", b"")) == ""
    assert list(parse("")) == []


@given(st.text(max_size=100))
def test_junk_is_skipped(junk: str):
    assert list(parse(f"restart counter{junk}\n{{{junk}restart counter")) == []


def test_a_tree_without_a_journal_says_so_and_names_no_group(tmp_path: Path):
    with pytest.raises(SourceAbsent) as caught:
        Restarts(open_host(str(tmp_path))).collect()
    assert str(caught.value) == "journal: not in this tree"
    assert caught.value.grant == ""


def test_an_archive_whose_collector_might_not_read_it_asks_for_root_on_the_node():
    files = ArchiveFiles()
    files.add_denied("/commands/journal_json")
    with pytest.raises(SourceDenied) as caught:
        Restarts(Host(files, live=False)).collect()
    assert (caught.value.path, caught.value.grant) == ("journal", ON_THE_NODE)


def test_an_archive_whose_journal_did_not_end_in_time_says_so():
    files = ArchiveFiles()
    files.add_late("/commands/journal_json")
    with pytest.raises(SourceTimeout, match=r"^journal: did not finish in time"):
        Restarts(Host(files, live=False)).collect()
