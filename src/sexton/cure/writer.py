"""The only code that changes a host.

It can do only this, and checks each request again, regardless of the caller:

- write to a kernel control file (`memory.force_empty` and `memory.reclaim` in a mounted cgroup
  hierarchy, ``/proc/sys/vm/drop_caches``), from a child process that can be killed;
- `rmdir` a cgroup, which the kernel refuses while anything is in it;
- make an empty cgroup and remove it again, in such a child;
- create and remove files, links and directories directly below systemd's configuration
  directories, or one level down;
- run four verbs of `systemctl` on one unit with a valid name.

Nothing is overwritten: a file or link is created only where nothing exists, and removed only if it
is what the caller expects. A directory change is synced to disk before the call returns, and a file
appears complete or not at all. Paths are opened component by component without following links.

Why a child: ``echo 0 >memory.force_empty`` and ``memory.reclaim`` work inside `write`, on one core,
for an unbounded time; the kernel checks for signals only between two passes (mem_cgroup_force_empty
and user_proactive_reclaim in mm/memcontrol*.c, mm/vmscan.c). The child is niced, kept off the NIC's
cores, dies with its parent, and is killed at its deadline or when the caller stops it. After
the kill it still finishes its current pass, which `WriteResult.seconds` includes. A second thread
in the child can interrupt the write after a given CPU time, which limits `force_empty`, a file that
takes no amount. CPU time is what counts, because `force_empty` first waits for other cores to drain
their lists. A POSIX CPU timer would not do: the kernel checks those only on ticks.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple, Protocol

from sexton.cure.unit_files import (
    DIRECTORY,
    FILE,
    LINK,
    UNIT_DIRECTORIES,
    Entry,
    components,
    open_parent,
    read_entry,
    same_content,
)
from sexton.errors import CommandError, SourceError, SourceTimeout
from sexton.host.host import Host
from sexton.host.reader import LiveFiles, text
from sexton.host.runner import ChildOptions, Running, run, start
from sexton.model.text import printable
from sexton.sources.cgroupfs.layout import cgroup_mounts

DONE = "done"
CUT = "interrupted at its CPU limit"
REFUSED = "refused"
STOPPED = "stopped"
KILLED = "killed at its deadline"
LINGERING = "killed, but still in the kernel"
#: How long a killed child may take to finish its current pass.
_PATIENCE_S = 10.0
_NICE = 19
#: How long a CPU-limited write may wait before it starts working.
_WAIT_S = 0.5
#: The descriptor arrives opened and checked. Signals must end it at once: no Python handler.
_CHILD = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.SIG_DFL)
target, value, cpus, limit = int(sys.argv[1]), os.fsencode(sys.argv[2]), *sys.argv[3:5]
main, limit = threading.get_ident(), float(limit)
writing = False

def cut(*_):
    global writing
    if writing:
        writing = False  # once: another signal may arrive while this one is handled
        raise InterruptedError(4, "cut off")  # otherwise Python retries the write

def measure(clock):
    try:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 0)
    except OSError:
        pass
    while not writing:
        time.sleep(0.0002)
    began, end = time.clock_gettime(clock), time.monotonic() + max(WAIT, 20 * limit)
    while time.clock_gettime(clock) - began < limit and time.monotonic() < end:
        time.sleep(0.0002)
    while True:
        signal.pthread_kill(main, signal.SIGUSR1)
        time.sleep(0.05)

if limit:
    signal.signal(signal.SIGUSR1, cut)
    clock = time.pthread_getcpuclockid(main)
    threading.Thread(target=measure, args=(clock,), daemon=True).start()
if cpus:  # this thread only, which does the work; the other one sleeps
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
#: One that an earlier child left, killed in between, is removed as well.
_MAKE_AND_REMOVE = """
import os, sys
parent, name = int(sys.argv[1]), os.fsencode(sys.argv[2])
try:
    os.mkdir(name, dir_fd=parent)
except FileExistsError:
    pass
