"""Which flags perf is given, and how a refusal is told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sexton.errors import SourceAbsent, SourceDenied, SourceMalformed, SourceSkipped
from sexton.host import runner
from sexton.host.host import open_host
from sexton.record import perf_child
from sexton.record.stacks import RollingStacks
from tests.support.perf import fake_perf
from tests.support.tools import need


def test_flags_that_perf_does_not_know_are_dropped_one_by_one(tmp_path, monkeypatch):
    script = """case "$*" in
    *--all-cgroups*) echo "  Error: unknown option \\`all-cgroups'" >&2; exit 129;;
    *--switch-max-files*) echo "  Error: unknown option \\`switch-max-files'" >&2; exit 129;;
    esac"""
    fake_perf(tmp_path, monkeypatch, script)
    command = perf_child.flags(97, 120, 9, str(tmp_path))
    assert "--buildid-mmap" in command
    assert "--all-cgroups" not in command
    assert not any("max-files" in word for word in command)
    assert "-B" not in command
    assert "--switch-output=120s" in command


def test_what_the_kernel_refuses_without_naming_it_is_found_by_trying(tmp_path, monkeypatch):
    script = 'case "$*" in *mmap*) echo "The sys_perf_event_open() was refused" >&2; exit 255; esac'
    fake_perf(tmp_path, monkeypatch, script)
    command = perf_child.flags(97, 120, 9, str(tmp_path))
    assert not any("mmap" in word for word in command)
    assert "-B" in command


@pytest.mark.parametrize(
    ("script", "kind", "told"),
    [
        ('echo "  Error: unknown option \\`switch-output\'" >&2; exit 129', SourceAbsent, "rotate"),
        ("echo 'Access to performance monitoring is limited.' >&2; exit 255", SourceDenied, "root"),
        ("echo 'x'; echo 'perf: failed to breathe' >&2; exit 1", SourceMalformed, "breathe"),
        ("echo 'error: No space left on device' >&2; exit 1", SourceSkipped, "no space"),
    ],
)
def test_a_refusal_is_told_by_its_kind(tmp_path, monkeypatch, script, kind, told):
    fake_perf(tmp_path, monkeypatch, script)
    with pytest.raises(kind, match=told):
        RollingStacks(open_host(), str(tmp_path)).start()


def test_no_perf_is_absent_with_what_would_help(tmp_path, monkeypatch):
    monkeypatch.setitem(runner._ENVIRONMENT, "PATH", str(tmp_path))
    with pytest.raises(SourceAbsent, match="not installed") as caught:
        RollingStacks(open_host(), str(tmp_path)).start()
    assert "install" in caught.value.grant


@pytest.mark.root
def test_who_is_not_root_is_denied_with_what_would_help():
    need("perf", package="linux-perf")
    if int(Path("/proc/sys/kernel/perf_event_paranoid").read_text()) < 1:
        pytest.skip("kernel.perf_event_paranoid lets everybody sample here")
    place = Path("/tmp") / f"sexton-test-{os.getpid()}"
    place.mkdir()
    place.chmod(0o777)
    # A fork and not a program: the interpreter may lie where only root can reach it.
    child = os.fork()
    if child == 0:
        try:
            os.setresuid(65534, 65534, 65534)
            perf_child.flags(97, 120, 4, str(place))
        except SourceDenied as denied:
            os._exit(7 if "sudo" in denied.grant else 8)
        finally:
            os._exit(9)
    _, status = os.waitpid(child, 0)
    place.rmdir()
    assert os.waitstatus_to_exitcode(status) == 7
