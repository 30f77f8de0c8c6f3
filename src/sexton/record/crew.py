"""Processes that read a recording beside us, on the node's other cores.

Reading back is thousands of small files, each done before another thread would have had the
interpreter's lock: so those that help are processes. They are forked and know the recording as we
do; what is written to it meanwhile looks the same to all. Work is cut into pieces, and whoever is
free takes the next. A piece that none of them gives back, killed or failed as it may be, is done
here: nothing is lost, and what is wrong with it is raised where it can be told.

None outlives us: each waits on a pipe that ends with us.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pickle
import select
import signal
import struct
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn, TypeVar

from sexton.store.recording import Recording, Segment

A = TypeVar("A")
T = TypeVar("T")
Tick = Callable[[int, int], None]

#: Processes in all, ourselves included: more would wait for the disk, and for us.
_MOST = 4
#: Fewer items are done before anybody is asked.
_LEAST = 16
#: Items in a piece: some milliseconds of work, if an item is a file.
_PIECE = 6
#: All tokens fit in the least that a pipe takes at once.
_MOST_PIECES = 1000
#: Whoever says nothing for so long while nobody else has work left is not waited for.
_PATIENCE_S = 30.0
_TOKEN, _LENGTH = struct.Struct("=I"), struct.Struct("=Q")
#: What a pipe may hold at most without asking root.
_PIPE_BYTES = 1 << 20


class _Worker(NamedTuple):
    """A process, with our ends of its pipes."""

    pid: int
    jobs: int
    answers: int


class _Pickler(pickle.Pickler):
    """Segments and the recording are known on both sides and go by their place."""

    def __init__(self, file: io.BytesIO, recording: Recording) -> None:
        super().__init__(file, protocol=5)
        self._recording = recording
        self._places = {id(each): at for at, each in enumerate(recording.segments)}

    def persistent_id(self, thing: Any) -> int | None:
        if isinstance(thing, Segment):
            return self._places[id(thing)]
        return -1 if thing is self._recording else None


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, recording: Recording) -> None:
        super().__init__(file)
        self._recording = recording

    def persistent_load(self, place: int) -> Segment | Recording:
        return self._recording if place < 0 else self._recording.segments[place]


class Crew:
    """Ourselves and those who help; `number` are all of us, as many as there are cores if `None`.

    Nobody is forked before there is work for two, nor where other threads run: what they hold
    locked would stay so in a fork.
    """

    def __init__(self, recording: Recording, number: int | None = None) -> None:
        cores = len(os.sched_getaffinity(0))
        alone = threading.active_count() > 1
        self._recording = recording
        self._number = min(cores, _MOST) if number is None else number
        self._workers: list[_Worker] = []
        self._forked = alone or self._number < 2
        #: Numbers of pieces that nobody has taken: where they are taken from, and put in.
        self._queue: tuple[int, ...] = ()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            _dismiss(worker)
        for end in self._queue:
            os.close(end)
        self._workers, self._queue, self._forked = [], (), True

    def each(
        self,
        do: Callable[[A], T],
        items: Sequence[A],
        tick: Tick | None = None,
        weights: Sequence[float] | None = None,
    ) -> Iterator[T]:
        """`do` of every item, in their order; `tick` is told how many of how many are done.

        `do` is a function of a module, or a `partial` of one, and gives back what can be pickled.
        Some items are given out together, or each by itself where `weights` tell how much work it
        is, the most first: nobody is left with it when the others are done.
        """
        if len(items) < _LEAST or not self._hired():
            for number, item in enumerate(items):
                if tick is not None:
                    tick(number, len(items))
                yield do(item)
            return
        size = max(1 if weights else _PIECE, -(-len(items) // _MOST_PIECES))
        starts = range(0, len(items), size)
        order = sorted(starts, key=lambda at: -weights[at] if weights else at)
        pieces = [items[at : at + size] for at in order]
        done: dict[int, list[T]] = {}
        self._give(do, pieces)
        for number in self._taken():
            if tick is not None:
                tick(number * size, len(items))
            done[number] = [do(item) for item in pieces[number]]
        self._gather(done)
        for number in sorted(range(len(order)), key=order.__getitem__):
            yield from done.pop(number) if number in done else map(do, pieces[number])

    def _hired(self) -> list[_Worker]:
        if not self._forked:
            self._forked = True
            try:
                self._queue = os.pipe()
                os.set_blocking(self._queue[0], False)
                while len(self._workers) < self._number - 1:
                    self._workers.append(self._fork())
            except OSError:  # no process or descriptor to be had: then we are fewer
                pass
        return self._workers

    def _give(self, do: Callable[[Any], Any], pieces: Sequence[Any]) -> None:
        """Say what there is to do. Pieces are in the queue before anybody looks for one there."""
        job = io.BytesIO()
        _Pickler(job, self._recording).dump((do, pieces))
        os.write(self._queue[1], b"".join(map(_TOKEN.pack, range(len(pieces)))))
        for worker in list(self._workers):
            try:
                _send(worker.jobs, job.getbuffer())
            except OSError:
                self._workers.remove(worker)
                _dismiss(worker)

    def _taken(self) -> Iterator[int]:
        """The next piece that nobody has, until there is none."""
        with contextlib.suppress(BlockingIOError):
            while token := os.read(self._queue[0], _TOKEN.size):
                yield _TOKEN.unpack(token)[0]

    def _gather(self, done: dict[int, Any]) -> None:
        problems = self._recording.problems
        for worker in list(self._workers):
            try:
                found, told = pickle.loads(_receive(worker.answers, _PATIENCE_S))
            except (OSError, EOFError):
                self._workers.remove(worker)
                _dismiss(worker)
                continue
            done |= found
            problems += [each for each in told if each not in problems]

    def _fork(self) -> _Worker:
        pipes = os.pipe(), os.pipe()
        (jobs, give), (answers, answer) = pipes
        with contextlib.suppress(OSError):
            for end in (give, answer):
                fcntl.fcntl(end, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        us = os.getpid()
        try:
            with warnings.catch_warnings():
                # Newer Pythons warn of any thread. Arrow's allocator has one, and forks well.
                warnings.simplefilter("ignore", DeprecationWarning)
                pid = os.fork()
        except OSError:
            for end in (*pipes[0], *pipes[1]):
                os.close(end)
            raise
        if not pid:
            self._serve((jobs, answer), (give, answers, self._queue[1]), us)
        os.close(jobs)
        os.close(answer)
        return _Worker(pid, give, answers)

    def _serve(self, mine: tuple[int, int], others: tuple[int, ...], us: int) -> NoReturn:
        """What a worker does for as long as there are jobs; it never comes back from here."""
        try:
            for each in (signal.SIGINT, signal.SIGTERM):
                signal.signal(each, signal.SIG_DFL)
            for end in (*others, *(end for each in self._workers for end in each[1:])):
                os.close(end)
            problems = self._recording.problems
            while True:
                job = io.BytesIO(_receive(mine[0]))
                do, pieces = _Unpickler(job, self._recording).load()
                told, found = len(problems), {}
                for number in self._taken():
                    if os.getppid() != us:
                        os._exit(0)
                    found[number] = [do(item) for item in pieces[number]]
                _send(mine[1], pickle.dumps((found, problems[told:]), protocol=5))
        finally:
            os._exit(0)  # whatever happened: the piece is missing, and is done by whoever asked


def _dismiss(worker: _Worker) -> None:
    """It has nothing of ours: killing it loses nothing."""
    os.close(worker.jobs)
    os.close(worker.answers)
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker.pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(worker.pid, 0)


def _send(end: int, content: bytes | memoryview) -> None:
    for part in (_LENGTH.pack(len(content)), content):
        left = memoryview(part)
        while left:
            left = left[os.write(end, left) :]


def _receive(end: int, patience_s: float | None = None) -> bytearray:
    """One message; `EOFError` where the other side is gone, `OSError` where it says nothing."""
    length = _LENGTH.unpack(_exactly(end, _LENGTH.size, patience_s))[0]
    return _exactly(end, length, patience_s)


def _exactly(end: int, length: int, patience_s: float | None) -> bytearray:
    found = bytearray()
    while len(found) < length:
        if patience_s is not None and not _says(end, patience_s):
            raise TimeoutError
        piece = os.read(end, min(length - len(found), _PIPE_BYTES))
        if not piece:
            raise EOFError
        found += piece
    return found


def _says(end: int, patience_s: float) -> bool:
    waiting = select.poll()
    waiting.register(end, select.POLLIN)
    return bool(waiting.poll(patience_s * 1000))
