"""Cores that were slowed down because of heat."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.model.rows.hardware import CoreThrottle
from sexton.sources.sysfs.thermal_throttle import PATH, Throttles, parse
from tests.support.trees import plant


def core(cpu: int, events: int, total_ms: int | None = None) -> dict[str, str]:
    place = f"{PATH}/cpu{cpu}/thermal_throttle"
    files = {f"{place}/{kind}_throttle_count": f"{events}\n" for kind in ("core", "package")}
    if total_ms is not None:
        for kind in ("core", "package"):
            files[f"{place}/{kind}_throttle_total_time_ms"] = f"{total_ms}\n"
    return files


def test_counts_and_since_5_6_times(tmp_path):
    host = plant(tmp_path, core(0, 12, 3140) | core(10, 1) | {f"{PATH}/cpufreq/x": ""})
    assert list(Throttles(host).collect()) == [
        CoreThrottle(0, 12, 12, 3140, 3140),
        CoreThrottle(10, 1, 1, None, None),
    ]


def test_a_core_that_is_offline_is_left_out(tmp_path):
    host = plant(tmp_path, core(0, 1) | {f"{PATH}/cpu1/online": "0\n"} | core(2, 3))
    assert [row.cpu for row in Throttles(host).collect()] == [0, 2]


def test_a_machine_that_counts_no_heat_is_absent(tmp_path):
    files = {f"{PATH}/cpu{cpu}/online": "1\n" for cpu in range(4)}
    with pytest.raises(SourceAbsent):
        list(Throttles(plant(tmp_path, files)).collect())


@given(st.text(), st.text())
def test_junk_is_malformed(one, other):
    with contextlib.suppress(SourceMalformed):
        parse({"core_throttle_count": one, "package_throttle_count": other}, 0)
