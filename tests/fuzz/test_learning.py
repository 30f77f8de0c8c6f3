"""Every target: ten seconds and a thousand inputs in `make test-whole`, ten minutes in `make fuzz`.

`SEXTON_FUZZ_S` is the number of seconds. Inputs are counted as well, since a busy machine tries few
in a second. As many targets run at a time as there are cores.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fuzz.running import TARGETS, Ran, run

LEAST_INPUTS = 1000
SECONDS = int(os.environ.get("SEXTON_FUZZ_S", "10"))

pytestmark = pytest.mark.fuzz


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Future[Ran]]]:
    pytest.importorskip("atheris", exc_type=ImportError)
    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    place = tmp_path_factory.mktemp("fuzz")
    wanted = {item.callspec.params["target"] for item in request.session.items if _is_ours(item)}
    started = {
        name: pool.submit(run, name, LEAST_INPUTS, SECONDS, place / name)
        for name in TARGETS
        if name in wanted
    }
    yield started
    pool.shutdown(cancel_futures=True)


def _is_ours(item: pytest.Item) -> bool:
    return item.path.name == Path(__file__).name and hasattr(item, "callspec")


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_crashes_hangs_or_fills_memory(target: str, runs: dict[str, Future[Ran]]) -> None:
    ended = runs[target].result()
    assert not ended.failure, ended.failure
    assert ended.inputs >= LEAST_INPUTS
