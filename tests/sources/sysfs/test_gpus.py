"""GPUs by their drivers' folders, and the model in NVIDIA's file."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.errors import SourceAbsent
from sexton.model.rows.hardware import Gpu
from sexton.sources.sysfs.gpus import PATH, Gpus, model
from tests.support.fixtures import FIXTURES
from tests.support.trees import plant


@pytest.mark.parametrize(
    ("driver", "name"), [("535.129", "NVIDIA H100 80GB HBM3"), ("470.57", "Tesla V100-SXM2-16GB")]
)
def test_the_model_of_real_drivers(driver, name):
    assert model((FIXTURES / "sysfs/gpus" / f"{driver}.txt").read_text()) == name


def test_gpus_of_both_drivers(tmp_path):
    information = (FIXTURES / "sysfs" / "gpus" / "535.129.txt").read_text()
    host = plant(
        tmp_path,
        {
            f"{PATH}/nvidia/0000:62:00.0": "",
            f"{PATH}/nvidia/new_id": "",
            "/proc/driver/nvidia/gpus/0000:62:00.0/information": information,
            f"{PATH}/nvidia/0000:63:00.0": "",
            f"{PATH}/amdgpu/0000:23:00.0": "",
        },
    )
    assert list(Gpus(host).collect()) == [
        Gpu("0000:62:00.0", "nvidia", "NVIDIA H100 80GB HBM3"),
        Gpu("0000:63:00.0", "nvidia", None),
        Gpu("0000:23:00.0", "amdgpu", None),
    ]


def test_no_gpu_and_no_sysfs_are_not_the_same(tmp_path):
    assert list(Gpus(plant(tmp_path / "a", {f"{PATH}/e1000e/bind": ""})).collect()) == []
    with pytest.raises(SourceAbsent):
        list(Gpus(plant(tmp_path / "b", {"/etc/x": ""})).collect())


@given(st.text())
def test_junk_has_no_model_or_a_short_one(junk):
    assert len(model(junk) or "") <= 121
