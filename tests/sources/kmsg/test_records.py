"""The forms a kernel log comes in."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.sources.kmsg.catalogue import recognise
from sexton.sources.kmsg.records import MOST_LINE, LogLine, field, parse_log, record
from tests.support.fixtures import kernels

ENA = "ena 0000:20:03.0 eth0: Trigger reset is on"
AT = 8_123_456_789


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"3,7,{AT},-;{ENA}", LogLine(AT, None, ENA, 0, 7)),
        (f"12,7,{AT},-,caller=T309;{ENA}", LogLine(AT, None, ENA, 1, 7)),
        (f"[ 8123.456789] {ENA}", LogLine(AT, None, ENA)),
        (f"[ 8123.456789][  T309] {ENA}", LogLine(AT, None, ENA)),
        (f"<3>[ 8123.456789] {ENA}", LogLine(AT, None, ENA, 0)),
        (f"<12>[ 8123.456789] {ENA}", LogLine(AT, None, ENA, 1)),
        (f"kern  :err   : [ 8123.456789] {ENA}", LogLine(AT, None, ENA, 0)),
        (f"user  :warn  : [ 8123.456789] {ENA}", LogLine(AT, None, ENA, 1)),
        (f"[Mon Jan 24 08:16:20 2022] {ENA}", LogLine(None, None, ENA)),
        (f"2022-01-24T08:16:20,250000+00:00 {ENA}", LogLine(None, 1643012180.25, ENA)),
        (f"[ 8123.456789] node-a kernel: {ENA}", LogLine(AT, None, ENA)),
        (f"Jan 24 08:16:20 node-a kernel: [ 8123.456789] {ENA}", LogLine(AT, None, ENA)),
        (f"Jan  4 08:16:20 node-a kernel: {ENA}", LogLine(None, None, ENA)),
        (f"2022-01-24T09:16:20.25+01:00 node-a kernel: {ENA}", LogLine(None, 1643012180.25, ENA)),
        ("Jan 24 08:16:20 node-a sshd[88]: hello", LogLine(None, None, "hello", 1)),
        (ENA, LogLine(None, None, ENA)),
        (
            "2022-01-24T08:16:20,250000+00:00 watchdog: BUG: soft lockup",
            LogLine(None, 1643012180.25, "watchdog: BUG: soft lockup"),
        ),
        ("2022-13-24T08:16:20,250000+00:00 x", LogLine(None, None, "x")),
    ],
)
def test_each_form_gives_the_same_message(text, expected):
    assert list(parse_log(text + "\n")) == [expected]


def test_a_record_keeps_its_device_lines_to_itself():
    text = f"3,7,1,-;{ENA}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:20:03.0\n6,8,2,-;next\n"
    assert [line.message for line in parse_log(text)] == [ENA, "next"]


def test_plain_lines_may_begin_with_a_space():
    assert [line.message for line in parse_log("  cache: kmalloc-192\n")] == [
        "  cache: kmalloc-192"
    ]


@pytest.mark.parametrize("stamp", ["[ 1843.308145] ", "Jan 24 08:16:20 node-a kernel: "])
def test_indented_lines_belong_to_the_stamped_line_above(stamp):
    record_of_three = (
        f"{stamp}NVRM: The NVIDIA GPU 0000:b3:00.0\n"
        f"{' ' * len(stamp)}NVRM: (PCI ID: 10de:26b5) installed in this system has\n"
        f"{' ' * len(stamp)}NVRM: fallen off the bus and is not responding to commands.\n"
        f"{stamp}next\n"
    )
    first, second = parse_log(record_of_three)
    assert second.message == "next"
    known = recognise(first.message)
    assert known is not None
    assert (known.pattern.id, known.fields["bus"]) == ("nvidia-fallen-probe", "0000:b3:00.0")


def test_indented_lines_stay_alone_below_a_line_without_a_stamp():
    text = "plain\n                    indented\n"
    assert [line.message for line in parse_log(text)] == ["plain", "                    indented"]


def test_escapes_become_what_they_were():
    line = record(r"6,1,2,-;tab\x09 back\x5cslash \xc3\xa9 \xff")
    assert line is not None
    assert line.message == "tab\t back\\slash é \udcff"


def journal(**fields: object) -> LogLine:
    (line,) = parse_log(json.dumps({"MESSAGE": ENA, **fields}))
    return line


def test_a_journal_line_has_both_clocks():
    line = journal(
        _TRANSPORT="kernel",
        SYSLOG_FACILITY="0",
        _SOURCE_MONOTONIC_TIMESTAMP="5",
        __MONOTONIC_TIMESTAMP="9",
        __REALTIME_TIMESTAMP="1643012180250000",
    )
    assert line == LogLine(5, 1643012180.25, ENA, 0)


def test_a_journal_line_of_a_process_is_not_the_kernels():
    assert journal(_TRANSPORT="kernel", SYSLOG_FACILITY="1").facility == 1
    assert journal(_TRANSPORT="syslog", SYSLOG_FACILITY="0").facility == 1
    assert journal(_TRANSPORT="stdout").facility == 1


def test_journal_bytes_and_repeated_fields_are_read():
    assert journal(MESSAGE=[101, 110, 97, 255]).message == "ena\udcff"
    assert field({"UNIT": ["a.service", "b.service"]}, "UNIT") == "a.service"
    assert field({"UNIT": None}, "UNIT") is None


def test_json_that_is_no_journal_entry_is_plain_text():
    assert [line.message for line in parse_log('{"a": \n{}x\n')] == ['{"a": ', "{}x"]


def test_deep_json_is_plain_text():
    assert len(list(parse_log('{"a":' * 5000))) == 1


def test_a_line_is_bounded():
    (line,) = parse_log("x" * (MOST_LINE + 5))
    assert len(line.message) == MOST_LINE


@pytest.mark.parametrize("path", kernels("kmsg.log"), ids=lambda path: path.stem)
def test_records_of_real_kernels_have_times_and_rising_numbers(path):
    lines = list(parse_log(path.read_text("utf-8", "surrogateescape")))
    assert len(lines) > 20
    assert all(line.mono_us is not None and line.facility is not None for line in lines)
    numbers = [line.seq for line in lines]
    assert numbers == sorted(set(numbers))


@given(st.text(max_size=200))
def test_junk_is_lines_and_never_a_crash(text):
    assert all(isinstance(line, LogLine) for line in parse_log(text))
