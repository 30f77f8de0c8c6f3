"""GPUs: the meaning of Xid numbers, names and models, and nodes that have none."""

from __future__ import annotations

import pytest

from sexton.detect.detectors.hardware.gpu_errors import XIDS, detect
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.hardware import Gpu
from tests.support.log import events, log
from tests.support.windows import make_window

NOW = 300_000.0
DAY = 86400.0


def xid(number: int, bus: str = "0000:3b:00", tail: str = "pid=7, name=python3, x") -> str:
    return f"NVRM: Xid (PCI:{bus}): {number}, {tail}"


def logged(*messages: str, age: float | None = 60.0):
    rows = events(messages, None if age is None else NOW - age)
    return detect(make_window([(NOW - 10, [log()]), (NOW, [log(), *rows])]))


@pytest.mark.parametrize("number", [48, 64, 74, 79, 95, 119, 120])
def test_hardware_is_critical(number):
    assert logged(xid(number)).severity is Severity.CRITICAL


@pytest.mark.parametrize("number", [13, 31, 43, 45, 63, 121])
def test_the_programs_own_faults_and_what_was_repaired_are_notes(number):
    assert logged(xid(number)).severity is Severity.INFO


@pytest.mark.parametrize("number", [61, 92, 94, 9999])
def test_what_announces_or_is_not_known_is_a_warning(number):
    assert logged(xid(number)).severity is Severity.WARNING


def test_every_meaning_is_a_few_words():
    assert all(5 < len(meaning.words) < 60 for meaning in XIDS.values())


@pytest.mark.parametrize(
    ("age", "severity"),
    [(DAY - 1, Severity.CRITICAL), (DAY + 1, Severity.INFO), (None, Severity.WARNING)],
)
def test_how_long_it_counts(age, severity):
    assert logged(xid(79), age=age).severity is severity


@pytest.mark.parametrize(
    "line",
    [
        "NVRM: Xid (PCI:0000:3B:00): 79, GPU has fallen off the bus.",
        "NVRM: Xid (0000:3b:00): 79, GPU at 0000:3b:00.0 has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off"
        " the bus.",
        "NVRM: GPU at 0000:3b:00.0 has fallen off the bus.",
        "NVRM: GPU 0000:3b:00.0: GPU has fallen off the bus.",
    ],
)
def test_lines_of_all_drivers_name_one_gpu_and_no_task_that_is_unknown(line):
    finding = logged(line)
    assert finding.entities == {"gpu": ("0000:3b:00",)}
    assert "Xid 79, GPU fell off the bus" in finding.summary


def test_the_cause_comes_before_what_follows_from_it():
    finding = logged(xid(79), xid(45, "0000:86:00"), xid(43, "0000:86:00"))
    assert finding.entities["gpu"] == ("0000:3b:00",)
    assert len(finding.evidence) == 3


def test_a_switch_that_is_fatal():
    line = "nvidia-nvswitch0: SXid (PCI:0000:59:00.0): 23001, {}, Link 12 Always Fatal"
    assert logged(line.format("Fatal")).severity is Severity.CRITICAL
    assert logged(line.format("Non-fatal")).severity is Severity.INFO


def test_no_driver_is_not_applicable_and_no_sysfs_goes_by_the_log():
    assert detect(make_window([(0.0, [log()])], empty=[Gpu])).verdict is Verdict.NOT_APPLICABLE
    assert detect(make_window([(0.0, [log()])])).verdict is Verdict.ABSENT
    assert detect(make_window([(0.0, [])])).verdict is Verdict.UNKNOWN


def test_a_hostile_name_is_escaped():
    finding = logged(xid(48, tail="pid=7, name=\x1b[2J, x"))
    assert finding.entities["task"] == ("\\x1b[2J[7]",)


def test_a_switch_is_not_called_a_gpu():
    line = "nvidia-nvswitch0: SXid (PCI:0000:59:00.0): 20034, {}, Link 30 LTSSM Fault Up"
    assert logged(line.format("Fatal")).summary.startswith(
        "NVSwitch 0000:59:00: SXid 20034, fatal, 1 min"
    )
    assert "NVSwitch 0000:59:00: SXid 20034, not fatal" in logged(line.format("Non-fatal")).summary
