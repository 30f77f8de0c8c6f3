"""Free dying memory cgroups by reclaim on their live parent.

On v1 with `memory.force_empty`, on v2 with `memory.reclaim` in small passes
(`sexton.cure.reclaim`). It frees zombies held by page cache. Those held by files on tmpfs or ramfs,
by locked or by swapped pages stay: it stops when passes free nothing.

Some zombies are held by pages on *active* lists, which the kernel scans only when the inactive
lists of the whole subtree run low, that is, after the cache of running cgroups. A *thorough* step
pays that price; any other step leaves those zombies.
"""

from __future__ import annotations

from shlex import quote
from typing import Any, NamedTuple

from sexton.cure.reclaim.collateral import Collateral, read_collateral
from sexton.cure.reclaim.cost import CostEstimate
from sexton.cure.reclaim.free import Limits, free, why_refused
from sexton.cure.remedy import StepContext, nothing_to_undo, text_parameter
from sexton.errors import CommandError
from sexton.model.plan import Condition, Criterion, Step
from sexton.model.text import count, size

RECLAIMS = True
undo = nothing_to_undo
#: With this many more live children, the collateral has to be read again.
_MORE_CHILDREN = 50
_LONGEST_S = 60.0


class Reason(NamedTuple):
    """`accepted`: collateral is accepted; `source` is the unit that the step `after` stops;
    `thorough`: running cgroups may lose all of their cache."""

    accepted: bool
    source: str = ""
    after: str = ""
    thorough: bool = False


def propose(identity: str, found: Collateral, cost: CostEstimate, reason: Reason) -> Step:
    """The step for one parent."""
    parent = found.parent
    directory = parent.directory
    protected = f"; protected: {_named(found)}" if found.protected else ""
    return Step(
        id=identity,
        remedy="reclaim_zombies",
        title=f"free zombies under {parent.path}",
        target=parent.path,
        risk="high" if found.protected or (reason.thorough and found.live) else "medium",
        risk_why=f"{_collateral(found)}{protected}{_price(found, reason)}; {cost.sentence}",
        preconditions=_conditions(found, reason),
        effect=_effect(found, reason.thorough),
        cannot_undo="evicted cache of running cgroups refills only as it is used"
        if found.total_bytes
        else "",
        undo="nothing to undo: only dying cgroups are freed",
        proof=_proof(found),
        commands=_commands(directory, parent.version, reason.thorough),
        parameters={
            "parent": parent.path,
            "accept_collateral": reason.accepted,
            "thorough": reason.thorough,
            "dying": -1 if found.dying.number is None else found.dying.number,
        },
    )


def _collateral(found: Collateral) -> str:
    if not found.live:
        return "no running cgroups below it"
    parts = [
        "cache unknown" if found.file_bytes is None else f"{size(found.file_bytes)} of cache",
        "anonymous unknown" if found.anon_bytes is None else f"{size(found.anon_bytes)} anonymous",
    ]
    running = f"{count(found.live, 'running cgroup')} below it could lose {', '.join(parts)}"
    if not found.swap_total_bytes:
        return f"{running}; no swap"
    out = "unknown" if found.swap_bytes is None else size(found.swap_bytes)
    return f"{running}; {out} already in swap, {size(found.swap_free_bytes)} of swap free"


def _price(found: Collateral, reason: Reason) -> str:
    """What --thorough costs running cgroups there."""
    if not reason.thorough or not found.live:
        return ""
    swap = " and their anonymous memory may be swapped out" if found.swap_free_bytes else ""
    return f"; --thorough: all of that cache may be evicted{swap}, and is read back on demand"


def _named(found: Collateral) -> str:
    names = [f"{cgroup.path.rpartition('/')[2]} ({cgroup.why})" for cgroup in found.protected[:3]]
    more = len(found.protected) - len(names)
    return ", ".join(names) + (f" and {more} more" if more > 0 else "")


def _effect(found: Collateral, thorough: bool) -> str:
    directory = found.parent.directory
    if found.parent.version == 2:
        until = "even large passes free nothing" if thorough else "passes free nothing"
        return (
            f"writes small amounts to {directory}/memory.reclaim, larger ones while they free"
            f" zombies and pressure stays low; stops when {until}. Makes and removes an empty"
            " cgroup there, so that the kernel lets go of written files that hold zombies"
        )
    more = ", continuing through the cache of running cgroups" if thorough else ""
    return (
        f"writes 0 to {directory}/memory.force_empty from a child process with a deadline, off the"
        f" NIC's cores; repeats while passes free zombies{more}"
    )


def _conditions(found: Collateral, reason: Reason) -> tuple[Condition, ...]:
    directory = found.parent.directory
    live = str(max(found.live + _MORE_CHILDREN, 0))
    conditions = [
        Condition(f"live cgroups below {found.parent.path}", "its directories", live,
                  "many more than when the plan was made", f"cgroup.live {directory}", "<="),
    ]  # fmt: skip
    if found.dying.number is not None:
        conditions.append(
            Condition("dying memory cgroups", "census", "1", "otherwise nothing to free", "dying",
                      ">=")
        )  # fmt: skip
    if reason.after:
        name = reason.source
        conditions.append(
            Condition(f"{name} is running", "systemd ActiveState", "no",
                      "the source must be stopped first", f"unit.running {name}", "==",
                      reason.after)
        )  # fmt: skip
    return tuple(conditions)


def _proof(found: Collateral) -> tuple[Criterion, ...]:
    if found.dying.number is None:
        return ()
    return (Criterion(f"dying memory cgroups {found.dying.scope}", "counted before and after",
                      "<", found.dying.number, ""),)  # fmt: skip


def _commands(directory: str, version: int, thorough: bool) -> tuple[str, ...]:
    if version == 2:
        path = quote(f"{directory}/memory.reclaim")
        passes, amount = (256, "64M") if thorough else (16, "4M")
        return (f"for i in $(seq {passes}); do echo {amount} > {path} || break; done",)
    command = f"echo 0 > {quote(f'{directory}/memory.force_empty')}"
    return (f"timeout -s KILL {60 if thorough else 5} sh -c {quote(command)}",)


def prepare(step: Step, context: StepContext) -> dict[str, Any]:
    """Nothing can be undone; the collateral is journalled anyway."""
    found = read_collateral(context.host, text_parameter(step, "parent"), context.probes.rules)
    reason = why_refused(found, step.parameters.get("accept_collateral") is True)
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


def carry_out(step: Step, context: StepContext) -> dict[str, Any]:
    if context.dry:
        return {"said": step.effect}
    limits = Limits(
        seconds=context.deadline_s(_LONGEST_S),
        accept_collateral=step.parameters.get("accept_collateral") is True,
        thorough=step.parameters.get("thorough") is True,
        protected=context.probes.rules,
        stop_if=context.stop,
    )
    done = free(
        context.host, text_parameter(step, "parent"), limits, context.writer, context.progress
    )
    return {**done.as_json(), "said": done.sentence, "told": list(done.details)}
