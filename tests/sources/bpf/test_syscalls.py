"""bpf(2) itself: the errors for what it refuses, and the calls that are made."""

from __future__ import annotations

import errno
import os
import resource

import pytest

from sexton.errors import SourceAbsent, SourceDenied, SourceError, SourceMalformed
from sexton.sources.bpf import syscalls
from sexton.sources.bpf.program import R0, Assembly
from tests.sources.bpf.hold import program_name

NOTHING = Assembly().move(R0, 0).exit().encode()


@pytest.mark.parametrize(("machine", "pointer"), [("armv7l", 4), ("x86_64", 4), ("vax", 8)])
def test_a_machine_whose_number_is_not_known_is_absent(machine: str, pointer: int):
    with pytest.raises(SourceAbsent, match=f"not supported on {machine}"):
        syscalls.number(machine, pointer)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        (errno.EPERM, SourceDenied, "CAP_BPF and CAP_PERFMON"),
        (errno.EACCES, SourceDenied, "lockdown or seccomp"),
        (errno.ENOSYS, SourceAbsent, "CONFIG_BPF_SYSCALL"),
        (errno.EINVAL, SourceAbsent, "4.17"),
        (errno.ENOMEM, SourceMalformed, "allocate memory"),
    ],
)
def test_a_refusal_has_a_readable_reason(
    monkeypatch, code: int, kind: type[SourceError], words: str
):
    def refuse(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(syscalls, "call", refuse)
    monkeypatch.setattr(syscalls, "_unlock_memory", lambda: False)
    with pytest.raises(kind, match=words):
        syscalls.create_map(syscalls.ARRAY, 8, b"sexton_test")
    with pytest.raises(kind, match=words):
        syscalls.lookup(3, 8)
    with pytest.raises(kind, match=words):
        syscalls.update(3, bytes(8))


def test_an_old_kernel_that_is_out_of_locked_memory_is_called_again(monkeypatch):
    limits = [(65536, 65536)]
    calls = []

    def call(command: int, _: bytes) -> int:
        calls.append(command)
        if limits[-1][0] == 65536:
            raise OSError(errno.EPERM, "Operation not permitted")
        return 9

    monkeypatch.setattr(syscalls, "call", call)
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, limit: limits.append(limit))
    assert syscalls.create_map(syscalls.ARRAY, 8, b"sexton_test") == 9
    assert calls == [syscalls.MAP_CREATE] * 2
    assert limits[-1] == (resource.RLIM_INFINITY,) * 2


def test_where_the_limit_may_not_be_raised_it_is_denied_after_one_try(monkeypatch):
    calls = []

    def call(command: int, _: bytes) -> int:
        calls.append(command)
        raise OSError(errno.EPERM, "Operation not permitted")

    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(syscalls, "call", call)
    monkeypatch.setattr(resource, "setrlimit", refuse)
    with pytest.raises(SourceDenied):
        syscalls.create_map(syscalls.ARRAY, 8, b"sexton_test")
    assert len(calls) == 1


@pytest.mark.root
def test_the_verifiers_reason_is_kept():
    with pytest.raises(SourceMalformed, match="the verifier rejected our program: R0 !read_ok"):
        syscalls.load(Assembly().exit().encode(), b"sexton_test")


@pytest.mark.root
def test_a_tracepoint_that_is_not_there_is_absent():
    program = syscalls.load(NOTHING, b"sexton_test")
    try:
        assert program_name(program) == "sexton_test"
        with pytest.raises(SourceAbsent, match="no tracepoint sexton_never_was"):
            syscalls.attach(b"sexton_never_was", program)
    finally:
        os.close(program)


@pytest.mark.root
def test_a_map_gives_back_what_was_put_in():
    made = syscalls.create_map(syscalls.ARRAY, 16, b"sexton_test")
    try:
        assert syscalls.lookup(made, 16) == bytes(16)
        syscalls.update(made, b"0123456789abcdef")
        assert syscalls.lookup(made, 16) == b"0123456789abcdef"
    finally:
        os.close(made)


@pytest.mark.root
def test_runs_move_while_the_kernel_measures():
    program = syscalls.load(NOTHING, b"sexton_test")
    stats = None
    attached = syscalls.attach(b"sys_enter", program)
    try:
        stats = syscalls.enable_stats()
        before = syscalls.runs(program)
        for _ in range(100):
            os.getppid()
        after = syscalls.runs(program)
        assert after.times - before.times >= 100
        assert after.run_ns > before.run_ns
    finally:
        for descriptor in (attached, program, *([stats] if stats is not None else [])):
            os.close(descriptor)
