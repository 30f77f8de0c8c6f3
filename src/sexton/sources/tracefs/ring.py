r"""The event ring: the last seconds of every core, event by event, in an overwriting buffer.

Scheduler, network softirq, interrupt and NAPI events (the kernel's include/trace/events/sched.h,
irq.h, napi.h) go into a private instance (`sexton.sources.tracefs.instance`), 128 kB to 2 MB a
core, about 32 MB in all, and are read only after an alarm. An excerpt of
``per_cpu/cpu0/trace`` on 6.1::

     kworker/0:1-17      [000] d..2.     8.617498: sched_switch: prev_comm=kworker/0:1 prev_pid=17 prev_prio=120 prev_state=I ==> next_comm=sh next_pid=1 next_prio=120
     kworker/0:1-17      [000] ..s1.     8.991211: napi_poll: napi poll on napi struct 0000000054870010 for device eth0 work 0 budget 64

Quirks:

- A comm may hold anything but NUL, even a newline and half an event, and is in the middle of the
  text. An event is found by its head (pid, core, flags, time, name), which is longer than the 15
  bytes of a comm can forge; the name before it is a column of exactly 16 bytes.
- That column is the *last* comm the kernel has cached for the pid, or ``<...>`` if it has none; in
  a `sched_switch` the true one is `prev_comm`, which is used instead. ``<idle>`` becomes
  ``swapper/<core>``, as in `sched_switch`.
- Each core's own file is read and the cores are merged here: for the common ``trace`` the kernel
  looks up every core's oldest event before it prints one.
- Softirqs are filtered to NET_TX and NET_RX (2 and 3): timers and RCU would fill the ring.

>>> text = b"            a\nb-3      [000] d..2.     8.617498: sched_wakeup: comm=c pid=1 prio=120\n"
>>> list(_fields(iter([text])))
[(8617498000, 0, 3, 'a\nb', 'sched_wakeup', 'comm=c pid=1 prio=120')]
"""  # noqa: E501

from __future__ import annotations

import contextlib
import heapq
import os
import re
import time
from collections.abc import Iterator, Sequence

from sexton.errors import SourceAbsent, SourceError
from sexton.host.host import Host
from sexton.host.reader import LiveFiles, exists, failure
from sexton.model.counters import moved
from sexton.model.rows.trace import RingState
from sexton.sources.tracefs.instance import DEFAULT_MOUNT, Instance

PATH = "/sys/kernel/tracing/instances/sexton-*/per_cpu/cpu*/trace"
_NETWORK = "vec==2||vec==3"
#: Each with its filter; those a kernel lacks are left out.
EVENTS = {
    "sched/sched_switch": "",
    "sched/sched_wakeup": "",
    "irq/softirq_raise": _NETWORK,
    "irq/softirq_entry": _NETWORK,
    "irq/softirq_exit": _NETWORK,
    "irq/irq_handler_entry": "",
    "napi/napi_poll": "",
}
#: The most frequent ones: the first to go if the ring costs too much. The others still show which
#: softirq was raised, when it ran, and what its poll did.
FREQUENT = ("sched/sched_switch", "sched/sched_wakeup")
_THIN_S = 600.0
#: Kernel time of one event, on its core. Two processes passing a byte back and forth on one
#: core (four events a turn) took 280 to 400 ns longer per event with the ring on than off, on 6.18
#: in a virtual machine; rounded up. An estimate: caches, clocks and kernels differ.
EVENT_NS = 500
MOST_PERCENT = 0.5
_ALL_KB, _LEAST_KB, _MOST_KB = 32 << 10, 128, 2 << 10
#: The smallest event takes 16 bytes of the ring and some 90 as text: a full ring of 2 MB is 12.
_MOST_BYTES = 24 << 20
_CHUNK = 1 << 16
_HEAD = re.compile(
    rb"-([0-9]{1,7}) +\[([0-9]{1,5})\] [A-Za-z0-9.#]{4,8} +([0-9]{1,10})\.([0-9]{6}): (\w{1,64}): "
)
_COMM_BYTES = 16
_SWITCH = re.compile(rb"prev_comm=(.{0,15}?) prev_pid=[0-9]+ prev_prio=", re.DOTALL)
_LOST = re.compile(rb"\nCPU:[0-9]+ \[LOST [0-9 ]*EVENTS\]$")
_WRITTEN = re.compile(r"^(?:entries|overrun): ([0-9]{1,20})$", re.ASCII | re.MULTILINE)
#: An event as it is read: the fields of a `TraceEvent`, which sort by time.
Fields = tuple[int, int, int, str, str, str]


