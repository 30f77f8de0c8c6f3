"""From a diagnosis to a plan: what to do, in which order, and what not to do.

Stop the unit that leaves zombies, make sure nothing starts it again, then free what it left. The
page cache of the whole node is dropped only if allowed; a reboot is only printed. Nothing here
changes anything: it reads the state of units and of running cgroups under the zombies' parents.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from sexton.cure import measures
from sexton.cure.node_plan import NodeView, node_steps
from sexton.cure.preconditions import Probes
from sexton.cure.protected import Rule, why_protected
from sexton.cure.reclaim.collateral import Collateral, read_collateral, refusals
from sexton.cure.reclaim.cost import estimate_cost
from sexton.cure.reclaim.free import reclaim_file
from sexton.cure.remedies import (
    delete_tmpfs_files,
    disable_unit,
    drop_caches,
    mask_unit,
    override_unit,
    reboot_node,
    reclaim_zombies,
    remove_empty_cgroups,
    stop_unit,
)
from sexton.cure.remedies.remove_empty_cgroups import find_empty_cgroups
from sexton.cure.unit_files import enabling_links
from sexton.cure.units import UnitSnapshot, UnitStatus, snapshot_unit
from sexton.detect.detectors.cgroups import (
    cgroup_churn,
    crash_looping_unit,
    leaked_scopes,
    zombie_memcgs,
)
from sexton.detect.detectors.cgroups.cgroup_churn import families
from sexton.detect.detectors.cgroups.zombie_memcgs import SHARE
from sexton.detect.detectors.cpu import saturated_core
from sexton.detect.owners import Owner, owners
from sexton.detect.registry import Treatment, detector_of
from sexton.detect.stems import join
from sexton.errors import CommandError, SourceError
from sexton.host.host import Host
from sexton.host.reader import exists
from sexton.model.audit import Need, Subject
from sexton.model.chain import Strength
from sexton.model.diagnosis import Diagnosis
from sexton.model.finding import Finding
from sexton.model.plan import Plan, Refusal, Step
from sexton.model.rows.memory import VmCounter
from sexton.model.text import count, printable, size
from sexton.model.window import Window

MOST_UNITS = 5
MOST_PARENTS = 3
#: With fewer empty live cgroups a step is not worthwhile.
MANY_EMPTY = 20
COLLATERAL = "--accept-collateral"
CACHES = "--allow-drop-caches"
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """What the user allows and prefers."""

    accept_collateral: bool = False
    allow_drop_caches: bool = False
    override: bool = False
    thorough: bool = False


@dataclass(frozen=True, slots=True)
class PlanContext:
    """The node to plan for; `needs` is the audit result of its units, by name; `node` is what is
    wanted of its Node in a cluster."""

    host: Host
    rules: tuple[Rule, ...] = ()
    options: PlanOptions = PlanOptions()
    needs: Mapping[str, Subject] = field(default_factory=dict)
    node: NodeView = field(default_factory=NodeView)


@dataclass(slots=True)
class _Draft:
    """A plan under construction."""

    context: PlanContext
    probes: Probes
    steps: list[Step] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stopped: dict[str, str] = field(default_factory=dict)

    def next_id(self, word: str) -> str:
        return f"{len(self.steps) + 1}-{word}"


def make_plan(diagnosis: Diagnosis, window: Window, context: PlanContext) -> Plan:
    """The plan for this node; `CommandError` if the diagnosis is of another node or boot."""
    probes = Probes(context.host, context.rules)
    boot_id = probes.read("boot_id")
    _same_boot(diagnosis, boot_id)
    draft = _Draft(context, probes)
    problems = {finding.id: finding for finding in diagnosis.findings if finding.is_problem}
    if problems:
        on_node = node_steps(context.node, boot_id)
        draft.steps += on_node.steps
        draft.refusals += on_node.refusals
        draft.notes += on_node.notes
    for finding in _treated(problems, Treatment.STOP_UNITS):
        _stop_units(draft, finding, _zombie_leaving_units(diagnosis))
    zombies = _treated(problems, Treatment.FREE_ZOMBIES)
    if zombies:
        _free(draft, window, problems)
    if _treated(problems, Treatment.REMOVE_EMPTY):
        _remove_leftovers(draft, needed=leaked_scopes.NAME in problems)
    if zombies:
        if context.options.allow_drop_caches:
            identity = draft.next_id("drop-caches")
            draft.steps.append(drop_caches.propose(identity, _cached(window), probes.dying()))
        _last_resort(draft, diagnosis)
    for name, found in sorted(problems.items()):
        if name == cgroup_churn.NAME and stops_all_churn(window, draft.stopped):
            continue
        check = detector_of(name)
        if check is not None and check.plan_note:
            draft.notes.append(f"{found.summary}: {check.plan_note}")
    saturated = problems.get(saturated_core.NAME)
    cores = [int(name) for name in saturated.entities.get("core", ())] if saturated else []
    measured = measures.measure(window, cores, draft.stopped)
    baseline: dict[str, Any] = {name: round(value, 3) for name, value in measured.items()}
    baseline["cores"] = " ".join(map(str, cores))
    return Plan(
        node=probes.read("hostname"),
        boot_id=boot_id,
        made_unix=round(time.time(), 3),
        evidence_until_unix=round(diagnosis.end, 3),
        diagnosis_root=_root(diagnosis),
        steps=tuple(draft.steps),
        refusals=tuple(draft.refusals),
        notes=tuple(draft.notes),
        baseline=baseline,
    )


def _treated(problems: Mapping[str, Finding], treatment: Treatment) -> list[Finding]:
    """The problems that a part of the plan is for, as their detectors declare."""
    return [
        finding
        for name, finding in problems.items()
        if (check := detector_of(name)) is not None and treatment in check.treatments
    ]


def _same_boot(diagnosis: Diagnosis, boot_id: str) -> None:
    node = diagnosis.node
    if node is None or node.boot_id is None:
        raise CommandError("the diagnosis has no boot ID: cannot make a plan")
    if node.boot_id != boot_id:
        raise CommandError(
            f"the diagnosis is from another node or boot ({printable(node.hostname)}, boot"
            f" {node.boot_id[:8]}; this is boot {boot_id[:8]}): make the plan on that node"
        )


def _root(diagnosis: Diagnosis) -> str:
    """Summary of the root of the best chain, else of the worst finding."""
    if diagnosis.chains:
        return diagnosis.by_id[diagnosis.chains[0].root].summary
    problems = (finding.summary for finding in diagnosis.findings if finding.is_problem)
    return next(problems, "No problem found")


def _zombie_leaving_units(diagnosis: Diagnosis) -> frozenset[str]:
    """Units whose restarts left zombies according to a link of a chain."""
    return frozenset(
        name
        for chain in diagnosis.chains
        for link in chain.links
        if (link.cause, link.effect) == (crash_looping_unit.NAME, zombie_memcgs.NAME)
        for name in link.shared
    )


def _stop_units(draft: _Draft, finding: Finding, leaving: frozenset[str]) -> None:
    """Units that leave zombies, if known; otherwise all that crash-loop."""
    looping = finding.entities.get("unit", ())
    units = [name for name in looping if name in leaving] or list(looping)
    for name in looping:
        if name not in units:
            draft.notes.append(
                f"{name} crash-loops too, but there is no evidence that it leaves zombies"
            )
    for name in units[:MOST_UNITS]:
        _stop_unit(draft, name, finding)
    if len(units) > MOST_UNITS:
        rest = count(len(units) - MOST_UNITS, "more unit")
        draft.notes.append(f"{rest} in a crash loop: make another plan after this one")


def _stop_unit(draft: _Draft, name: str, finding: Finding) -> None:
    if (why := why_protected(name, draft.context.rules)) is not None:
        draft.refusals.append(
            Refusal(name, f"protected: {why}. Fix the unit: journalctl -u {name} -n 50")
        )
        return
    try:
        unit = draft.probes.unit(name)
        before = snapshot_unit(name, draft.context.host)
    except (SourceError, CommandError) as error:
        draft.refusals.append(Refusal(name, f"its state could not be read: {error}"))
        return
    if why := unit.protection(draft.context.rules):
        draft.refusals.append(Refusal(name, why))
    elif unit.load_state == "masked":
        draft.notes.append(f"{name} is already masked")
    elif unit.load_state != "loaded":
        draft.refusals.append(Refusal(name, f"not loaded (LoadState {unit.load_state})"))
    elif (why := _need(draft, name)) and not draft.context.options.accept_collateral:
        draft.refusals.append(Refusal(name, why, COLLATERAL))
    elif unit.stops_with_it and not draft.context.options.accept_collateral:
        named = ", ".join(unit.stops_with_it[:5])
        draft.refusals.append(Refusal(name, f"{named} would stop with it", COLLATERAL))
    else:
        _unit_steps(draft, unit, before, _pattern(draft, finding, name))


def _unit_steps(draft: _Draft, unit: UnitStatus, before: UnitSnapshot, pattern: str) -> None:
    stop = stop_unit.propose(draft.next_id("stop"), unit, pattern)
    draft.steps.append(stop)
    draft.stopped[unit.name] = stop.id
    if draft.context.options.override:
        draft.steps.append(override_unit.propose(draft.next_id("override"), before, stop.id))
        return
    if enabling_links(before.entries):
        draft.steps.append(disable_unit.propose(draft.next_id("disable"), before, stop.id))
    try:
        draft.steps.append(mask_unit.propose(draft.next_id("mask"), before, stop.id))
    except CommandError as error:
        draft.notes.append(f"not masked: {error}")
        draft.steps.append(override_unit.propose(draft.next_id("override"), before, stop.id))


def _need(draft: _Draft, unit: str) -> str:
    """Why it is needed, according to the audit; empty if no reason was found."""
    subject = draft.context.needs.get(unit)
    if subject is None or subject.verdict is not Need.NEEDED:
        return ""
    return f"it is needed here ({_reasons(subject)}). Fix the unit: journalctl -u {unit} -n 50"


def _reasons(subject: Subject) -> str:
    return "; ".join(f"{reason.what}: {reason.value}" for reason in subject.reasons[:2])


def _pattern(draft: _Draft, finding: Finding, unit: str) -> str:
    """How it misbehaves, whether that may be intended, and whether anything needs it."""
    parts = []
    for evidence in finding.evidence:
        if evidence.what == f"restarts of {unit}":
            parts.append(f"restarts: {evidence.value}")
    if crash_looping_unit.exits_cleanly(finding, unit):
        parts.append("it exits cleanly, so this may be intended")
    subject = draft.context.needs.get(unit)
    if subject is not None and subject.verdict is Need.UNNEEDED:
        parts.append(f"nothing here needs it ({_reasons(subject)})")
    elif subject is None or subject.verdict is Need.UNKNOWN:
        parts.append("unknown whether anything here needs it (sexton audit)")
    return "; ".join(parts)


def _free(draft: _Draft, window: Window, problems: dict[str, Finding]) -> None:
    """Reclaim on each parent with many zombies and no protected cgroups below it."""
    found = [
        replace(owner, path=surviving_ancestor(owner.path, draft.stopped))
        for owner in owners(window)
    ]
    chosen, others = _parents(found)
    if others:
        draft.notes.append(
            f"{others:,} more zombies under other parents, too few per parent to free"
        )
    if not chosen:
        draft.notes.append(
            f"the zombies' parent is unknown{_guess(found)}: sudo sexton zombies --watch finds it"
        )
    source, after = next(iter(draft.stopped.items()), ("", ""))
    if not source and crash_looping_unit.NAME in problems:
        draft.notes.append(
            "this plan does not stop the unit that leaves zombies: there will be more"
        )
    chosen_parents: list[tuple[Collateral, reclaim_zombies.Reason]] = []
    on_tmpfs: list[str] = []
    for owner in chosen[:MOST_PARENTS]:
        if owner.path == "/":
            reason = "the zombies are directly below the root: reclaim there affects the whole node"
            draft.refusals.append(Refusal("/", reason, CACHES))
            continue
        below = _allowed_collateral(draft, owner.path)
        if below is None:
            continue
        if below.tmpfs_share:
            on_tmpfs.append(below.tmpfs_share)
        if below.only_tmpfs:
            reason = f"{below.tmpfs_share} and there is no swap: reclaim cannot free them"
            draft.refusals.append(Refusal(owner.path, reason))
        else:
            accepted = draft.context.options.accept_collateral
            why = reclaim_zombies.Reason(accepted, source, after, draft.context.options.thorough)
            chosen_parents.append((below, why))
    on_tmpfs += _guessed_tmpfs(draft, found, chosen)
    # The parent with the least collateral first: that may be enough.
    for below, why in sorted(chosen_parents, key=lambda parent: parent[0].total_bytes):
        identity = draft.next_id("free")
        draft.steps.append(reclaim_zombies.propose(identity, below, estimate_cost(below), why))
    if on_tmpfs:
        found_files = delete_tmpfs_files.find_tmpfs_use(draft.context.host)
        identity = draft.next_id("tmpfs")
        draft.steps.append(delete_tmpfs_files.propose(identity, found_files, "; ".join(on_tmpfs)))


def _guessed_tmpfs(draft: _Draft, found: Iterable[Owner], chosen: Iterable[Owner]) -> list[str]:
    """Parents known by leftover bytes only: too little to reclaim there, enough to list files."""
    known = {owner.path for owner in chosen}
    guessed = [
        owner
        for owner in found
        if (owner.bytes or 0) >= delete_tmpfs_files.LEAST_BYTES and owner.path not in known
    ]
    said = []
    for owner in sorted(guessed, key=lambda owner: -(owner.bytes or 0))[:MOST_PARENTS]:
        try:
            below = read_collateral(draft.context.host, owner.path, draft.context.rules)
        except (CommandError, SourceError):
            continue  # removed since, or unreadable: nothing to say about it
        if below.only_tmpfs:
            said.append(below.tmpfs_share)
    return said


def _allowed_collateral(draft: _Draft, path: str) -> Collateral | None:
    """Running cgroups below the parent; `None` and a refusal if they forbid reclaim."""
    try:
        found = read_collateral(draft.context.host, path, draft.context.rules)
        reclaim_file(draft.context.host, found.parent)
    except (CommandError, SourceError) as error:
        draft.refusals.append(Refusal(path, str(error)))
        return None
    refused = refusals(found)
    if refused and not draft.context.options.accept_collateral:
        draft.refusals.append(_joined(refused))
        return None
    return found


def _remove_leftovers(draft: _Draft, needed: bool) -> None:
    """Remove empty live cgroups: if there are many, or if they are the problem."""
    try:
        found = find_empty_cgroups(draft.context.host, extra=draft.context.rules)
    except (CommandError, SourceError) as error:
        if needed:
            draft.refusals.append(Refusal("empty cgroups", str(error)))
        return
    if len(found) >= (1 if needed else MANY_EMPTY):
        draft.steps.append(remove_empty_cgroups.propose(draft.next_id("remove"), found))


def _joined(refused: Sequence[Refusal]) -> Refusal:
    """One refusal per parent, however many reasons."""
    first = refused[0]
    more = f"; and {len(refused) - 3} more" if len(refused) > 3 else ""
    reason = "; ".join(refusal.reason for refusal in refused[:3]) + more
    return Refusal(first.target, f"reclaim also hits running cgroups: {reason}", first.override)


def _parents(found: Iterable[Owner]) -> tuple[list[Owner], int]:
    """Parents with the most zombies first, and how many zombies are under others: a few are not
    worth the cache that running cgroups would lose. Leftover bytes name no owner: they may be
    any cgroup's, and running cgroups would lose cache for a guess."""
    sure = [owner for owner in found if owner.dying and owner.strength is not Strength.POSSIBLE]
    weight = Counter[str]()
    for owner in sure:
        weight[owner.path] += owner.dying or 0
    least = SHARE.value / 100 * weight.total()
    first = {owner.path: owner for owner in reversed(sure)}
    chosen = [first[path] for path, number in weight.most_common() if number >= least]
    return chosen, weight.total() - sum(weight[owner.path] for owner in chosen)


