"""Filesystems that stopped working: by the log, by the mounts, and what is only a mount option."""

from __future__ import annotations

import pytest

from sexton.detect.detectors.storage.filesystem_errors import detect
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.filesystem import Filesystem
from tests.support.log import events, log
from tests.support.windows import make_window

DAY = 86400.0
NOW = 300_000.0
READ_ONLY = "EXT4-fs (sda1): Remounting filesystem read-only"
ERROR = "EXT4-fs error (device sda1): ext4_lookup:1855: inode #131: comm ls: iget: checksum invalid"


def state(read_only=False, mounted=False, point="/"):
    return Filesystem(point, "sda1", "ext4", read_only, mounted, *(None,) * 5)


def logged(message: str, age: float | None):
    at = None if age is None else NOW - age
    return make_window([(NOW - 10, [log()]), (NOW, [log(), *events([message], at)])])


@pytest.mark.parametrize(
    ("message", "age", "severity"),
    [
        (READ_ONLY, 60, Severity.CRITICAL),
        (READ_ONLY, DAY - 1, Severity.CRITICAL),
        (READ_ONLY, DAY + 1, Severity.INFO),
        (READ_ONLY, None, Severity.WARNING),
        (ERROR, 60, Severity.WARNING),
        (ERROR, DAY + 1, Severity.INFO),
        ("BTRFS info (device sda1: state EA): forced readonly", 60, Severity.CRITICAL),
        ("XFS (dm-1): Corruption of in-memory data detected.  Shutting down filesystem", 60,
         Severity.CRITICAL),
    ],
)  # fmt: skip
def test_how_grave_a_line_is_and_for_how_long(message, age, severity):
    finding = detect(logged(message, age))
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, severity)


@pytest.mark.parametrize(
    ("before", "now", "severity"),
    [
        (state(), state(), None),
        (state(True, True), state(True, True), None),
        (state(True, False), state(True, False), Severity.CRITICAL),
        (state(), state(True, True), Severity.WARNING),
        (state(True, True), state(), None),
    ],
)
def test_a_mount_that_should_be_writable_and_is_not(before, now, severity):
    finding = detect(make_window([(0.0, [before, log()]), (60.0, [now, log()])]))
    assert (finding.severity if finding.verdict is Verdict.PRESENT else None) is severity


MOUNTED = "EXT4-fs (sda1): re-mounted 7e1d3a55-0b55-4d5f-9a3e-2f6f1f0c6b8e r/w. Quota mode: none."


@pytest.mark.parametrize(
    ("messages", "severity"),
    [
        # 6.12 goes on showing rw (fs/ext4/super.c, ext4_handle_error): the log is all there is.
        ([READ_ONLY], Severity.CRITICAL),
        ([READ_ONLY, MOUNTED, READ_ONLY], Severity.CRITICAL),
        ([READ_ONLY, MOUNTED], Severity.INFO),
    ],
)
def test_ext4_is_well_again_once_it_was_mounted_again(messages, severity):
    rows = [state(), log(), *events(messages, NOW - 600)]
    finding = detect(make_window([(NOW - 10, [state(), log()]), (NOW, rows)]))
    assert (finding.severity if finding.verdict is Verdict.PRESENT else None) is severity


def test_a_filesystem_that_shows_its_state_is_well_once_it_can_be_written_to():
    row = Filesystem("/", "sda1", "btrfs", False, False, *(None,) * 5)
    messages = events(["BTRFS info (device sda1 state EA): forced readonly"], NOW - 600)
    finding = detect(make_window([(NOW - 10, [row, log()]), (NOW, [row, log(), *messages])]))
    assert finding.severity is Severity.INFO


def test_another_disks_line_is_not_the_reason():
    rows = [
        state(True, True),
        log(),
        *events(["EXT4-fs (sdb1): Remounting filesystem read-only"], 30),
    ]
    finding = detect(make_window([(0.0, [state(), log()]), (60.0, rows)]))
    assert "the log does not say why" in finding.summary


def test_without_a_log_the_finding_says_so():
    finding = detect(make_window([(0.0, [state(True, False)])]))
    assert finding.severity is Severity.CRITICAL
    assert finding.missing


def test_a_hostile_message_is_escaped():
    finding = detect(logged("EXT4-fs error (device sda1): x:1: comm \x1b[2J", 5))
    assert all("\x1b" not in line.value for line in finding.evidence)
