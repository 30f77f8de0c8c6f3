"""What the programs that read our exports understand of them.

``go tool pprof`` comes with Go. speedscope is the npm package; its importer is taken out of its
page's script (`speedscope_reader.js`) and is given every format it reads. FlameScope is on no
index: its parser is asked where FLAMESCOPE_DIR is a checkout, FlameGraph's where FLAMEGRAPH_DIR is.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import types
from collections import Counter
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from sexton.model.text import printable
from sexton.profile.export import About, folded, pprof, script, speedscope
from sexton.profile.export.script import safe_comm
from sexton.profile.perf import script_text
from sexton.profile.perf.named_samples import profile_of
from tests.profile.export.made import counted, whole
from tests.support.fixtures import FIXTURES

pytestmark = pytest.mark.oracle
ROOT = Path(__file__).parents[2]
TEXT = (FIXTURES / "perf" / "script" / "6.18-header.txt").read_bytes()
PROFILE = profile_of(script_text.read(BytesIO(TEXT), "capture.txt"))
ABOUT = About(name="capture", hertz=99)
PERIOD_NS = round(1e9 / 99)
FLAMESCOPE, FLAMEGRAPH = os.environ.get("FLAMESCOPE_DIR"), os.environ.get("FLAMEGRAPH_DIR")


def program(name: str, hint: str) -> str:
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/local/go/bin:/usr/bin")
    if found is None:
        pytest.skip(f"{name} is not installed: {hint}")
    return found


def said(*argv: str) -> str:
    # The first `go tool pprof` of a machine compiles it: a minute of CPU time.
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=600).stdout


def shown(text: str) -> str:
    return printable(text) or "[unknown]"


def pprof_raw(data: bytes, folder: Path) -> tuple[str, Counter[tuple[str, ...]]]:
    """pprof's dump of a profile, and what it counts per stack, the thread first."""
    path = folder / "it.pb.gz"
    path.write_bytes(data)
    go = program("go", "apt-get install golang-go")
    dump = said(go, "tool", "pprof", "-symbolize=none", "-raw", str(path))
    samples, _, rest = dump.partition("Samples:\n")[2].partition("Locations\n")
    locations = rest.partition("Mappings\n")[0]
    name = dict(re.findall(r"^ *(\d+): 0x0 M=\d+ (.*) :0:0 s=0", locations, re.MULTILINE))
    name |= dict(re.findall(r"^ *(\d+): 0x0 (?!M=)(.*) :0:0 s=0", locations, re.MULTILINE))
    found: Counter[tuple[str, ...]] = Counter()
    pattern = re.compile(r"^ +(\d+) +(\d+): ?([\d ]*)\n +.*thread:\[(.*)\]$", re.MULTILINE)
    for count, nanoseconds, stack, thread in pattern.findall(samples):
        assert int(nanoseconds) == int(count) * PERIOD_NS
        found[(thread, *(name[at] for at in reversed(stack.split())))] += int(count)
    return dump, found


@pytest.mark.whole  # builds pprof, a minute
def test_pprof_counts_what_we_counted(tmp_path):
    dump, found = pprof_raw(pprof.from_flame(whole(PROFILE), ABOUT), tmp_path)
    assert found == counted(PROFILE, escape=shown)
    assert f"Period: {PERIOD_NS}" in dump
    assert "samples/count cpu/nanoseconds" in dump


@pytest.mark.whole  # builds pprof, a minute
def test_pprof_finds_the_cores_in_labels(tmp_path):
    _, found = pprof_raw(pprof.from_profiles([(PROFILE, None)], ABOUT), tmp_path)
    assert found == counted(PROFILE, escape=shown)
    go = program("go", "apt-get install golang-go")
    tags = said(go, "tool", "pprof", "-tags", "-sample_index=samples", str(tmp_path / "it.pb.gz"))
    shares = tags.partition(" cpu:")[2].partition("\n\n")[0]
    cores = {int(cpu): int(n) for n, cpu in re.findall(r"^ +(\d+) \(.*\): (\d)$", shares, re.M)}
    assert cores == Counter(PROFILE.cpu.tolist())


def speedscope_read(data: bytes, name: str, folder: Path) -> dict:
    node = program("node", "apt-get install nodejs")
    package = Path(os.environ.get("SPEEDSCOPE_DIR", ROOT / ".venv/peers/node_modules/speedscope"))
    if not package.is_dir():
        pytest.skip("speedscope is not installed: npm install --prefix .venv/peers speedscope")
    path = folder / name
    path.write_bytes(data)
    reader = Path(__file__).with_name("speedscope_reader.js")
    return json.loads(said(node, str(reader), str(package), str(path)))


def rounded(stacks: dict[str, float], unit: float) -> Counter[tuple[str, ...]]:
    """Samples per stack of what is told in seconds."""
    found: Counter[tuple[str, ...]] = Counter()
    for stack, weight in stacks.items():
        found[tuple(stack.split("\n"))] += round(weight / unit)
    return found


