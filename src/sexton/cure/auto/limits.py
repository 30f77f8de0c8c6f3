"""What must be so before a node acts: the kill switch, the pool's budget, the zones, the clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from sexton.cure.auto.policy import Named, Pool
from sexton.cure.nodes import TAINT, ZONE, Cluster, is_cordoned, metadata, part, taints
from sexton.errors import SourceAbsent, SourceError
from sexton.model.text import count, printable
from sexton.model.text import seconds as duration

#: A label on a Node, and a key of the ConfigMap: any value but these stops everything.
SWITCH, LABEL = "stop", "sexton.dev/fix-stop"
_OFF = ("", "false", "no", "0")
#: Date has whole seconds, and an answer takes some time.
CLOCK_S = 30.0


def thrown(cluster: Cluster, named: Named, node: str) -> str:
    """Why the kill switch forbids to go on; empty if it does not. One that cannot be read does."""
    where = f"{named.namespace}/{named.name}"
    path = f"/api/v1/namespaces/{quote(named.namespace)}/configmaps/{quote(named.name)}"
    try:
        switch = cluster.read(path, f"ConfigMap {where}")
        labels = part(cluster.node(node), "metadata", "labels")
    except SourceAbsent as error:
        return f"the kill switch is not there: {error.detail}"
    except SourceError as error:
        return f"the kill switch cannot be read: {error.detail}"
    value = part(switch, "data").get(SWITCH, "")
    if not isinstance(value, str) or value.strip().lower() not in _OFF:
        return f"the kill switch is on: {SWITCH} in ConfigMap {where}"
    if str(labels.get(LABEL, "")).lower() not in _OFF:
        return f"the kill switch is on: label {LABEL} of Node {printable(node)}"
    return ""


def clock_wrong(cluster: Cluster) -> str:
    """Why times cannot be compared; as of the server's last answer."""
    if cluster.ahead_s is None:
        return "the API server does not give its time"
    if abs(cluster.ahead_s) > CLOCK_S:
        side = "behind" if cluster.ahead_s > 0 else "ahead of"
        return f"this clock is {duration(abs(cluster.ahead_s))} {side} the API server's"
    return ""


def over_budget(cluster: Cluster, pool: Pool, node: str) -> str:
    """Why one more node of the pool must not be out of service; empty if it may."""
    nodes = cluster.listed("/api/v1/nodes", "nodes", labelSelector=pool.selector)
    return why_over(nodes, pool, node)


def out_of_service(node: Mapping[str, Any]) -> str:
    """Why a Node takes no pods, or is being fixed; empty if it serves."""
    if is_cordoned(node):
        return "cordoned"
    if any(taint.get("key") == TAINT["key"] for taint in taints(node)):
        return "being fixed"
    conditions = part(node, "status").get("conditions")
    ready = [
        each.get("status")
        for each in (conditions if isinstance(conditions, list) else ())
        if isinstance(each, dict) and each.get("type") == "Ready"
    ]
    return "" if ready == ["True"] else "not ready"


def why_over(nodes: Sequence[Mapping[str, Any]], pool: Pool, name: str) -> str:
    """The same, for the nodes of a pool.

    >>> node = {"metadata": {"name": "a"}, "status": {"conditions":
    ...         [{"type": "Ready", "status": "True"}]}}
    >>> why_over([node], Pool("x", max_percent=50), "a")
    '50 % of 1 node is none'
    """
    by_name = {metadata(node, "name"): node for node in nodes}
    own = by_name.pop(name, None)
    if own is None:
        return f"this Node is not in the pool {pool.selector}"
    if why := out_of_service(own):
        return f"this Node is {why} already"
    out = {other: why for other, node in by_name.items() if (why := out_of_service(node))}
    total = len(nodes)
    if pool.max_percent is not None:
        most = total * pool.max_percent // 100
        if most == 0:
            return f"{pool.max_percent} % of {count(total, 'node')} is none"
        if len(out) >= most:
            return f"{_named(out)}: {pool.max_percent} % of {total} allows {most}"
    if pool.max_nodes is not None and len(out) >= pool.max_nodes:
        return f"{_named(out)}: max_nodes is {pool.max_nodes}"
    if not pool.one_per_zone:
        return ""
    zone = _zone(own)
    if not zone:
        return f"its zone is not known: no label {ZONE}"
    there = {other: why for other, why in out.items() if _zone(by_name[other]) in (zone, "")}
    return f"one per zone, and in {printable(zone)} {_named(there)}" if there else ""


def _zone(node: Mapping[str, Any]) -> str:
    return str(part(node, "metadata", "labels").get(ZONE, ""))


def _named(out: Mapping[str, str]) -> str:
    shown = [f"{printable(name)} ({why})" for name, why in sorted(out.items())[:3]]
    more = f" and {len(out) - 3} more" if len(out) > 3 else ""
    return f"{count(len(out), 'node')} out of service: {', '.join(shown)}{more}"
