"""An audit as text (unneeded units first, then harmful ones, then the rest) and as
`sexton.audit/1` (docs/json.md).

Every string of an `Audit` is already escaped. The report never says "safe to disable": it shows
the evidence for and against, and the owner decides.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from math import isinf
from shlex import quote
from typing import Any

from sexton.model.audit import CRASH_LOOP, SCHEMA, Audit, EnabledUnit, Need, Reason, Subject
from sexton.model.text import count, printable, shorten
from sexton.prevent.audit.catalogue import BASE
from sexton.prevent.audit.changes import Before, Change, facts
from sexton.reports.text.blocks import SHADES, block, clamp, headline, labelled, picked, typed

FOUND, CLEAN, UNKNOWN = 1, 0, 3
_WORDS = {FOUND: "PROBLEMS FOUND", CLEAN: "NO PROBLEMS FOUND", UNKNOWN: "UNKNOWN"}
_ENDS = {
    FOUND: "problems found",
    CLEAN: "no problems found",
    UNKNOWN: "could not tell, for the reasons above",
}
_MOST_SHOWN = 12
_MOST_NAMES = 12
_MOST_LOOPING = 3


def status(audit: Audit, changed: Sequence[Change] | None = None) -> int:
    """The exit status."""
    if changed is not None:
        found = audit.has_units and any(change.bad for change in changed)
    else:
        found = bool(audit.found) or any(problem.level == "error" for problem in audit.kubelet)
    return FOUND if found else UNKNOWN if audit.unread or not audit.has_units else CLEAN


def audit_text(audit: Audit, kind: str, width: int = 88, colour: bool = False) -> str:
    """The whole report; `kind` says what was read: "a tar", "watched for 10 s"."""
    width = clamp(width)
    lines = _head(audit, kind, status(audit), width, colour)
    if not audit.has_units:
        lines += _nothing_to_judge(audit, width)
        lines += _kubelet(audit, width)  # found by its process or its files, not by its unit
        return _joined(lines, status(audit))
    lines += block(_lead(audit), width, " ")
    unneeded, harmful = audit.of(Need.UNNEEDED), _harmful(audit)
    lines += _section("UNNEEDED", unneeded, width)
    lines += _section("RESTARTS FOREVER OR STARTS TOO OFTEN", harmful, width)
    lines += _policy(audit, width)
    lines += _kubelet(audit, width)
    lines += ["", *_rest(audit, width)]
    lines += _about(audit, width)
    lines += _do_now(audit, width)
    return _joined(lines, status(audit))


def changes_text(
    audit: Audit, changed: Sequence[Change], before: Before, width: int = 88, colour: bool = False
) -> str:
    """Only what changed."""
    width = clamp(width)
    ended = status(audit, changed)
    lines = _head(audit, _since(before), ended, width, colour)
    if not audit.has_units:
        lines += _nothing_to_judge(audit, width)
        return _joined(lines, UNKNOWN)
    if before.place and before.place != audit.place:
        lines += labelled("NOTE", [f"the earlier audit is of {printable(before.place)}"], width)
    if not changed:
        lines += block(f"No changes in {count(len(audit.subjects), 'unit')}.", width, " ")
    for kind in ("new", "changed", "gone"):
        these = [change for change in changed if change.kind == kind]
        for number, change in enumerate(these):
            what = f": {'; '.join(change.what)}" if change.what else ""
            lines += labelled(kind.upper() if number == 0 else "", [change.unit + what], width)
            if change.subject is not None and change.bad:
                lines += _evidence(change.subject, width)
    lines += ["", *_about(audit, width, short=True)]
    return _joined(lines, ended)


def _since(before: Before) -> str:
    if not before.subjects and not before.place:
        return "first saved audit: everything is new"
    try:
        return time.strftime("since %Y-%m-%d %H:%M", time.localtime(before.made_unix))
    except (OverflowError, OSError, ValueError):
        return "since an unknown time"


def _joined(lines: Iterable[str], ended: int) -> str:
    return "\n".join([*lines, "", f" exit {ended}: {_ENDS[ended]}"]) + "\n"


def _head(audit: Audit, kind: str, ended: int, width: int, colour: bool) -> list[str]:
    parts = [kind]
    if audit.has_units:
        parts.append(count(len(audit.subjects), "service and timer", "services and timers"))
    if audit.workloads is not None:
        kinds = [f"{workload.count:,} {workload.kind}" for workload in audit.workloads]
        parts.append(f"workloads: {', '.join(kinds) or 'none seen'}")
    rest = f"{shorten(audit.place, 50)}   {' · '.join(parts)}"
    return [*headline(_WORDS[ended], rest, width, SHADES[ended] if colour else ""), ""]


def _lead(audit: Audit) -> str:
    """The result in a sentence or two."""
    unneeded = audit.of(Need.UNNEEDED)
    harmful = [subject for subject in audit.subjects if subject.harmful]
    looping = [subject for subject in harmful if any(f.id == CRASH_LOOP for f in subject.faults)]
    if unneeded:
        one = len(unneeded) == 1
        runs = "runs" if one else "run"
        if not audit.live:
            runs = "starts at boot" if one else "start at boot"
        sentence = (
            f"{_names(unneeded, 3)} {runs}, but nothing here needs {'it' if one else 'them'}."
        )
    else:
        sentence = "No unit is clearly unneeded."
    if looping:
        verb = "crash-loops" if len(looping) == 1 else "crash-loop"
        sentence += f" {_names(looping, 3)} {verb} now."
    lasting = [subject for subject in harmful if subject not in looping]
    if lasting:
        fail = "fails, it" if len(lasting) == 1 else "fail, they"
        sentence += (
            f" If {_names(lasting, 3)} {fail} would restart forever: each start creates a memory"
            " cgroup and may leave it behind."
        )
    if unneeded or harmful:
        return sentence
    if any(problem.level == "error" for problem in audit.kubelet):
        return "No unit is clearly unneeded, but kubelet's configuration has errors."
    against = [subject for subject in audit.subjects if subject.policy]
    if against:
        return f"{count(len(against), 'unit')} violating the policy: {_names(against, 3)}."
    known = " in what could be read" if audit.unread else ""
    return f"No unit is clearly unneeded, and none would restart forever{known}."


def _harmful(audit: Audit) -> list[Subject]:
    """Units that restart forever or start too often, without those listed as unneeded."""
    return [
        subject
        for subject in audit.subjects
        if subject.harmful and subject.verdict is not Need.UNNEEDED
    ]


def _section(title: str, subjects: Sequence[Subject], width: int) -> Iterator[str]:
    if not subjects:
        return
    yield from ("", f" {title}")
    groups: dict[object, list[Subject]] = {}
    for subject in subjects:  # timers and services of one agent often have the same evidence
        evidence = (subject.agent, subject.reasons, subject.against, subject.unseen, subject.faults)
        groups.setdefault(evidence if subject.agent else subject.unit, []).append(subject)
    for group in list(groups.values())[:_MOST_SHOWN]:
        first = group[0]
        state = f", {first.state}" if first.state and len(group) == 1 else ""
        name = f"{first.title}{state}" if first.title else state.lstrip(", ")
        names = ", ".join(subject.unit for subject in group)
        yield from block(f"{names}   {name}".rstrip(), width, "     ", first="  ")
        yield from _evidence(first, width)
    if len(groups) > _MOST_SHOWN:
        yield f"  and {len(groups) - _MOST_SHOWN:,} more (--json lists all)"


def _evidence(subject: Subject, width: int) -> Iterator[str]:
    if subject.enabled is not None and subject.enabled.how:
        way = subject.enabled.how[0]
        by = f"by {way.by} ({way.kind})" if way.by else "manually or by a program, not by a file"
        yield from _line(f"started {by}: {way.at or 'no unit file'}", width)
    yield from _reasons(subject.reasons, width, "")
    yield from _reasons(subject.against, width, "against: ")
    for fault in subject.faults:
        where = f"  [{fault.read_from}]" if fault.read_from else ""
        yield from _line(f"{fault.id}: {fault.detail}{where}", width)
    if subject.unseen:
        yield from _line(f"not seen: {'; '.join(subject.unseen)}", width)
    if subject.wrong_if:
        yield from _line(f"wrong if {subject.wrong_if}", width)


def _reasons(reasons: Iterable[Reason], width: int, lead: str) -> Iterator[str]:
    for reason in reasons:
        yield from _line(f"{lead}{reason.what}: {reason.value}  [{reason.read_from}]", width)


def _line(text: str, width: int) -> Iterator[str]:
    yield from block(text, width, "     ", first="   └ ")


def _policy(audit: Audit, width: int) -> Iterator[str]:
    """Policy violations, grouped by kind."""
    by: dict[str, list[Subject]] = {}
    for subject in audit.subjects:
        if subject.policy:
            by.setdefault(subject.policy, []).append(subject)
    if not by:
        return
    yield from ("", " POLICY VIOLATIONS")
    for problem, subjects in sorted(by.items()):
        names = [
            f"{subject.unit} ({subject.owner}, {subject.expires})"
            if subject.owner
            else subject.unit
            for subject in subjects
        ]
        yield from block(f"{problem}: {_listed(names)}", width, "     ", first="  ")


def _kubelet(audit: Audit, width: int) -> Iterator[str]:
    problems = [problem for problem in audit.kubelet if problem.level != "note"]
    if not problems:
        return
    yield from ("", " KUBELET CONFIGURATION")
    for problem in problems[:_MOST_SHOWN]:
        where = f"{problem.read_from}:{problem.line}" if problem.line else problem.read_from
        yield from block(
            f"{problem.level}: {problem.message}  [{where}]", width, "     ", first="  "
        )
    if len(problems) > _MOST_SHOWN:
        yield f"  and {len(problems) - _MOST_SHOWN:,} more (--json lists all)"


def _rest(audit: Audit, width: int) -> Iterator[str]:
    """Every unit by its verdict, as the JSON and the gate count them; the distribution's own are
    not named."""
    why = "no users seen, which does not make them unneeded"
    if not audit.live:
        why = "an image does not show what will use them"
    for need in (Need.UNKNOWN, Need.NEEDED, Need.PROTECTED):
        subjects = audit.of(need)
        if not subjects:
            continue
        known = [subject for subject in subjects if subject.agent != BASE]
        parts = [_listed(_with_why(subject) for subject in known)] if known else []
        if base := len(subjects) - len(known):
            parts.append(f"{base:,} of the distribution itself (--json lists them)")
        lead = f"{len(subjects):,} ({why})" if need is Need.UNKNOWN else f"{len(subjects):,}"
        yield from labelled(need.value.upper(), [f"{lead}: {' and '.join(parts)}"], width)
    protected = [name for name in audit.of(Need.PROTECTED) if name.agent != BASE]
    risky = [name for name in protected if name.faults]
    if risky:
        text = f"meant to restart forever: {_listed(name.unit for name in risky)}"
        yield from labelled("BY DESIGN", [text], width)


def _with_why(subject: Subject) -> str:
    if subject.verdict is Need.NEEDED and subject.reasons:
        return f"{subject.unit} ({subject.reasons[0].what})"
    return subject.unit


def _about(audit: Audit, width: int, short: bool = False) -> Iterator[str]:
    yield from labelled("UNREAD", audit.unread[: 3 if short else 8], width)
    yield from labelled("NOT SEEN", audit.unseen, width)
    yield from labelled("NOTE", audit.notes[: 3 if short else 8], width)
    if not audit.live:
        yield from labelled("READ", ["files only: nothing was executed, mounted or changed"], width)


def _nothing_to_judge(audit: Audit, width: int) -> Iterator[str]:
    what = "units could not be listed" if audit.live else "no unit files found"
    yield from block(f"Nothing to judge: {what}.", width, " ")
    yield ""
    yield from _about(audit, width)
    if audit.live:
        yield from labelled("TRY", ["audit the files of this node as an image:"], width)
        yield typed("sexton audit --root /")
    else:
        yield from labelled("TRY", ["the directory that contains the image's etc and usr"], width)


def _do_now(audit: Audit, width: int) -> Iterator[str]:
    unneeded, harmful = audit.of(Need.UNNEEDED), _harmful(audit)
    harmful.sort(key=lambda subject: subject.faults[0].id != CRASH_LOOP)
    where = "" if audit.live else f" --root {quote(audit.place)}"
    if unneeded:
        yield ""
        yield from labelled("DO NOW", ["confirm with the owners, then:"], width)
        yield from map(typed, _disabling(audit, [subject.unit for subject in unneeded]))
    if harmful:
        yield ""
        looping = [subject for subject in harmful if subject.faults[0].id == CRASH_LOOP]
        if looping:
            shown = ", ".join(subject.unit for subject in looping[:_MOST_LOOPING])
            more = len(looping) - _MOST_LOOPING
            named = f"{shown} and {more} more" if more > 0 else shown
            verb = "fails" if len(looping) == 1 else "fail"
            yield from labelled("DO NOW", [f"find out why {named} {verb}:"], width)
            fixes = [subject.faults[0].fix.split("\n") for subject in looping[:_MOST_LOOPING]]
            first_lines = [fix[0] for fix in fixes]  # the logs
            rest = [line for fix in fixes for line in fix[1:]]
            yield from map(typed, dict.fromkeys([*first_lines, *rest]))
        else:
            yield from labelled("PREVENT", [f"add a drop-in for {harmful[0].unit}:"], width)
            yield from map(typed, harmful[0].faults[0].fix.split("\n"))
    if any(problem.level != "note" for problem in audit.kubelet):
        yield ""
        yield from labelled("FIX", ["write a corrected kubelet configuration to compare:"], width)
        yield typed(f"sexton audit{where} --kubelet-out kubelet.yaml")
    if audit.found and not any(subject.owner or subject.policy for subject in audit.subjects):
        yield ""
        yield from labelled(
            "OWNERS", ["record an owner and an expiry for each agent, in git:"], width
        )
        yield typed(f"sexton audit{where} --write-policy agents.toml")


def _disabling(audit: Audit, units: Sequence[str]) -> tuple[str, ...]:
    names = " ".join(map(quote, units[:_MOST_SHOWN]))
    if audit.live:
        return (
            f"sudo systemctl disable --now {names}",
            f"sudo systemctl enable --now {names}  # undo",
        )
    return (f"systemctl --root=TREE mask {names}  # in the image build; undo: unmask",)


def _names(subjects: Sequence[Subject], most: int) -> str:
    names = [subject.unit for subject in subjects]
    if len(names) <= most:
        return " and ".join(names) if len(names) < 3 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{', '.join(names[:most])} and {len(names) - most:,} more"


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f" and {len(every) - _MOST_NAMES:,} more" if len(every) > _MOST_NAMES else ""
    return ", ".join(every[:_MOST_NAMES]) + more


def audit_json(audit: Audit, changed: Sequence[Change] | None = None) -> dict[str, Any]:
    """Plain dicts and lists; `changes` only with `--since`."""
    workloads = audit.workloads
    output: dict[str, Any] = {
        "schema": SCHEMA,
        "place": audit.place,
        "live": audit.live,
        "made_unix": round(audit.made_unix, 3),
        "watched_s": round(audit.watched_s, 3),
        "told": audit.has_units,
        "counts": _counts(audit),
        "workloads": None
        if workloads is None
        else [picked(workload, "kind", "count", "example") for workload in workloads],
        "subjects": [_subject_json(subject) for subject in audit.subjects],
        "kubelet": [
            {**picked(problem, "level", "message", "read_from"), "line": problem.line or None}
            for problem in audit.kubelet
        ],
        "notes": list(audit.notes),
        "unread": list(audit.unread),
        "unseen": list(audit.unseen),
    }
    if changed is not None:
        output["changes"] = [
            {"unit": change.unit, "kind": change.kind, "what": list(change.what)}
            for change in changed
        ]
    return output


def _subject_json(subject: Subject) -> dict[str, Any]:
    return {
        "unit": subject.unit,
        "verdict": subject.verdict.value,
        "agent": subject.agent or None,
        "title": subject.title or None,
        "state": subject.state or None,
        "reasons": [picked(reason, "what", "value", "read_from") for reason in subject.reasons],
        "against": [picked(reason, "what", "value", "read_from") for reason in subject.against],
        "unseen": list(subject.unseen),
        "wrong_if": subject.wrong_if or None,
        "faults": [
            picked(fault, "id", "detail", "fix", "read_from", "starts_a_day")
            for fault in subject.faults
        ],
        "restarts": subject.restarts,
        "deaths": subject.deaths,
        "owner": subject.owner or None,
        "expires": subject.expires or None,
        "policy": subject.policy or None,
        "enabled": None if subject.enabled is None else _enabled_json(subject.enabled),
        "facts": facts(subject),
    }


def _counts(audit: Audit) -> dict[str, int]:
    counts = {need.value: len(audit.of(need)) for need in Need}
    counts["with_faults"] = sum(bool(subject.faults) for subject in audit.subjects)
    return counts


def _enabled_json(unit: EnabledUnit) -> dict[str, Any]:
    policy = unit.restart
    return {
        "how": [picked(way, "kind", "by", "at") for way in unit.how],
        "fragment": unit.fragment,
        "drop_ins": list(unit.drop_ins),
        "program": unit.program,
        "program_missing": unit.program_missing,
        "conditions": list(unit.conditions),
        "timer_s": _finite(unit.timer_s),
        "aliases": list(unit.aliases),
        "restart": {
            "restart": policy.restart,
            "delay_s": _finite(policy.delay_s),
            "limit_interval_s": _finite(policy.limit_interval_s),
            "limit_burst": policy.limit_burst,
            "steps": policy.steps,
            "max_delay_s": _finite(policy.max_delay_s),
            "prevent_status": policy.prevent_status or None,
        },
    }


def _finite(value: float | None) -> float | None:
    """JSON has no infinity, which becomes `null`."""
    return None if value is None or isinf(value) else value
