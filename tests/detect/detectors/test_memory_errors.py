"""Memory that fails: corrected or not, by lines and by counters, and how long it counts."""

from __future__ import annotations

import pytest

from sexton.detect.detectors.hardware.memory_errors import detect
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.hardware import MemoryModule
from tests.support.log import events, log
from tests.support.windows import make_window

DAY = 86400.0
NOW = 300_000.0


def edac(kind: str, number: int, dimm: str = "DIMM_A1") -> str:
    return f"EDAC MC0: {number} {kind} memory read error on {dimm} (channel:0 slot:1 page:0x1)"


def logged(*messages: str, age: float | None = 60.0):
    rows = events(messages, None if age is None else NOW - age)
    return detect(make_window([(NOW - 10, [log()]), (NOW, [log(), *rows])]))


@pytest.mark.parametrize(
    ("message", "severity"),
    [
        (edac("CE", 1), Severity.INFO),
        (edac("CE", 99), Severity.INFO),
        (edac("CE", 100), Severity.WARNING),
        (edac("UE", 1), Severity.CRITICAL),
        ("MCE: Killing a:7 due to hardware memory corruption fault at 4631e000", Severity.CRITICAL),
        ("Memory failure: 0x12: Sending SIGBUS to a:7 due to hardware memory corruption",
         Severity.CRITICAL),
        ("Memory failure: 0x12: recovery action for dirty LRU page: Recovered", Severity.WARNING),
        ("Memory failure: 0x12: recovery action for reserved kernel page: Ignored",
         Severity.CRITICAL),
        ("mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 7: 8c00004000010091", Severity.INFO),
        ("mce: [Hardware Error]: CPU 1: Machine Check: 0 Bank 7: bd00000000010091",
         Severity.CRITICAL),
        ("mce: [Hardware Error]: CPU 1: Machine Check Exception: 5 Bank 6: 8c00004000010091",
         Severity.CRITICAL),
        ("{1}[Hardware Error]: event severity: corrected", Severity.INFO),
        ("{1}[Hardware Error]: event severity: recoverable", Severity.WARNING),
        ("{1}[Hardware Error]: event severity: fatal", Severity.CRITICAL),
    ],
)  # fmt: skip
def test_how_grave_a_line_is(message, severity):
    assert logged(message).severity is severity


@pytest.mark.parametrize(
    ("age", "severity"),
    [(DAY - 1, Severity.CRITICAL), (DAY + 1, Severity.INFO), (None, Severity.WARNING)],
)
def test_how_long_it_counts(age, severity):
    assert logged(edac("UE", 1), age=age).severity is severity


def firmware(level: str, *sections: str, record: int = 10) -> list[str]:
    """A report as the kernel prints it, without the lines that the catalogue does not know."""
    start = f"{{{record}}}[Hardware Error]: "
    return [
        f"{start}event severity: {level}",
        *(f"{start}  section_type: {section}" for section in sections),
    ]


@pytest.mark.parametrize("section", ["PCIe error", "CXL Protocol Error"])
def test_a_report_of_the_firmware_about_a_link_is_no_memory_error(section):
    assert logged(*firmware("fatal", section)).verdict is Verdict.ABSENT
    assert logged(*firmware("fatal", section, section)).verdict is Verdict.ABSENT


@pytest.mark.parametrize(
    ("sections", "what"),
    [
        (("memory error",), "memory error"),
        (("PCIe error", "memory error"), "memory error"),
        (("general processor error",), "general processor error"),
        ((), "hardware error"),
    ],
)
def test_the_section_says_what_the_firmware_reports(sections, what):
    finding = logged(*firmware("recoverable", *sections))
    assert finding.severity is Severity.WARNING
    assert finding.summary.startswith(f"{what} reported by the firmware (recoverable)")


def test_a_section_belongs_to_the_report_with_its_number():
    memory, pcie = (
        firmware("recoverable", "memory error"),
        firmware("fatal", "PCIe error", record=11),
    )
    mixed = [memory[0], pcie[0], pcie[1], memory[1]]
    assert logged(*mixed).severity is Severity.WARNING
    after_a_reboot = [*firmware("fatal", "PCIe error"), *memory]
    assert logged(*after_a_reboot).severity is Severity.WARNING
    assert logged(memory[1]).verdict is Verdict.ABSENT


def test_corrected_errors_of_one_module_add_up_and_those_of_two_do_not():
    assert logged(edac("CE", 60), edac("CE", 60)).severity is Severity.WARNING
    assert logged(edac("CE", 60), edac("CE", 60, "DIMM_B1")).severity is Severity.INFO


def counted(before: tuple[int, int], after: tuple[int, int]):
    rows = [MemoryModule(0, "DIMM_A1", *pair) for pair in (before, after)]
    return detect(make_window([(NOW - 60, [log(), rows[0]]), (NOW, [log(), rows[1]])]))


@pytest.mark.parametrize(
    ("before", "after", "severity"),
    [
        ((0, 0), (0, 0), None),
        ((5000, 0), (5099, 0), None),
        ((5000, 0), (5100, 0), Severity.WARNING),
        ((0, 2), (0, 2), Severity.WARNING),
        ((0, 2), (0, 3), Severity.CRITICAL),
        ((5000, 0), (3, 0), None),
    ],
    ids=["none", "few", "many", "earlier", "now", "counters were reset"],
)
def test_what_the_counters_prove(before, after, severity):
    finding = counted(before, after)
    assert (finding.severity if finding.verdict is Verdict.PRESENT else None) is severity


def test_errors_since_boot_have_no_moment():
    assert counted((0, 2), (0, 2)).start is None


def test_a_hostile_label_is_escaped():
    finding = logged(edac("UE", 1, "\x1b[2J"))
    assert finding.entities["dimm"] == ("\\x1b[2J",)