os.rmdir(name, dir_fd=parent)
"""
_MAKE_AND_REMOVE_S = 5.0
CONTROL_FILES = ("memory.force_empty", "memory.reclaim")
DROP_CACHES = "/proc/sys/vm/drop_caches"
VERBS = ("stop", "start", "daemon-reload", "reset-failed")
#: systemd's rule for unit names (unit_name_is_valid in unit-name.c): nothing that a shell, glob or
#: path would interpret.
UNIT_NAME = re.compile(
    r"[A-Za-z0-9:_.\\@-]{1,240}\.(service|socket|timer|path|scope|slice|target|mount|automount|swap)",
    re.ASCII,
)
_TEMPORARY = ".sexton-new"
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class WriteLimits(NamedTuple):
    """Limits of one write: the `cpus` it may use (`None`: any); `keep_going`, called every `poll_s`
    once the write has started, ends it with `STOPPED` when false. `cpu_limit_s` is the CPU time
    after which the write is cut off, which is not a failure; 0 means no limit.
    """

    deadline_s: float
    cpus: frozenset[int] | None = None
    keep_going: Callable[[], bool] | None = None
    poll_s: float = 0.005
    cpu_limit_s: float = 0.0


class WriteResult(NamedTuple):
    """Result of one write. `error` is the kernel's errno if it refused; `seconds` is wall time and
    `cpu_s` CPU time, which is less if the write waited for other cores to drain their lists or for
    its turn. For a killed child it is accurate to 10 ms."""

    how: str
    error: int
    seconds: float
    cpu_s: float

    @property
    def why(self) -> str:
        """For display."""
        return f"{self.how}: {os.strerror(self.error)}" if self.error else self.how


def write_in_child(descriptor: int, value: str, limits: WriteLimits) -> WriteResult:
    """Write `value` to an opened control file."""
    cpus = ",".join(map(str, sorted(limits.cpus or ())))
    words = (str(descriptor), value, cpus, str(limits.cpu_limit_s))
    argv = (sys.executable, "-I", "-S", "-c", _CHILD, *words)
    options = ChildOptions(nice=_NICE, keep_stderr=True, dies_with_parent=True, keep=(descriptor,))
    child = start(argv, options)
    began = time.monotonic()
    how = DONE
    try:
        while child.status() is None:
            if time.monotonic() - began > limits.deadline_s:
                how = KILLED
                break
            if limits.keep_going is not None and child.stderr() and not limits.keep_going():
                how = STOPPED
                break
            time.sleep(limits.poll_s)
        if how == DONE:
            return _result(child, time.monotonic() - began)
        cpu_s = _cpu_s(child)
    finally:
        child.stop(patience_s=0.2)
    while child.status() is None and time.monotonic() - began < limits.deadline_s + _PATIENCE_S:
        time.sleep(limits.poll_s)
    if child.status() is None:
        how = LINGERING
    return WriteResult(how, 0, time.monotonic() - began, cpu_s)


def _cpu_s(child: Running) -> float:
    """CPU time of the write so far, in ticks (proc(5), fields 14 and 15)."""
    try:
        content = text(LiveFiles(), f"/proc/{child.pid}/stat")
        words = content.rpartition(")")[2].split()
        spent = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        return max(0.0, spent - float(child.stderr().split()[0]))
    except (SourceError, ValueError, IndexError):  # it exited, or had not started
        return 0.0


def _result(child: Running, seconds: float) -> WriteResult:
    """The result printed by a child that exited by itself."""
    try:
        _, failed, spent, cpu = child.stderr().split()
        error = int(failed)
        if error == errno.EINTR:
            return WriteResult(CUT, 0, float(spent), float(cpu))
        return WriteResult(REFUSED if error else DONE, error, float(spent), float(cpu))
    except ValueError:  # it failed to start: an interpreter without its library
        return WriteResult(REFUSED, errno.ECANCELED, seconds, 0.0)


def unit_name(name: str) -> str:
    """`name` if it is a valid unit name.

    >>> unit_name("getty@tty1.service")
    'getty@tty1.service'
    >>> unit_name("*.service")
    Traceback (most recent call last):
    sexton.errors.CommandError: '*.service' is not a unit name
    """
    if UNIT_NAME.fullmatch(name) is None or name.startswith((".", "@")) or name.count("@") > 1:
        raise CommandError(f"{printable(name)!r} is not a unit name")
    return name


class Writer(Protocol):
    """What a remedy may do. `like` is the earlier entry: mode, owner, time, label."""

    def write_control(self, path: str, value: str, limits: WriteLimits) -> WriteResult:
        """Write `value` to a control file from a child that can be killed."""

    def remove_cgroup(self, path: str) -> None:
        """`rmdir` an empty cgroup, given by its file system path."""

    def make_and_remove_cgroup(self, path: str) -> None:
        """Make an empty cgroup and remove it; nothing happens if the kernel refuses that."""

    def write_file(self, path: str, content: bytes, like: Entry | None = None) -> None:
        """Create a file where nothing exists."""

    def make_link(self, path: str, target: str, like: Entry | None = None) -> None:
        """Create a symbolic link where nothing exists."""

    def make_directory(self, path: str, like: Entry | None = None) -> None:
        """Create a directory where nothing exists."""

    def remove_file(self, path: str, content: bytes) -> None:
        """Remove a file that has this content."""

    def remove_link(self, path: str, target: str) -> None:
        """Remove a link that has this target."""

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""

    def sweep(self, path: str) -> None:
        """Remove what an interrupted `write_file` of this path left behind."""

    def systemctl(self, *args: str, deadline_s: float = 30.0) -> str:
        """Run one of `VERBS`; returns what it printed."""


class LiveWriter:
    """Changes this machine."""

    def __init__(self, host: Host, unit_directories: tuple[str, ...] = UNIT_DIRECTORIES) -> None:
        host.require_live("/")
        self._host = host
        self._directories = unit_directories

    def write_control(self, path: str, value: str, limits: WriteLimits) -> WriteResult:
        if path != DROP_CACHES:
            *_, name = self._cgroup_parts(path)
            if name not in CONTROL_FILES:
                raise CommandError(f"{printable(path)}: not an allowed control file; refused")
        with _parent_of(path) as (parent, name):
            # No O_CREAT and no O_TRUNC: this kernel has the file or it does not.
            descriptor = os.open(
                name, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY, dir_fd=parent
            )
        try:
            return write_in_child(descriptor, value, limits)
        finally:
            os.close(descriptor)

    def remove_cgroup(self, path: str) -> None:
        self._cgroup_parts(path)
        with _parent_of(path) as (parent, name):
            os.rmdir(name, dir_fd=parent)

    def make_and_remove_cgroup(self, path: str) -> None:
        self._cgroup_parts(path)
        with _parent_of(path) as (parent, name):
            argv = (sys.executable, "-I", "-S", "-c", _MAKE_AND_REMOVE, str(parent), name)
            child = start(argv, ChildOptions(nice=_NICE, dies_with_parent=True, keep=(parent,)))
        end = time.monotonic() + _MAKE_AND_REMOVE_S
        try:
            while child.status() is None and time.monotonic() < end:
                time.sleep(0.005)
        finally:
            child.stop(patience_s=0.2)

    def write_file(self, path: str, content: bytes, like: Entry | None = None) -> None:
        self._require_unit_path(path)
        with (
            _parent_of(path) as (parent, name),
            _atomic(name, parent) as new,
            os.fdopen(os.open(new, _CREATE, 0o600, dir_fd=parent), "wb") as stream,
        ):
            _fill(stream, content, like or Entry(path, FILE))

    def make_link(self, path: str, target: str, like: Entry | None = None) -> None:
        self._require_unit_path(path)
        with _parent_of(path) as (parent, name), _atomic(name, parent) as new:
            os.symlink(target, new, dir_fd=parent)
            if like is not None:
                os.chown(new, like.uid, like.gid, dir_fd=parent, follow_symlinks=False)
                if like.mtime_ns:
                    times = (like.mtime_ns, like.mtime_ns)
                    os.utime(new, ns=times, dir_fd=parent, follow_symlinks=False)

    def make_directory(self, path: str, like: Entry | None = None) -> None:
        if path not in self._directories:
            self._require_unit_path(path)
        with _parent_of(path) as (parent, name):
            os.mkdir(name, 0o755, dir_fd=parent)
            os.chmod(name, 0o755 if like is None else like.mode, dir_fd=parent)  # not the umask's
            if like is not None:
                os.chown(name, like.uid, like.gid, dir_fd=parent, follow_symlinks=False)
            os.fsync(parent)

    def remove_file(self, path: str, content: bytes) -> None:
        self._remove(path, Entry(path, FILE, content=content))

    def remove_link(self, path: str, target: str) -> None:
        self._remove(path, Entry(path, LINK, target=target))

    def remove_directory(self, path: str) -> None:
        if path not in self._directories or not path.endswith(".control"):
            self._require_unit_path(path)
        with _parent_of(path) as (parent, name):
            os.rmdir(name, dir_fd=parent)
            os.fsync(parent)

    def sweep(self, path: str) -> None:
        self._require_unit_path(path)
        with contextlib.suppress(FileNotFoundError), open_parent(path) as (parent, name):
            _sweep(name, parent)

    def systemctl(self, *args: str, deadline_s: float = 30.0) -> str:
        verb, options, units = _split(args)
        argv = ("systemctl", "--no-ask-password", "--no-pager", verb, *options, "--", *units)
        shown = f"systemctl {' '.join(args)}"
        try:
            ended = run(argv, deadline_s, limit=1 << 16)
        except SourceTimeout:
            raise CommandError(
                f"{shown}: not finished within {deadline_s:g} s; systemd continues"
            ) from None
        except SourceError as error:
            raise CommandError(f"{shown}: {error.detail}") from None
        if ended.status != 0:
            said = ended.errors.decode("utf-8", "replace").strip().partition("\n")[0]
            raise CommandError(f"{shown}: {printable(said) or f'exit {ended.status}'}")
        return ended.output.decode("utf-8", "replace")

    def _remove(self, path: str, expected: Entry) -> None:
        self._require_unit_path(path)
        found = read_entry(path)
        if found is None or found.kind == DIRECTORY:
            raise CommandError(f"{printable(path)}: {expected.kind} no longer exists")
        if not same_content(found, expected):
            raise CommandError(f"{printable(path)}: changed since; not removed")
        with _parent_of(path) as (parent, name):
            os.unlink(name, dir_fd=parent)
            os.fsync(parent)

    def _require_unit_path(self, path: str) -> None:
        """Directly below one of systemd's configuration directories, or one level down."""
        parts = components(path)
        for directory in self._directories:
            top = components(directory)
            if parts[: len(top)] == top and len(parts) - len(top) in (1, 2):
                return
        raise CommandError(f"{printable(path)}: not in a systemd unit directory; refused")

    def _cgroup_parts(self, path: str) -> tuple[str, ...]:
        """The parts of `path` below its cgroup hierarchy, on that file system."""
        parts = components(path)
        for mount in cgroup_mounts(self._host):
            top = components(mount.mount_point)
            if parts[: len(top)] == top and len(parts) > len(top):
                with _parent_of(path) as (parent, _):
                    if os.fstat(parent).st_dev != os.stat(mount.mount_point).st_dev:
                        continue  # another file system is mounted over it
                return parts[len(top) :]
        raise CommandError(f"{printable(path)}: not in a cgroup hierarchy; refused")


