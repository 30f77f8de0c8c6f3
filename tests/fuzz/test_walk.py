"""walk.c under ASan and UBSan: mutated records, real and made up, for `SEXTON_FUZZ_S` seconds."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from sexton.profile.perf.walk import Layout, Plan, plan_of
from tests.fuzz.walking import (
    COMPILER,
    KINDS,
    LEAST_STREAMS,
    case,
    compiled,
    made_up,
    walk,
    written,
)
from tests.profile.perf import walk_cases as cases

SECONDS = int(os.environ.get("SEXTON_FUZZ_S", "10"))

pytestmark = pytest.mark.fuzz


def recorded(folder: Path) -> tuple[Plan, bytes]:
    """The records of a real perf.data, made here."""
    path = folder / "perf.data"
    load = [sys.executable, "-c", "import os, re, string\nfor n in range(99999): os.getppid()"]
    # -B: perf dies of build ids where another perf asks the kernel for them; none is wanted here.
    command = ["perf", "record", "-q", "-B", "-F", "2000", "-e", "cpu-clock", "-g"]
    command += ["-o", str(path)]
    made = subprocess.run([*command, "--", *load], capture_output=True, text=True, check=False)
    if made.returncode:
        pytest.skip(f"perf record: {made.stderr.strip()[:200]}")
    content = path.read_bytes()
    attrs, _, start, size = struct.unpack_from("=4Q", content, 24)
    sample_type, read_format = struct.unpack_from("=QQ", content, attrs + 24)
    layout = Layout(sample_type, read_format, 0, 0, 0, ())
    nobody = cases.since([])
    return plan_of([layout], nobody, nobody), content[start : start + size]


@pytest.fixture(scope="module")
def harness(tmp_path_factory) -> Path:
    if not shutil.which(COMPILER[0]):
        pytest.skip("no compiler")
    return compiled(tmp_path_factory.mktemp("walk"))


def run(harness: Path, folder: Path, seconds: int, streams: list[bytes]) -> None:
    ended = walk(harness, folder, seconds, streams)
    assert not ended.failure, ended.failure
    assert ended.inputs >= LEAST_STREAMS, "it hardly tried anything"


def test_no_made_up_record_breaks_walk_c(harness: Path, tmp_path: Path):
    run(harness, tmp_path, SECONDS, written())


@pytest.mark.oracle
def test_no_damage_to_a_real_capture_breaks_walk_c(harness: Path, tmp_path: Path):
    if not shutil.which("perf"):
        pytest.skip("no perf")
    run(harness, tmp_path, SECONDS // 2, [case(*recorded(tmp_path))])


def test_the_harness_notices_a_read_past_a_record(harness: Path, tmp_path: Path):
    """A plan that lies is what a bug would be: ASan must see it."""
    plan, stream = made_up(KINDS[0], random.Random(2))
    lying = plan._replace(shapes=(plan.shapes[0]._replace(time=4_000_000),))
    with pytest.raises(AssertionError, match="AddressSanitizer"):
        run(harness, tmp_path, 0, [case(lying, stream)])
