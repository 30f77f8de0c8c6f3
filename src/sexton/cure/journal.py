"""The state directory of `sexton fix`: the journal of every apply, and the audit log.

``/var/lib/sexton-fix`` (root only, 0700)::

    lock               held while a fix runs (`sexton.cure.lock`)
    audit.log.jsonl    every decision: refused, begun, done, undone, verified, by whom; dry runs
                       too; each entry has the hash of the one before (`sexton.cure.chained_log`)
    runs/ID.jsonl      one apply, journalled step by step

It is not inside ``/var/lib/sexton``: that is a recording, which lists other files as foreign.
Files are only appended to. A line is complete and synced to disk before `append` returns.

A journal has one JSON object per line. Each step writes::

    {"kind": "before", "step": "1-stop", "before": {…}}     synced BEFORE anything is changed
    {"kind": "done",   "step": "1-stop", "outcome": {…}}    afterwards, with the result

After a crash at any point the journal is sufficient: a step with *before* but no *done* may have
happened in whole or in part and is undone like a completed one; a step without *before* never
started. A line cut off by a crash is ignored. The undo is journalled in the same way (*undoing*,
*undone*), so it can be killed and run again too.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from sexton.cure import chained_log
from sexton.errors import CommandError, SourceError
from sexton.host.reader import LiveFiles, text
from sexton.model.plan import Plan, PlanError, Step, as_json, from_json
from sexton.model.text import printable
from sexton.store.layout import sync_directory

DIRECTORY = "/var/lib/sexton-fix"
#: One per node, whatever the state directory; only root may create files in /run.
NODE_LOCK = "/run/sexton-fix.lock"
RUNS = "runs"
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_MOST_BYTES = 64 << 20
AUDIT_LOG = "audit.log.jsonl"
AUDIT_SCHEMA = "sexton.fix_log/1"
SCHEMA = "sexton.fix_journal/1"
RUNNING, COMPLETE, STOPPED, ROLLED_BACK = "unfinished", "complete", "stopped", "rolled back"


class State:
    """The state directory; created on the first write."""

    def __init__(self, directory: str = DIRECTORY, node_lock: str | None = None) -> None:
        self.directory = directory
        self.node_lock = node_lock or NODE_LOCK

    def make(self) -> None:
        """Create it if missing; refuse one that others can write to."""
        try:
            for place in (self.directory, f"{self.directory}/{RUNS}"):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(place, 0o700)
                    sync_directory(Path(place).parent)
        except OSError as error:
            raise CommandError(
                f"{self.directory}: {error.strerror}; refusing to change anything without a journal"
            ) from None
        with self._open():
            pass

    def append(self, name: str, line: bytes) -> None:
        """Append one line; it is synced to disk when this returns."""
        try:
            self._append(name, line)
        except OSError as error:
            raise CommandError(
                f"{self.directory}/{name}: {error.strerror}; refusing to change anything without"
                " a journal"
            ) from None

    def _append(self, name: str, line: bytes) -> None:
        with self._open() as directory:
            descriptor = os.open(
                name, os.O_RDWR | os.O_APPEND | os.O_CREAT | _FLAGS, 0o600, dir_fd=directory
            )
            with os.fdopen(descriptor, "wb") as stream:
                size = os.fstat(descriptor).st_size
                # Keep a line cut off by a crash apart from the new one.
                torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                stream.write((b"\n" if torn else b"") + line + b"\n")
                stream.flush()
                os.fsync(descriptor)
            if size == 0:  # perhaps a new file
                sync_directory(Path(self.directory, name).parent)

    def log(self, content: Mapping[str, Any]) -> None:
        """Append one entry to the audit log; it is synced to disk when this returns."""
        try:
            with self._open() as directory:
                if chained_log.append(directory, AUDIT_LOG, content):
                    os.fsync(directory)
        except OSError as error:
            raise CommandError(
                f"{self.directory}/{AUDIT_LOG}: {error.strerror}; refusing to change anything"
                " without a log"
            ) from None

    @contextmanager
    def opened(self, name: str) -> Iterator[IO[bytes] | None]:
        """A file to read; `None` if it does not exist."""
        if not os.path.isdir(self.directory):
            yield None
            return
        with self._open() as directory:
            try:
                descriptor = os.open(name, os.O_RDONLY | _FLAGS, dir_fd=directory)
            except FileNotFoundError:
                yield None
                return
            with os.fdopen(descriptor, "rb") as stream:
                yield stream

    def read(self, name: str) -> bytes | None:
        """The whole file; `None` if it does not exist."""
        with self.opened(name) as stream:
            if stream is None:
                return None
            content = stream.read(_MOST_BYTES + 1)
        if len(content) > _MOST_BYTES:
            raise CommandError(
                f"{self.directory}/{name}: over {_MOST_BYTES:,} bytes, not written by Sexton"
            )
        return content

    def runs(self) -> list[str]:
        """IDs of all journalled applies, oldest first."""
        try:
            names = os.listdir(f"{self.directory}/{RUNS}")
        except (FileNotFoundError, NotADirectoryError):
            return []
        except PermissionError:
            raise CommandError(f"{self.directory}: root only, use sudo") from None
        return sorted(name.removesuffix(".jsonl") for name in names if name.endswith(".jsonl"))

    @contextmanager
    def _open(self) -> Iterator[int]:
        """Its descriptor, after checking its owner and mode."""
        try:
            directory = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
        except PermissionError:
            raise CommandError(f"{self.directory}: root only, use sudo") from None
        except OSError as error:
            raise CommandError(f"{printable(self.directory)}: {error.strerror}") from None
        try:
            about = os.fstat(directory)
            if about.st_uid != os.geteuid() or about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise CommandError(
                    f"{self.directory}: writable by others, so its contents cannot be trusted;"
                    " it must belong to root with mode 700"
                )
            yield directory
        finally:
            os.close(directory)


def log_event(state: State, event: str, **details: Any) -> None:
    """Append one line to the audit log; `who` is the user behind sudo."""
    line = {
        "schema": AUDIT_SCHEMA,
        "unix": time.time(),
        "event": event,
        "who": _who(),
        "pid": os.getpid(),
        **details,
    }
    state.log(line)


def audit_log(state: State) -> Iterator[dict[str, Any]]:
    """All complete lines of the audit log, oldest first."""
    with state.opened(AUDIT_LOG) as stream:
        for line in _objects(stream or ()):
            if "event" in line and _is_moment(line.get("unix")):
                yield line


def check_log(state: State, known: str = "") -> chained_log.Checked:
    """Whether the audit log is as it was written; `known` is the hash of an entry it must have."""
    with state.opened(AUDIT_LOG + chained_log.HEAD) as stream:
        head = None if stream is None else stream.read(200).decode("ascii", "replace")
    with state.opened(AUDIT_LOG) as stream:
        return chained_log.verify(stream or io.BytesIO(), head, known)


def _who() -> str:
    """The sudo user, else the login uid, which survives any way of becoming root."""
    named = os.environ.get("SUDO_USER")
    if named:
        return f"{named} (sudo)"
    try:
        login = int(text(LiveFiles(), "/proc/self/loginuid"))
    except (SourceError, ValueError):
        login = 0xFFFFFFFF
    if login in (0xFFFFFFFF, os.geteuid()):
        return f"uid {os.geteuid()}"
    return f"uid {os.geteuid()} (logged in as uid {login})"


@dataclass(slots=True)
class StepRecord:
    """One step in a journal."""

    step: str
    before: Mapping[str, Any]
    outcome: Mapping[str, Any] | None = None
    undone: bool = False


@dataclass(slots=True)
class Run:
    """One apply, read from its journal. `ended` is empty if it never finished."""

    id: str
    plan: Plan
    began_unix: float
    records: list[StepRecord] = field(default_factory=list)
    ended: str = ""
    ended_why: str = ""
    ended_unix: float = 0.0
    start: Mapping[str, Any] = field(default_factory=dict)
    rolled_back: bool = False
    torn: int = 0

    @property
    def state(self) -> str:
        if self.rolled_back:
            return ROLLED_BACK
        return self.ended or RUNNING

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps it was to carry out: all of the plan, or those named by `--only`."""
        only = self.start.get("only")
        names = only if isinstance(only, list) else None
        return tuple(step for step in self.plan.automatic if names is None or step.id in names)

    @property
    def undoable(self) -> list[StepRecord]:
        """Steps to undo, last step first."""
        return [record for record in reversed(self.records) if not record.undone]

    def freed(self) -> list[Mapping[str, Any]]:
        """Outcomes of the steps that free zombies."""
        return [
            record.outcome
            for record in self.records
            if record.outcome and "freed" in record.outcome
        ]


