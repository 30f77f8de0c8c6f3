"""Interrupted, terminated or hung up on: the exit code says so, and no trace stays armed."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sexton.sources.tracefs.instance import detached
from tests.support.cli import ENVIRONMENT, SEXTON, reader_of

LONG = ("diagnose", "--seconds", "60")


@pytest.fixture
def instances() -> Iterator[Path]:
    """Where the kernel keeps tracing instances, through a mount of our own."""
    try:
        mount = detached("tracefs")
    except OSError as error:
        pytest.skip(f"this kernel gives no tracefs: {error.strerror}")
    yield Path(f"/proc/self/fd/{mount}/instances")
    os.close(mount)


def of(process: subprocess.Popen[bytes], instances: Path) -> list[str]:
    reader = reader_of(process)
    return [name for name in os.listdir(instances) if name.startswith(f"sexton-{reader}-")]


def started(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*SEXTON, *arguments],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def wait_for_trace(process: subprocess.Popen[bytes], instances: Path) -> None:
    until = time.monotonic() + 180
    while not of(process, instances):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "it never traced"
        time.sleep(0.005)


@pytest.mark.root
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize(
    "command", [LONG, ("zombies", "--seconds", "60"), ("top", "--frames", "99")]
)
def test_a_signal_ends_it_in_order(
    command: tuple[str, ...], number: signal.Signals, instances: Path
) -> None:
    process = started(*command)
    try:
        wait_for_trace(process, instances)  # the earliest, hardest moment: it is still being armed
        process.send_signal(number)
        _, complaint = process.communicate(timeout=90)
    finally:
        process.kill()
        process.wait()
    assert (process.returncode, complaint) == (128 + number, b"")
    assert of(process, instances) == []


@pytest.mark.root
def test_what_a_killed_one_left_armed_the_next_one_removes(instances: Path) -> None:
    process = started(*LONG)
    wait_for_trace(process, instances)
    os.kill(reader_of(process), signal.SIGKILL)
    process.communicate()
    assert process.returncode == 128 + signal.SIGKILL
    assert of(process, instances), "else this test shows nothing"
    after = started("diagnose", "--seconds", "2")
    wait_for_trace(after, instances)
    after.communicate(timeout=60)
    assert of(process, instances) == []
    assert of(after, instances) == []


@pytest.mark.root
def test_two_at_once_do_not_disturb_each_other(instances: Path) -> None:
    both = [started("diagnose", "--seconds", "2", "--json") for _ in range(2)]
    for process in both:
        wait_for_trace(process, instances)
    answers = [process.communicate(timeout=60) for process in both]
    assert [complaint for _, complaint in answers] == [b"", b""]
    assert all(process.returncode in (0, 1, 3) for process in both)
    assert all(
        b'"read-only except a private trace instance (removed)"' in shown for shown, _ in answers
    )
    assert [of(process, instances) for process in both] == [[], []]


@pytest.mark.root
def test_under_nohup_a_hang_up_is_ignored(instances: Path) -> None:
    process = subprocess.Popen(
        ["nohup", *SEXTON, "diagnose", "--seconds", "2"],
        env=ENVIRONMENT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    wait_for_trace(process, instances)  # nohup becomes sexton: the same process
    process.send_signal(signal.SIGHUP)
    shown, _ = process.communicate(timeout=90)
    assert process.returncode in (0, 1, 3)
    assert b"exit" in shown
