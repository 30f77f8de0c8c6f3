"""Processes that read a recording beside us, on the node's other cores.

Reading back is thousands of small files, each done before another thread would have had the
interpreter's lock: so those that help are processes. They are forked and know the recording as we
do; what is written to it meanwhile looks the same to all. Work is cut into pieces, and whoever is
free takes the next. A piece that none of them gives back, killed or failed as it may be, is done
here: nothing is lost, and what is wrong with it is raised where it can be told.

None outlives us: the kernel ends them with us. docs/adr/0018 says what they are worth.
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
#: Fewer items are done before anybody is asked; where weights tell what they are, rows.
_LEAST, _LEAST_ROWS = 16, 200_000
#: Items in a piece: some milliseconds of work, if an item is a file.
_PIECE = 6
#: All tokens fit in the least that a pipe takes at once.
_MOST_PIECES = 1000
_PATIENCE_S = 30.0
_TOKEN, _LENGTH = struct.Struct("=I"), struct.Struct("=Q")
#: Of prctl(2).
_SET_PARENT_DEATH_SIGNAL = 1
#: What a pipe may hold at most without asking root.
_PIPE_BYTES = 1 << 20
#: What tells a process to end, and whoever started us to all of us at once.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


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
    """Ourselves and those who help; `number` are all of us, as many as there are cores for us if
    `None`.

    Nobody is forked before there is work for two, nor where other threads run: what they hold
    locked would stay so in a fork. `tick` is told how many of how many items are done. Who has
    better things to do than to `work` only hears what the others found, with one more of them.
    """

    def __init__(self, recording: Recording, number: int | None = None, work: bool = True) -> None:
        self.recording = recording
        self._number = number
        self._work = work
        self._workers: list[_Worker] = []
        self._forked = number == 1
        self.tick: Tick | None = None
        #: Whoever says nothing for so long while nobody else has work left is not waited for.
        self.patience_s = _PATIENCE_S
        #: Numbers of pieces that nobody has taken: where they are taken from, and put in.
        self._queue: tuple[int, ...] = ()

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        self._forked = True
        while self._workers:
            _dismiss(self._workers.pop())
        for end in self._queue:
            os.close(end)
        self._queue = ()

    def each(
        self, do: Callable[[A], T], items: Sequence[A], weights: Sequence[float] | None = None
    ) -> Iterator[T]:
        """`do` of every item, in their order.

        `do` is a function of a module, or a `partial` of one, and gives back what can be pickled.
        Some items are given out together, or each by itself where `weights` tell how much work it
        is, the most first: nobody is left with it when the others are done.
        """
        if not self._is_worth_it(items, weights):
            for _, made in self._alone(do, items):
                yield made
            return
        every = dict(self._together(do, items, weights))
        for place in range(len(items)):
            yield every.pop(place)

    def as_done(
        self, do: Callable[[A], T], items: Sequence[A], weights: Sequence[float] | None = None
    ) -> Iterator[tuple[int, T]]:
        """The same as soon as each is there, with its place among the items."""
        if self._is_worth_it(items, weights):
            return self._together(do, items, weights)
        return self._alone(do, items)

    def hire(self) -> bool:
        """Fork those who help now, since other threads will run when there is work; are there any?
        The recording is to be known to the last segment then."""
        return self._hired()

    def _is_worth_it(self, items: Sequence[Any], weights: Sequence[float] | None) -> bool:
        enough = len(items) >= _LEAST if weights is None else sum(weights) >= _LEAST_ROWS
        return enough and self._hired()

    def _alone(self, do: Callable[[A], T], items: Sequence[A]) -> Iterator[tuple[int, T]]:
        for place, item in enumerate(items):
            self._tell(place, len(items))
            yield place, do(item)

    def _together(
        self, do: Callable[[A], T], items: Sequence[A], weights: Sequence[float] | None
    ) -> Iterator[tuple[int, T]]:
        size = max(1 if weights else _PIECE, -(-len(items) // _MOST_PIECES))
        starts = range(0, len(items), size)
        order = sorted(starts, key=lambda at: -weights[at] if weights else at)
        pieces = [items[at : at + size] for at in order]
        left = {*range(len(order))}
        done: dict[int, list[T]] = {}

        def placed() -> Iterator[tuple[int, T]]:
            while done:
                number, made = done.popitem()
                left.discard(number)
                yield from enumerate(made, order[number])

        try:
            busy = self._give(do, pieces)
            for number in self._taken() if self._work else ():
                self._tell(number * size, len(items))
                done[number] = [do(item) for item in pieces[number]]
                self._hear(busy, done)
                yield from placed()
            while busy:
                self._hear(busy, done, self.patience_s)
                if left and not self._work:
                    self._tell((len(order) - len(left)) * size, len(items))
                yield from placed()
        except BaseException:  # they are in the middle of it, and nobody will hear them out
            self.__exit__()
            raise
        for number in sorted(left):
            yield from enumerate(map(do, pieces[number]), order[number])

    def _tell(self, done: int, total: int) -> None:
        if self.tick is not None:
            self.tick(done, total)

    def _hired(self) -> bool:
        """Are there others? The first who asks has them forked."""
        if not self._forked:
            self._forked = True
            if not _threads():
                number = _cores() if self._number is None else self._number
                # No process or descriptor to be had: then we are fewer.
                with contextlib.suppress(OSError):
                    self._fork(number - 1 if self._work or number < 2 else number)
        return bool(self._workers)

    def _fork(self, number: int) -> None:
        if number > 0:
            self._queue = os.pipe()
            os.set_blocking(self._queue[0], False)
        for _ in range(number):
            # Until we know of it, and it that it is not us, nobody is interrupted.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, _ENDING)
            try:
                self._workers.append(self._one_more(before))
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _give(self, do: Callable[[Any], Any], pieces: Sequence[Any]) -> list[_Worker]:
        """Say what there is to do; who was told. Pieces are in the queue before anybody looks for
        one there."""
        job = io.BytesIO()
        _Pickler(job, self.recording).dump((do, pieces))
        os.write(self._queue[1], b"".join(map(_TOKEN.pack, range(len(pieces)))))
        for worker in list(self._workers):
            try:
                _send(worker.jobs, job.getbuffer())
            except OSError:
                self._lose(worker)
        return list(self._workers)

    def _taken(self) -> Iterator[int]:
        """The next piece that nobody has, until there is none."""
        with contextlib.suppress(BlockingIOError):
            while token := os.read(self._queue[0], _TOKEN.size):
                yield _TOKEN.unpack(token)[0]

    def _hear(self, busy: list[_Worker], done: dict[int, Any], patience_s: float = 0.0) -> None:
        """Take what is answered, and from `busy` who has no more to do. It is taken while we work:
        nobody keeps more than a piece."""
        waiting = select.poll()
        for worker in busy:
            waiting.register(worker.answers, select.POLLIN)
        ready = {end for end, _ in waiting.poll(patience_s * 1000)}
        for worker in list(busy):
            if worker.answers not in ready and (ready or not patience_s):
                continue
            answer = _heard(worker) if worker.answers in ready else None
            if not answer:
                busy.remove(worker)
                if answer is None:
                    self._lose(worker)
                continue
            number, found, told = pickle.loads(answer[0], buffers=answer[1:])
            done[number] = found
            problems = self.recording.problems
            problems += [each for each in told if each not in problems]

    def _lose(self, worker: _Worker) -> None:
        self._workers.remove(worker)
        _dismiss(worker)

    def _one_more(self, mask: set[int]) -> _Worker:
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
            try:
                end_with(us)
                for each in _ENDING:
                    if signal.getsignal(each) is not signal.SIG_IGN:  # as nohup has it
                        signal.signal(each, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
                for end in (give, answers, self._queue[1]):
                    os.close(end)
                self._serve(jobs, answer, us)
            finally:
                os._exit(0)  # whatever happened: what is missing is done by whoever asked
        os.close(jobs)
        os.close(answer)
        return _Worker(pid, give, answers)

    def _serve(self, jobs: int, answer: int, us: int) -> NoReturn:
        """What a worker does until whoever asks is gone."""
        for each in self._workers:
            os.close(each.jobs)
            os.close(each.answers)
        problems = self.recording.problems
        while True:
            job = io.BytesIO(_receive(jobs))
            do, pieces = _Unpickler(job, self.recording).load()
            for number in self._taken():
                if os.getppid() != us:
                    raise EOFError
                told = len(problems)
                found = [do(item) for item in pieces[number]]
                _send_all(answer, (number, found, problems[told:]))
            _send(answer, b"")


def end_with(parent: int) -> None:
    """Be killed as soon as whoever forked us is gone, however that came."""
    import ctypes  # numpy has it already

    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, int(signal.SIGKILL))
    if os.getppid() != parent:  # it was quicker
        os._exit(0)


def _threads() -> bool:
    return threading.active_count() > 1


def _cores() -> int:
    if len(os.sched_getaffinity(0)) < 2:
        return 1
    from sexton.host.host import open_host
    from sexton.sources.cores import cores_for_us

    return min(cores_for_us(open_host()), _MOST)


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


def _send_all(end: int, thing: Any) -> None:
    """Arrays go as they lie in memory, each after the other: they are large."""
    arrays: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(thing, protocol=5, buffer_callback=arrays.append)
    _send(end, _LENGTH.pack(len(arrays)))
    _send(end, rest)
    for each in arrays:
        with each.raw() as content:
            _send(end, content)


def _heard(worker: _Worker) -> list[bytearray] | None:
    """What was begun to be sent, none of it where that is the end; `None` where it stops before."""
    try:
        first = _receive(worker.answers, _PATIENCE_S)
        if not first:
            return []
        number = _LENGTH.unpack(first)[0]
        return [_receive(worker.answers, _PATIENCE_S) for _ in range(number + 1)]
    except (OSError, EOFError):
        return None


def _receive(end: int, patience_s: float | None = None) -> bytearray:
    """One message; `EOFError` where the other side is gone, `OSError` where it says nothing."""
    length = _LENGTH.unpack(_exactly(end, _LENGTH.size, patience_s))[0]
    return _exactly(end, length, patience_s)


def _exactly(end: int, length: int, patience_s: float | None) -> bytearray:
    found = bytearray(length)
    left = memoryview(found)
    waiting = select.poll()
    waiting.register(end, select.POLLIN)
    while left:
        if patience_s is not None and not waiting.poll(patience_s * 1000):
            raise TimeoutError
        number = os.readv(end, [left])
        if not number:
            raise EOFError
        left = left[number:]
    return found
