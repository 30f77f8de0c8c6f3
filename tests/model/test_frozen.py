"""Frozen records: what a frozen dataclass does, at a fraction of what it costs to define."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, field, fields, replace

import pytest

from sexton.model.frozen import Frozen, frozen


@frozen
class Point(Frozen):
    x: int
    y: int = 2
    names: list[str] = field(default_factory=list)


@frozen
class Shouted(Frozen):
    word: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "word", self.word.upper())


@frozen
class Other(Frozen):
    x: int
    y: int = 2
    names: list[str] = field(default_factory=list)


def test_fields_have_their_defaults_and_lists_are_nobody_elses():
    first, second = Point(1), Point(1)
    assert (first.x, first.y, first.names) == (1, 2, [])
    assert first.names is not second.names
    assert [column.name for column in fields(Point)] == ["x", "y", "names"]


def test_equal_ones_are_equal_and_another_class_is_not():
    assert Point(1) == Point(1, 2, [])
    assert Point(1) != Point(3)
    assert Point(1) != Other(1)
    assert Point(1) != (1, 2, [])
    assert hash(Shouted("a")) == hash(Shouted("A"))


def test_nothing_can_be_changed_added_or_deleted():
    point = Point(1)
    with pytest.raises(FrozenInstanceError):
        point.x = 5
    with pytest.raises(FrozenInstanceError):
        del point.x
    with pytest.raises((FrozenInstanceError, AttributeError)):
        point.z = 5  # type: ignore[attr-defined]


def test_what_is_to_be_done_after_filling_is_done_for_copies_too():
    assert Shouted("hey").word == "HEY"
    assert replace(Shouted("hey"), word="you").word == "YOU"


def test_dataclass_tools_and_copies_work():
    point = Point(1, names=["a"])
    assert asdict(point) == {"x": 1, "y": 2, "names": ["a"]}
    assert replace(point, y=9) == Point(1, 9, ["a"])
    assert copy.copy(point) == point
    assert pickle.loads(pickle.dumps(point)) == point
    assert repr(point) == "Point(x=1, y=2, names=['a'])"


def test_it_says_which_argument_is_missing():
    with pytest.raises(TypeError, match="'x'"):
        Point()  # type: ignore[call-arg]
