"""What every source must have: fixtures from two kernels, a test of its own, no trust in junk.

A plain file's parser is run here, over its fixtures and over junk made of them. A source that is a
class has its own tests of both; here it is only checked that they exist: fixtures of two kernels
that its tests read, and a hypothesis test called ``test_junk_…``. What keeps neither rule stands in
a table with the reason.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.errors import SourceMalformed
from sexton.sources.registry import Source, all_sources
from tests.support.examples import examples
from tests.support.fixtures import FIXTURES, kernels

TESTS = Path(__file__).parent
SOURCES = all_sources()
FILES = [source for source in SOURCES if source.parse is not None]
CLASSES = [source for source in SOURCES if source.parse is None]
#: Fixtures of a class source that are not under its own id: a folder, and who reads them.
FIXTURES_OF = {
    "cgroupfs.census": ("cgroupfs/directories", "cgroupfs/trees.py"),
    "cgroupfs.residual": ("cgroupfs/memory_stat", "cgroupfs/test_residual.py"),
    "kmsg.sessions": ("kmsg/journal", "kmsg/test_sessions.py"),
    "nic.devices": ("nic/trees", "nic/trees.py"),
    "nic.queues": ("nic/trees", "nic/trees.py"),
    "procfs.irq_affinity": ("nic/trees", "nic/trees.py"),
    "systemd.units": ("systemd/show", "systemd/test_units.py"),
}
#: The module with the junk test of a class source, where that is not its own.
JUNK_IN = {
    "cgroupfs.cpu_stat": "cgroupfs/test_junk.py",
    "cgroupfs.residual": "cgroupfs/test_junk.py",
    "cgroupfs.stat": "cgroupfs/test_junk.py",
    "debugfs.lru_gen": "cgroupfs/test_junk.py",
    "kmsg.log": "kmsg/test_records.py",
    "systemd.units": "systemd/test_bus.py",
    "tracefs.cgroup_events": "cgroupfs/test_junk.py",
}
EXCEPTIONS = {
    ("bpf.softirq_wait", "kernels"): "what it reads is laid out by our own program, not the kernel",
    ("cgroupfs.census", "junk"): "it parses with procfs.cgroups and cgroupfs.stat, tested there",
    ("cgroupfs.walk_cost", "kernels"): "it times a file and reads nothing of what is in it",
    ("cgroupfs.walk_cost", "junk"): "it times a file and reads nothing of what is in it",
    ("nic.ethtool", "kernels"): "an ioctl's bytes, made by hand after the kernel's headers",
    ("perf.stacks", "kernels"): "of one kernel: the virtual machines have no perf",
    ("sysfs.edac", "kernels"): "single numbers, one to a file; no machine here has them",
    ("sysfs.infiniband", "kernels"): "single numbers, one to a file; no machine here has them",
    ("sysfs.thermal_throttle", "kernels"): "single numbers; no machine here has them",
    ("procfs.node", "kernels"): "single values; the clouds' files are made by hand",
}


def name(source: Source) -> str:
    return source.id


@pytest.mark.parametrize("source", SOURCES, ids=name)
def test_documents_itself_and_has_a_test(source: Source):
    module = importlib.import_module(f"sexton.sources.{source.id}")
    assert len(module.__doc__ or "") > 200, "say what it is, with an excerpt"
    assert source.rows
    package, _, stem = source.id.rpartition(".")
    assert (TESTS / package.replace(".", "/") / f"test_{stem}.py").is_file()


@pytest.mark.parametrize("source", FILES, ids=name)
def test_reads_fixtures_of_two_kernels(source: Source):
    found = kernels(source.id)
    assert len(found) >= 2, f"{source.id} has fixtures of {[path.stem for path in found]}"
    for path in found:
        rows = list(source.parse(path.read_bytes().decode("utf-8", "surrogateescape")))
        assert rows, path
        assert {type(row) for row in rows} <= set(source.rows)


@pytest.mark.parametrize("source", CLASSES, ids=name)
def test_a_class_has_fixtures_of_two_kernels_that_its_tests_read(source: Source):
    own = source.id.replace(".", "/")
    package, _, stem = own.rpartition("/")
    folder, reader = FIXTURES_OF.get(source.id, (own, f"{package}/test_{stem}.py"))
    versions = {
        found[0]
        for path in (FIXTURES / folder).glob("*")
        if (found := re.search(r"\d+\.\d+", path.name)) is not None
    }
    kept = len(versions) >= 2 and _names(TESTS / reader, folder)
    assert kept is ((source.id, "kernels") not in EXCEPTIONS), f"{folder}: {sorted(versions)}"


def _names(module: Path, folder: str) -> bool:
    """Does a test module name that folder, as a path, in parts or as a source's id?"""
    text = module.read_text()
    head, _, last = folder.rpartition("/")
    return any(
        spelt in text
        for spelt in (f'"{folder}"', f'"{folder.replace("/", ".")}"', f'"{head}" / "{last}"')
    )


@pytest.mark.parametrize("source", CLASSES, ids=name)
def test_a_class_has_a_junk_test(source: Source):
    package, _, stem = source.id.rpartition(".")
    module = TESTS / JUNK_IN.get(source.id, f"{package}/test_{stem}.py")
    tests = [
        node
        for node in ast.parse(module.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_junk_")
    ]
    drawn = [test for test in tests if any("given(" in ast.unparse(d) for d in test.decorator_list)]
    assert bool(drawn) is ((source.id, "junk") not in EXCEPTIONS), module


def test_no_table_names_a_source_that_is_gone():
    named = {*FIXTURES_OF, *JUNK_IN, *(source_id for source_id, _ in EXCEPTIONS)}
    assert named <= {source.id for source in CLASSES}


@pytest.mark.parametrize("source", FILES, ids=name)
@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_junk_is_rows_or_malformed_and_never_a_crash(source: Source, data: st.DataObject):
    good = kernels(source.id)[0].read_bytes()
    start = data.draw(st.integers(0, len(good)))
    cut = data.draw(st.integers(0, 40))
    junk = good[:start] + data.draw(st.binary(max_size=40)) + good[start + cut :]
    text = data.draw(st.sampled_from([junk, good[:start], data.draw(st.binary(max_size=200))]))
    with contextlib.suppress(SourceMalformed):
        list(source.parse(text.decode("utf-8", "surrogateescape")))