def test_speedscope_reads_a_flame_graph(tmp_path):
    data = b"".join(speedscope.from_flame(whole(PROFILE), ABOUT))
    (profile,) = speedscope_read(data, "it.json", tmp_path)["profiles"]
    assert profile["unit"] == "seconds"
    assert profile["total"] == pytest.approx(len(PROFILE) / 99)
    assert rounded(profile["stacks"], 1 / 99) == counted(PROFILE, escape=shown)


@pytest.mark.parametrize("by", ["core", "task"])
def test_speedscope_reads_samples_by_core_and_by_task(tmp_path, by):
    data = b"".join(speedscope.from_profiles([(PROFILE, None)], ABOUT, by=by))
    profiles = speedscope_read(data, "it.json", tmp_path)["profiles"]
    found = sum((rounded(profile["stacks"], 1 / 99) for profile in profiles), Counter())
    assert found == counted(PROFILE, escape=shown)
    if by == "core":
        assert [profile["name"] for profile in profiles] == ["core 0", "core 1"]
        span = (PROFILE.time_ns[-1] - PROFILE.time_ns[0]) / 1e9
        assert max(profile["total"] for profile in profiles) == pytest.approx(span, abs=2 / 99)


def test_speedscope_reads_our_folded_stacks_and_our_pprof(tmp_path):
    data = b"".join(folded.from_flame(whole(PROFILE)))
    (profile,) = speedscope_read(data, "it.txt", tmp_path)["profiles"]
    ours = Counter({tuple(line.split(";")): int(count) for line, count in folded_lines(data)})
    assert rounded(profile["stacks"], 1) == ours
    packed = pprof.from_flame(whole(PROFILE), ABOUT)
    (profile,) = speedscope_read(packed, "it.pb.gz", tmp_path)["profiles"]
    assert profile["total"] == len(PROFILE) * PERIOD_NS


def folded_lines(data: bytes) -> list[tuple[str, str]]:
    lines = data.decode().splitlines()
    return [(stack, count) for stack, _, count in (line.rpartition(" ") for line in lines)]


def test_speedscope_finds_every_thread_in_our_perf_script_text(tmp_path):
    data = b"".join(script.from_profiles([(PROFILE, None)]))
    names = {profile["name"] for profile in speedscope_read(data, "it.txt", tmp_path)["profiles"]}
    threads = {(safe_comm(thread.comm), thread.tid) for thread in PROFILE.threads}
    assert names == {f"{comm} tid: {tid}" for comm, tid in threads}


if FLAMESCOPE:  # no skip where it is not: nobody could install it

    def test_flamescope_counts_what_we_counted(tmp_path, monkeypatch):
        path = tmp_path / "it.txt"
        path.write_bytes(b"".join(script.from_profiles([(PROFILE, None)])))
        heatmap, flame_graph = flamescope(FLAMESCOPE, tmp_path, monkeypatch)
        offsets = heatmap.perf_read_offsets(str(path))
        assert np.allclose(offsets.offsets, PROFILE.time_ns / 1e9)
        root = flame_graph.perf_generate_flame_graph(str(path))
        assert samples_of(root) == len(PROFILE)
        # Its pattern of a name stops at the first digit.
        firsts = {re.match(r"[^0-9]+", safe_comm(thread.comm))[0] for thread in PROFILE.threads}
        assert {child["n"] for child in root["c"]} == {first.rstrip() for first in firsts}

    def samples_of(node: dict) -> int:
        return node["v"] + sum(samples_of(child) for child in node["c"])

    def flamescope(checkout: str, folder: Path, monkeypatch):
        """Its parser, without the web server and the file types it asks others for."""
        stand_ins = {
            "app": {"__path__": [f"{checkout}/app"]},
            "flask": {"abort": None},
            "magic": {"from_file": lambda path, mime: "text/plain"},
            "cachetools": {"cached": lambda cache: lambda made: made, "LRUCache": dict},
        }
        for name, contents in stand_ins.items():
            module = types.ModuleType(name)
            module.__dict__.update(contents)
            monkeypatch.setitem(sys.modules, name, module)
        importlib.import_module("app.config").PROFILE_DIR = str(folder)
        heatmap = importlib.import_module("app.perf.heatmap")
        return heatmap, importlib.import_module("app.perf.flame_graph")


if FLAMEGRAPH:

    def test_stackcollapse_makes_the_same_folded_stacks_of_our_text(tmp_path):
        path = tmp_path / "it.txt"
        path.write_bytes(b"".join(script.from_profiles([(PROFILE, None)])))
        theirs = said("perl", f"{FLAMEGRAPH}/stackcollapse-perf.pl", str(path))
        ours = b"".join(folded.from_flame(whole(PROFILE))).decode()

        def lines(text: str) -> Counter[str]:
            # It writes spaces of a name as "_", as our text does where they mislead.
            return Counter(line.replace(" ", "_") for line in text.splitlines())

        assert lines(theirs) == lines(ours)
