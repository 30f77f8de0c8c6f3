"""A port of the cluster fabric (InfiniBand, RoCE, EFA) loses its link or its packets.

**What is seen.** Error counters of every port under `/sys/class/infiniband`, read every ten
seconds: links that went down (`link_downed`, `link_error_recovery`), symbol and receive errors,
discarded and dropped packets, retries that were used up; and ports that stopped being ACTIVE in the
window.

**Why it hurts.** Collective operations wait for the slowest link. A link that goes down for a
second makes every rank retry; if the retries run out, NCCL ends the job on all nodes with a remote
error, and the node with the bad cable looks no different from the others.

**What would make it wrong.** Counters are since the driver was loaded, so only what moved in the
window counts. A few symbol errors in an hour are within the specification of a cable. A switch that
was restarted takes all its ports down: look at other nodes first. `rx_drops` of EFA also counts
packets for memory that the program had not yet posted.

**Check by hand.** ``perfquery -x``, ``ibstat``; ``grep .
/sys/class/infiniband/*/ports/*/counters/*err*``; ``grep .
/sys/class/infiniband/*/ports/*/hw_counters/*``; ``rdma link``.

**What to do.** One port: reseat or replace its cable, then the transceiver, then the card. All
ports of one switch: the switch. On EFA: look at security groups and instance status; stop and start
the instance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sexton.detect.faults import unrecorded
from sexton.detect.findings import absent, and_more, names, not_applicable, unknown
from sexton.detect.registry import Threshold, detector, look
from sexton.model.finding import Evidence, Finding, Missing, Severity, Verdict
from sexton.model.rows.hardware import FabricCounter, FabricPort
from sexton.model.text import count
from sexton.model.text import seconds as duration
from sexton.model.window import Window
from sexton.series.rates import Steps, steps_of

NAME = "fabric_errors"

LOST = Threshold("link lost", 1, "times", "a link that is up goes down for a reason")
ERRORS = Threshold("errors", 100, "in the window", "single ones are within a cable's specification")
_SHOWN = 8
_DOWN = frozenset({"link_downed", "link_error_recovery"})
#: One is one operation of a program that failed.
_FATAL = frozenset(
    {"req_transport_retries_exceeded", "rdma_read_wr_err", "rdma_write_wr_err"}
    | {"unresponsive_remote_events", "impaired_remote_conn_events"}
)
_PATH = "/sys/class/infiniband"


class _Moved(NamedTuple):
    """A counter that moved in the window, and between which readings (monotonic seconds)."""

    port: str
    name: str
    number: float
    start: float
    end: float

    @property
    def severity(self) -> Severity:
        if self.name in _DOWN or self.name in _FATAL:
            return Severity.CRITICAL
        return Severity.WARNING if self.number >= ERRORS.value else Severity.INFO


def _ruled_out(window: Window) -> str:
    return "fabric errors" if window.latest(FabricPort) else ""


@detector(
    thresholds=(LOST, ERRORS),
    title="fabric errors",
    story="The cluster fabric failed",
    lanes=("events", "tcp"),
    about=("port",),
    answers={"job": 10},
    ruled_out=_ruled_out,
    advice=look(
        f"grep . {_PATH}/*/ports/*/{{counters,hw_counters}}/*err*", "see whether the errors go on"
    ),
)
def detect(window: Window) -> Finding:
    """Which port failed, how often, and when."""
    if not window.read(FabricPort):
        state = window.why_missing(FabricPort)
        if state.state == "absent" and state.path:
            return not_applicable(NAME, state.detail or "no InfiniBand or EFA device here")
        lacking = unrecorded(window, FabricPort)
        return unknown(NAME, "the fabric's counters were not read", (lacking,))
    steps = steps_of(window.columns(FabricCounter, ("value",)))
    down = _down(window)
    if not len(steps.end) and not down:
        lacking = Missing("two readings of the fabric's counters", "sexton diagnose --seconds 15")
        return unknown(NAME, "one reading does not show what was lost when", (lacking,))
    found = sorted(_moved(steps), key=lambda item: (-item.severity.rank, -item.number, item.port))
    if found or down:
        return _failed(window, found, down)
    ports = window.latest(FabricPort) or ()
    active = sum(row.state == "ACTIVE" for row in ports)
    when = f"in {duration(window.seconds)}"
    why = "they came before the window"
    none = Evidence("errors of fabric ports", "0", "0", when, _PATH, 0.0, why)
    return absent(NAME, f"0 errors {when}; {active} of {count(len(ports), 'port')} active", [none])


def _moved(steps: Steps) -> list[_Moved]:
    found = []
    for (device, port, name), mine in zip(steps.things, steps.moved["value"], strict=True):
        places = np.flatnonzero(np.nan_to_num(mine) > 0)
        if len(places):
            found.append(
                _Moved(
                    f"{device}:{port}",
                    str(name),
                    float(np.nansum(mine)),
                    float(steps.start[places[0]]),
                    float(steps.end[places[-1]]),
                )
            )
    return found


def _down(window: Window) -> dict[str, str]:
    """Ports that were ACTIVE in this window and are not now, with their state."""
    was = {
        f"{row.device}:{row.port}"
        for row in window.changes(FabricPort, ("state",))
        if row.state == "ACTIVE"
    }
    now = {f"{row.device}:{row.port}": row.state for row in window.latest(FabricPort) or ()}
    return {port: state for port, state in now.items() if port in was and state != "ACTIVE"}


def _failed(window: Window, found: Sequence[_Moved], down: dict[str, str]) -> Finding:
    severity = Severity.CRITICAL if down else found[0].severity
    shown = [item for item in found if item.severity is severity]
    ports = names([*down, *(item.port for item in shown)])
    if down:
        port, state = next(iter(down.items()))
        text = f"fabric port {port} is {state}"
    else:
        worst = found[0]
        times = f"{worst.number:,.0f} × {worst.name}"
        text = f"fabric port {worst.port}: {times} in {duration(window.seconds)}"
    return Finding(
        NAME,
        Verdict.PRESENT,
        severity,
        text + and_more(ports, "port"),
        entities={"port": ports},
        start=window.wall(min((item.start for item in shown), default=window.start_mono)),
        end=window.wall(max((item.end for item in shown), default=window.end_mono)),
        evidence=(
            *(
                Evidence(
                    f"state of {port}", state, "ACTIVE", "state", f"{_PATH}/*/ports/*/state",
                    None, "someone took it down on purpose",
                )
                for port, state in list(down.items())[:_SHOWN]
            ),
            *(
                Evidence(
                    f"{item.port}, {item.name}", f"{item.number:,.0f}", "0",
                    f"in {duration(window.seconds)}", _PATH, item.number,
                    "the switch was restarted, or the program was not ready to receive",
                )
                for item in found[:_SHOWN]
            ),
        ),
    )  # fmt: skip
