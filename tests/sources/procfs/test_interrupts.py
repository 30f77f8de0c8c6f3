"""`/proc/interrupts`."""

import subprocess
import sys
from pathlib import Path

import pytest

from sexton.errors import SourceMalformed
from sexton.sources.procfs.interrupts import parse
from tests.support.fixtures import kernel_text

#: Lines as an arm64 kernel prints them (level in a column of its own), made by hand.
ARM = """           CPU0       CPU3
 11:       4711       4712     GICv3  27 Level     arch_timer
 47:          9          0   ITS-MSI 16384 Edge      nvme0q0, nvme0q1
 48:          1          0   ITS-MSI 16385 Edge    \x20
IPI0:       100        200       Rescheduling interrupts
Err:          0
"""


def by_irq(text):
    return {row.irq: row for row in parse(text)}


@pytest.mark.parametrize(
    ("kernel", "irq", "name", "counts"),
    [
        ("6.1", "32", "virtio0-output.0", (7, 0)),
        ("6.1", "4", "ttyS0", (0, 976)),
        ("6.18", "24", "ACPI:Ged", (1, 0)),
    ],
)
def test_a_devices_line_has_its_drivers_name(kernel, irq, name, counts):
    row = by_irq(kernel_text("procfs.interrupts", kernel))[irq]
    assert (row.name, row.cpus, row.counts) == (name, (0, 1), counts)


def test_named_lines_keep_their_description_and_totals_are_left_out():
    rows = by_irq(kernel_text("procfs.interrupts", "5.10"))
    assert rows["LOC"].name == "Local timer interrupts"
    assert "ERR" not in rows
    assert "MIS" not in rows


def test_another_architecture_reads_the_same():
    rows = by_irq(ARM)
    assert (rows["11"].name, rows["11"].cpus, rows["11"].counts) == (
        "arch_timer",
        (0, 3),
        (4711, 4712),
    )
    assert rows["47"].name == "nvme0q0, nvme0q1"
    assert rows["48"].name == "", "nobody holds this line"
    assert rows["IPI0"].name == "Rescheduling interrupts"
    assert "Err" not in rows


def test_a_total_is_no_cores_count_on_a_machine_with_one_core_either():
    assert list(by_irq("  CPU0\nLOC: 5  Local timer interrupts\nERR: 0\n")) == ["LOC"]


def test_a_numbered_line_that_lacks_a_cores_count_is_named():
    with pytest.raises(SourceMalformed) as caught:
        list(parse("  CPU0 CPU1\n 1: 3 4  IO-APIC 1-edge  i8042\n 2: 3  IO-APIC 2-edge  x\n"))
    assert caught.value.line == 3


def test_no_header_is_malformed():
    with pytest.raises(SourceMalformed):
        list(parse(" 1: 3 4  IO-APIC 1-edge  i8042\n"))


@pytest.mark.root
def test_where_a_pods_runtime_masks_it_the_mounted_one_is_read(tmp_path: Path):
    """Really masked, as the runtime does it, in a mount namespace of its own."""
    script = f"""
from sexton.errors import SourceAbsent
from sexton.host.host import open_host
from sexton.model.rows.cpu import Interrupt
from sexton.sources import registry
(source,) = registry.sources_of(Interrupt)
registry.UNMASKED["/proc/interrupts"] = {str(tmp_path / "mounted")!r}
try:
    print([(row.irq, row.counts) for row in source.open(open_host()).collect()])
except SourceAbsent as error:
    print("absent", error.path)
"""
    mask = 'mount --bind /dev/null /proc/interrupts && exec "$@"'

    def read() -> str:
        argv = ["unshare", "--mount", "sh", "-c", mask, "sh", sys.executable, "-c", script]
        ended = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout.strip()

    assert read() == f"absent {tmp_path / 'mounted'}"
    (tmp_path / "mounted").write_text("           CPU0\n  4:  7  IO-APIC  4-edge      ttyS0\n")
    assert read() == "[('4', (7,))]"