def events(path: str, since_ns: int = 0) -> Iterator[Fields]:
    """Every core's events from `since_ns` on, in order of time, from a paused instance."""
    cores = [name for name in LiveFiles().names(f"{path}/per_cpu") if name.startswith("cpu")]
    parts = [_fields(_chunks(f"{path}/per_cpu/{core}/trace")) for core in sorted(cores)]
    for fields in heapq.merge(*parts):
        if fields[0] >= since_ns:
            yield fields


class EventRing:
    """The ring of this node: `arm`, then `tend` every few seconds; after an alarm `hold`, read
    `events`, and `release`.

    Over `MOST_PERCENT` of its busiest core it does without the `FREQUENT` events for ten minutes;
    over it even so, it pauses until `resume`.
    """

    def __init__(self, host: Host) -> None:
        host.require_live(DEFAULT_MOUNT)
        self._host = host
        self._instance: Instance | None = None
        self._switch = -1
        self._held = 0
        self._mode = "off"
        self._reason = "not armed"
        self._grace_s = 0.0
        self._thin_until_s = 0.0
        self._before: tuple[float, dict[int, int]] | None = None
        self.armed: tuple[str, ...] = ()

    def __enter__(self) -> EventRing:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def path(self) -> str:
        """The instance's path; a child that uses it must inherit `mount`, if there is one."""
        return "" if self._instance is None else self._instance.path

    @property
    def mount(self) -> int | None:
        return None if self._instance is None else self._instance.mount

    def arm(self) -> RingState:
        """Make the ring and start it; first removes what a killed recorder left."""
        instance = self._instance = Instance(self._host, "sched/sched_switch")
        try:
            # Kept open: then another sexton that cannot see our pid cannot remove the instance as
            # stale.
            self._switch = os.open(f"{instance.path}/tracing_on", os.O_RDWR | os.O_CLOEXEC)
            self._switch_to(False)
            instance.write("buffer_size_kb", str(buffer_kb(sum(1 for _ in instance.stats()))))
            instance.write("options/overwrite", "1")
            present = [
                name
                for name in EVENTS
                if exists(self._host.files, f"{instance.path}/events/{name}")
            ]
            if not present:
                raise SourceAbsent(DEFAULT_MOUNT, "this kernel has none of the ring's events")
            for name in present:
                if EVENTS[name]:
                    instance.write(f"events/{name}/filter", EVENTS[name])
            self.armed = tuple(present)
            self.resume("armed", grace_s=0.0)
        except (OSError, SourceError) as error:
            self.close()
            if isinstance(error, OSError):
                raise failure(error.filename or DEFAULT_MOUNT, error) from None
            raise
        return self.state(None)

    @property
    def is_thin(self) -> bool:
        """Whether the `FREQUENT` events are left out now."""
        return self._thin_until_s > 0

    def rate(self) -> float | None:
        """Events a second on the busiest core since the last call; `None` at the first, and if the
        counters of all cores fell: then the ring was emptied."""
        if self._instance is None:
            return None
        counted = {
            core: sum(int(number) for number in _WRITTEN.findall(stats))
            for core, stats in self._instance.stats()
        }
        now_s = time.monotonic()
        before, self._before = self._before, (now_s, counted)
        if before is None or now_s <= before[0]:
            return None
        grown = moved(before[1], counted).values()
        return max(grown) / (now_s - before[0]) if grown else None

    def tend(self) -> RingState:
        """The current state; pauses the ring if it costs too much. Call it every few seconds."""
        rate, now_s = self.rate(), time.monotonic()
        if self._mode == "on" and self._thin_until_s and now_s >= self._thin_until_s:
            self._thin_until_s = 0.0
            self._enable(True, FREQUENT)
            self._reason = "armed"
        elif self._mode == "on" and rate is not None and now_s >= self._grace_s:
            percent = estimated_percent(rate)
            if percent > MOST_PERCENT:
                cost = f"an estimated {percent:.1f} % of a core, limit {MOST_PERCENT} %"
                self._cost_less(f"{rate:,.0f} events a second: {cost}")
        return self.state(rate)

    def _cost_less(self, why: str) -> None:
        if self._thin_until_s or not set(self.armed) - set(FREQUENT):
            self.pause(f"{why}; off until the next alarm")
            return
        self._enable(False, FREQUENT)
        self._thin_until_s = time.monotonic() + _THIN_S
        self._before = None
        self._reason = f"{why}; without scheduler events for {_THIN_S / 60:.0f} min"

    def state(self, rate: float | None) -> RingState:
        percent = None if rate is None else round(estimated_percent(rate), 3)
        return RingState(self._mode, rate, percent, self._reason)

    def pause(self, reason: str) -> None:
        """Disable all events; the ring keeps its content."""
        if self._instance is not None:
            self._switch_to(False)
            self._enable(False)
            self._mode, self._reason = "paused", reason

    def resume(self, reason: str, grace_s: float = 60.0) -> None:
        """Start (again); for `grace_s` seconds the cost limit does not apply."""
        if self._instance is None:
            raise SourceAbsent(DEFAULT_MOUNT, "the event ring is not armed")
        self._enable(True)
        self._thin_until_s = 0.0
        self._mode, self._reason = "on", reason
        self._grace_s = time.monotonic() + grace_s
        self._before = None
        self._switch_to(self._held == 0)

    def hold(self) -> int:
        """Stop writing, for a reader, until `release`; returns the time, in monotonic ns."""
        self._held += 1
        self._switch_to(False)
        return time.monotonic_ns()

    def release(self) -> None:
        self._held = max(0, self._held - 1)
        if self._held == 0 and self._mode == "on":
            self._switch_to(True)

    def close(self) -> None:
        """Remove the ring and its content."""
        if self._switch >= 0:
            os.close(self._switch)
            self._switch = -1
        if self._instance is not None:
            self._instance.close()
            self._instance = None
        self._mode, self._reason = "off", "closed"

    def _switch_to(self, on: bool) -> None:
        if self._switch >= 0:
            os.pwrite(self._switch, b"1" if on else b"0", 0)

    def _enable(self, on: bool, names: Sequence[str] = tuple(EVENTS)) -> None:
        assert self._instance is not None
        for name in (name for name in self.armed if name in names):
            self._instance.write(f"events/{name}/enable", "1" if on else "0")


