"""Which samples are idle: decided by the innermost function *and* the task.

A sample is idle if the kernel's idle task (``swapper``, pid 0) was in one of the functions in which
a core sleeps or polls. Both are needed. A softirq or an interrupt that woke the core runs on the
idle task's stack, with the idle loop further out: its innermost function is a different one, so it
counts as work (tools that search the whole stack for "idle" lose exactly the network work). And a
user function named ``poll_idle`` is not idle.

Without kernel symbols (``kptr_restrict``, no kallsyms) both sleep and interrupt work are
``[unknown]``. Such samples are *not* idle: hiding work would be worse than showing sleep.
`unnamed_idle` counts them, so that reports can say that idle time is unknown.

>>> is_idle_function("intel_idle_ibrs"), is_idle_function("acpi_idle_do_entry.constprop.0")
(True, True)
>>> is_idle_function("net_rx_action"), is_idle_task("swapper/12"), is_idle_task("swapperd")
(False, True, False)
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

from sexton.model.profile import UNKNOWN, Bools, Kind, Profile, Tree

_TASK = re.compile(r"swapper(/[0-9]+)?|:0")
_FUNCTIONS = re.compile(
    # x86
    r"(native|pv_native|xen|tdx|acpi|hv)_safe_halt|(native|pv_native)_halt"
    r"|default_idle(_call)?|default_enter_idle|amd_e400_idle|mwait_idle(_with_hints)?\w*"
    r"|intel_idle\w*|acpi_idle_\w+|acpi_processor_ffh_(cstate|lpi)_enter\w*|x86_idle"
    r"|__sti_mwait|haltpoll_enter_idle|poll_idle|cpu_idle_poll"
    # arm, arm64, riscv
    r"|cpu_do_idle|arch_cpu_idle|cpu_\w+_do_idle|psci_(cpu_suspend_enter|enter_\w*idle_state)"
    r"|cpu_ps_do_idle|sbi_cpuidle_enter_state|wait_for_interrupt"
    # powerpc, s390
    r"|power[0-9]+_idle\w*|arch300_idle\w*|snooze_loop|snooze|(dedicated|shared)_cede_loop"
    r"|enabled_wait|psw_idle"
    # everywhere: the loop itself, where a sample of sleep lands once interrupts are enabled
    r"|call_cpuidle|cpuidle_enter\w*|cpuidle_idle_call|do_idle|cpu_idle_loop|cpu_idle"
    r"|cpu_startup_entry|arch_cpu_idle_(enter|exit)"
)
#: The mark of other tools on kernel functions, and suffixes of compilers.
_SUFFIX = re.compile(r"(_\[k\]|\.(isra|constprop|part|cold|llvm)(\.[0-9]+)*|\.[0-9]+)+$")


@lru_cache(1 << 16)  # the same names occur in every capture
def is_idle_function(name: str) -> bool:
    """Is this a kernel function in which a core idles?"""
    if _FUNCTIONS.fullmatch(name):
        return True
    bare = _SUFFIX.sub("", name)
    return bare != name and _FUNCTIONS.fullmatch(bare) is not None


def is_idle_task(comm: str) -> bool:
    """Is this the name of the idle task? perf calls it ``swapper``, ``ps`` ``swapper/CPU``."""
    return _TASK.fullmatch(comm) is not None


def idle_nodes(tree: Tree) -> Bools:
    """Per node: is a sample that ends there idle?"""
    names, kinds = tree.frames.names, tree.frames.kinds
    kernel = (kinds == Kind.KERNEL) | (kinds == Kind.UNTOLD)
    idle = np.zeros(len(names), np.bool_)
    for frame in np.flatnonzero(kernel).tolist():
        idle[frame] = is_idle_function(names[frame])
    return _of_idle_task(tree) & idle[tree.frame]


def unnamed_idle(profile: Profile) -> int:
    """Samples of the idle task whose innermost function is unknown: idle or interrupt work."""
    tree = profile.tree
    names = tree.frames.names
    unnamed = np.fromiter((name == UNKNOWN for name in names), np.bool_, len(names))
    nodes = _of_idle_task(tree) & (unnamed[tree.frame] | (tree.depth == 1))
    chosen = nodes[profile.node]
    if profile.weight is None:
        return int(np.count_nonzero(chosen))
    return int(profile.weight[chosen].sum())


def _of_idle_task(tree: Tree) -> Bools:
    chosen = np.zeros(len(tree), np.bool_)
    for node in np.flatnonzero(tree.depth == 1).tolist():
        if is_idle_task(tree.frames.names[tree.frame[node]]):
            chosen[node : tree.end[node]] = True
    return chosen
