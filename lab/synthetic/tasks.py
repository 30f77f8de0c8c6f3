"""Tables about processes, the threads of busy ones, and kubelet, which walks the zombies."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lab.synthetic.columns import ReadTimes, SegmentTables, named
from lab.synthetic.names import KERNEL_THREADS, PROGRAMS, SHORT_LIVED
from lab.synthetic.plan import Array, Hold, Schedule, Ticks
from sexton.model.rows.task import Process, ProcessCgroup, Thread

KUBELET = 2113
_SLOT = 1  # kubelet's index in the table, after systemd's
_MOVERS = 24
_THREADS = 6
#: Index and TID of the kubelet thread that reads statistics.
_WALKER = 3
_WALKER_TID = 2140
#: Per 10 ms of user time; a busy node has some hundreds per second and core.
_FAULTS_A_TICK = 3.0
_MAJOR_SHARE = 2e-5
_STATES = ("S", "R", "D", "I")
_COMMS = ("systemd", "kubelet", *PROGRAMS, *SHORT_LIVED)


class Tasks:
    """A process table of constant length: a new process replaces each that exits."""

    def __init__(self, schedule: Schedule, rng: np.random.Generator) -> None:
        self._schedule, self._rng = schedule, rng
        self.reset()

    def reset(self) -> None:
        plan, rng = self._schedule.plan, self._rng
        number = plan.processes
        kernel = int(number * 0.45)
        self._names = [*_COMMS, *(_kernel_comm(index, plan.cores) for index in range(kernel))]
        self._kernel = np.zeros(number, dtype=bool)
        self._kernel[2 : 2 + kernel] = True
        self._pid = np.concatenate(
            [[1, KUBELET], np.arange(2, 2 + kernel), 2500 + np.arange(number - 2 - kernel) * 37]
        ).astype(np.int64)
        self._ppid = np.where(self._kernel, 2, 1).astype(np.int64)
        self._ppid[self._pid <= 2] = 0
        self._comm = rng.integers(2, 2 + len(PROGRAMS), number)
        self._comm[:2] = (0, 1)
        self._comm[2 : 2 + kernel] = len(_COMMS) + np.arange(kernel)
        self._start = np.where(self._kernel, 10, 4000 + rng.integers(0, 60_000, number) * 10)
        self._start[:2] = (0, 4000)
        self._threads = np.where(self._kernel, 1, rng.integers(1, 60, number))
        self._threads[_SLOT] = 60
        self._cpu = rng.integers(0, plan.cores, number)
        #: Ticks of 10 ms per second: most processes sleep, some dozens work.
        self._rate = rng.lognormal(-5.5, 1.8, (2, number))
        self._rate[0, self._kernel] = 0.0
        busy = slice(2 + kernel, 2 + kernel + min(_MOVERS - 1, number - 2 - kernel))
        self._rate[0, busy] = rng.uniform(8, 90, busy.stop - busy.start)
        self._rate[1, busy] = rng.uniform(1, 9, busy.stop - busy.start)
        self._rate[:, _SLOT] = (6.0, 2.0)
        self._movers = np.concatenate([[_SLOT], np.arange(busy.start, busy.stop)])
        self._used = np.zeros((2, number), dtype=np.int64)
        #: Minor and major page faults, in proportion to user time; kernel threads have none.
        self._faults = np.zeros((2, number), dtype=np.int64)
        self._split = np.zeros((2, len(self._movers), _THREADS), dtype=np.int64)
        self._at: float | None = None
        self._fresh = np.arange(busy.stop, number)
        self._next_pid = 60_000

    def write(self, segment: SegmentTables, paths: list[str]) -> None:
        ticks = segment.ticks
        tables: dict[str, list[Array]] = {}
        threads: dict[str, list[Array]] = {}
        places = self._places(paths)
        for tick in ticks.scans:
            self._step(ticks, int(tick))
            if tick == 0:
                places = self._places(paths)
            state = self._states()
            now = {
                "pid": self._pid, "ppid": self._ppid, "comm": self._comm, "state": state,
                "start_ms": self._start, "user_ms": 10 * self._used[0],
                "system_ms": 10 * self._used[1], "cpu": self._cpu, "threads": self._threads,
                "kernel": self._kernel, "minor_faults": self._faults[0],
                "major_faults": self._faults[1],
            }  # fmt: skip
            for name, column in now.items():
                tables.setdefault(name, []).append(column.copy())
            for name, column in self._thread_rows(ticks, int(tick)).items():
                threads.setdefault(name, []).append(column.reshape(-1).copy())
        if len(ticks.scans):
            when = segment.next_read_times(ticks.scans)
            self._put(segment, Process, when, tables)
            self._put(segment, Thread, when, threads)
        segment.once(ProcessCgroup, places)

    def _put(
        self,
        segment: SegmentTables,
        kind: type[Process] | type[Thread],
        when: ReadTimes,
        parts: dict[str, list[Array]],
    ) -> None:
        sizes = np.array([len(array) for array in parts["pid"]])
        columns: dict[str, object] = {}
        for name, pieces_of in parts.items():
            flat = np.concatenate(pieces_of)
            columns[name] = pa.array(flat)
        columns["comm"] = named(self._names, np.concatenate(parts["comm"]))
        columns["state"] = named(_STATES, np.concatenate(parts["state"]))
        segment.varying_entities(kind, when, sizes, columns)

    def _step(self, ticks: Ticks, tick: int) -> None:
        rng, now = self._rng, float(ticks.elapsed[tick])
        passed = float(ticks.mono[tick]) if self._at is None else now - self._at
        since = now - passed
        if self._at is not None:
            self._replace(float(ticks.mono[tick]), passed)
        moved = rng.poisson(self._rate * passed)
        walked = round(100 * sum(_shared(walk, since, now) for walk in self._walks()))
        shares = np.full(_THREADS, 0.9 / (_THREADS - 1))
        shares[0] = 0.1
        for side in range(2):
            self._split[side] += rng.multinomial(moved[side, self._movers], shares)
        self._split[1, 0, _WALKER] += walked
        moved[1, _SLOT] += walked
        self._used += moved
        self._faults[0] += rng.poisson(_FAULTS_A_TICK * moved[0])
        self._faults[1] += rng.random(len(self._cpu)) < _MAJOR_SHARE * moved[0]
        roam = rng.random(len(self._cpu)) < 0.3
        self._cpu = np.where(
            roam & ~self._kernel, rng.integers(0, self._schedule.plan.cores, len(roam)), self._cpu
        )
        self._at = now

    def _walks(self) -> list[Hold]:
        return [hold for hold in self._schedule.holds if hold.kind == "system"]

    def _replace(self, mono_s: float, passed: float) -> None:
        """Replace some short-lived processes by new ones."""
        rng = self._rng
        number = min(int(rng.poisson(0.3 * passed)), len(self._fresh) // 4)
        if not number:
            return
        slots = rng.choice(self._fresh, number, replace=False)
        pids = self._next_pid + np.cumsum(rng.integers(1, 40, number))
        self._next_pid = int(pids[-1])
        self._pid[slots] = pids
        first = 2 + len(PROGRAMS)
        self._comm[slots] = first + rng.integers(0, len(SHORT_LIVED), number)
        ages = rng.uniform(0, passed, number)
        self._start[slots] = ((mono_s - ages) * 100).astype(np.int64) * 10
        self._used[:, slots] = rng.integers(0, 8, (2, number))
        self._faults[:, slots] = rng.integers(0, ((900,), (3,)), (2, number))
        self._threads[slots] = 1

    def _states(self) -> Array:
        rng = self._rng
        found = (rng.random(len(self._pid)) < 0.01).astype(np.int64)
        found[self._kernel] = 3
        found[self._movers] = rng.random(len(self._movers)) < 0.6
        return found

    def _thread_rows(self, ticks: Ticks, tick: int) -> dict[str, Array]:
        rng, movers = self._rng, self._movers
        shape = (len(movers), _THREADS)
        pid = np.repeat(self._pid[movers], _THREADS).reshape(shape)
        tid = pid + np.arange(_THREADS)
        tid[0, _WALKER] = _WALKER_TID
        cpu = (self._cpu[movers][:, None] + np.arange(_THREADS) * 5) % self._schedule.plan.cores
        state = (rng.random(shape) < 0.3).astype(np.int64)
        now = float(ticks.elapsed[tick])
        for hold in self._walks():
            if hold.start <= now <= hold.end + 1:
                cpu[0, _WALKER] = hold.core
                state[0, _WALKER] = 1
        return {
            "pid": pid,
            "tid": tid,
            "comm": np.repeat(self._comm[movers], _THREADS),
            "state": state,
            "start_ms": np.repeat(self._start[movers], _THREADS),
            "user_ms": 10 * self._split[0],
            "system_ms": 10 * self._split[1],
            "cpu": cpu,
            "policy": np.zeros(shape, np.int64),
            "rt_priority": np.zeros(shape, np.int64),
        }

    def _places(self, paths: list[str]) -> list[ProcessCgroup]:
        kernel = self._kernel.tolist()
        found = []
        for slot, pid in enumerate(self._pid.tolist()):
            path = "/" if kernel[slot] else paths[slot % len(paths)]
            found.append(ProcessCgroup(pid, path, False))
        return found


def _kernel_comm(number: int, cores: int) -> str:
    kind = KERNEL_THREADS[number % len(KERNEL_THREADS)]
    return kind.format(number // len(KERNEL_THREADS) % cores)[:15]


def _shared(hold: Hold, since: float, until: float) -> float:
    return max(0.0, min(hold.end, until) - max(hold.start, since))
