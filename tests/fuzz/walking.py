"""walk.c under ASan and UBSan, in the harness beside this file: mutated records, from as many plans
as there are ways of recording."""

from __future__ import annotations

import os
import random
import shlex
import shutil
import struct
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

from sexton.profile.perf import native
from sexton.profile.perf.walk import Layout, Plan, plan_of
from tests.fuzz.running import Ran
from tests.profile.perf import walk_cases as cases

HERE = Path(__file__).parent
WALK = "walk (C, with sanitizers)"
#: However slow the machine is, so many streams are walked, and more while the seconds last.
LEAST_STREAMS = 500
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


def written() -> list[bytes]:
    """Eight cases of each way of recording."""
    chance = random.Random(1)
    return [case(*made_up(kind, chance)) for kind in KINDS for _ in range(8)]


def compiled(folder: Path) -> Path:
    """The harness, made there."""
    program = folder / "harness"
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Werror", "-fno-omit-frame-pointer"]
    flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
    source = f'-DWALK_C="{native.HERE / "walk.c"}"'
    subprocess.run(
        [*COMPILER, *flags, source, "-o", str(program), str(HERE / "walk_harness.c")], check=True
    )
    return program


def walk(harness: Path, folder: Path, seconds: int, streams: list[bytes], nice: int = 0) -> Ran:
    """Mutate these streams for so long; the last one tried is left in `folder`."""
    paths = []
    for number, content in enumerate(streams):
        paths.append(folder / f"case-{number}")
        paths[-1].write_bytes(content)
    seed = str(random.SystemRandom().getrandbits(48))
    last, began = folder / "last", time.monotonic()
    command = [str(harness), str(seconds), str(LEAST_STREAMS), seed, str(last), *map(str, paths)]
    ended = subprocess.run(
        ["nice", "-n", str(nice), *command],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=seconds * 3 + 300,
        check=False,
    )
    if ended.returncode:
        return Ran(0, 0.0, f"seed {seed}, {last}: {ended.stderr[-3000:]}")
    return Ran(int(ended.stdout.split()[0]), time.monotonic() - began, "")


def fuzz_walk(seconds: float, nice: int) -> Ran:
    """All of it, in a directory of its own, which stays if anything failed."""
    folder = Path(tempfile.mkdtemp(prefix="sexton-fuzz-"))
    ran = walk(compiled(folder), folder, int(seconds), written(), nice)
    if not ran.failure:
        shutil.rmtree(folder)
    return ran
