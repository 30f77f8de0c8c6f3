"""Tables about units, timers, the kernel log, and the recorder itself."""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa

from lab.synthetic.columns import ReadTimes, SegmentTables
from lab.synthetic.memory import RUN_S, dying, last_start_s, restarts
from lab.synthetic.names import services
from lab.synthetic.network import DRIVER, bus
from lab.synthetic.plan import PERIOD_S, UNIT, Array, PlannedAlarm, Schedule, Ticks
from sexton.model.row import Row
from sexton.model.rows.event import KernelEvent, KernelLog
from sexton.model.rows.node import Node
from sexton.model.rows.recorder import Alarm, RecorderCost
from sexton.model.rows.unit import ServiceManager, Timer, Unit
from sexton.model.text import shorten
from sexton.sources.kmsg.catalogue import Recogniser
from sexton.sources.kmsg.records import LogLine
from sexton.store.pins import AFTER_S, BEFORE_S, Pin

HOST = "ip-10-3-7-21"
KERNEL = "5.4.0-1094-aws"
_TIMERS = ("fstrim", "logrotate", "man-db", "apt-daily", "motd-news", "systemd-tmpfiles-clean")


class Services:
    """systemd, /dev/kmsg and the recorder."""

    def __init__(self, schedule: Schedule, rng: np.random.Generator) -> None:
        self._schedule, self._rng = schedule, rng
        self._units = [UNIT, *services(schedule.plan.units - 1)]
        self._recogniser = Recogniser()
        self._lines = 1100
        self.pins: list[Pin] = []
        self._cost = np.array([900, 0, 0], dtype=np.int64)

    def reset(self) -> None:
        self._lines = 1100

    def write(self, segment: SegmentTables) -> None:
        ticks = segment.ticks
        segment.once(Node, [self._node(ticks)])
        if len(ticks.scans):
            self._systemd(segment)
            self._costs(segment)
        self._log(segment)
        self._alarms(segment)

    def boot_id(self, boot: int) -> str:
        text = np.random.default_rng([self._schedule.plan.seed, 7, boot]).bytes(16).hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def _node(self, ticks: Ticks) -> Node:
        return Node(
            hostname=HOST,
            kernel=KERNEL,
            cores=self._schedule.plan.cores,
            boot_id=self.boot_id(ticks.boot),
            uptime_s=round(float(ticks.mono[0]), 2),
            os="Ubuntu 20.04.6 LTS",
            zone="us-east-1a",
            region="us-east-1",
            instance_type="p4d.24xlarge",
            image="ami-0",
            vendor="Amazon EC2",
            machine=None,
            container=None,
        )

    def _systemd(self, segment: SegmentTables) -> None:
        ticks, number = segment.ticks, len(self._units)
        when = segment.next_read_times(ticks.scans)
        monos = when.mono
        shape = (number, len(monos))
        started = np.full(shape, 60_000_000) + np.arange(number)[:, None] * 31_337
        loops = "crash_loop" in self._schedule.plan.plant
        numbers = {
            "restarts": np.zeros(shape, dtype=np.int64),
            "restart_delay_us": np.full(number, 10_000_000),
            "main_start_us": started,
            "main_exit_us": np.zeros(shape, dtype=np.int64),
            "active_enter_us": started + 40_000,
            "exit_status": np.zeros(shape, dtype=np.int64),
        }
        words: dict[str, list[str]] = {
            "active_state": ["active"] * number * len(monos),
            "sub_state": ["running"] * number * len(monos),
            "result": ["success"] * number * len(monos),
            "cgroup_origin": ["systemd"] * number * len(monos),
        }
        if loops:
            for index, mono in enumerate(monos.tolist()):
                start = last_start_s(mono)
                runs = mono - start < RUN_S
                numbers["restarts"][0, index] = restarts(mono)
                numbers["main_start_us"][0, index] = round(start * 1e6)
                ended = start - PERIOD_S + RUN_S if runs else start + RUN_S
                numbers["main_exit_us"][0, index] = 0 if runs else round(ended * 1e6)
                numbers["active_enter_us"][0, index] = round(start * 1e6)
                if not runs:
                    numbers["exit_status"][0, index] = 5
                    words["active_state"][index] = "activating"
                    words["sub_state"][index] = "auto-restart"
                    words["result"][index] = "exit-code"
                    words["cgroup_origin"][index] = "slice + name"
        self._put_units(segment, when, numbers, words)
        segment.rows(
            ServiceManager, when, [[ServiceManager("systemd", "245", "D-Bus")]] * len(monos)
        )
        segment.rows(Timer, when, [self._timers(mono) for mono in monos.tolist()])

    def _put_units(
        self,
        segment: SegmentTables,
        when: ReadTimes,
        numbers: dict[str, Array],
        words: dict[str, list[str]],
    ) -> None:
        n, number = len(when.mono), len(self._units)
        by_time = np.arange(number * n).reshape(number, n).T.reshape(-1)
        columns: dict[str, object] = {}
        for name, column in numbers.items():
            whole = np.broadcast_to(column[:, None], (number, n)) if column.ndim == 1 else column
            columns[name] = np.ascontiguousarray(whole.T).reshape(-1)
        for name, text in words.items():
            columns[name] = pa.array(text).take(pa.array(by_time))
        columns |= {
            "name": self._units * n,
            "load_state": ["loaded"] * number * n,
            "file_state": ["enabled"] * number * n,
            "restart_policy": ["on-failure"] * number * n,
            "cgroup": [f"/system.slice/{name}" for name in self._units] * n,
        }
        segment.varying_entities(Unit, when, np.full(n, number), columns)

    def _timers(self, mono: float) -> list[Timer]:
        made = []
        for number, name in enumerate(_TIMERS):
            every = 86_400 // (number + 1)
            last = int(mono // every) * every
            trigger = last * 1_000_000 if last else None
            made.append(Timer(f"{name}.timer", f"{name}.service", trigger, every * 1_000_000))
        return made

    def _log(self, segment: SegmentTables) -> None:
        ticks = segment.ticks
        when = segment.next_read_times()
        lines = self._ena_lines()
        events: list[list[Row]] = []
        logs: list[list[Row]] = []
        for tick, elapsed in enumerate(ticks.elapsed.tolist()):
            since = elapsed - min(float(ticks.dt[tick]), 1.0)
            now = [(at, text) for at, text in lines if since < at <= elapsed]
            self._lines += len(now) + int(self._rng.random() < 0.01)
            events.append([event for at, text in now for event in self._events(at, text)])
            logs.append([KernelLog(self._lines, 0, 0, "/dev/kmsg")])
        segment.rows(KernelEvent, when, events)
        segment.rows(KernelLog, when, logs)

    def _events(self, at: float, text: str) -> list[KernelEvent]:
        mono = self._schedule.mono(at)
        line = LogLine(round(mono * 1e6), round(self._schedule.wall(at), 6), text, 0)
        event = self._recogniser.event(line)
        assert event is not None, text
        return [event]

    def _ena_lines(self) -> list[tuple[float, str]]:
        """ENA's log lines for each reset, as in driver 2.11."""
        who = f"ena {bus(0)} eth0:"
        info = f"Driver info: Elastic Network Adapter (ENA) v{DRIVER}"
        lines = []
        for reset in self._schedule.resets:
            if reset.waited_s:
                paused = (
                    f"{who} TX q {reset.queue} is paused for too long (threshold 5000000). Time"
                    f" since last napi {round(reset.waited_s * 1e6)} usec. napi scheduled: 1"
                )
                starved = "napi handler hasn't been called for a long time but is scheduled"
                lines += [(reset.at, paused), (reset.at + 0.0001, f"{who} {starved}")]
            else:
                lines.append((reset.at, f"{who} Keep alive watchdog timeout."))
            lines.append((reset.at + 0.002, f"{who} Trigger reset is on"))
            done = f"ena {bus(0)}: Device reset completed successfully, {info}"
            lines.append((reset.down[1], done))
        return lines

    def _alarms(self, segment: SegmentTables) -> None:
        ticks = segment.ticks
        indices, rows = [], []
        for alarm in self._schedule.alarms:
            found = np.flatnonzero(ticks.elapsed == alarm.at)
            if len(found) and alarm.is_new:
                tick = int(found[0])
                mono = float(ticks.mono[tick])
                span = (mono - BEFORE_S, mono + AFTER_S)
                about, detail = self._alarm_text(alarm, ticks, tick)
                indices.append(tick)
                rows.append([Alarm(alarm.kind, about, detail, *span)])
                stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(ticks.wall[tick]))
                name = f"{stamp}-{alarm.kind}-{len(self.pins) + 1}"
                boot, wall = self.boot_id(ticks.boot), float(ticks.wall[tick])
                self.pins.append(Pin(name, alarm.kind, about, detail, boot, *span, wall))
        if rows:
            segment.rows(Alarm, segment.next_read_times(np.array(indices)), rows)

    def _alarm_text(self, alarm: PlannedAlarm, ticks: Ticks, tick: int) -> tuple[str, str]:
        """The alarm's subject and detail, as the recorder would write them."""
        if alarm.kind == "zombie_memcgs":
            plan = self._schedule.plan
            dead = f"{int(dying(plan, ticks)[tick]):,}"
            return dead, f"{dead} dying memory cgroups, {plan.cgroups:,} live"
        if alarm.kind == "nic_reset":
            line = next(text for at, text in self._ena_lines() if at == alarm.since)
            return alarm.about, shorten(line, 160)
        return alarm.about, f"{alarm.about} in the kernel for 2.0 s"

    def _costs(self, segment: SegmentTables) -> None:
        rng, ticks = self._rng, segment.ticks
        due = ticks.scans[ticks.elapsed[ticks.scans] % 10 == 0]
        rows = []
        for _ in due:
            self._cost += (rng.integers(60, 110), rng.integers(0, 3), rng.integers(40_000, 90_000))
            cpu, children, written = self._cost.tolist()
            rss = 96_000_000 + int(rng.integers(0, 4_000_000))
            cost = RecorderCost(cpu, children, None, rss, 0, written, 4 * written % 300_000_000)
            rows.append([cost])
        if rows:
            segment.rows(RecorderCost, segment.next_read_times(due), rows)