class DryAction(NamedTuple):
    """One change that would be made."""

    verb: str
    path: str
    detail: str = ""


@dataclass(slots=True)
class DryWriter:
    """Changes nothing and records each request. It does not check whether a path exists, so it
    cannot predict failures for that reason."""

    actions: list[DryAction] = field(default_factory=list)

    def write_control(self, path: str, value: str, limits: WriteLimits) -> WriteResult:  # noqa: ARG002
        self._record("write control file", path, value)
        return WriteResult("dry run", 0, 0.0, 0.0)

    def remove_cgroup(self, path: str) -> None:
        self._record("remove cgroup", path)

    def make_and_remove_cgroup(self, path: str) -> None:
        self._record("make and remove cgroup", path)

    def write_file(self, path: str, content: bytes, like: Entry | None = None) -> None:  # noqa: ARG002
        self._record("write file", path, content.decode("utf-8", "surrogateescape"))

    def make_link(self, path: str, target: str, like: Entry | None = None) -> None:  # noqa: ARG002
        self._record("make link", path, target)

    def make_directory(self, path: str, like: Entry | None = None) -> None:  # noqa: ARG002
        self._record("make directory", path)

    def remove_file(self, path: str, content: bytes) -> None:  # noqa: ARG002
        self._record("remove file", path)

    def remove_link(self, path: str, target: str) -> None:
        self._record("remove link", path, target)

    def remove_directory(self, path: str) -> None:
        self._record("remove directory", path)

    def sweep(self, path: str) -> None:
        components(path)

    def systemctl(self, *args: str, deadline_s: float = 30.0) -> str:  # noqa: ARG002
        _split(args)
        self.actions.append(DryAction("systemctl", "", " ".join(args)))
        return ""

    def _record(self, verb: str, path: str, detail: str = "") -> None:
        components(path)
        self.actions.append(DryAction(verb, path, detail))


