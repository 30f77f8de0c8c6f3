"""What to do now, as commands a person reads before typing them. Nothing is run from here.

Order matters: stop the source, then free what it left. Units that a node cannot live without are
never offered for stopping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from shlex import quote

from sexton.detect.churn import churn
from sexton.detect.ledger import suspects
from sexton.detect.owners import owners
from sexton.detect.protected import protected
from sexton.model.cgroup import CgroupCensus, Mount
from sexton.model.chain import Link, Strength
from sexton.model.diagnosis import Step
from sexton.model.finding import Finding
from sexton.model.text import printable
from sexton.model.window import Window


def advise(
    findings: Iterable[Finding], window: Window, links: Iterable[Link] = ()
) -> tuple[Step, ...]:
    """Steps for the problems that are present; what `links` have proven needs no look."""
    problems = {each.id: each for each in findings if each.is_problem}
    links = tuple(links)
    steps: list[Step] = []
    if "crash_looping_unit" in problems:
        steps += _stop_units(problems["crash_looping_unit"])
    elif "cgroup_churn" in problems:
        steps += _find_maker(problems["cgroup_churn"], window)
        if any(each.id == "timer_leaves_zombies" for each in links):
            steps += _stop_timer(window)
    if "zombie_memcgs" in problems:
        steps += _free_zombies(window)
    proven = {each.effect for each in links if each.strength is Strength.PROVEN}
    # What lost against a proven cause is not where to look.
    lost = {each.cause for each in links if each.effect in proven and each.strength is _WEAKEST}
    looks = dict.fromkeys(
        look(problems[name], window)
        for name, look in _LOOKS.items()
        if name in problems and name not in lost
    )
    steps += list(looks)[:_MOST_LOOKS]
    if "saturated_core" in problems and "saturated_core" not in proven:
        steps += _see_stacks(problems["saturated_core"])
    return tuple(steps)


def _stop_units(finding: Finding) -> list[Step]:
    steps = []
    for unit in finding.entities.get("unit", ())[:3]:
        log = Step(f"journalctl -u {quote(unit)} -n 50", f"why {unit} dies", "none: reads the log")
        if (needed_for := protected(unit)) is not None:
            steps.append(Step(log.do, f"{log.why}; do not disable it: {needed_for}", log.risk))
            continue
        steps.append(log)
        steps.append(
            Step(
                f"systemctl disable --now {quote(unit)} && systemctl mask {quote(unit)}",
                "if nothing here uses it: stops the source; undo with unmask and enable",
                "whatever depends on it loses it",
            )
        )
    return steps


def _find_maker(finding: Finding, window: Window) -> list[Step]:
    """Who makes what dies again and again, where a program can be asked."""
    seen = churn(window)
    places = finding.entities.get("cgroup", ())
    told = seen.families if seen is not None else ()
    if not any(each.container and printable(each.path) in places for each in told):
        return []
    why = "which container comes back; what makes it again is what has to stop"
    return [Step("crictl ps -a 2>/dev/null || docker ps -a", why, _READS)]


def _stop_timer(window: Window) -> list[Step]:
    """The timer that the ledger is surest of."""
    sure = (each for each in suspects(window) if each.strength is not _WEAKEST)
    steps = []
    for timer in [each.owner for each in sure if each.kind == "timer"][:1]:
        shown = quote(printable(timer))
        when = Step(f"systemctl list-timers --all {shown}", f"when {shown} runs, and what", _READS)
        steps.append(when)
        if protected(timer) is None:
            why = "if nothing here needs it: stops the source; undo with enable --now"
            steps.append(Step(f"systemctl disable --now {shown}", why, "what it does stays undone"))
    return steps


def _free_zombies(window: Window) -> list[Step]:
    census = window.latest(CgroupCensus)
    if not census or census[0].mount_point is None:
        return []
    known = [each for each in owners(window) if each.strength is not Strength.POSSIBLE]
    path = known[0].path if known else "/"
    parent = f"{census[0].mount_point.rstrip('/')}{path.rstrip('/')}"
    if path == "/":
        return [
            Step(
                "sudo sexton zombies --watch",
                "names their owners as they die; stop those, then free on their parent",
                "none: follows events",
            )
        ]
    if census[0].version == 2:
        command = f"echo 64M > {quote(printable(parent + '/memory.reclaim'))}"
        risk = "evicts cache of live siblings too; needs 5.19 or later; repeat while it frees"
    else:
        order = f"echo 0 > {quote(printable(parent + '/memory.force_empty'))}"
        command = f"timeout 5 sh -c {quote(order)}"
        risk = (
            "reclaims live siblings' cache too; some 0.3 ms of one core per zombie it cannot free"
        )
    what = f"once the source is stopped: frees zombies held by page cache under {printable(path)}"
    what += " (those held by files on tmpfs go when the files are deleted)"
    return [Step(command, what, risk)]


_READS = "none: reads only"
_MOST_LOOKS = 2
_WEAKEST = Strength.POSSIBLE


def _quota(finding: Finding, window: Window) -> Step:
    units = finding.entities.get("unit", ())
    why = "how much it may run; give it more, or fewer threads"
    if units:
        return Step(f"systemctl show -p CPUQuotaPerSecUSec {quote(units[0])}", why, _READS)
    path = next(iter(finding.entities.get("cgroup", ())), "")
    first = [each for each in window.latest(Mount) or () if "cpu" in each.super_options]
    if first:
        top = min((each.mount_point for each in first), key=len)
        return Step(f"cat {quote(printable(f'{top}{path}/cpu.cfs_quota_us'))}", why, _READS)
    return Step(f"cat {quote(f'/sys/fs/cgroup{path}/cpu.max')}", why, _READS)


def _flood(finding: Finding, _window: Window) -> Step:
    nic = next(iter(finding.entities.get("nic", ())), None)
    spread = "spread them over more cores (ethtool -X, rps_cpus)"
    if nic is None:
        return Step("sar -n DEV 1 5", f"which interface brings them; {spread}", _READS)
    command = f"ethtool -S {quote(nic)} | grep -iE 'drop|packets'"
    return Step(command, f"which queue takes them in; {spread}", _READS)


def _sorted_by_memory(_finding: Finding, _window: Window) -> Step:
    why = "who holds the memory; cap it, move it, or give it less to do at once"
    return Step("ps -eo rss,pid,comm --sort -rss | head", why, _READS)


def _faulting(_finding: Finding, _window: Window) -> Step:
    why = "who maps and unmaps: an allocator that gives back at once, or a loop of short processes"
    return Step("pidstat -r 1 5", why, _READS)


def _table(_finding: Finding, _window: Window) -> Step:
    return Step(
        "sysctl net.netfilter.nf_conntrack_count net.netfilter.nf_conntrack_max",
        "how full it is; raise the maximum, or shorten the time-outs of what fills it",
        _READS,
    )


def _scopes(_finding: Finding, _window: Window) -> Step:
    why = "which sessions do not close; end them by loginctl terminate-session"
    return Step("loginctl list-sessions | grep closing", why, _READS)


#: Where to look first, for causes that nothing here stops.
_LOOKS: Mapping[str, Callable[[Finding, Window], Step]] = {
    "leaked_scopes": _scopes,
    "softirq_flood": _flood,
    "conntrack_full": _table,
    "memory_pressure": _sorted_by_memory,
    "direct_reclaim": _sorted_by_memory,
    "page_fault_storm": _faulting,
    "quota_throttling": _quota,
}


def _see_stacks(finding: Finding) -> list[Step]:
    if not finding.entities.get("core") or any("perf" in each.source for each in finding.evidence):
        return []
    core = finding.entities["core"][0]
    return [
        Step(
            f"perf record -C {core} -g -- sleep 10 && perf report --stdio | head -50",
            f"which kernel function holds core {core}",
            "none worth naming: samples one core",
        )
    ]
