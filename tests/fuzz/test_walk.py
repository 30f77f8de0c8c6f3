"""walk.c under ASan and UBSan: mutated records, real and made up, for `SEXTON_FUZZ_S` seconds."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sexton.profile.perf import native
from sexton.profile.perf.walk import Layout, Plan, plan_of
from tests.profile.perf import walk_cases as cases

HERE = Path(__file__).parent
#: However slow the machine is, so many streams are walked, and more while the seconds last.
LEAST_STREAMS = 500
SECONDS = int(os.environ.get("SEXTON_FUZZ_S", "0"))
COMPILER = shlex.split(os.environ.get("CC") or "cc")
#: Each a way of recording: -g with cgroups, every field, no chain, several events.
EVERYTHING = sum(cases.FIELDS) & ~cases.WEIGHT_STRUCT
KINDS = [
    [Layout(0x2001E7, 0, 0, 0, 0, ())],
    [Layout(EVERYTHING, 0x1F, 5 << 17, 0xFF, 0x0F, ())],
    [Layout(EVERYTHING & ~cases.CALLCHAIN, 3, 0, 0, 1, ())],
    [Layout(0x1E7 | 1 << 16, 4, 0, 0, 0, (1, 2)), Layout(0x2101E7, 0, 0, 0, 0, (3,))],
    [Layout(0, 0, 0, 0, 0, ())],
]

pytestmark = pytest.mark.fuzz


def section(content: np.ndarray) -> bytes:
    return struct.pack("=Q", len(content)) + content.tobytes()


def case(plan: Plan, stream: bytes) -> bytes:
    """As walk_harness.c reads it."""
    layouts = b"".join(bytes(native.Layout(shape[:7], shape.steps)) for shape in plan.shapes)
    parts = [struct.pack("=Q", len(plan.shapes)) + layouts, section(plan.ids)]
    parts += [section(plan.id_event), struct.pack("=Q", plan.id_at)]
    parts += [section(column) for since in (plan.comms, plan.spaces) for column in since]
    return b"".join(parts) + struct.pack("=Q", len(stream)) + stream


def made_up(layouts: list[Layout], chance: random.Random) -> tuple[Plan, bytes]:
    words = [cases.KERNEL_MARK, cases.USER_MARK, cases.GUEST_MARK, *range(4096, 4116)]
    stream = b""
    for _ in range(60):
        event = chance.randrange(len(layouts))
        summary = cases.Told(
            event=event,
            id=chance.choice(layouts[event].ids or (0,)),
            mode=chance.randrange(6),
            pid=chance.randrange(5),
            tid=chance.randrange(5),
            time=chance.randrange(3000),
            chain=[chance.choice(words) for _ in range(chance.choice([0, 1, 5, 30]))],
            cgroup=chance.randrange(4),
            filler=chance.randrange(4),
        )
        stream += cases.record(9, summary.mode, cases.body(layouts[event], summary))
        if not chance.randrange(5):
            stream += cases.record(chance.choice([3, 10, 68]), 0, bytes(8 * chance.randrange(9)))
    rows = [(key, 500 * key, key) for key in range(5)]
    return plan_of(layouts, cases.since(rows), cases.since([*rows, (1, 900, 7)])), stream


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
    program = tmp_path_factory.mktemp("walk") / "harness"
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-fno-omit-frame-pointer"]
    flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    source = f'-DWALK_C="{native.HERE / "walk.c"}"'
    subprocess.run(
        [*COMPILER, *flags, source, "-o", str(program), str(HERE / "walk_harness.c")], check=True
    )
    return program


def run(harness: Path, folder: Path, seconds: int, written: list[bytes]) -> None:
    paths = []
    for number, content in enumerate(written):
        paths.append(folder / f"case-{number}")
        paths[-1].write_bytes(content)
    seed = str(random.SystemRandom().getrandbits(48))
    last = folder / "last"
    ended = subprocess.run(
        [str(harness), str(seconds), str(LEAST_STREAMS), seed, str(last), *map(str, paths)],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds * 3 + 300,
        check=False,
    )
    assert ended.returncode == 0, f"seed {seed}, {last}: {ended.stderr[-3000:]}"
    tried = int(ended.stdout.split()[0])
    assert tried >= LEAST_STREAMS, "it hardly tried anything"


def test_no_made_up_record_breaks_walk_c(harness: Path, tmp_path: Path):
    chance = random.Random(1)
    written = [case(*made_up(kind, chance)) for kind in KINDS for _ in range(8)]
    run(harness, tmp_path, SECONDS, written)


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
