"""Filesystems without room: the limits from both sides, and what is not judged."""

from __future__ import annotations

import pytest

from sexton.detect.detectors.storage.full_filesystem import detect
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.filesystem import Filesystem
from tests.support.log import events, log
from tests.support.windows import EPOCH, make_window

G = 1 << 30
M = 1 << 20


LINE = (
    "EXT4-fs (sda1): Delayed block allocation failed for inode 12 at logical offset 0"
    " with max blocks 8 with error 28"
)


def disk(point="/", total=100 * G, left=50 * G, inodes=(1000, 900), closed=False):
    return Filesystem(point, "sda1", "ext4", closed, closed, total, left, left, *inodes)


@pytest.mark.parametrize(
    ("total", "left", "severity"),
    [
        (10 * G, 100 * M, Severity.CRITICAL),
        (10 * G, 103 * M, Severity.WARNING),
        (1000 * G, G - 1, Severity.CRITICAL),
        (1000 * G, G, Severity.WARNING),
        (1000 * G, 5 * G - 1, Severity.WARNING),
        (1000 * G, 5 * G, None),
        (10 * G, 512 * M - 1, Severity.WARNING),
        (10 * G, 512 * M, None),
        (16 * M, 0, Severity.CRITICAL),
        (16 * M - 1, 0, None),
    ],
)
def test_how_much_is_full(total, left, severity):
    finding = detect(make_window([(0.0, [disk(total=total, left=left), disk("/b")])]))
    assert (finding.severity if finding.verdict is Verdict.PRESENT else None) is severity


@pytest.mark.parametrize(
    ("free", "severity"), [(9, Severity.CRITICAL), (10, Severity.WARNING), (50, None)]
)
def test_inodes_are_judged_by_their_share(free, severity):
    finding = detect(make_window([(0.0, [disk(inodes=(1000, free))])]))
    assert (finding.severity if finding.verdict is Verdict.PRESENT else None) is severity


def test_a_filesystem_that_counts_no_inodes_is_not_out_of_them():
    assert detect(make_window([(0.0, [disk(inodes=(0, 0))])])).verdict is Verdict.ABSENT


def test_a_read_only_image_is_full_by_nature():
    window = make_window([(0.0, [disk("/usr", left=0, closed=True), disk()])])
    assert detect(window).verdict is Verdict.ABSENT


def test_it_begins_at_the_reading_before_it_was_seen():
    readings = [(0.0, [disk()]), (60.0, [disk()]), (120.0, [disk(left=0)]), (180.0, [disk(left=0)])]
    finding = detect(make_window(readings))
    assert (finding.start, finding.end) == (EPOCH + 60, EPOCH + 180)


def test_after_a_gap_it_begins_where_it_was_seen():
    finding = detect(make_window([(0.0, [disk()]), (4000.0, [disk(left=0)])]))
    assert finding.start == EPOCH + 4000


def test_the_worst_comes_first_and_the_others_are_counted():
    rows = [disk("/low", left=2 * G), disk("/full", left=0), disk("/fine")]
    finding = detect(make_window([(0.0, rows)]))
    assert finding.summary.startswith("/full is full")
    assert finding.summary.endswith("(and 1 more)")
    assert finding.entities["mount"] == ("/full",)


def test_an_old_line_does_not_contradict_the_room_that_is_there():
    rows = [disk(), log(), *events([LINE], 100.0)]
    finding = detect(make_window([(90_000.0, [disk(), log()]), (90_010.0, rows)]))
    assert finding.verdict is Verdict.ABSENT


def test_a_line_alone_is_a_warning_and_names_the_mount():
    finding = detect(
        make_window([(0.0, [disk(), log()]), (60.0, [disk(), log(), *events([LINE], 30.0)])])
    )
    assert finding.severity is Severity.WARNING
    assert "no space was left on / (sda1)" in finding.summary


def test_a_hostile_mount_point_is_escaped():
    finding = detect(make_window([(0.0, [disk("/a\x1b[2J", left=0)])]))
    assert "\x1b" not in finding.summary
    assert finding.entities["mount"] == ("/a\\x1b[2J",)
