"""Stuck I/O: by the log, by state D, and what only looks like it."""

from __future__ import annotations

import pytest

from sexton.detect.detectors.storage.stuck_io import NAME, detect
from sexton.detect.registry import detector_of
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.event import KernelLog
from sexton.model.rows.task import Process
from sexton.model.window import Batch, Window
from tests.support.log import events, log
from tests.support.windows import EPOCH, make_window

HOUR = 3600.0
NOW = 100_000.0


def logged(*messages: str, age: float | None = 60.0):
    rows = events(messages, None if age is None else NOW - age)
    return detect(make_window([(NOW - 10, [log()]), (NOW, [log(), *rows])]))


@pytest.mark.parametrize(
    ("message", "severity"),
    [
        ("INFO: task cp:71 blocked for more than 120 seconds.", Severity.CRITICAL),
        ("nvme nvme0: I/O 12 QID 3 timeout, aborting", Severity.WARNING),
        ("nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0x10",
         Severity.CRITICAL),
        ("nvme nvme0: Removing after probe failure status: -19", Severity.CRITICAL),
        ("sd 2:0:0:1: [sdb] rejecting I/O to offline device", Severity.CRITICAL),
        ("ata1.00: exception Emask 0x0 SAct 0x0 SErr 0x0 action 0x6 frozen", Severity.WARNING),
        ("nfs: server a not responding, still trying", Severity.CRITICAL),
        ("I/O error, dev sda, sector 8 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 2",
         Severity.WARNING),
        ("end_request: I/O error, dev sda, sector 8", Severity.WARNING),
    ],
)  # fmt: skip
def test_how_grave_a_line_is(message, severity):
    assert logged(message).severity is severity
    assert logged(message, age=HOUR + 1).severity is Severity.INFO
    assert logged(message, age=None).severity is Severity.WARNING


LOST = (
    "Lustre: fs-OST0002-osc-ffff3000ef06c000: Connection to fs-OST0002 (at 10.0.0.7@tcp) was lost;"
    " in progress operations using this service will wait for recovery to complete"
)
BACK = "Lustre: fs-OST0002-osc-ffff3000ef06c000: Connection restored to 10.0.0.7@tcp"


def test_a_lustre_target_that_is_lost_is_critical_until_its_connection_is_restored():
    lost = logged(LOST)
    assert lost.severity is Severity.CRITICAL
    assert lost.summary.startswith("Lustre target fs-OST0002 did not respond")
    assert logged(LOST, BACK).severity is Severity.INFO
    assert logged(LOST, BACK.replace("0002", "0003")).severity is Severity.CRITICAL
    assert logged(BACK, LOST.replace("0002", "0001")).severity is Severity.CRITICAL


@pytest.mark.parametrize(
    "message",
    [
        "blk_update_request: I/O error, dev sr0, sector 0",
        "I/O error, dev loop3, sector 0 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2",
        "critical target error, dev sda, sector 9 op 0x3:(DISCARD) flags 0x800 phys_seg 1",
        "Buffer I/O error on dev fd0, logical block 0, async page read",
    ],
)
def test_what_every_second_node_says_is_not_an_error(message):
    assert logged(message).verdict is Verdict.ABSENT


def test_the_wait_began_before_the_line():
    finding = logged("INFO: task cp:71 blocked for more than 120 seconds.")
    assert finding.start == EPOCH + NOW - 60 - 120


def hung(task: str, *, by: str | None = None) -> list[str]:
    lines = [f"INFO: task {task} blocked for more than 122 seconds."]
    if by is not None:
        lines.append(f"INFO: task {task} is blocked on a mutex likely owned by task {by}.")
    return lines


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("INFO: task cat:115 is blocked on a mutex likely owned by task cat:114.",
         "a lock (mutex) likely held by cat[114]"),
        ("INFO: task cat:115 blocked on a semaphore likely last held by task kworker/0:1:11",
         "a lock (semaphore) likely held by kworker/0:1[11]"),
        ("INFO: task cat:115 <reader> blocked on an rw-semaphore likely owned by task 12:4"
         " <writer>",
         "a lock (rw-semaphore) likely held by 12[4]"),
    ],
)  # fmt: skip
def test_the_owner_of_the_lock_is_named(line, words):
    finding = logged(*hung("cat:115"), line)
    assert finding.severity is Severity.CRITICAL
    assert finding.summary.endswith(f"waits for {words}")
    assert len(finding.entities["task"]) == 2


