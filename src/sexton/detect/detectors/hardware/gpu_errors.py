"""A GPU failed, or what ran on it was stopped.

**What is seen.** Lines of the GPU drivers in the kernel log: NVIDIA's Xid numbers with the GPU's
PCI address and the process (48 and 95: memory errors; 74 and 144 to 150: NVLink; 79: fallen off the
bus; 119: its firmware does not answer), GPUs that the driver cannot start (``RmInitAdapter
failed!``), SXid of NVSwitch, and resets and uncorrectable errors of amdgpu. The model comes from
`/proc/driver/nvidia`. The card itself is not queried: `nvidia-smi` hangs with a card that does not
answer.

**Why it hurts.** A GPU that fails ends the process that uses it and, with NCCL, the job on all
other nodes, which report a time-out or a lost peer. Some GPUs need a reset, some a reboot, and
until then every job that is placed here fails.

**What would make it wrong.** Xid 13, 31, 43 and 45 are usually the program's own fault (an illegal
address, an exit while work was queued) and only notes here; many GPUs with the same Xid 31 at once
point at the program, one GPU again and again at the card. One hardware fault causes others: after
74 or 79 come 45 and 43 of every process. A manual GPU reset is logged, too. A driver that does not
fit the card or its firmware cannot start it either.

**Check by hand.** ``dmesg -T | grep -E 'NVRM|SXid|amdgpu'``; ``nvidia-smi -q`` (it may hang);
``lspci -s BUS -vv | grep LnkSta``; ``dcgmi diag -r 3`` on an idle node.

**What to do.** 63: nothing, the memory was repaired. 94: restart the program. For the rest drain
the node. 48, 64, 95: reset the GPU, and replace it if it returns or row remapping failed. 74, and
144 to 150 where the line says Fatal: reseat or replace (NVLink), look at NVSwitch. 79: reboot, then
look at power, PCIe and heat. 119, 120: reset the GPU or reboot, and update the driver.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from sexton.detect import kernel_log
from sexton.detect.faults import Fault, Judged, Report, faults, none_logged, present
from sexton.detect.findings import and_more, names, not_applicable, unknown
from sexton.detect.kernel_log import DAY_S, Line
from sexton.detect.registry import READS, Advice, Stage, Threshold, detector
from sexton.model.diagnosis import Step
from sexton.model.finding import Finding, Severity
from sexton.model.rows.hardware import Gpu
from sexton.model.window import Window

NAME = "gpu_errors"
FAMILIES = ("gpu",)

RECENT = Threshold("recent", DAY_S, "s", "a GPU that failed today fails the next job as well")


class Meaning(NamedTuple):
    """What an Xid means, and how grave it is."""

    words: str
    severity: Severity


_APP = _NOTE = Severity.INFO
_WARN, _HARD = Severity.WARNING, Severity.CRITICAL
#: Checked against the driver's nverror.h and NVIDIA's catalogue of Xid errors, which says for each
#: what to do: ignore it, restart the program, reset the GPU, or restart the node.
XIDS = {
    8: Meaning("GPU stopped processing", _WARN),
    13: Meaning("graphics engine exception (usually the program's fault)", _APP),
    31: Meaning("memory page fault (usually the program's fault)", _APP),
    32: Meaning("corrupted push buffer", _WARN),
    38: Meaning("driver firmware error", _WARN),
    43: Meaning("the program's work was stopped", _APP),
    45: Meaning("the program's channels were cleaned up", _APP),
    48: Meaning("uncorrectable memory error (double-bit ECC)", _HARD),
    61: Meaning("internal micro-controller breakpoint", _WARN),
    62: Meaning("internal micro-controller halt", _HARD),
    63: Meaning("memory row remapped or page retired: repaired", _NOTE),
    64: Meaning("memory row remapping failed", _HARD),
    68: Meaning("video processor exception", _APP),
    69: Meaning("graphics engine class error", _APP),
    74: Meaning("NVLink error", _HARD),
    79: Meaning("GPU fell off the bus", _HARD),
    92: Meaning("many corrected memory errors", _WARN),
    94: Meaning("contained memory error: one program is affected", _WARN),
    95: Meaning("uncontained memory error", _HARD),
    109: Meaning("context switch timed out", _WARN),
    119: Meaning("GPU firmware (GSP) did not answer", _HARD),
    120: Meaning("GPU firmware (GSP) error", _HARD),
    121: Meaning("chip-to-chip link error, corrected", _NOTE),
    137: Meaning("NVLink access fault (usually the program's fault)", _APP),
    140: Meaning("unrecovered memory error", _HARD),
    143: Meaning("GPU initialisation failed", _HARD),
    154: Meaning("GPU needs a reset, a drain or a reboot", _WARN),
}


#: NVLink from Blackwell on: a number for each part (SAW, RLW, TLW, TREX, NVLPW, NETIR, MSE). How
#: grave it is stands in the line: the driver retries what is not fatal.
_NVLINK_5 = range(144, 151)
_NVLINK_NOTED = Meaning("NVLink error, not fatal", _WARN)
#: Begins what is said of an NVSwitch, which is not a GPU.
_SWITCH = "NVSwitch "
_FATAL = re.compile(r"\bFatal\b")
#: The driver says what the GPU needs from now on; "None" after a reset that helped.
_RECOVERY = 154
_NEEDS = re.compile(r" to 0x[0-9a-f]{1,4} \(([\w ]{1,40})\)")
_NEEDED = {
    "None": "needs no recovery any more",
    "GPU Reset Required": "needs a reset",
    "Node Reboot Required": "needs a reboot of the node",
    "Drain P2P": "must have no more peer-to-peer work",
    "Drain and Reset": "must be drained and reset",
}


def _ruled_out(window: Window) -> str:
    return "GPU errors" if window.latest(Gpu) else ""


def _look(finding: Finding, _window: Window) -> list[Step]:
    bus = next(iter(finding.entities.get("gpu", ())), "")
    command = "dmesg -T | grep -E 'NVRM|SXid|amdgpu'"
    return [Step(command, f"see everything the driver logged about {bus or 'the GPUs'}", READS)]


@detector(
    thresholds=(RECENT,),
    title="GPU errors",
    story="A GPU failed",
    lanes=("events",),
    about=("gpu", "task"),
    answers={"job": 5, "task": 9},
    events=FAMILIES,
    ruled_out=_ruled_out,
    advice=Advice(Stage.LOOK, _look),
)
def detect(window: Window) -> Finding:
    """Which GPUs failed, how, and in which process."""
    lines = kernel_log.lines(window, FAMILIES)
    logged = faults(window, lines, _judged, RECENT.value)
    if logged:
        return _failed(window, logged)
    gpus = window.latest(Gpu)
    if gpus is not None and not gpus:
        return not_applicable(NAME, "no GPU driver here")
    if not kernel_log.was_read(window):
        return unknown(NAME, "GPU driver messages were not read", kernel_log.lacking(window))
    return none_logged(NAME, "GPU errors", window)


def _judged(line: Line) -> Judged | None:
    bus = _bus(line.text("bus") or "?")
    xid, sxid = line.number("xid"), line.number("sxid")
    if xid is not None:
        meaning = XIDS.get(xid, Meaning("not in our list", _WARN))
        if xid in _NVLINK_5:
            fatal = _FATAL.search(line.text("error") or "") is not None
            meaning = Meaning("fatal NVLink error", _HARD) if fatal else _NVLINK_NOTED
        needs = _NEEDS.search(line.text("error") or "") if xid == _RECOVERY else None
        if needs is not None:
            words = _NEEDED.get(needs[1], f"needs: {needs[1]}")
            meaning = Meaning(f"the GPU {words}", _NOTE if needs[1] == "None" else _WARN)
        return Judged(bus, f"Xid {xid}, {meaning.words}", meaning.severity)
    if sxid is not None:
        fatal = line.text("level") == "Fatal"
        grave = "fatal" if fatal else "not fatal"
        return Judged(bus, f"{_SWITCH}SXid {sxid}, {grave}", _HARD if fatal else _APP)
    if line.number("count") == 0:
        return None
    return Judged(bus, line.text("error") or "uncorrectable memory errors", _HARD)


def _bus(address: str) -> str:
    """Without the function, which some lines leave out."""
    return address.partition(".")[0].lower()


def _failed(window: Window, logged: Sequence[Fault]) -> Finding:
    worst = logged[0]
    shown = [fault for fault in logged if fault.severity is worst.severity]
    models = {_bus(row.bus): row.model for row in window.latest(Gpu) or ()}
    gpus = names(fault.thing for fault in shown)
    model = f" ({models[worst.thing]})" if models.get(worst.thing) else ""
    task = next(iter(_tasks([worst])), None)
    by = f" in {task}" if task is not None else ""
    is_switch = worst.what.startswith(_SWITCH)
    report = Report(
        f"{_SWITCH if is_switch else 'GPU '}{worst.thing}{model}:"
        f" {worst.what.removeprefix(_SWITCH)}{by}, {worst.when}{worst.times}"
        + and_more(gpus, "device" if is_switch else "GPU"),
        {"gpu": gpus, "task": _tasks(shown)},
        "someone reset the GPU, or the program caused it",
    )
    return present(NAME, logged, window, report)


def _tasks(found: Sequence[Fault]) -> tuple[str, ...]:
    return names(
        f"{line.text('comm')}[{line.number('pid')}]"
        for fault in found
        for line in reversed(fault.lines)
        if line.number("pid") and line.text("comm") not in (None, "<unknown>")
    )
