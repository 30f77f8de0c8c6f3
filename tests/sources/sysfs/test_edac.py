"""Memory controllers: modules, what could not be located, and old kernels."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceMalformed
from sexton.model.rows.hardware import MemoryModule
from sexton.sources.sysfs.edac import MOST, PATH, Modules
from tests.support.trees import plant

LABEL = "CPU_SrcID#0_Ha#0_Chan#0_DIMM#1"


def dimm(corrected: int | str = 29589, uncorrected: int = 0, number: int = 0) -> dict[str, str]:
    place = f"{PATH}/mc0/dimm{number}"
    return {
        f"{place}/dimm_label": f"{LABEL}\n",
        f"{place}/dimm_ce_count": f"{corrected}\n",
        f"{place}/dimm_ue_count": f"{uncorrected}\n",
    }


def test_a_module_and_what_the_controller_could_not_locate(tmp_path):
    files = dimm() | {f"{PATH}/mc0/ce_noinfo_count": "4\n", f"{PATH}/mc0/ue_noinfo_count": "1\n"}
    host = plant(tmp_path, files | {f"{PATH}/mc0/ce_count": "29593\n", f"{PATH}/power": ""})
    assert list(Modules(host).collect()) == [
        MemoryModule(0, LABEL, 29589, 0), MemoryModule(0, "", 4, 1)
    ]  # fmt: skip


def test_before_4_10_only_the_controller_counts(tmp_path):
    files = {f"{PATH}/mc1/ce_count": "7\n", f"{PATH}/mc1/ue_count": "0\n"}
    assert list(Modules(plant(tmp_path, files)).collect()) == [MemoryModule(1, "", 7, 0)]


def test_a_machine_without_a_controller_is_absent(tmp_path):
    with pytest.raises(SourceAbsent):
        list(Modules(plant(tmp_path, {"/sys/x": ""})).collect())
    with pytest.raises(SourceAbsent):
        list(Modules(plant(tmp_path, {f"{PATH}/power/control": "auto\n"})).collect())


def test_what_is_broken_is_malformed_and_not_zero(tmp_path):
    with pytest.raises(SourceMalformed):
        list(Modules(plant(tmp_path, dimm("N/A"))).collect())


def test_it_is_bounded(tmp_path):
    files: dict[str, str] = {}
    for number in range(MOST + 9):
        files |= dimm(number=number)
    assert len(list(Modules(plant(tmp_path, files)).collect())) == MOST


@settings(max_examples=20, deadline=None)
@given(st.binary(max_size=30))
def test_junk_is_malformed_or_a_number(junk):
    with tempfile.TemporaryDirectory() as root, contextlib.suppress(SourceMalformed):
        host = plant(Path(root), {**dimm(), f"{PATH}/mc0/dimm0/dimm_ce_count": junk})
        list(Modules(host).collect())