class Journal:
    """Writes the journal of one apply; `open_run` starts a new one."""

    def __init__(self, state: State, run: str) -> None:
        self._state = state
        self.run = run

    def write(self, kind: str, **details: Any) -> None:
        """Append one line; it is synced to disk when this returns."""
        line = json.dumps({"kind": kind, "unix": time.time(), **details}, separators=(",", ":"))
        self._state.append(f"{RUNS}/{self.run}.jsonl", line.encode("ascii"))


def open_run(state: State, plan: Plan, start: Mapping[str, Any]) -> Journal:
    """Start a new journal; `start` holds the readings that verify compares with."""
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    known = set(state.runs())
    name = first = f"{stamp}-{plan.hash[:8]}"
    number = 1
    while name in known:
        number += 1
        name = f"{first}-{number}"
    journal = Journal(state, name)
    journal.write("begin", schema=SCHEMA, run=name, plan=as_json(plan), start=dict(start))
    return journal


def read_run(state: State, run: str) -> Run:
    """Read the journal of one apply, finished or not."""
    if "/" in run or run.startswith("."):
        raise CommandError(f"{run!r} is not an apply ID; sexton fix status lists them")
    content = state.read(f"{RUNS}/{run}.jsonl")
    if content is None:
        raise CommandError(f"no apply {run!r}; sexton fix status lists them")
    written = [raw for raw in content.split(b"\n") if raw]
    lines = list(_objects(written))
    if not lines or lines[0].get("kind") != "begin":
        raise NeverStarted(run)
    return _parse_run(run, lines, torn=len(written) - len(lines))


