"""Remove live cgroups that nobody lives in: scopes and containers whose directories stayed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from shlex import quote
from typing import Any

from sexton.cure.leftovers import REMOVE, STOP, YOUNGEST_S, Leftover, remove
from sexton.cure.remedy import Hands, text_of
from sexton.errors import CommandError, SourceError
from sexton.model.plan import Condition, Step
from sexton.model.text import count, seconds
from sexton.sources.cgroupfs.layout import read_layout

RECLAIMS = False
#: In one step; a plan that nobody can read is no plan. Another plan takes the next.
MOST = 500
_SHOWN = 3


def propose(identity: str, found: Sequence[Leftover]) -> Step:
    """`found` are the oldest first; at most `MOST` of them are taken."""
    chosen = tuple(found[:MOST])
    names = ", ".join(each.path for each in chosen[:_SHOWN])
    more = f" and {len(chosen) - _SHOWN} more" if len(chosen) > _SHOWN else ""
    left = f"; {len(found) - len(chosen):,} stay for another plan" if len(found) > MOST else ""
    many = count(len(chosen), "empty cgroup")
    return Step(
        id=identity,
        remedy="remove_empty_cgroups",
        title=f"remove {many}",
        target="empty cgroups",
        risk="low",
        risk_why="each is looked at again first: no process, no child, the same directory, older"
        f" than {seconds(YOUNGEST_S)}; the kernel refuses one that is in use",
        preconditions=(
            Condition(f"the oldest of them, {chosen[0].path}", "its inode", str(chosen[0].inode),
                      "they were cleaned up meanwhile", f"cgroup.memory_inode {chosen[0].path}"),
        ),
        effect=f"removes {names}{more}{left}",
        cannot_undo="their limits and counters",
        undo="nothing: an empty cgroup of the same name would be another one",
        proof=(),
        commands=tuple(_command(each) for each in chosen[:20])
        + ((f"# and {len(chosen) - 20} more of the kind",) if len(chosen) > 20 else ()),
        parameters={"leftovers": json.dumps([list(each) for each in chosen])},
    )  # fmt: skip


def _command(each: Leftover) -> str:
    if each.how == STOP:
        return f"systemctl stop {quote(each.name)}"
    return f"rmdir /sys/fs/cgroup{quote(each.path)}   # v1: in every hierarchy that has it"


def _parsed(step: Step) -> list[Leftover]:
    try:
        rows = json.loads(text_of(step, "leftovers"))
        found = [
            Leftover(str(path), int(inode), int(held), float(age), str(how))
            for path, inode, held, age, how in rows
        ]
    except (ValueError, TypeError):
        raise CommandError(f"step {step.id}: its list of cgroups is none") from None
    for each in found:
        if each.how not in (STOP, REMOVE) or not each.path.startswith("/") or ".." in each.path:
            raise CommandError(f"step {step.id}: its list of cgroups is none")
    return found


def prepare(step: Step, hands: Hands) -> dict[str, Any]:
    """Nothing can be put back; what goes is written down."""
    mount = read_layout(hands.host).mount_point
    return {"mount_point": mount, "removed": [each.path for each in _parsed(step)]}


def carry_out(step: Step, hands: Hands) -> dict[str, Any]:
    removed, left, held = 0, [], 0
    for each in _parsed(step):
        if why := hands.stop():
            left.append(why)
            break
        try:
            done = remove(hands.host, each, hands.writer)
        except (CommandError, SourceError) as error:
            left.append(str(error))
            continue
        removed += 1
        held += done.held_bytes > 0
    said = f"removed {count(removed, 'empty cgroup')}"
    if left:
        said += f"; left alone {len(left):,}, the first: {left[0]}"
    if held:
        said += f"; {held:,} still held pages and may be zombies now"
    return {"said": said, "removed": removed, "left": left[:20]}


def undo(_before: Mapping[str, Any], _hands: Hands) -> list[str]:
    return []
