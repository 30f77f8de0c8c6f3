"""The audit, as two rules need it."""

from __future__ import annotations

from sexton.errors import SourceError
from sexton.model.audit import Audit
from sexton.model.finding import Missing
from sexton.model.unit import ServiceManager
from sexton.prevent.gate.model import Checked, Place


def audited(place: Place) -> Audit | Checked:
    """The audit, or why there is none."""
    try:
        found = place.audit
    except SourceError as error:
        return Checked(missing=(Missing(str(error), error.grant or "sudo sexton gate"),))
    if found.told:
        return found
    why = next(iter((*found.unseen, *found.notes)), "its units could not be listed")
    if not inside_a_container(place) and manager(place) not in (None, "systemd"):
        return Checked(not_applicable=f"no systemd runs here: {why}")
    return Checked(missing=(Missing(why, "sudo sexton gate  # on the node itself"),))


def manager(place: Place) -> str | None:
    """Who starts services here; `None` where nothing told."""
    rows = None if place.window is None else place.window.latest(ServiceManager)
    return rows[0].name if rows else None


def inside_a_container(place: Place) -> bool:
    """Then what runs here is not what runs on the node."""
    node = None if place.window is None else place.window.node
    return node is not None and bool(node.container)
