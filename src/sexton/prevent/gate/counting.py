"""The node's count of memory cgroups, as two rules need it."""

from __future__ import annotations

from sexton.detect.registry import missing
from sexton.model.cgroup import CgroupCensus
from sexton.model.finding import Missing
from sexton.prevent.gate.model import Checked, Place

UNBOOTED = "nothing runs in an image that was not booted; gate a booted instance of it as well"
_ON_THE_NODE = "sudo sexton gate  # on the node itself, not in a container"


def counts(place: Place) -> tuple[CgroupCensus, ...] | Checked:
    """Every node-wide count of the window, or what to say instead.

    All of them, because a cgroup is "dying" for the few milliseconds an ordinary removal takes:
    a rule judges by the lowest.
    """
    if not place.booted or place.window is None:
        return Checked(not_applicable=UNBOOTED)
    batches = place.window.batches(CgroupCensus)
    if batches is None:
        lack = missing(place.window.why_missing(CgroupCensus))
        grant = lack.grant.replace("sexton diagnose", "sexton gate")
        return Checked(missing=(Missing(lack.what, grant),))
    rows = tuple(row for batch in batches for row in batch.rows)
    whole = tuple(row for row in rows if row.scope == "node" and row.total is not None)
    if whole:
        return whole
    reason = next((row.reason for row in rows if row.reason), "the count was not to be had")
    return Checked(missing=(Missing(reason, _ON_THE_NODE),))


def where(census: CgroupCensus) -> str:
    """The file the number was read from."""
    if census.method.startswith("cgroup.stat") and census.mount_point:
        return f"{census.mount_point}/cgroup.stat"
    return "/proc/cgroups"
