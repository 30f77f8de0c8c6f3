"""`/proc/irq/*/`."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.host.host import open_host
from sexton.sources.procfs.irq_affinity import IrqAffinities, cpu_list
from tests.sources.nic.trees import tree
from tests.support.trees import plant


def collected(host):
    return list(IrqAffinities(host).collect())


def test_allowed_and_effective_cores_by_number(tmp_path):
    # As captured on Debian's 5.10: line 2 was never started, line 26 is a queue's own.
    host = plant(
        tmp_path,
        {
            "/proc/irq/default_smp_affinity": "3\n",
            "/proc/irq/26/smp_affinity_list": "1\n",
            "/proc/irq/26/effective_affinity_list": "1\n",
            "/proc/irq/2/smp_affinity_list": "0-1\n",
            "/proc/irq/2/effective_affinity_list": "\n",
        },
    )
    first, second = collected(host)
    assert (first.irq, first.allowed, first.effective) == (2, (0, 1), ())
    assert (second.irq, second.allowed, second.effective) == (26, (1,), (1,))


def test_a_kernel_without_effective_lists_gives_none(tmp_path):
    (row,) = collected(plant(tmp_path, {"/proc/irq/9/smp_affinity_list": "0-3,7\n"}))
    assert row.allowed == (0, 1, 2, 3, 7)
    assert row.effective is None


def test_a_line_that_went_away_is_skipped(tmp_path):
    host = plant(tmp_path, {"/proc/irq/9/smp_affinity_list": "0\n"})
    (tmp_path / "proc/irq/10").mkdir()
    assert [row.irq for row in collected(host)] == [9]


@pytest.mark.parametrize("text", ["x", "3-1", "-1", "0-", "0-99999999"])
def test_a_list_that_is_none_is_malformed(tmp_path, text):
    host = plant(tmp_path, {"/proc/irq/9/smp_affinity_list": text})
    with pytest.raises(SourceMalformed, match="/proc/irq/9/smp_affinity_list"):
        collected(host)


def test_a_host_without_the_directory_is_absent(tmp_path):
    with pytest.raises(SourceAbsent):
        collected(open_host(str(tmp_path)))


def test_lists_are_the_kernels_list_format():
    assert cpu_list("\n") == ()
    assert cpu_list("5") == (5,)
    assert cpu_list("0,2-4,9\n") == (0, 2, 3, 4, 9)


def test_this_machines_lines_are_on_its_own_cores():
    rows = collected(open_host())
    assert [row.irq for row in rows] == sorted(
        int(name) for name in os.listdir("/proc/irq") if name.isdecimal()
    )
    most = os.cpu_count() or 1
    assert all(set(row.effective or ()) <= set(range(most)) for row in rows)


@pytest.mark.parametrize("kernel", ["5.10", "6.1", "6.18"])
def test_real_kernels_bind_each_line_to_cores_they_have(kernel):
    rows = collected(tree(f"virtio-{kernel}"))
    assert rows
    assert all(set(row.effective or ()) <= set(row.allowed) <= {0, 1} for row in rows)


@given(st.text(alphabet="0123456789-, \nx٣", max_size=40))
def test_junk_is_a_list_or_refused(junk):
    try:
        cpus = cpu_list(junk)
    except ValueError:
        return
    assert all(0 <= cpu < 8192 for cpu in cpus)


def test_a_list_that_never_ends_is_refused():
    with pytest.raises(ValueError, match="0-8191"):
        cpu_list("0-8191," * 100_000)
