"""From a diagnosis to a plan: what to do, in which order, and what not to do.

Stop what leaves the dead, see that nothing starts it again, then free what it left; the whole
node's cache only where that was allowed, a reboot only in print. Nothing here changes anything: the
node is asked how the units stand and who lives where the dead are.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sexton.cure import measures
from sexton.cure.leftovers import leftovers
from sexton.cure.probes import Probes
from sexton.cure.protected import Rule, why_protected
from sexton.cure.reclaim.estimate import estimate
from sexton.cure.reclaim.free import order_file
from sexton.cure.reclaim.stakes import Stakes, refusals, stakes
from sexton.cure.remedies import (
    disable_unit,
    drop_caches,
    mask_unit,
    override_unit,
    reboot_node,
    reclaim_zombies,
    remove_empty_cgroups,
    stop_unit,
)
from sexton.cure.standing import Standing
from sexton.cure.stopped import outlasting, stops_churning
from sexton.cure.unit_files import enabling
from sexton.cure.units import UnitBefore, unit_state
from sexton.detect.detectors import (
    cgroup_churn,
    crash_looping_unit,
    leaked_scopes,
    memory_pressure,
    saturated_core,
    slow_memcg_stats,
    softirq_flood,
    zombie_memcgs,
)
from sexton.detect.detectors.zombie_memcgs import SHARE
from sexton.detect.owners import Owner, owners
from sexton.errors import CommandError, SourceError
from sexton.host.host import Host
from sexton.host.reader import exists
from sexton.model.audit import Need, Subject
from sexton.model.chain import Strength
from sexton.model.diagnosis import Diagnosis
from sexton.model.finding import Finding
from sexton.model.memory import VmCounter
from sexton.model.plan import Plan, Refusal, Step
from sexton.model.text import count, printable
from sexton.model.window import Window

MOST_UNITS = 5
MOST_PARENTS = 3
#: Empty live cgroups from which on a step is worth its line.
MANY_EMPTY = 20
COLLATERAL = "--accept-collateral"
CACHES = "--allow-drop-caches"
_PAGE = 4096


@dataclass(frozen=True, slots=True)
class Wishes:
    """What the person allows and prefers."""

    accept_collateral: bool = False
    allow_drop_caches: bool = False
    override: bool = False
    thorough: bool = False


@dataclass(frozen=True, slots=True)
class Ground:
    """The node a plan is made on; `needs` is what an audit says of units, by name."""

    host: Host
    rules: tuple[Rule, ...] = ()
    wishes: Wishes = Wishes()
    needs: Mapping[str, Subject] = field(default_factory=dict)


@dataclass(slots=True)
class _Draft:
    """A plan in the making."""

    ground: Ground
    probes: Probes
    steps: list[Step] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    stopped: dict[str, str] = field(default_factory=dict)

    def number(self, word: str) -> str:
        return f"{len(self.steps) + 1}-{word}"


def make_plan(diagnosis: Diagnosis, window: Window, ground: Ground) -> Plan:
    """The plan for this node now; `CommandError` where the diagnosis is of another node or boot."""
    probes = Probes(ground.host, ground.rules)
    boot_id = probes.read("boot_id")
    _same_boot(diagnosis, boot_id)
    draft = _Draft(ground, probes)
    problems = {each.id: each for each in diagnosis.findings if each.is_problem}
    if crash_looping_unit.NAME in problems:
        _stop_units(draft, problems[crash_looping_unit.NAME], _leavers(diagnosis))
    if zombie_memcgs.NAME in problems:
        _free(draft, window, problems)
    if problems.keys() & {zombie_memcgs.NAME, leaked_scopes.NAME, slow_memcg_stats.NAME}:
        _remove_leftovers(draft, needed=leaked_scopes.NAME in problems)
    if zombie_memcgs.NAME in problems:
        _drop_caches(draft, window)
        _last_resort(draft, diagnosis)
    for name in _UNTREATED:
        if name == cgroup_churn.NAME and stops_churning(window, draft.stopped):
            continue
        if name in problems:
            draft.notes.append(f"{problems[name].summary}: {_UNTREATED[name]}")
    saturated = problems.get(saturated_core.NAME)
    cores = [int(each) for each in saturated.entities.get("core", ())] if saturated else []
    baseline = measures.plain(measures.measure(window, cores, draft.stopped))
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


def _same_boot(diagnosis: Diagnosis, boot_id: str) -> None:
    node = diagnosis.node
    if node is None or node.boot_id is None:
        raise CommandError("the diagnosis does not tell which boot it is of: nothing to plan on")
    if node.boot_id != boot_id:
        raise CommandError(
            f"this is of another node or another boot ({printable(node.hostname)}, boot"
            f" {node.boot_id[:8]}; here it is {boot_id[:8]}): make the plan on that node"
        )


def _root(diagnosis: Diagnosis) -> str:
    """What the best chain begins with, in its own words; else the worst finding."""
    known = diagnosis.by_id
    if diagnosis.chains:
        return known[diagnosis.chains[0].root].summary
    worst = [each.summary for each in diagnosis.findings if each.is_problem]
    return worst[0] if worst else "nothing is wrong"


def _leavers(diagnosis: Diagnosis) -> frozenset[str]:
    """Units of which a link says that their restarts left the dead; empty where none does."""
    return frozenset(
        name
        for chain in diagnosis.chains
        for link in chain.links
        if link.id == "crash_loop_leaves_zombies"
        for name in link.shared
    )


def _stop_units(draft: _Draft, finding: Finding, leavers: frozenset[str]) -> None:
    """Those that leave zombies, where that is known; else every one that loops."""
    looping = finding.entities.get("unit", ())
    units = [name for name in looping if name in leavers] or list(looping)
    for name in looping:
        if name not in units:
            draft.notes.append(f"{name} loops as well, but nothing shows that it leaves zombies")
    for name in units[:MOST_UNITS]:
        _stop_unit(draft, name, finding)
    if len(units) > MOST_UNITS:
        rest = count(len(units) - MOST_UNITS, "more unit")
        draft.notes.append(f"{rest} in a restart loop: make another plan after this one")


def _stop_unit(draft: _Draft, name: str, finding: Finding) -> None:
    if (why := why_protected(name, draft.ground.rules)) is not None:
        draft.refusals.append(
            Refusal(name, f"protected: {why}. Mend it: journalctl -u {name} -n 50")
        )
        return
    try:
        unit = draft.probes.unit(name)
        before = unit_state(name, draft.ground.host)
    except (SourceError, CommandError) as error:
        draft.refusals.append(Refusal(name, f"how it stands could not be read: {error}"))
        return
    if why := unit.protection(draft.ground.rules):
        draft.refusals.append(Refusal(name, why))
    elif unit.load_state == "masked":
        draft.notes.append(f"{name} is masked already")
    elif unit.load_state != "loaded":
        draft.refusals.append(Refusal(name, f"systemd has it as {unit.load_state}: not loaded"))
    elif (why := _need(draft, name)) and not draft.ground.wishes.accept_collateral:
        draft.refusals.append(Refusal(name, why, COLLATERAL))
    elif unit.stops_with_it and not draft.ground.wishes.accept_collateral:
        named = ", ".join(unit.stops_with_it[:5])
        draft.refusals.append(Refusal(name, f"{named} would stop with it", COLLATERAL))
    else:
        _unit_steps(draft, unit, before, _pattern(draft, finding, name))


def _unit_steps(draft: _Draft, unit: Standing, before: UnitBefore, pattern: str) -> None:
    stop = stop_unit.propose(draft.number("stop"), unit, pattern)
    draft.steps.append(stop)
    draft.stopped[unit.name] = stop.id
    if draft.ground.wishes.override:
        draft.steps.append(override_unit.propose(draft.number("override"), before, stop.id))
        return
    if enabling(before.entries):
        draft.steps.append(disable_unit.propose(draft.number("disable"), before, stop.id))
    try:
        draft.steps.append(mask_unit.propose(draft.number("mask"), before, stop.id))
    except CommandError as error:
        draft.notes.append(f"not masked: {error}")
        draft.steps.append(override_unit.propose(draft.number("override"), before, stop.id))


def _need(draft: _Draft, unit: str) -> str:
    """Who needs it, as far as an audit saw; empty where nobody was seen to."""
    subject = draft.ground.needs.get(unit)
    if subject is None or subject.verdict is not Need.NEEDED:
        return ""
    told = "; ".join(f"{each.what}: {each.value}" for each in subject.reasons[:2])
    return f"it is needed here ({told}): mend it, journalctl -u {unit} -n 50"


def _pattern(draft: _Draft, finding: Finding, unit: str) -> str:
    """How it misbehaves, whether it might be meant to, and what is known of who needs it."""
    told = []
    for each in finding.evidence:
        if each.what == f"restarts of {unit}":
            told.append(f"restarts: {each.value}")
            told += ["it ends cleanly, so this may be meant"] if "meant" in each.wrong_if else []
    subject = draft.ground.needs.get(unit)
    if subject is not None and subject.verdict is Need.UNNEEDED:
        reasons = "; ".join(f"{each.what}: {each.value}" for each in subject.reasons[:2])
        told.append(f"nothing here needs it ({reasons})")
    elif subject is None or subject.verdict is Need.UNKNOWN:
        told.append("whether anything here needs it could not be seen (sexton audit)")
    return "; ".join(told)


def _free(draft: _Draft, window: Window, problems: dict[str, Finding]) -> None:
    """On every parent that is known to have many, where nobody who must not suffer lives."""
    chosen, others = _parents(
        replace(each, path=outlasting(each.path, draft.stopped)) for each in owners(window)
    )
    if others:
        draft.notes.append(f"{others:,} more died elsewhere, too few under one parent to free")
    if not chosen:
        draft.notes.append(
            "under which parent they died is not known: sudo sexton zombies --watch names it"
        )
    source, after = next(iter(draft.stopped.items()), ("", ""))
    if not source and crash_looping_unit.NAME in problems:
        draft.notes.append("what leaves zombies is not stopped by this plan: more will come")
    weighed: list[tuple[Stakes, reclaim_zombies.Reason]] = []
    for owner in chosen[:MOST_PARENTS]:
        if owner.path == "/":
            reason = "they died right below the root: reclaim there would be the whole node's"
            draft.refusals.append(Refusal("/", reason, CACHES))
            continue
        found = _weighed(draft, owner.path)
        if found is not None:
            sure = owner.strength is not Strength.POSSIBLE
            accepted = draft.ground.wishes.accept_collateral
            why = reclaim_zombies.Reason(
                sure, owner.method, accepted, source, after, draft.ground.wishes.thorough
            )
            weighed.append((found, why))
    # Where least is at stake first: it may be enough.
    for found, why in sorted(weighed, key=lambda each: each[0].total_bytes):
        identity = draft.number("free")
        draft.steps.append(reclaim_zombies.propose(identity, found, estimate(found), why))


def _weighed(draft: _Draft, path: str) -> Stakes | None:
    """Who lives there; `None` where that forbids it, which is written down."""
    try:
        found = stakes(draft.ground.host, path, draft.ground.rules)
        order_file(draft.ground.host, found.parent)
    except (CommandError, SourceError) as error:
        draft.refusals.append(Refusal(path, str(error)))
        return None
    refused = refusals(found)
    if refused and not draft.ground.wishes.accept_collateral:
        draft.refusals += _joined(refused)
        return None
    return found


def _remove_leftovers(draft: _Draft, needed: bool) -> None:
    """Empty live cgroups: a few are nothing to bother about, unless they are what is wrong."""
    try:
        found = leftovers(draft.ground.host, extra=draft.ground.rules)
    except (CommandError, SourceError) as error:
        if needed:
            draft.refusals.append(Refusal("empty cgroups", str(error)))
        return
    if len(found) >= (1 if needed else MANY_EMPTY):
        draft.steps.append(remove_empty_cgroups.propose(draft.number("remove"), found))


def _drop_caches(draft: _Draft, window: Window) -> None:
    if draft.ground.wishes.allow_drop_caches:
        draft.steps.append(
            drop_caches.propose(draft.number("drop-caches"), _cached(window), _dying(draft))
        )


def _joined(refused: Iterable[Refusal]) -> list[Refusal]:
    """One line for a parent, however many live below it."""
    every = list(refused)
    first = every[0]
    more = f"; and {len(every) - 3} more" if len(every) > 3 else ""
    reason = "; ".join(each.reason for each in every[:3]) + more
    return [Refusal(first.target, f"reclaim takes from the living too: {reason}", first.override)]


def _parents(found: Iterable[Owner]) -> tuple[list[Owner], int]:
    """Those with the most first, each but once, and how many died under others: a handful is not
    worth what the living there would pay. Bytes alone name a parent only if nothing else does."""
    every = list(found)
    sure = [each for each in every if each.strength is not Strength.POSSIBLE]
    weight = Counter[str]()
    for each in sure or every:
        weight[each.path] += (each.dying if sure else each.bytes) or 0
    least = SHARE.value / 100 * weight.total()
    first = _first_of(sure or every)
    chosen = [first[path] for path, much in weight.most_common() if much and much >= least]
    left = weight.total() - sum(weight[each.path] for each in chosen)
    return chosen, left if sure else 0


def _first_of(found: Iterable[Owner]) -> dict[str, Owner]:
    first: dict[str, Owner] = {}
    for each in found:
        first.setdefault(each.path, each)
    return first


def _last_resort(draft: _Draft, diagnosis: Diagnosis) -> None:
    in_cluster = exists(draft.ground.host.files, "/var/lib/kubelet") or exists(
        draft.ground.host.files, "/etc/kubernetes"
    )
    node = diagnosis.node
    assert node is not None
    draft.steps.append(reboot_node.propose(draft.number("reboot"), node.hostname, in_cluster))


def _dying(draft: _Draft) -> int | None:
    try:
        return int(draft.probes.read("dying"))
    except SourceError:
        return None


def _cached(window: Window) -> int | None:
    rows = {row.name: row.value for row in window.latest(VmCounter) or ()}
    pages = rows.get("nr_file_pages")
    return None if pages is None else pages * _PAGE


#: Problems that a plan does not treat, and who does.
_UNTREATED = {
    cgroup_churn.NAME: "containers or timers come and go; mend what starts them (kubectl, crontab)",
    softirq_flood.NAME: "a plan cannot stop a flood; see DO NOW of sexton diagnose",
    memory_pressure.NAME: "freeing zombies will not cure it; see DO NOW of sexton diagnose",
}
