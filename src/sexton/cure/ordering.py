"""An order to the kernel, given by a child that can be watched and killed.

``echo 0 >memory.force_empty`` and ``memory.reclaim`` work inside `write`, on one core, for as long
as they like; the kernel looks for a signal only between two passes (mem_cgroup_force_empty and
user_proactive_reclaim in mm/memcontrol*.c, mm/vmscan.c). So the write is a child's: nice, off the
NIC's cores, ended when we are ended, and killed at its deadline or as soon as its watcher says that
it is of no more use. Past the kill it still finishes its pass, which is what `Ordered.seconds`
includes. A child can also be given a measure of its own: a second thread that interrupts its write
after so many milliseconds of work, which makes bites of an order that knows none. Processor time is
what counts, because `force_empty` first waits for the other cores to drain their lists, for as long
as they are busy; a process's CPU timer would do, were it not looked at by the kernel's ticks only.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

from sexton.errors import SourceError
from sexton.host.reader import LiveFiles, text
from sexton.host.runner import ChildOptions, Running, start

DONE = "done"
CUT = "cut off after its time"
REFUSED = "refused"
STOPPED = "stopped"
KILLED = "killed at its deadline"
LINGERING = "killed, and still inside the kernel"
#: How long a killed child may take for the pass it is in.
_PATIENCE_S = 10.0
_NICE = 19
#: How long a bite may wait to get to work.
_WAIT_S = 0.5
#: The descriptor comes opened and checked. A signal must end it at once: no handler of Python's.
_CHILD = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
target, value, cpus, bite = int(sys.argv[1]), os.fsencode(sys.argv[2]), *sys.argv[3:5]
main, bite = threading.get_ident(), float(bite)
writing = False

def cut(*_):
    global writing
    if writing:
        writing = False  # once: the next may come while this one is dealt with
        raise InterruptedError(4, "cut off")  # else Python writes again

def measure(clock):
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 0)
    except OSError:
        pass
    while not writing:
        time.sleep(0.0002)
    began, end = time.clock_gettime(clock), time.monotonic() + max(WAIT, 20 * bite)
    while time.clock_gettime(clock) - began < bite and time.monotonic() < end:
        time.sleep(0.0002)
    while True:
        signal.pthread_kill(main, signal.SIGUSR1)
        time.sleep(0.05)

if bite:
    signal.signal(signal.SIGUSR1, cut)
    clock = time.pthread_getcpuclockid(main)
    threading.Thread(target=measure, args=(clock,), daemon=True).start()
if cpus:  # of this thread alone, which will work; the other one sleeps
    os.sched_setaffinity(0, map(int, cpus.split(",")))
began, worked, failed = time.perf_counter(), time.thread_time(), 0
try:
    print(time.process_time(), file=sys.stderr, flush=True)
    writing = True
    os.write(target, value)
    writing = False
except OSError as error:
    writing = False
    failed = error.errno
print(failed, time.perf_counter() - began, time.thread_time() - worked, file=sys.stderr, flush=True)
os._exit(0)
""".replace("WAIT", str(_WAIT_S))


class Terms(NamedTuple):
    """How an order is given: `cpus` it may use (`None`: any), and `go_on`, asked every `poll_s`
    from the moment of the write, which ends it with `STOPPED` by saying no. `bite_s` is how long
    the write itself may work before it is cut off, which is no failure; 0 is as long as it likes.
    """

    deadline_s: float
    cpus: frozenset[int] | None = None
    go_on: Callable[[], bool] | None = None
    poll_s: float = 0.005
    bite_s: float = 0.0


class Ordered(NamedTuple):
    """What came of it. `error` is the kernel's errno where it refused; `seconds` by the wall clock
    and `cpu_s` of the processor: less, where the write had to wait for a drain of the other cores'
    lists or for its turn. Of one that was killed it is the child's, to a hundredth."""

    how: str
    error: int
    seconds: float
    cpu_s: float

    @property
    def why(self) -> str:
        """For a person."""
        return f"{self.how}: {os.strerror(self.error)}" if self.error else self.how


def give(descriptor: int, value: str, terms: Terms) -> Ordered:
    """Have `value` written to an opened control file."""
    cpus = ",".join(map(str, sorted(terms.cpus or ())))
    words = (str(descriptor), value, cpus, str(terms.bite_s))
    argv = (sys.executable, "-I", "-S", "-c", _CHILD, *words)
    options = ChildOptions(nice=_NICE, keep_stderr=True, dies_with_parent=True, keep=(descriptor,))
    child = start(argv, options)
    began = time.monotonic()
    how = DONE
    try:
        while child.status() is None:
            if time.monotonic() - began > terms.deadline_s:
                how = KILLED
                break
            if terms.go_on is not None and child.stderr() and not terms.go_on():
                how = STOPPED
                break
            time.sleep(terms.poll_s)
        if how == DONE:
            return _told(child, time.monotonic() - began)
        cpu_s = _cpu_s(child)
    finally:
        child.stop(patience_s=0.2)
    while child.status() is None and time.monotonic() - began < terms.deadline_s + _PATIENCE_S:
        time.sleep(terms.poll_s)
    if child.status() is None:
        how = LINGERING
    return Ordered(how, 0, time.monotonic() - began, cpu_s)


def _cpu_s(child: Running) -> float:
    """What the write has taken of the processor so far, in ticks (proc(5), fields 14 and 15)."""
    try:
        content = text(LiveFiles(), f"/proc/{child.pid}/stat")
        words = content.rpartition(")")[2].split()
        spent = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        return max(0.0, spent - float(child.stderr().split()[0]))
    except (SourceError, ValueError, IndexError):  # it is gone, or had not begun
        return 0.0


def _told(child: Running, seconds: float) -> Ordered:
    """What a child that ended by itself said of it."""
    try:
        _, failed, spent, cpu = child.stderr().split()
        error = int(failed)
        if error == errno.EINTR:
            return Ordered(CUT, 0, float(spent), float(cpu))
        return Ordered(REFUSED if error else DONE, error, float(spent), float(cpu))
    except ValueError:  # it could not start as it should: an interpreter without its library
        return Ordered(REFUSED, errno.ECANCELED, seconds, 0.0)
