"""Free dead memory cgroups by reclaim on the live parent that they died under.

On v1 by `memory.force_empty`, on v2 by `memory.reclaim` in small bites (`sexton.cure.reclaim`). It
frees those that page cache holds. Those held by files on tmpfs or ramfs, by locked or by swapped
pages stay, however often it is tried: it stops when a round frees nothing.

Some of the dead are held by pages on *active* lists, which the kernel opens only when the inactive
ones of the whole subtree run low, that is, after the cache of the living. A *thorough* step pays
that price; one that is not leaves those dead.
"""

from __future__ import annotations

from collections.abc import Mapping
from shlex import quote
from typing import Any, NamedTuple

from sexton.cure.reclaim.estimate import Estimate
from sexton.cure.reclaim.free import free, refused
from sexton.cure.reclaim.rounds import Limits
from sexton.cure.reclaim.stakes import Stakes, stakes
from sexton.cure.remedy import Hands, text_of
from sexton.errors import CommandError
from sexton.model.plan import Condition, Criterion, Step
from sexton.model.text import count, size

RECLAIMS = True
#: A parent whose live children changed by more than this was not the one that was weighed.
_MORE_CHILDREN = 50
_LONGEST_S = 60.0


class Reason(NamedTuple):
    """Why this parent: `sure` where a count and not only bytes (`why`) point at it; `source` is the
    unit that the step `after` stops; `accepted`: whoever lives below may pay; `thorough`: also with
    all of the cache they have."""

    sure: bool
    why: str
    accepted: bool
    source: str = ""
    after: str = ""
    thorough: bool = False


def propose(identity: str, found: Stakes, cost: Estimate, reason: Reason) -> Step:
    """The step for one parent; `CommandError` where this kernel has no such order."""
    parent = found.parent
    directory = parent.directory
    sure = "" if reason.sure else f"; that they died here is a guess: {reason.why}"
    guarded = f"; protected among them: {_named(found)}" if found.guarded else ""
    return Step(
        id=identity,
        remedy="reclaim_zombies",
        title=f"free zombies under {parent.path}",
        target=parent.path,
        risk="high" if found.guarded or (reason.thorough and found.live) else "medium",
        risk_why=f"{_living(found)}{guarded}{sure}{_price(found, reason)}; {cost.sentence}",
        preconditions=_conditions(found, reason),
        effect=_effect(found, reason.thorough),
        cannot_undo="the evicted cache of the living: it is read again as it is used"
        if found.total_bytes
        else "",
        undo="nothing to undo: what is freed is dead",
        proof=_proof(found),
        commands=_commands(directory, parent.version, reason.thorough),
        parameters={
            "parent": parent.path,
            "accept_collateral": reason.accepted,
            "thorough": reason.thorough,
            "dying": -1 if found.dying.number is None else found.dying.number,
        },
    )


def _living(found: Stakes) -> str:
    if not found.live:
        return "nobody lives below it"
    held = [
        "cache unknown" if found.file_bytes is None else f"{size(found.file_bytes)} of cache",
        "anonymous unknown" if found.anon_bytes is None else f"{size(found.anon_bytes)} anonymous",
    ]
    living = f"{count(found.live, 'live cgroup')} below it: {', '.join(held)} at stake"
    if not found.swap_total_bytes:
        return f"{living}, no swap"
    out = "unknown" if found.swap_bytes is None else size(found.swap_bytes)
    return f"{living}, {out} in swap already, {size(found.swap_free_bytes)} of swap free"


def _price(found: Stakes, reason: Reason) -> str:
    """What being thorough costs those who live there."""
    if not reason.thorough or not found.live:
        return ""
    swap = " and their anonymous memory be swapped out" if found.swap_free_bytes else ""
    return f"; thorough: all of that cache may go{swap}; they read it back as they need it"


def _named(found: Stakes) -> str:
    names = [f"{each.path.rpartition('/')[2]} ({each.why})" for each in found.guarded[:3]]
    more = len(found.guarded) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _effect(found: Stakes, thorough: bool) -> str:
    directory = found.parent.directory
    if found.parent.version == 2:
        until = "not even large ones free any" if thorough else "a bite frees nothing"
        return (
            f"writes small amounts to {directory}/memory.reclaim, more while it frees and pressure"
            f" stays down; stops when {until}"
        )
    more = ", and on through the cache of the living, to the end" if thorough else ""
    return (
        f"writes 0 to {directory}/memory.force_empty, from a child with a deadline, off the"
        f" network interfaces' cores; again while a round frees some{more}"
    )


def _conditions(found: Stakes, reason: Reason) -> tuple[Condition, ...]:
    directory = found.parent.directory
    live = str(max(found.live + _MORE_CHILDREN, 0))
    conditions = [
        Condition(f"live cgroups below {found.parent.path}", "its directories", live,
                  "more live there now than were weighed", f"cgroup.live {directory}", "<="),
    ]  # fmt: skip
    if found.dying.number is not None:
        conditions.append(
            Condition("dead memory cgroups", "census", "1", "there is nothing to free", "dying",
                      ">=")
        )  # fmt: skip
    if reason.after:
        name = reason.source
        conditions.append(
            Condition(f"{name} runs", "systemd ActiveState", "no",
                      "what leaves them is stopped first", f"unit.running {name}", "==",
                      reason.after)
        )  # fmt: skip
    return tuple(conditions)


def _proof(found: Stakes) -> tuple[Criterion, ...]:
    if found.dying.number is None:
        return ()
    return (Criterion(f"dead memory cgroups {found.dying.scope}", "counted before and after",
                      "<", found.dying.number, ""),)  # fmt: skip


def _commands(directory: str, version: int, thorough: bool) -> tuple[str, ...]:
    if version == 2:
        path = quote(f"{directory}/memory.reclaim")
        bites, bite = (256, "64M") if thorough else (16, "4M")
        return (f"for i in $(seq {bites}); do echo {bite} > {path} || break; done",)
    order = f"echo 0 > {quote(f'{directory}/memory.force_empty')}"
    return (f"timeout -s KILL {60 if thorough else 5} sh -c {quote(order)}",)


def prepare(step: Step, hands: Hands) -> dict[str, Any]:
    """Nothing can be undone; what is at stake is written down all the same."""
    found = stakes(hands.host, text_of(step, "parent"), hands.probes.rules)
    reason = refused(found, step.parameters.get("accept_collateral") is True)
    if reason is not None:
        raise CommandError(reason)
    return {
        "parent": found.parent.path,
        "dying": found.dying.number,
        "live": found.live,
        "file_bytes": found.file_bytes,
        "anon_bytes": found.anon_bytes,
        "swap_bytes": found.swap_bytes,
    }


def carry_out(step: Step, hands: Hands) -> dict[str, Any]:
    if hands.dry:
        return {"said": step.effect}
    limits = Limits(
        seconds=hands.deadline_s(_LONGEST_S),
        accept_collateral=step.parameters.get("accept_collateral") is True,
        thorough=step.parameters.get("thorough") is True,
        protected=hands.probes.rules,
        stop_if=hands.stop,
    )
    done = free(hands.host, text_of(step, "parent"), limits, hands.writer, hands.tell)
    return {**done.as_json(), "said": done.sentence, "told": list(done.told)}


def undo(_before: Mapping[str, Any], _hands: Hands) -> list[str]:
    return []