def test_the_stack_to_read_is_that_of_the_last_owner():
    lines = [*hung("b:2", by="c:3"), *hung("a:1", by="b:2")]
    window = make_window([(NOW - 10, [log()]), (NOW, [log(), *events(lines, NOW - 60)])])
    finding = detect(window)
    assert "a[1] was stuck" in finding.summary
    assert finding.summary.endswith("likely held by b[2], which waits for c[3]")
    assert finding.entities["task"] == ("a[1]", "b[2]", "c[3]")
    declared = detector_of(NAME)
    assert declared is not None
    assert declared.advice is not None
    assert [step.do for step in declared.advice.steps(finding, window)] == ["cat /proc/3/stack"]
    assert [item.value for item in finding.evidence if item.unit == "task"] == ["b[2]", "c[3]"]


def test_tasks_that_wait_for_each_other():
    finding = logged(*hung("b:2", by="a:1"), *hung("a:1", by="b:2"))
    assert finding.summary.endswith("held by b[2]; they wait for each other (deadlock)")


def test_the_last_report_names_the_owner():
    finding = logged(*hung("a:1", by="b:2"), *hung("a:1", by="c:3"))
    assert finding.summary.endswith("likely held by c[3]")


def process(state: str, cpu: int = 5, start: int = 1) -> Process:
    return Process(7, 1, "cp", state, start, cpu, cpu, 0, 1, False)


def watched(*readings: tuple[float, Process]):
    return detect(make_window([(at, [row, log()]) for at, row in readings]))


@pytest.mark.parametrize(
    ("seconds", "severity"),
    [(6, None), (8, Severity.INFO), (19, Severity.INFO), (20, Severity.WARNING)],
)
def test_how_long_in_state_d_is_stuck(seconds, severity):
    finding = watched(*((seconds * part / 2, process("D")) for part in range(3)))
    assert (finding.severity if finding.verdict is Verdict.PRESENT else None) is severity


@pytest.mark.parametrize(
    "last",
    [process("S"), process("D", cpu=6), process("D", start=2), process("R")],
    ids=["it sleeps again", "it made progress", "another process", "it runs"],
)
def test_who_moves_is_not_stuck(last):
    assert watched((0, process("D")), (15, process("D")), (30, last)).verdict is Verdict.ABSENT


def test_a_wait_that_ended_an_hour_ago_is_told_with_its_time():
    """Nobody looks while it lasts: the recording is read the next morning."""
    waits = [(100.0 + 5 * turn, process("D")) for turn in range(7)]
    quiet = [(140.0 + 60 * turn, process("S", cpu=6)) for turn in range(60)]
    finding = watched((90.0, process("S")), *waits, *quiet)
    assert (finding.verdict, finding.severity) == (Verdict.PRESENT, Severity.WARNING)
    assert "cp[7] in uninterruptible sleep for 30.0 s" in finding.summary
    assert "it ended 59 min 10 s before the end of this window" in finding.summary
    assert finding.end is not None
    assert finding.start is not None
    assert finding.end - finding.start == 30.0


def test_a_wait_across_a_gap_in_the_recording_is_not_known():
    rows = [(0.0, True), (10.0, True), (100.0, False), (110.0, True)]
    batches = [Batch(at, at, (process("D"),), follows) for at, follows in rows]
    logs = [Batch(at, at, (log(),), True) for at, _ in rows]
    assert detect(Window({Process: batches, KernelLog: logs})).verdict is Verdict.ABSENT


def test_two_readings_are_chance():
    assert watched((0, process("D")), (30, process("D"))).verdict is Verdict.ABSENT


def test_a_hostile_name_is_escaped():
    finding = logged("INFO: task \x1b[2J:71 blocked for more than 120 seconds.")
    assert finding.entities["task"] == ("\\x1b[2J[71]",)
    finding = logged(*hung("cp:71", by="\x1b[2J:7"))
    assert finding.entities["task"] == ("cp[71]", "\\x1b[2J[7]")
