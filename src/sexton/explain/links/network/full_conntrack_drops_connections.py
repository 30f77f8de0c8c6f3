"""The connection tracking table is full, and the kernel drops packets that need a new entry.

**Rule.** The loss begins while the table was full, or within 30 s of it. *Proven*: the
kernel's log or its counter shows packets dropped for it. *Likely*: only the cloud's allowance was
exceeded (the hypervisor drops unseen). *Possible*: the table was full, and nothing counts drops.

**Evidence against.** No new connection failed in that time: a full table refuses new ones and
keeps the old.
"""

from __future__ import annotations

from sexton.explain.links.network.nic_reset_drops_connections import counted
from sexton.explain.order import near, when
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.finding import Evidence, Finding
from sexton.model.window import Window

FOLLOWS_WITHIN_S = 30.0
#: The driver's counter of what the hypervisor dropped.
_ALLOWANCE = "allowance"


@link(
    cause="conntrack_full",
    effect="tcp_loss",
    story="packets of new connections were dropped because the table was full",
    proof="the kernel's log and /proc/net/stat/nf_conntrack, which count the drops",
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """Full, and dropping, in the time of the loss."""
    if not near(cause, effect, FOLLOWS_WITHIN_S):
        return None
    dropped = [evidence for evidence in cause.evidence if _is_drop(evidence)]
    exceeded = [
        evidence for evidence in cause.evidence if _ALLOWANCE in evidence.what and evidence.number
    ]
    if dropped:
        strength, why = Strength.PROVEN, f"{dropped[0].what}: {dropped[0].value}"
    elif exceeded:
        strength, why = Strength.LIKELY, f"{exceeded[0].what}: {exceeded[0].value}"
    else:
        strength, why = Strength.POSSIBLE, f"full, loss {when(cause, effect)}; no drop was counted"
    return Bond(
        strength,
        why,
        shared=cause.entities.get("nic", ()),
        evidence=tuple(dropped[:1] or exceeded[:1]),
        against=_none_refused(effect, window),
    )


def _is_drop(evidence: Evidence) -> bool:
    """Counted, or in the kernel's own words ("table full, dropping packet")."""
    return ("dropped" in evidence.what and bool(evidence.number)) or "dropping" in evidence.value


def _none_refused(loss: Finding, window: Window) -> tuple[str, ...]:
    if loss.start is None:
        return ()
    span = (loss.start, loss.end or loss.start)
    failed = counted(window, span, ("attempt_fails",))
    if failed is None or failed or counted(window, span, ("syn_retransmits",)):
        return ()
    return ("no new connection failed in that time",)
