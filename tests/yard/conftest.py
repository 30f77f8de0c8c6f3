"""One yard for all tests of this folder that do not break it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.yard.yard import Yard, why_not


@pytest.fixture(scope="session")
def yard() -> Iterator[Yard]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with Yard() as up:
        yield up


@pytest.fixture
def own_yard() -> Iterator[Yard]:
    """A yard to break."""
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with Yard() as up:
        yield up
