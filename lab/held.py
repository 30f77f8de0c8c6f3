"""``python -m lab.held --out DIR``: every command ends while a realtime task holds a core.

Runs in the lab's VM. A realtime task takes the last core, first with the kernel's brake for such
tasks (95 %), then without it. Whatever waits for that core then waits for as long as the task runs:
the removal of a trace instance, a grace period of RCU, a flush of its work. Meanwhile each command
is started as a person would type it, with the deadlines of a real node. It must end within its own
watch and `PATIENCE_S`, and name on standard error what it left behind. Once the core is free,
nothing of it may be left: no process, no trace instance.

Each is a claim with its numbers in ``DIR/held.json`` (`lab.claims`); ``DIR/NN-*.txt`` is the output
of each command. Exit status: 0 every claim holds, 1 one does not, 3 this machine cannot run it.
About twelve minutes under emulation: ``python -m lab.vm run 6.1 v2 check_held --out DIR``.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from lab.claims import Claims
from lab.deadlines import in_lab_vm
from lab.play import environment
from lab.stage import ACTORS, CannotPlay

UNFIT = 3
#: Beyond a command's own watch. Ten times what it needs on a real node, for emulation; a stuck one
#: waits for as long as the core is held.
PATIENCE_S = 150.0
#: How long the kernel may take to finish what waited, once the core is free.
AFTER_S = 120.0
RECORDER, EXPORTER = "127.0.0.1:9643", "127.0.0.1:9644"
_RT_RUNTIME = Path("/proc/sys/kernel/sched_rt_runtime_us")
_INSTANCES = Path("/sys/kernel/tracing/instances")
_HOG = "lab-hog"


@dataclass(frozen=True)
class Order:
    """One command: its arguments, how long it watches, and when it is interrupted, if it is."""

    name: str
    words: tuple[str, ...]
    watch_s: float = 0.0
    interrupt_s: float | None = None
    #: These exit statuses are right.
    right: tuple[int, ...] = (0, 1, 3)


def orders(out: Path) -> tuple[Order, ...]:
    """All commands that look at a node and end."""
    plan = str(out / "plan.json")
    return (
        Order("diagnose", ("diagnose", "--seconds", "20", "--json"), 20),
        Order("diagnose-all", ("diagnose", "--stacks", "--probe"), 10),
        Order("diagnose-interrupted", ("diagnose", "--seconds", "120"), 10, 10, (130,)),
        Order("why", ("why", "core", "1"), 10),
        Order("zombies", ("zombies",), 5),
        Order("zombies-watch", ("zombies", "--watch"), 15, 15, (0, 3, 130)),
        Order("top", ("top", "--json", "--frames", "4"), 8, None, (0,)),
        Order("fix-plan", ("fix", "plan", "--out", plan), 10),
        Order("audit", ("audit",), 10),
        Order("gate", ("gate",), 10),
        Order("sources", ("sources",), 10),
        Order("export-once", ("export", "--once", str(out / "node.prom")), 10),
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m lab.held", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    args = parser.parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    claims = Claims("held")
    try:
        if not in_lab_vm():
            raise CannotPlay("it holds a core: only in the lab's virtual machine")
        args.out.mkdir(parents=True, exist_ok=True)
        for brake in (True, False):
            Held(claims, args.out, "braked" if brake else "held").play(brake)
    except CannotPlay as reason:
        sys.stderr.write(f"lab.held: {reason}\n")
        return UNFIT
    finally:
        if claims.results:
            claims.write(args.out)
    print(f"{len(claims.results) - len(claims.failed)} of {len(claims.results)} claims hold")
    return 0 if claims.holds else 1


class Held:
    """Every command, while the core is held in one way."""

    def __init__(self, claims: Claims, out: Path, how: str) -> None:
        self._claims = claims
        self._out = out
        self._how = how
        self._numbers = count(1)
        self._core = max(os.sched_getaffinity(0))

    def play(self, brake: bool) -> None:
        """The recorder was there before the task; what records for `export` starts beside it."""
        folder = self._out / f"recording-{self._how}"
        record = Order(
            "record", ("record", str(folder), "--stacks", "--listen", RECORDER), right=(0, 143)
        )
        export = Order("export", ("export", "--listen", EXPORTER), right=(0, 143))
        with self._started(record) as (recorder, said):
            self._answers(record, recorder, RECORDER)
            with hog(self._core, brake):
                for order in orders(self._out):
                    self._run(order)
                with self._started(export) as (exporter, errors):
                    self._answers(export, exporter, EXPORTER)
                    self._stop(export, exporter, errors)
                self._answers(record, recorder, RECORDER, "_still")
                self._stop(record, recorder, said)
        self._is_clean()

    def _run(self, order: Order) -> None:
        began_s = time.monotonic()
        with self._started(order) as (command, errors):
            if order.interrupt_s is not None:
                time.sleep(order.interrupt_s)
                command.send_signal(signal.SIGINT)
            status = _wait(command, began_s + order.watch_s + PATIENCE_S)
        self._ended(order, (command.pid, status), time.monotonic() - began_s, errors)

    def _ended(
        self, order: Order, ended: tuple[int, int | None], seconds: float, errors: Path
    ) -> None:
        session, status = ended
        said = errors.read_text(errors="replace").strip()
        left = [pid for pid in processes() if session_of(pid) == session]
        self._claims.check(
            f"{order.name}_{self._how}",
            f"{order.name} ends while the core is {self._how}, and names what it leaves",
            status in order.right and all(f"process {pid}" in said for pid in left),
            status=status, seconds=round(seconds, 1), left=left, said=said,
        )  # fmt: skip

    def _answers(
        self, order: Order, command: subprocess.Popen[bytes], address: str, when: str = ""
    ) -> None:
        """Metrics are served: with readings, so that it is seen to record."""
        began_s = time.monotonic()
        while (page := scrape(address)) is None or b"sexton_verdict" not in page:
            if command.poll() is not None or time.monotonic() > began_s + PATIENCE_S:
                break
            time.sleep(1)
        self._claims.check(
            f"{order.name}_answers{when}_{self._how}",
            f"{order.name} serves metrics with a verdict ({self._how})",
            page is not None and b"sexton_verdict" in page,
            seconds=round(time.monotonic() - began_s, 1), bytes=len(page or b""),
        )  # fmt: skip

    def _stop(self, order: Order, command: subprocess.Popen[bytes], errors: Path) -> None:
        asked_s = time.monotonic()
        command.send_signal(signal.SIGTERM)
        status = _wait(command, asked_s + PATIENCE_S)
        self._ended(order, (command.pid, status), time.monotonic() - asked_s, errors)

    def _is_clean(self) -> None:
        """Once the core is free, what was left behind ends and takes its trace instance along."""
        end_s = time.monotonic() + AFTER_S
        while (left := (processes(), instances())) != ([], []) and time.monotonic() < end_s:
            time.sleep(1)
        self._claims.check(
            f"clean_{self._how}", "nothing is left once the core is free", left == ([], []),
            processes=left[0], instances=left[1],
        )  # fmt: skip

    @contextlib.contextmanager
    def _started(self, order: Order) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
        """The command, which is killed if it still runs at the end of the block."""
        place = self._out / f"{self._how}-{next(self._numbers):02}-{order.name}"
        errors = place.with_suffix(".err")
        with place.with_suffix(".txt").open("wb") as output, errors.open("wb") as said:
            command = subprocess.Popen(
                [sys.executable, "-m", "sexton", *order.words],
                stdin=subprocess.DEVNULL, stdout=output, stderr=said, env=environment(),
                start_new_session=True,
            )  # fmt: skip
            try:
                yield command, errors
            finally:
                if command.poll() is None:
                    os.killpg(command.pid, signal.SIGKILL)
                    command.wait()


@contextlib.contextmanager
def hog(core: int, brake: bool) -> Iterator[None]:
    """A realtime task that computes on this core, with or without the kernel's brake."""
    before = _RT_RUNTIME.read_text()
    _RT_RUNTIME.write_text("950000" if brake else "-1")
    words = [sys.executable, "-I", "-S", str(ACTORS / "hog.py"), "100"]
    task = subprocess.Popen(["taskset", "-c", str(core), "chrt", "-f", "50", *words])
    try:
        while Path(f"/proc/{task.pid}/comm").read_text().strip() != _HOG:
            time.sleep(0.1)
        yield
    finally:
        task.kill()
        task.wait()
        _RT_RUNTIME.write_text(before)


def _wait(command: subprocess.Popen[bytes], end_s: float) -> int | None:
    """Its exit status; `None` if it did not end."""
    try:
        return command.wait(max(end_s - time.monotonic(), 0))
    except subprocess.TimeoutExpired:
        return None


def scrape(address: str) -> bytes | None:
    """The answer, if there is one."""
    try:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            content: bytes = answer.read()
            return content
    except OSError:
        return None


def processes() -> list[int]:
    """Processes of Sexton that still exist, zombies aside."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{name}/cmdline").read_bytes().split(b"\0")
            # Its children run a module of ours: `sexton.host.runner.module_command`.
            if any(word.split(b".")[0] == b"sexton" for word in words[1:7]):
                found.append(int(name))
    return sorted(found)


def session_of(pid: int) -> int | None:
    """The session of a process; `None` if it has ended."""
    with contextlib.suppress(ProcessLookupError):
        return os.getsid(pid)
    return None


def instances() -> list[str]:
    """Trace instances of Sexton that still exist."""
    return sorted(name for name in os.listdir(_INSTANCES) if "sexton" in name)


if __name__ == "__main__":
    raise SystemExit(main())
