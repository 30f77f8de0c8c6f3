"""The README's pictures: small, all there, and none that the script no longer makes."""

from __future__ import annotations

import struct

import pytest

from tests.docs.pictures import MOST_BYTES, PICTURES, names


def test_every_picture_is_one_that_the_script_makes():
    assert sorted(path.stem for path in PICTURES.iterdir()) == names()


@pytest.mark.parametrize("name", names())
def test_a_picture_is_small_and_of_a_laptops_shape(name: str):
    content = (PICTURES / f"{name}.png").read_bytes()
    assert len(content) <= MOST_BYTES
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", content[16:24])
    assert width == 1280
    assert 600 <= height <= 720
