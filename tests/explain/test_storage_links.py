"""From a disk that fails to the filesystem on it: by the log lines of that disk alone."""

from __future__ import annotations

import re

import pytest

from sexton.detect.detectors.storage import filesystem_errors, stuck_io
from sexton.explain.diagnosis import diagnose
from sexton.explain.registry import rule_of
from sexton.model.chain import Bond, Strength
from sexton.model.window import Window
from sexton.reports.text.verdict import verdict_text
from tests.support.log import events, log
from tests.support.windows import make_window

NOW = 1000.0
DISK = "I/O error, dev {}, sector 8 op 0x1:(WRITE) flags 0x0 phys_seg 1 prio class 2"
STOPPED = "EXT4-fs ({}): Remounting filesystem read-only"
HUNG = "INFO: task train:71 blocked for more than 120 seconds."
SILENT = "nfs: server 10.0.12.7 not responding, still trying"


def logged(*lines: tuple[float, str]) -> Window:
    rows = [row for at, message in lines for row in events([message], at)]
    return make_window([(0.0, [log()]), (NOW, [log(), *rows])])


def linked(window: Window) -> Bond | None:
    rule = rule_of("disk_error_breaks_filesystem")
    assert rule is not None
    return rule.join(stuck_io.detect(window), filesystem_errors.detect(window), window)


@pytest.mark.parametrize(
    ("disk", "device", "begins", "strength"),
    [
        ("sda", "sda1", 99.5, Strength.PROVEN),
        ("sda", "sda1", 129.0, Strength.PROVEN),
        ("nvme0", "nvme0n1p2", 100.0, Strength.PROVEN),
        ("sda", "sda1", 170.0, Strength.LIKELY),
        ("sda", "sda1", 98.0, None),
        ("sda", "sda1", 731.0, None),
        ("sda", "sdab1", 110.0, None),
        ("md1", "md12", 110.0, None),
        ("sda", "dm-0", 110.0, None),
    ],
)
def test_a_disk_breaks_the_filesystem_that_is_on_it(disk, device, begins, strength):
    disk_lines = [(at, DISK.format(disk)) for at in (100.0, 130.0)]
    link = linked(logged(*disk_lines, (begins, STOPPED.format(device))))
    assert (link.strength if link is not None else None) is strength
    if link is not None:
        assert link.shared == (device, disk)


def test_hung_tasks_and_silent_servers_are_no_errors_of_the_disk():
    stopped = (210.0, STOPPED.format("sda1"))
    others = (205.0, HUNG), (208.0, SILENT), (208.5, DISK.format("sdb"))
    assert linked(logged(*others, stopped)) is None
    link = linked(logged((200.0, DISK.format("sda")), *others, stopped))
    assert link is not None
    assert link.strength is Strength.PROVEN
    assert link.sentence == "sda1 failed 10.0 s after the first error of its disk"


def test_each_filesystem_is_compared_with_its_own_disk():
    link = linked(
        logged(
            (100.0, STOPPED.format("sda1")),
            (300.0, DISK.format("sdb")),
            (310.0, STOPPED.format("sdb1")),
        )
    )
    assert link is not None
    assert link.shared == ("sdb1", "sdb")
    assert link.sentence.startswith("sdb1 failed 10.0 s after")


def test_the_chain_shows_the_disk_and_not_the_server_that_fails_at_the_same_time():
    """Of two things that do not answer, the finding names the later one first."""
    diagnosis = diagnose(
        logged(
            (940.0, DISK.format("nvme1n1")),
            (942.0, STOPPED.format("nvme1n1p1")),
            (945.0, SILENT),
            (946.0, "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."),
        )
    )
    assert diagnosis.by_id["stuck_io"].summary.startswith("NFS server")
    text = verdict_text(diagnosis, 100)
    rows = [line.split() for line in text.splitlines() if "/dev/kmsg" in line]
    assert [row[1:3] for row in rows[:2]] == [["I/O", "errors,"], ["remounted", "read-only,"]]
    assert [row[-3:] for row in rows] == [["1", "line", "/dev/kmsg"]] * 3
    assert "): I/O errors, nvme1n1, 1 min" in re.sub(r"\s+", " ", text)
    assert "   NVRM: Xid (PCI:0000:3b:00): 79" in text
    advised = [step.do for step in diagnosis.plan]
    assert "dmesg -T | grep -F nvme1" in advised, "its partition is not in the disk's own lines"
