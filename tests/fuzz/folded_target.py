"""Fuzz target: folded stacks."""

from __future__ import annotations

from sexton.profile.perf import folded
from tests.fuzz.reading import read_and_give_on


def one(data: bytes) -> None:
    read_and_give_on(folded.read, data)


def seeds() -> list[bytes]:
    """Stacks in the variants people have."""
    return [
        b"ksoftirqd/12;kthread;run_ksoftirqd;net_rx_action 42\n" * 2,
        b"# {}\njava;start_thread;Interpreter_[j];vfs_read_[k] 7.5\nWeb Content;main 1\n",
    ]