def _objects(lines: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    """JSON objects, one per line; a line cut off by a crash is skipped."""
    for raw in lines:
        with contextlib.suppress(ValueError, RecursionError):
            line = json.loads(raw)
            if isinstance(line, dict):
                yield line


class NeverStarted(CommandError):
    """Even the first line is incomplete: the apply changed nothing."""

    def __init__(self, run: str) -> None:
        super().__init__(f"apply {run} never started: it changed nothing")


def _parse_run(id_: str, lines: list[dict[str, Any]], torn: int) -> Run:
    first = lines[0]
    if first.get("schema") != SCHEMA:
        raise CommandError(f"apply {id_}: {printable(str(first.get('schema')))} is not {SCHEMA}")
    try:
        start = _object(first, "start")
        run = Run(id_, from_json(first["plan"]), _moment(first), start=start, torn=torn)
        by_step: dict[str, StepRecord] = {}
        for line in lines[1:]:
            match line["kind"]:
                case "before":
                    record = StepRecord(_text(line, "step"), _object(line, "before"))
                    by_step[record.step] = record
                    run.records.append(record)
                case "done":
                    outcome = _object(line, "outcome")
                    _text({"said": "", **outcome}, "said")
                    by_step[_text(line, "step")].outcome = outcome
                case "undone":
                    by_step[_text(line, "step")].undone = True
                case "end":
                    run.ended, run.ended_why = _text(line, "how"), _text(line, "why")
                    run.ended_unix = _moment(line)
                case "rolled_back":
                    run.rolled_back = True
    except (PlanError, KeyError, TypeError) as error:
        raise CommandError(f"apply {id_}: malformed journal: {error}") from None
    return run


def _is_moment(value: object) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 <= value < 1e11  # type: ignore[operator]


def _moment(line: Mapping[str, Any]) -> float:
    if not _is_moment(line["unix"]):
        raise TypeError("unix is not a time")
    return float(line["unix"])


def _object(line: Mapping[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(line[name], dict):
        raise TypeError(f"{name} is not an object")
    return dict(line[name])


def _text(line: Mapping[str, Any], name: str) -> str:
    if not isinstance(line[name], str):
        raise TypeError(f"{name} is not text")
    return str(line[name])


def latest_run(state: State) -> Run | None:
    """The newest apply that started; `None` if there is none."""
    return next(_started(state, reversed(state.runs())), None)


def unfinished_runs(state: State) -> list[Run]:
    """Interrupted applies that have not been rolled back."""
    return [run for run in all_runs(state) if run.state == RUNNING]


def runs_of_plan(state: State, plan_hash: str) -> list[Run]:
    """Finished applies of this plan that have not been rolled back."""
    states = (COMPLETE, STOPPED)
    return [run for run in all_runs(state) if run.plan.hash == plan_hash and run.state in states]


def all_runs(state: State) -> list[Run]:
    """All applies that started, oldest first."""
    return list(_started(state, state.runs()))


def _started(state: State, runs: Iterable[str]) -> Iterator[Run]:
    for run in runs:
        with contextlib.suppress(NeverStarted):
            yield read_run(state, run)
