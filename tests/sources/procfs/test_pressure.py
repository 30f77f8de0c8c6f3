"""`/proc/pressure/*`."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.host import open_host
from sexton.sources.procfs.pressure import PressureFiles, parse
from tests.support.fixtures import FIXTURES
from tests.support.trees import plant

LINE = "avg10=8.97 avg60=5.92 avg300=2.09 total=7429632"


def captured(tmp_path, kernel):
    folder = FIXTURES / "procfs/pressure" / kernel
    files = {f"/proc/pressure/{path.name}": path.read_bytes() for path in folder.iterdir()}
    rows = list(PressureFiles(plant(tmp_path, files)).collect())
    return {(row.resource, row.kind): row for row in rows}


def test_reads_every_resource_of_a_kernel(tmp_path):
    rows = captured(tmp_path, "6.1")
    assert set(rows) == {(r, k) for r in ("cpu", "memory", "io") for k in ("some", "full")}
    row = rows["cpu", "some"]
    assert (row.avg10_percent, row.avg60_percent, row.avg300_percent) == (10.4, 5.98, 1.91)
    assert row.total_us == 7152256


def test_an_old_kernel_has_no_full_line_of_cpu(tmp_path):
    rows = captured(tmp_path, "5.10")
    assert ("cpu", "some") in rows
    assert ("cpu", "full") not in rows


def test_irq_pressure_is_read_where_there_is_some(tmp_path):
    host = plant(tmp_path, {"/proc/pressure/irq": f"full {LINE}\n"})
    (row,) = PressureFiles(host).collect()
    assert (row.resource, row.kind) == ("irq", "full")


def test_a_kernel_without_pressure_is_absent(tmp_path):
    with pytest.raises(SourceAbsent):
        list(PressureFiles(open_host(str(tmp_path))).collect())


@pytest.mark.parametrize(
    "line",
    ["some", "some avg10=x avg60=0 avg300=0 total=1", "full avg10=nan avg60=0 avg300=0 total=1"],
)
def test_a_broken_line_is_named(line):
    with pytest.raises(SourceMalformed, match="/proc/pressure/io") as caught:
        list(parse("io", f"some {LINE}\n{line}\n"))
    assert caught.value.line == 2


@given(cut=st.integers(0, 60), junk=st.text(max_size=30))
def test_junk_is_rows_or_malformed(cut, junk):
    good = f"some {LINE}\nfull {LINE}\n"
    with suppress(SourceMalformed):
        list(parse("io", good[:cut] + junk + good[cut:]))
