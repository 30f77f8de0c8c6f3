"""``python -m lab.held --out DIR``: every command ends while a realtime task holds a core.

Runs in the lab's VM. A realtime task takes the last core, first with the kernel's brake for such
tasks (95 %), then without it. Whatever waits for that core then waits for as long as the task runs:
the removal of a trace instance, a grace period of RCU, a flush of its work. Meanwhile each command
is started as a person would type it, with the deadlines of a real node. It must end within its own
watch and `PATIENCE_S`, and name on standard error what it left behind. Once the core is free,
nothing of it may be left: no process, no trace instance.

So does `fix`: a plan against a crash-looping unit, made before, is applied, verified and rolled
back. And so does the recorder as deployed: the shipped unit is stopped, started and stopped by
systemd, within its own time.

Each is a claim with its numbers in ``DIR/held.json`` (`lab.claims`); ``DIR/NN-*.txt`` is the output
of each command. Exit status: 0 every claim holds, 1 one does not, 3 this machine cannot run it.
About fifteen minutes under emulation: ``python -m lab.vm run 6.1 v2 check_held --deadline 3000
--out DIR``.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
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
from lab.play import ROOT, environment
from lab.stage import ACTORS, CannotPlay
from lab.units import is_masked, journal, shown, systemctl, unit

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
LOOP, RECORD = "lab-loop.service", "sexton-record.service"
#: Fails a second after each start, forever.
_LOOP_UNIT = (
    "[Unit]\nStartLimitIntervalSec=0\n"
    "[Service]\nRestart=always\nRestartSec=1\nExecStart=/bin/false\n"
)
#: The unit as shipped, but for the program's place and the quota, a core of an emulated machine
#: being a tenth of a real one's.
_DROP_IN = f"[Service]\nExecStart=\nExecStart={sys.executable} -m sexton record {{}}\nCPUQuota=\n"
_STATE = Path("/var/lib/sexton")
#: So many seconds of crashes are a loop.
_LOOPS_S = 15.0


@dataclass(frozen=True)
class Order:
    """One command: its arguments, how long it watches, and when it is interrupted, if it is."""

    name: str
    words: tuple[str, ...]
    watch_s: float = 0.0
    interrupt_s: float | None = None
    #: These exit statuses are right.
    right: tuple[int, ...] = (0, 1, 3)
    #: It runs before or after the core is held.
    calm: bool = False


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


def fixes(plan: Path, confirm: str, state: Path, right: tuple[int, ...]) -> tuple[Order, ...]:
    """Apply this plan, look whether it helped, and undo it; `right` are the exit statuses."""
    kept = ("--state", str(state))
    apply = ("fix", "apply", str(plan), "--confirm", confirm, *kept)
    return (
        Order("fix-apply", apply, right=right),
        Order("fix-verify", ("fix", "verify", "--seconds", "10", *kept), 10, right=(0, 1, 2, 3)),
        Order("fix-rollback", ("fix", "rollback", *kept), right=right),
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
            held = Held(claims, args.out, "braked" if brake else "held")
            held.play(brake)
            held.play_deployed(brake)
            held.play_fix(brake)
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

    def play_deployed(self, brake: bool) -> None:
        """The recorder as a unit. Without the brake nothing is started: systemd itself waits then,
        when it puts a new process into its cgroup."""
        shutil.rmtree(_STATE, ignore_errors=True)
        shipped = (ROOT / "deploy/systemd" / RECORD).read_text()
        with unit(RECORD, shipped, _DROP_IN.format(_STATE)):
            self._records("deployed_records")
            with hog(self._core, brake):
                self._records("deployed_records_still")
                self._stops("deployed_stops")
                if brake:
                    systemctl("start", RECORD)
                    self._records("deployed_records_again")
                    self._stops("deployed_stops_again")
            self._keep("journal", journal(RECORD))
        self._is_clean("deployed_")

    def play_fix(self, brake: bool) -> None:
        """A plan made on the calm node, to stop and mask a unit that crash-loops. With the brake it
        is applied and rolled back while the core is held. Without it systemd is stuck as soon as it
        restarts that unit: `fix` says so in time, and a rollback afterwards finds all as it was."""
        right = (0,) if brake else (0, 1, 2, 3)
        plan, state = self._out / f"plan-{self._how}.json", self._out / f"fix-{self._how}"
        with unit(LOOP, _LOOP_UNIT):
            time.sleep(_LOOPS_S)
            words = ("fix", "plan", "--out", str(plan))
            self._run(Order("fix-plan-calm", words, 10, right=(1,), calm=True))
            confirm = json.loads(plan.read_text())["hash"] if plan.is_file() else "none"
            seen = []
            with hog(self._core, brake):
                for order in fixes(plan, confirm, state, right):
                    self._run(order)
                    seen.append(is_masked(LOOP))
            words = ("fix", "rollback", "--state", str(state))
            self._run(Order("fix-rollback-calm", words, right=(0, 1), calm=True))
            self._claims.check(
                f"fix_changes_{self._how}",
                "fix masks the unit, and its rollback restores it",
                (seen == [True, True, False] or not brake) and not is_masked(LOOP), masked=seen,
            )  # fmt: skip
        self._is_clean("fix_")

    def _records(self, name: str) -> None:
        """The deployed recorder writes a new status."""
        began_s, began_unix = time.monotonic(), time.time()
        while not (fresh := _written(_STATE / "status.json") > began_unix):
            if time.monotonic() > began_s + PATIENCE_S:
                break
            time.sleep(1)
        self._claims.check(
            f"{name}_{self._how}", f"the recorder records as a unit ({self._how})", fresh,
            seconds=round(time.monotonic() - began_s, 1), state=shown(RECORD, "ActiveState"),
        )  # fmt: skip

    def _stops(self, name: str) -> None:
        """systemd stops it by SIGTERM alone; after the unit's `TimeoutStopSec` it would kill."""
        began_s = time.monotonic()
        systemctl("stop", RECORD)
        seconds = time.monotonic() - began_s
        result = shown(RECORD, "Result")
        self._claims.check(
            f"{name}_{self._how}", f"systemctl stop ends the recorder ({self._how})",
            result == "success" and shown(RECORD, "ActiveState") == "inactive",
            seconds=round(seconds, 1), result=result, limit=shown(RECORD, "TimeoutStopUSec"),
        )  # fmt: skip

    def _keep(self, name: str, text: str) -> None:
        (self._out / f"{self._how}-{next(self._numbers):02}-{name}.txt").write_text(text)

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
            f"{order.name} ends while the core is {'free' if order.calm else self._how},"
            " and names what it leaves",
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

    def _is_clean(self, when: str = "") -> None:
        """Once the core is free, what was left behind ends and takes its trace instance along."""
        end_s = time.monotonic() + AFTER_S
        while (left := (processes(), instances())) != ([], []) and time.monotonic() < end_s:
            time.sleep(1)
        self._claims.check(
            f"{when}clean_{self._how}", "nothing is left once the core is free", left == ([], []),
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


def _written(path: Path) -> float:
    """When it was written (UNIX); 0 if it does not exist."""
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


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
