"""Each run of a timer's service leaves a dying memory cgroup behind; nothing crashes.

**Rule.** The restart ledger must list a timer among those that leave dying cgroups, and the
directory it runs in must be the one that churns. *Proven*: its service's own path died and was not
freed. *Likely*: its runs match the dying cgroups in number or period, and it still runs. There is
no weaker form, since every node has timers; but one step weaker if it accounts for less than 5 % of
them. The strength covers only those it accounts for.

**Evidence against.** It ran less than half as often as there are dying cgroups; more of them are
known to lie below another directory.
"""

from __future__ import annotations

from shlex import quote

from sexton.detect.ledger import suspects
from sexton.detect.protected import protected
from sexton.detect.registry import READS
from sexton.detect.stems import split
from sexton.explain.links.cgroups.crash_loop_leaves_zombies import (
    more_below_others,
    strength_and_coverage,
    too_few,
)
from sexton.explain.registry import link
from sexton.model.chain import Bond, Strength
from sexton.model.diagnosis import Step
from sexton.model.finding import Finding
from sexton.model.text import printable
from sexton.model.window import Window


def _stop_timer(window: Window) -> list[Step]:
    """Steps for the ledger's surest timer."""
    sure = (suspect for suspect in suspects(window) if suspect.strength is not Strength.POSSIBLE)
    steps = []
    for timer in [suspect.owner for suspect in sure if suspect.kind == "timer"][:1]:
        shown = quote(printable(timer))
        what = f"see when {shown} runs and what it starts"
        when = Step(f"systemctl list-timers --all {shown}", what, READS)
        steps.append(when)
        if protected(timer) is None:
            why = "if nothing here needs it: stops the source; undo with enable --now"
            steps.append(Step(f"systemctl disable --now {shown}", why, "its job no longer runs"))
    return steps


@link(
    cause="cgroup_churn",
    effect="zombie_memcgs",
    story="each run of a timer's service leaves a dying memory cgroup behind",
    proof="a trace of the cgroup removals there (sudo sexton zombies --watch)",
    advice=_stop_timer,
)
def join(cause: Finding, effect: Finding, window: Window) -> Bond | None:
    """The best suspect of the ledger that is a timer and runs where cgroups churn."""
    places = cause.shares(effect, "cgroup")
    for suspect in suspects(window):
        home = printable(suspect.path)
        here = home in places or split(home)[0] in places
        if suspect.kind == "timer" and here and suspect.strength is not Strength.POSSIBLE:
            strength, covers = strength_and_coverage(suspect.strength, suspect.matched, window)
            return Bond(
                strength,
                suspect.sentence,
                shared=(home if home in places else split(home)[0],),
                covers=covers,
                against=(*too_few(suspect, window), *more_below_others(suspect, window)),
            )
    return None
