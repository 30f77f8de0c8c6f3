"""The driver's watchdog waits for the poll, times out and resets the device.

**Rule.** The same NIC (and the same queue, if both name one). *Proven*: a reset follows the
starved poll within 30 s of its end, or the driver's own reset reason says poll starvation.
*Likely*: the same queue at another time. *Possible*: only the same NIC.

**Evidence against.** Counters of the interface that point elsewhere, if they are not zero:
`wd_expired` (keep-alive), `missing_intr`.
"""

from __future__ import annotations

from sexton.detect.detectors.network.nic_resets import reset_times
from sexton.detect.nics import counters
from sexton.detect.resets import CAUSES
from sexton.explain.order import READ_S
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Finding
from sexton.model.text import printable
from sexton.model.window import Window

FOLLOWS_WITHIN_S = 30.0
_ELSEWHERE = ("wd_expired", "missing_intr")


@link(
    cause="starved_napi",
    effect="nic_resets",
    story="the driver stopped waiting",
    proof="the driver's own reason for the reset (ethtool -S, suspected_poll_starvation)",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The same NIC, better the same queue, best the same half minute."""
    nics = cause.shares(effect, "nic")
    queues = cause.shares(effect, "queue")
    if not nics and not queues:
        return None
    stated = any("starvation" in evidence.what and evidence.number for evidence in effect.evidence)
    if stated or _follows(cause, effect, window):
        strength = Strength.PROVEN
    else:
        strength = Strength.LIKELY if queues else Strength.POSSIBLE
    what = queues[0] if queues else nics[0]
    return Bond(
        strength,
        f"{what}: the driver stopped waiting for its poll",
        shared=queues or nics,
        against=_elsewhere(effect, window),
    )


def _follows(starved: Finding, reset: Finding, window: Window) -> bool:
    """Was there a reset while the poll waited, or soon after? One before it has another cause."""
    if starved.start is None:
        return False
    first, last = starved.start - READ_S, (starved.end or starved.start) + FOLLOWS_WITHIN_S
    return any(first <= moment <= last for moment in reset_times(reset, window))


def _elsewhere(reset: Finding, window: Window) -> tuple[str, ...]:
    nics = reset.entities.get("nic", ())
    return tuple(
        f"{counter.nic} {counter.name} {counter.value:,}: {CAUSES[counter.name]}"
        for counter in counters(window, _ELSEWHERE)
        if counter.value and printable(counter.nic) in nics
    )
