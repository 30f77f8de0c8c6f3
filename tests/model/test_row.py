"""Rows: frozen, comparable, and dataclasses to whoever asks."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, asdict, field, is_dataclass, replace

import pytest

from sexton.model.row import Row, fields_of, row


@row
class Sample(Row):
    """A row of the tests."""

    cpu: int
    name: str = "x"
    more: Mapping[str, int] = field(default_factory=dict)


def test_a_row_takes_its_fields_in_order_by_name_and_by_default():
    assert Sample(1) == Sample(cpu=1, name="x", more={})
    assert Sample(1, "y", {"a": 1}).more == {"a": 1}
    with pytest.raises(TypeError):
        Sample()
    with pytest.raises(TypeError):
        Sample(1, nonsense=2)


def test_a_default_made_for_one_row_is_not_shared_with_another():
    assert Sample(1).more is not Sample(1).more


def test_a_row_is_frozen_and_has_no_room_for_more():
    made = Sample(1)
    with pytest.raises(FrozenInstanceError):
        made.cpu = 2
    with pytest.raises(FrozenInstanceError):
        del made.cpu
    with pytest.raises(FrozenInstanceError):
        made.other = 2
    assert made.cpu == 1


def test_equal_rows_are_equal_and_hash_alike_and_differ_by_type():
    @row
    class Other(Row):
        cpu: int
        name: str
        more: tuple[int, ...]

    assert Sample(1, "a", ()) == Sample(1, "a", ())
    assert hash(Sample(1, "a", ())) == hash(Sample(1, "a", ()))
    assert Sample(1, "a", ()) != Sample(2, "a", ())
    assert Sample(1, "a", ()) != Other(1, "a", ())


def test_the_tools_for_dataclasses_work():
    made = Sample(1)
    assert is_dataclass(made)
    assert fields_of(Sample) == ("cpu", "name", "more")
    assert replace(made, cpu=7) == Sample(7)
    assert asdict(made) == {"cpu": 1, "name": "x", "more": {}}
    assert repr(made) == "Sample(cpu=1, name='x', more={})"


def test_a_row_survives_pickling():
    assert pickle.loads(pickle.dumps(Sample(1, "y"))) == Sample(1, "y")
