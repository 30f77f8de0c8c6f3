"""Who excused what, and does it still hold?"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from sexton.model.text import count
from sexton.prevent.gate.model import Violation, Waiver, WaiverState, waived
from sexton.prevent.gate.policy import Policy

Judged = tuple[tuple[Waiver, WaiverState], ...]


def excuse(
    rule: str, violations: Iterable[Violation], waivers: Sequence[Waiver], today: datetime.date
) -> tuple[Violation, ...]:
    """The violations of a rule, those that are excused today marked with whose word that is."""
    return tuple(
        next(
            (
                waived(each, waiver)
                for waiver in waivers
                if waiver.expires >= today and meant(waiver, rule, each)
            ),
            each,
        )
        for each in violations
    )


def states(
    policy: Policy,
    agents: Sequence[Waiver],
    broken: Iterable[tuple[str, Violation]],
    today: datetime.date,
) -> Judged:
    """Every waiver of the policy, and `agents`, with how it stands: `broken` is all that violated a
    rule, excused or not."""
    found = list(broken)
    judged = []
    for waiver in (*policy.waivers, *agents):
        used = any(meant(waiver, rule, each) for rule, each in found)
        left = (waiver.expires - today).days
        if left < 0:
            state = WaiverState.EXPIRED
        elif waiver not in agents and 0 < policy.waiver_days < left:
            state = WaiverState.TOO_LONG
        elif not used:
            state = WaiverState.UNUSED
        else:
            state = WaiverState.SOON if left <= policy.warn_days else WaiverState.USED
        judged.append((waiver, state))
    return tuple(judged)


def expired(waiver: Waiver, today: datetime.date, policy: str, matched: bool) -> Violation:
    """An excuse that is over is a fault of its own: somebody promised, and the day is past."""
    ago = count((today - waiver.expires).days, "day")
    message = (
        f"the waiver of {waiver.rule} for {waiver.subject} ended on {waiver.expires} ({ago} ago);"
        f" it was {waiver.owner}'s: {waiver.reason}"
    )
    what = "mend it, or renew the waiver with its owner" if matched else "nothing needs it: delete"
    return Violation(f"{waiver.rule}:{waiver.subject}", message, policy, 0, (waiver.at,), what)


def too_long(waiver: Waiver, today: datetime.date, policy: Policy) -> Violation:
    """An excuse without an end in sight is a fault as well."""
    latest = today + datetime.timedelta(days=policy.waiver_days)
    message = (
        f"the waiver of {waiver.rule} for {waiver.subject} ends on {waiver.expires}, more than"
        f" {count(policy.waiver_days, 'day')} ahead; it is {waiver.owner}'s: {waiver.reason}"
    )
    what = f"let it end by {latest}, or set waiver_days in the policy"
    return Violation(f"{waiver.rule}:{waiver.subject}", message, policy.path, 0, (waiver.at,), what)


def meant(waiver: Waiver, rule: str, violation: Violation) -> bool:
    """Does the waiver speak of this?"""
    return waiver.rule == rule and fnmatchcase(violation.subject, waiver.subject)
