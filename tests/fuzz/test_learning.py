"""Every target: a thousand inputs in `make test-whole`, ten minutes in `make fuzz`.

`SEXTON_FUZZ_S` is the number of seconds; where it is not set, inputs are counted, since a busy
machine tries few in a second. As many run at a time as there are cores.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TARGETS = sorted(path.stem.removesuffix("_target") for path in HERE.glob("*_target.py"))
LEAST_INPUTS = 1000
SECONDS = int(os.environ.get("SEXTON_FUZZ_S", "0"))
LIMIT = f"-max_total_time={SECONDS}" if SECONDS else f"-runs={LEAST_INPUTS}"

pytestmark = pytest.mark.fuzz


@pytest.fixture(scope="module")
def runs(
    request: pytest.FixtureRequest,
) -> Iterator[dict[str, Future[subprocess.CompletedProcess[str]]]]:
    pytest.importorskip("atheris", exc_type=ImportError)
    pool = ThreadPoolExecutor(os.cpu_count() or 1)
    wanted = {item.callspec.params["target"] for item in request.session.items if _is_ours(item)}
    started = {name: pool.submit(_run, name) for name in TARGETS if name in wanted}
    yield started
    pool.shutdown(cancel_futures=True)


def _is_ours(item: pytest.Item) -> bool:
    return item.path.name == Path(__file__).name and hasattr(item, "callspec")


def _run(name: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.fuzz.learning", name, LIMIT],
        cwd=HERE.parents[1],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=SECONDS * 3 + 300,
        check=False,
    )


@pytest.mark.parametrize("target", TARGETS)
def test_no_input_crashes_hangs_or_fills_memory(
    target: str, runs: dict[str, Future[subprocess.CompletedProcess[str]]]
) -> None:
    ended = runs[target].result()
    assert ended.returncode == 0, ended.stderr[-3000:]
    tried = re.search(r"stat::number_of_executed_units:\s*(\d+)", ended.stderr)
    assert tried is not None, ended.stderr[-2000:]
    assert int(tried[1]) >= LEAST_INPUTS, "it hardly tried anything"