def buffer_kb(cores: int) -> int:
    """Buffer size of one core.

    >>> [buffer_kb(cores) for cores in (1, 2, 16, 96, 1024)]
    [2048, 2048, 2048, 341, 128]
    """
    return max(_LEAST_KB, min(_MOST_KB, _ALL_KB // max(1, cores)))


def estimated_percent(rate: float) -> float:
    """Estimated share of one core, for this many events a second on it.

    >>> estimated_percent(10_000)
    0.5
    """
    return rate * EVENT_NS / 1e7


def _fields(chunks: Iterator[bytes]) -> Iterator[Fields]:
    """Events from chunks of text. An event ends where the head of the next one begins, or at the
    end of the text."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        heads = list(_HEAD.finditer(rest))
        if len(heads) < 2:
            if len(rest) > _MOST_BYTES:
                return
            continue
        for number in range(len(heads) - 1):
            end = _column(rest, heads[number + 1].start()) - 1
            yield _event(rest, heads[number], end)
        rest = rest[_column(rest, heads[-1].start()) :]
    last = _HEAD.search(rest)
    if last is not None:
        end = len(rest) - 1 if rest.endswith(b"\n") else len(rest)
        yield _event(rest, last, end)


def _column(content: bytes, dash: int) -> int:
    """Start of the line whose comm ends at `dash`."""
    start = max(0, dash - _COMM_BYTES)
    if start == 0 or content[start - 1 : start] == b"\n":
        return start
    return content.rfind(b"\n", 0, dash) + 1


def _event(content: bytes, head: re.Match[bytes], end: int) -> Fields:
    pid, cpu, seconds, micros, name = head.groups()
    detail = content[head.end() : max(end, head.end())]
    if b"\nCPU:" in detail:
        detail = _LOST.sub(b"", detail)
    switched = _SWITCH.match(detail) if name == b"sched_switch" else None
    if switched is not None:
        comm = switched[1]
    else:
        comm = content[_column(content, head.start()) : head.start()].lstrip(b" ")
        if comm == b"<idle>":
            comm = b"swapper/%d" % int(cpu)
    return (
        int(seconds) * 1_000_000_000 + int(micros) * 1000,
        int(cpu),
        int(pid),
        comm.decode("utf-8", "surrogateescape"),
        name.decode("ascii", "surrogateescape"),
        detail.decode("utf-8", "surrogateescape"),
    )


def _chunks(path: str) -> Iterator[bytes]:
    """A core's text, in bounded pieces; nothing if the core went offline."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    except OSError as error:
        raise failure(path, error) from None
    left = _MOST_BYTES
    with contextlib.closing(os.fdopen(descriptor, "rb", buffering=0)) as file:
        while left > 0:
            try:
                piece = file.read(_CHUNK)
            except OSError as error:
                raise failure(path, error) from None
            if not piece:
                return
            left -= len(piece)
            yield piece