def _guess(found: Iterable[Owner]) -> str:
    """The parent with the most leftover bytes, for the user to look at."""
    most = max(found, key=lambda owner: owner.bytes or 0, default=None)
    if most is None or not most.bytes:
        return ""
    return f" (most leftover bytes: {size(most.bytes)} below {most.path}, which is only a guess)"


def _last_resort(draft: _Draft, diagnosis: Diagnosis) -> None:
    files = draft.context.host.files
    in_cluster = exists(files, "/var/lib/kubelet") or exists(files, "/etc/kubernetes")
    node = diagnosis.node
    assert node is not None
    draft.steps.append(reboot_node.propose(draft.next_id("reboot"), node.hostname, in_cluster))


def _cached(window: Window) -> int | None:
    rows = {row.name: row.value for row in window.latest(VmCounter) or ()}
    pages = rows.get("nr_file_pages")
    return None if pages is None else pages * _PAGE


def surviving_ancestor(path: str, stopped: Collection[str]) -> str:
    """The cgroup, or its nearest ancestor that survives stopping these units.

    >>> surviving_ancestor("/system.slice/ecs.service/tasks", ["ecs.service"])
    '/system.slice'
    >>> surviving_ancestor("/system.slice", ["ecs.service"])
    '/system.slice'
    >>> surviving_ancestor("/a.service", ["a.service"])
    '/'
    """
    parts = path.split("/")
    ends = [parts.index(name) for name in stopped if name in parts]
    return ("/".join(parts[: min(ends)]) or "/") if ends else path


def stops_all_churn(window: Window, stopped: Collection[str]) -> bool:
    """Whether all cgroup churn is below units that the plan stops anyway."""
    died = [join(family.path, name) for family in families(window) for name in family.names]
    return bool(died) and all(surviving_ancestor(path, stopped) != path for path in died)
