"""The scrape targets of one node: its node_exporter, and its kubelet.

A node is found by any name that Prometheus has for it: `instance` with or without port, `nodename`
of `node_uname_info`, or a label that service discovery added. The labels of its target then select
its series, so that two jobs that scrape the same exporter are not mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import NamedTuple

from sexton.errors import SourceAbsent, SourceError
from sexton.model.text import clock, day, printable, shorten
from sexton.replay.prometheus.client import Client, Labels, matching

#: A metric that every exporter of this kind has once, and the labels that it adds to its target's.
_NODE_METRICS = "node_uname_info|node_boot_time_seconds"
_UNAME = ("domainname", "machine", "nodename", "release", "sysname", "version")
#: An exporter restarted in another pod goes on with the same counters: they are the node's.
_POD = "pod"
_KUBELET_METRIC = "machine_cpu_cores"
_MACHINE = ("boot_id", "machine_id", "system_uuid")
#: Labels that name a node; `instance` counts without its port, too.
NAMING = (
    "nodename", "instance", "node", "kubernetes_node", "node_name", "hostname", "host",
    "kubernetes_io_hostname",
)  # fmt: skip
#: Names in a message, and names that another is compared with.
_SHOWN, _COMPARED = 5, 5000


class Target(NamedTuple):
    """What one exporter's series have in common, and the names of its node."""

    labels: Labels
    names: frozenset[str]


class Node(NamedTuple):
    """The targets of one node; `notes` are for readers of the verdict. `kernel` is "" if it is
    unknown."""

    exporter: Target | None
    kubelet: Target | None
    hostname: str
    kernel: str
    notes: tuple[str, ...]


def find_node(client: Client, name: str, start: float, end: float) -> Node:
    """The node of this name; `SourceError` if there is none, or more than one."""
    identities = client.series(matching({}, _NODE_METRICS), start, end)
    exporters = _targets(identities, (*_UNAME, _POD))
    kubelets = _targets(client.series(matching({}, _KUBELET_METRIC), start, end), _MACHINE)
    mine = [target for target in exporters if name in target.names]
    exporter = _only(client.url, name, mine)
    # A kubelet may be known by the other names of its node.
    known = {name} | (exporter.names if exporter is not None else set())
    hers = [target for target in kubelets if known & target.names]
    kubelet = _only(client.url, name, hers)
    if exporter is None and kubelet is None:
        between = f"from {day(start)} {clock(start)} to {day(end)} {clock(end)} UTC"
        raise _unknown(client.url, name, (*exporters, *kubelets), between)
    about = _about(identities, exporter)
    notes = [
        f"{len(found)} jobs scrape its {what}; judged by job {printable(one.labels.get('job', ''))}"
        for what, found, one in (("node_exporter", mine, exporter), ("kubelet", hers, kubelet))
        if len(found) > 1 and one is not None
    ]
    hostname = about.get("nodename") or name
    return Node(exporter, kubelet, hostname, about.get("release", ""), tuple(notes))


def _targets(found: Iterable[Labels], added: Sequence[str]) -> list[Target]:
    names: dict[tuple[tuple[str, str], ...], set[str]] = {}
    for labels in found:
        common = {
            key: value for key, value in labels.items() if key not in added and key != "__name__"
        }
        place = tuple(sorted(common.items()))
        names.setdefault(place, set()).update(_names(labels))
    return [Target(dict(place), frozenset(mine)) for place, mine in sorted(names.items())]


def _names(labels: Labels) -> Iterator[str]:
    for label in NAMING:
        value = labels.get(label)
        if value:
            yield value
            if label == "instance":
                yield without_port(value)


def without_port(instance: str) -> str:
    """
    >>> [*map(without_port, ("n1:9100", "[fd00::1]:9100", "fd00::1", "n1"))]
    ['n1', 'fd00::1', 'fd00::1', 'n1']
    """
    if instance.startswith("["):
        return instance[1:].partition("]")[0]
    host, colon, _ = instance.rpartition(":")
    return host if colon and ":" not in host else instance


def _only(url: str, name: str, found: Sequence[Target]) -> Target | None:
    """One of the targets that differ only in how they are scraped; `SourceError` if they are of
    several nodes."""
    if len({_identity(target.labels) for target in found}) > 1:
        shown = "; ".join(sorted(shorten(_told_apart(target, found), 60) for target in found[:3]))
        raise SourceError(url, f"{len(found)} nodes match {name!r}: use a name of one: {shown}")
    return found[0] if found else None


def _identity(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The labels without those of the scrape job; all that tells nodes and clusters apart."""
    scrape = ("job", "metrics_path", "endpoint", "service", "container", _POD, "prometheus")
    return tuple(sorted(pair for pair in labels.items() if pair[0] not in scrape))


def _told_apart(target: Target, found: Sequence[Target]) -> str:
    """The labels in which this target differs from others."""
    return ", ".join(
        f"{name}={printable(value)}"
        for name, value in target.labels.items()
        if any(other.labels.get(name) != value for other in found)
    )


def _about(identities: Iterable[Labels], exporter: Target | None) -> Labels:
    """`node_uname_info` of a target."""
    if exporter is None:
        return {}
    mine = exporter.labels.items()
    return next(
        (labels for labels in identities if "release" in labels and mine <= labels.items()), {}
    )


def _unknown(url: str, name: str, every: Iterable[Target], between: str) -> SourceAbsent:
    names = sorted({known for target in every for known in target.names})
    shown = printable(shorten(name, 60))
    if not names:
        what = f"no node_exporter and no kubelet (cAdvisor) was scraped {between}"
        return SourceAbsent(url, what)
    close = _closest(name[:200], names[:_COMPARED])
    if close is not None:
        hint = f"did you mean {printable(shorten(close, 60))}?"
    else:
        hint = "known: " + ", ".join(printable(shorten(known, 40)) for known in names[:_SHOWN])
        hint += ", …" if len(names) > _SHOWN else ""
    return SourceAbsent(url, f"no node {shown!r} was scraped {between}; {hint}")


def _closest(name: str, names: Sequence[str]) -> str | None:
    """The name that was meant: first the same host with or without its domain, or in other case.

    >>> _closest("N17", ["n1", "n170", "n17.example", "n17.example:9100"])
    'n17.example'
    >>> _closest("n17.example", ["n1", "n17"]), _closest("n71", ["n17"]), _closest("db", ["n17"])
    ('n17', 'n17', None)
    """
    plain = name.lower()
    for known in names:
        other = known.lower()
        if other == plain or other.startswith(f"{plain}.") or plain.startswith(f"{other}."):
            return known
    return next(iter(get_close_matches(name, names, 1, 0.5)), None)
