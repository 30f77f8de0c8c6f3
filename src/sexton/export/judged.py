"""Metrics of the verdict: findings, chains, and numbers that need minutes to be known."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from sexton.detect import kernel_log, nics, resets
from sexton.detect.cpu_users import blame
from sexton.detect.detectors.cgroups import zombie_memcgs
from sexton.detect.detectors.cpu import saturated_core
from sexton.detect.detectors.cpu.quota_throttling import stopped
from sexton.detect.growth import latest_count
from sexton.detect.leak import leak
from sexton.detect.owners import owners
from sexton.detect.registry import title_of
from sexton.export import families as f
from sexton.export.samples import Samples
from sexton.model.chain import Chain
from sexton.model.diagnosis import Diagnosis
from sexton.model.finding import Finding, Verdict
from sexton.model.rows.cgroup import CgroupThrottle
from sexton.model.rows.cpu import CoreTimes
from sexton.model.window import Window
from sexton.series import paging
from sexton.series.cores import Hold

OTHER = "other"
#: What names the culprit at the root of a chain, the most specific first.
_CULPRITS = ("container", "pod", "unit", "cgroup", "task", "nic", "job", "core")
_PID = re.compile(r"\[[0-9]+\]$")


def judged(window: Window, diagnosis: Diagnosis) -> Samples:
    """The verdict on a window as metrics."""
    samples = Samples()
    samples.add(f.VERDICT, int(diagnosis.exit))
    samples.add(f.VERDICT_TIME, diagnosis.end)
    samples.add(f.VERDICT_WINDOW, window.seconds)
    _findings(samples, diagnosis)
    _chains(samples, diagnosis)
    _memcgs(samples, window, diagnosis.by_id)
    _held_cores(samples, window)
    _reclaim(samples, window)
    _resets(samples, window)
    _throttled(samples, window)
    return samples


def _findings(samples: Samples, diagnosis: Diagnosis) -> None:
    effects = {link.effect for chain in diagnosis.chains for link in chain.links}
    unknown = 0
    for finding in diagnosis.findings:
        if finding.verdict is Verdict.PRESENT:
            severity = "info" if finding.silenced is not None else finding.severity.value
            samples.add(f.FINDING, 1, finding.id, severity)
            if finding.is_problem:
                samples.add(f.EXPLAINED, int(finding.id in effects), finding.id)
        elif finding.verdict is Verdict.ABSENT:
            samples.add(f.FINDING, 0, finding.id, "")
        else:
            unknown += finding.verdict is Verdict.UNKNOWN
    samples.add(f.UNKNOWN, unknown)


def _chains(samples: Samples, diagnosis: Diagnosis) -> None:
    for chain in diagnosis.chains:
        root = diagnosis.by_id[chain.root]
        samples.add(f.CHAIN, 1, chain.root, chain.symptom, chain.strength.value)
        words = chain.root, chain.symptom, sentence(chain, root), culprit(root)
        samples.add(f.CHAIN_INFO, 1, *words)


def sentence(chain: Chain, root: Finding) -> str:
    """A chain in words that do not change with every reading: a label must not."""
    first, *others = (title_of(name) for name in chain.findings)
    return " → ".join([f"{first} {culprit(root)}".strip(), *others])


def culprit(root: Finding) -> str:
    """The unit, cgroup or task at the root of a chain; "" if it names none."""
    return named_culprit(root)[1]


def named_culprit(root: Finding) -> tuple[str, str]:
    """The same with its kind. A task has no process ID here: one that dies and is started again
    would be another incident each time."""
    for kind in _CULPRITS:
        for name in root.entities.get(kind, ())[:1]:
            return kind, _PID.sub("", name) if kind == "task" else name
    return "", ""


def _memcgs(samples: Samples, window: Window, findings: Mapping[str, Finding]) -> None:
    if findings[zombie_memcgs.NAME].verdict in (Verdict.UNKNOWN, Verdict.NOT_APPLICABLE):
        return
    found = leak(window)
    samples.add(f.LEAK, found.per_second if found is not None else 0.0)
    census = latest_count(window)
    counted = [owner for owner in owners(window) if owner.dying and owner.called != OTHER]
    listed = _numbered((owner.called, owner.dying or 0) for owner in counted)[: f.OWNERS.most - 1]
    for name, number in listed:
        samples.add(f.OWNERS, number, name)
    if census is not None and census.dying is not None:
        rest = census.dying - sum(number for _, number in listed)
        samples.add(f.OWNERS, max(rest, 0), OTHER)


def _numbered(pairs: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    """Added up by name, the largest first."""
    sums: dict[str, int] = {}
    for name, number in pairs:
        sums[name] = sums.get(name, 0) + number
    return sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))


def _held_cores(samples: Samples, window: Window) -> None:
    if not window.read(CoreTimes):
        return
    longest: dict[int, Hold] = {}
    for hold in sorted(saturated_core.holds(window), key=lambda hold: -hold.seconds):
        longest.setdefault(hold.core, hold)
    blamed = blame(longest, window)
    for core, hold in longest.items():
        task = blamed[core].thread.comm if core in blamed else ""
        samples.add(f.HELD_CORE, hold.seconds, str(core), task)


def _reclaim(samples: Samples, window: Window) -> None:
    moved = paging.whole(window)
    samples.add(f.RECLAIM_RATIO, moved.tasks_share if moved is not None else None)


def _resets(samples: Samples, window: Window) -> None:
    """Counted with the verdict: it reads the whole kernel log. A reset raises an alarm, and the
    verdict is then made at once."""
    if resets.in_window(window) is None:
        return
    found = resets.by_nic(window)
    if kernel_log.was_read(window):  # so that the first reset is an increase, too
        found = {**dict.fromkeys(nics.physical(window) or (), 0), **found}
    for nic in sorted(found, key=lambda name: (-found[name], name)):
        samples.add(f.NIC_RESETS, found[nic], nic)


def _throttled(samples: Samples, window: Window) -> None:
    if not window.read(CgroupThrottle):
        return
    found = stopped(window)
    worst = sorted(found.us.items(), key=lambda pair: (-pair[1], pair[0]))
    for path, us in worst[: f.THROTTLED.most]:
        if us:
            samples.add(f.THROTTLED, found.ratio(path), path)
