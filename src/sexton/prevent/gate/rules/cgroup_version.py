"""The node runs the cgroup version that is required of it.

``require`` is "any" (said, never failed), "v1" or "v2", and means where *memory* is accounted: a
hybrid node is on v1. On a booted node it is what is mounted. In an image it is what the next boot
will do: the kernel command line in its boot configuration, else the default its distribution ships;
a distribution that is not in the list is *unknown*, never guessed.
"""

from __future__ import annotations

from sexton.errors import SourceError
from sexton.model.finding import Missing
from sexton.prevent.gate.hierarchy import Expected, expected
from sexton.prevent.gate.model import Checked, Place, Settings, Violation
from sexton.sources.cgroupfs.layout import read_layout

_CMDLINE = {
    "v2": "systemd.unified_cgroup_hierarchy=1",
    "v1": "systemd.unified_cgroup_hierarchy=0",
}


def check(place: Place, settings: Settings) -> Checked:
    wanted = settings["require"]
    found = _found(place)
    if isinstance(found, Missing):
        if wanted == "any":
            return Checked(f"none is required; which one it is could not be told: {found.what}")
        return Checked(missing=(found,))
    said = f"{found.version} ({found.why})"
    if wanted in ("any", found.version):
        return Checked(f"{said}; required: {wanted}")
    broken = Violation(
        "node",
        f"cgroup {said}, where the policy requires {wanted}",
        found.path,
        found.line,
        remedy=f"boot with {_CMDLINE[wanted]} on the kernel command line",
    )
    return Checked(said, (broken,))


def _found(place: Place) -> Expected | Missing:
    if not place.booted:
        return expected(place.host.files, place.os_release)
    try:
        layout = read_layout(place.host)
    except SourceError as error:
        return Missing(str(error), "sudo sexton gate  # on the node itself")
    if layout.version is None:
        return Missing(layout.reason or "no cgroup hierarchy is mounted here", layout.advice)
    how = "hybrid, memory on v1" if layout.hierarchy == "hybrid" else "as mounted"
    return Expected(f"v{layout.version}", how, f"{place.host.self_dir}/mountinfo")