def _split(args: tuple[str, ...]) -> tuple[str, tuple[str, ...], tuple[str, ...]]:
    """Verb, options and units of a call, all checked."""
    if not args or args[0] not in VERBS:
        raise CommandError(f"systemctl {printable(' '.join(args))}: not an allowed verb; refused")
    options = tuple(word for word in args[1:] if word == "--no-block")
    units = tuple(unit_name(word) for word in args[1:] if word != "--no-block")
    if bool(units) == (args[0] == "daemon-reload"):
        raise CommandError(f"systemctl {args[0]}: {'no ' if not units else ''}unit given; refused")
    return args[0], options, units


@contextlib.contextmanager
def _atomic(name: str, parent: int) -> Iterator[str]:
    """A temporary name; the entry is linked to `name` once complete, if that is free."""
    temporary = _sweep(name, parent)
    try:
        yield temporary
        os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    finally:
        _sweep(name, parent)
    os.fsync(parent)


def _sweep(name: str, parent: int) -> str:
    """The temporary name for `name`, with nothing there."""
    temporary = f".{name}{_TEMPORARY}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(temporary, dir_fd=parent)
    return temporary


def _fill(stream: BinaryIO, content: bytes, like: Entry) -> None:
    stream.write(content)
    stream.flush()
    descriptor = stream.fileno()
    os.fchown(descriptor, like.uid, like.gid)
    os.fchmod(descriptor, like.mode)
    for name, value in like.attributes.items():
        os.setxattr(descriptor, name, value)
    if like.mtime_ns:
        os.utime(descriptor, ns=(like.mtime_ns, like.mtime_ns))
    os.fsync(descriptor)


@contextlib.contextmanager
def _parent_of(path: str) -> Iterator[tuple[int, str]]:
    """The opened parent directory and the last name; an `OSError` becomes a `CommandError`."""
    try:
        with open_parent(path) as found:
            yield found
    except OSError as error:
        why = {
            errno.EEXIST: "already exists; not changed",
            errno.EBUSY: "in use, the kernel refused",
            errno.ENOTEMPTY: "not empty; not removed",
        }.get(error.errno or 0, error.strerror or str(error))
        raise CommandError(f"{printable(path)}: {why}") from None
