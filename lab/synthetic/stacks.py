"""Stacks that agree with the core times, sealed as the recorder does it.

A tree of synthetic functions is built once; each segment draws its samples from it, core by core
and second by second, in proportion to that core's user, system, softirq and idle time. While a
planted walk or flood holds a core, its samples are in the functions of that cause.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lab.synthetic.names import PROGRAMS
from lab.synthetic.plan import Array, Schedule, Ticks
from sexton.model.profile import Clock, Event, Facts, Frames, Kind, Profile, Thread, Tree
from sexton.profile.heat import heat_of
from sexton.profile.recorded import annex_facts, annex_tables, ends_of
from sexton.store.annex import write_annex

_KERNEL = "[kernel.kallsyms]"
_SYSCALL = ("entry_SYSCALL_64_after_hwframe", "do_syscall_64")
_WALK = (*_SYSCALL, "__x64_sys_read", "ksys_read", "vfs_read", "seq_read_iter")
_WALK_LEAVES = ("mem_cgroup_iter", "mem_cgroup_node_nr_lru_pages", "css_next_descendant_pre")
_FLOOD = ("ret_from_fork", "kthread", "smpboot_thread_fn", "run_ksoftirqd", "handle_softirqs")
_FLOOD_LEAVES = ("net_rx_action", "__napi_poll", "ena_io_poll", "napi_gro_receive")
_IDLE = ("secondary_startup_64_no_verify", "start_secondary", "cpu_startup_entry", "do_idle")
_WORDS = ("page", "lock", "inode", "queue", "task", "skb", "timer", "folio", "sched", "dentry")
_VERBS = ("get", "put", "find", "update", "alloc", "free", "walk", "flush", "commit", "try_charge")
_FUNCTIONS = 6_000
_THREADS = 400
#: Kinds of samples.
USER, SYSTEM, SOFTIRQ, IDLE, WALK, FLOOD = range(6)


class _Leaves(NamedTuple):
    """Nodes where samples of one kind may end, with cumulative probabilities."""

    node: Array
    until: Array

    def draw(self, chances: Array) -> Array:
        return np.asarray(self.node[np.searchsorted(self.until, chances)])


class Stacks:
    """Draws samples from the functions of one node."""

    def __init__(self, schedule: Schedule, rng: np.random.Generator) -> None:
        self._schedule, self._rng = schedule, rng
        self._plan = schedule.plan
        self.tree = _FunctionTree(rng, self._plan.stack_nodes)
        self._comm = rng.integers(0, len(PROGRAMS), _THREADS)
        self.threads = [Thread(3000 + index, 3000 + index, PROGRAMS[comm])
                        for index, comm in enumerate(self._comm)]  # fmt: skip
        self.threads += [Thread(0, 0, "swapper"), Thread(2113, 2140, "kubelet"),
                         Thread(16, 16, "ksoftirqd/0")]  # fmt: skip

    def profile(self, ticks: Ticks, times: Any) -> Profile:
        """The samples of one segment; `times` is its table of core times."""
        shares = _shares(times, self._plan.cores, len(ticks.mono))
        hertz, cores, seconds = self._plan.stack_hertz, self._plan.cores, len(ticks.mono)
        rng = self._rng
        shape = (seconds, hertz, cores)
        phase = rng.uniform(0, 1 / hertz, cores)
        at = np.arange(hertz)[:, None] / hertz + phase
        # float32 is precise enough for a fraction of a second, at half the memory.
        within = at.astype(np.float32) + rng.normal(0, 2e-5, shape).astype(np.float32)
        np.clip(within, 0.0, 0.999_999, out=within)
        kind = self._kinds(shares, shape)
        self._hold(kind, ticks, within)
        thread = self._running(kind, shape)
        node = self._ends(kind, thread)
        us = (np.floor(ticks.mono)[:, None, None] * 1_000_000).astype(np.int64)
        time_ns = (us + (within * 1_000_000).astype(np.int64)).reshape(-1) * 1000
        del within, us
        cpu = np.broadcast_to(np.arange(cores, dtype=np.int32), shape).reshape(-1)
        order = np.argsort(time_ns, kind="stable")
        thread, node = thread.reshape(-1)[order], node.reshape(-1)[order]
        zeros = np.zeros(len(order), np.int32)
        tree, node = self.tree.used(node)
        facts = Facts(format="perf.data", cores=cores, clock=Clock("monotonic", None), lost=0)
        return Profile(
            time_ns=time_ns[order], cpu=cpu[order], thread=thread, cgroup=zeros,
            event=zeros.astype(np.int16), node=node, weight=None, threads=tuple(self.threads),
            cgroups=("/kubepods",), events=(Event("cpu-clock", hertz),), tree=tree, facts=facts,
        )  # fmt: skip

    def _kinds(self, shares: Array, shape: tuple[int, ...]) -> Array:
        until = np.cumsum(shares, axis=0).astype(np.float32)  # kinds, cores, seconds
        chances = self._rng.random(shape, np.float32)
        kind = np.zeros(shape, np.int8)
        for index in range(3):
            kind += chances >= until[index].T[:, None, :]
        return kind

    def _hold(self, kind: Array, ticks: Ticks, within: Array) -> None:
        for hold in self._schedule.holds:
            which = WALK if hold.kind == "system" else FLOOD
            for second, elapsed in enumerate(ticks.elapsed.tolist()):
                if hold.start < elapsed + 1 and hold.end > elapsed:
                    moment = elapsed + within[second, :, hold.core]
                    held = (moment >= hold.start) & (moment < hold.end)
                    kind[second, held, hold.core] = which

    def _running(self, kind: Array, shape: tuple[int, ...]) -> Array:
        """Choose the running threads, which stay on a core for three seconds."""
        seconds, _, cores = shape
        turn = self._rng.integers(0, _THREADS, (seconds // 3 + 1, cores))
        of_second = np.repeat(turn, 3, axis=0)[:seconds, None, :]
        thread = np.broadcast_to(of_second, shape).astype(np.int32)
        thread[(kind == IDLE) | (kind == SOFTIRQ)] = _THREADS
        thread[kind == WALK] = _THREADS + 1
        thread[kind == FLOOD] = _THREADS + 2
        return thread

    def _ends(self, kind: Array, thread: Array) -> Array:
        node = np.zeros(kind.shape, np.int32)
        chances = self._rng.random(kind.shape, np.float32)
        for key, leaves in self.tree.fixed.items():
            chosen = kind == key
            node[chosen] = leaves.draw(chances[chosen])
        for other in (USER, SYSTEM):
            chosen = kind == other
            comm = self._comm[thread[chosen]]
            drawn = chances[chosen]
            ends = np.zeros(len(drawn), np.int32)
            for number in range(len(PROGRAMS)):
                mine = comm == number
                ends[mine] = self.tree.programs[number, other].draw(drawn[mine])
            node[chosen] = ends
        return node


def _shares(times: Any, cores: int, seconds: int) -> Array:
    """Shares of user, system and softirq time per core and second."""
    found = {
        name: np.diff(times.column(name).to_numpy().reshape(cores, seconds), axis=1)
        for name in ("user_ms", "nice_ms", "system_ms", "softirq_ms", "irq_ms")
    }
    user = found["user_ms"] + found["nice_ms"]
    soft = found["softirq_ms"] + found["irq_ms"]
    shares = np.stack([user, found["system_ms"], soft]) / 1000.0
    return np.concatenate([shares[:, :, :1], shares], axis=2)


class _FunctionTree:
    """A random tree of functions in pre-order, and the leaves for each kind of sample."""

    def __init__(self, rng: np.random.Generator, nodes: int) -> None:
        self._rng = rng
        self._names: dict[tuple[str, str, int], int] = {("", "", int(Kind.ROOT)): 0}
        self._frame: list[int] = [0]
        self._depth: list[int] = [0]
        self.fixed: dict[int, _Leaves] = {}
        self.programs: dict[tuple[int, int], _Leaves] = {}
        nodes_each = max(nodes // (2 * len(PROGRAMS)), 4)
        for number, comm in enumerate(PROGRAMS):
            self._task(comm)
            user = self._add_subtree(1, nodes_each, comm, Kind.USER)
            self._add("__libc_read", "libc.so.6", Kind.USER, 2)
            for deeper, name in enumerate(_SYSCALL):
                self._add(name, _KERNEL, Kind.KERNEL, 3 + deeper)
            system = self._add_subtree(4, nodes_each, _KERNEL, Kind.KERNEL)
            self.programs[number, USER], self.programs[number, SYSTEM] = user, system
        self._task("swapper")
        self._path(_IDLE)
        soft = self._add_subtree(5, 60, _KERNEL, Kind.KERNEL)
        self._add("pv_native_safe_halt", _KERNEL, Kind.KERNEL, 6)
        self.fixed[SOFTIRQ] = soft
        self.fixed[IDLE] = _even([len(self._frame) - 1])
        for kind, comm, path, leaves in (
            (WALK, "kubelet", (*_WALK, "memcg_stat_show"), _WALK_LEAVES),
            (FLOOD, "ksoftirqd/0", _FLOOD, _FLOOD_LEAVES),
        ):
            self._task(comm)
            self._path(path)
            first = len(self._frame)
            for name in leaves:
                self._add(name, _KERNEL, Kind.KERNEL, len(path) + 2)
            self.fixed[kind] = _even(list(range(first, len(self._frame))))
        self._order = np.array(self._frame, np.int32)
        self._depths = np.array(self._depth, np.int32)
        self._ends = ends_of(self._depths)
        self._table = list(self._names)

    def used(self, node: Array) -> tuple[Tree, Array]:
        """The part of the tree that these samples use, and their nodes in that part."""
        own = np.bincount(node, minlength=len(self._order)).astype(np.int64)
        whole = Tree(self._order, self._depths, self._ends, _frames(self._table[:1]))
        keep = whole.totals(own) > 0
        keep[0] = True
        number = np.cumsum(keep, dtype=np.int32) - np.int32(1)
        names, frame = np.unique(self._order[keep], return_inverse=True)
        depth = self._depths[keep]
        frames = _frames([self._table[name] for name in names.tolist()])
        return Tree(frame.astype(np.int32), depth, ends_of(depth), frames), number[node]

    def _task(self, comm: str) -> None:
        self._add(comm, "", Kind.TASK, 1)

    def _path(self, names: tuple[str, ...]) -> None:
        for deeper, name in enumerate(names):
            self._add(name, _KERNEL, Kind.KERNEL, 2 + deeper)

    def _add(self, name: str, module: str, kind: Kind, depth: int) -> None:
        number = self._names.setdefault((name, module, int(kind)), len(self._names))
        self._frame.append(number)
        self._depth.append(depth)

    def _add_subtree(self, below: int, nodes: int, module: str, kind: Kind) -> _Leaves:
        """Add `nodes` random nodes below the last one; samples may end in any of them."""
        first = len(self._frame)
        depth = below
        ups = self._rng.geometric(0.35, nodes)
        functions = self._rng.integers(0, _FUNCTIONS, nodes)
        for up, function in zip(ups.tolist(), functions.tolist(), strict=True):
            depth = max(below + 1, min(depth + 2 - up, below + 40)) if depth > below else below + 1
            verb, word = _VERBS[function % 10], _WORDS[function // 10 % 10]
            self._add(f"{verb}_{word}_{function // 100}", module, kind, depth)
        likely = self._rng.pareto(1.1, nodes) + 0.01
        return _Leaves(np.arange(first, first + nodes), np.cumsum(likely / likely.sum()) + 1e-6)


def _even(nodes: list[int]) -> _Leaves:
    share = np.arange(1, len(nodes) + 1) / len(nodes)
    return _Leaves(np.array(nodes), share + 1e-6)


def _frames(named: list[tuple[str, str, int]]) -> Frames:
    names, modules, kinds = zip(*named, strict=True)
    return Frames(names, modules, np.array(kinds, np.uint8))


def write_stacks(segment: Path, header: dict[str, Any], profile: Profile, ticks: Ticks) -> Path:
    """Seal samples into their segment, as the recorder's decoder does."""
    edges = [int(time_ns) // 1000 / 1e6 for time_ns in (profile.time_ns[0], profile.time_ns[-1])]
    ahead_s = float(ticks.wall[0] - ticks.mono[0])
    stamp = time.strftime("%Y%m%d%H%M%S00", time.gmtime(edges[1] + ahead_s))
    about = {
        "boot_id": header["boot_id"],
        "start": [edges[0], edges[0] + ahead_s],
        "end": [edges[1], edges[1] + ahead_s],
        "profile": annex_facts(profile),
    }
    return write_annex(segment, f"profile-{stamp}", about, annex_tables(profile, heat_of(profile)))
