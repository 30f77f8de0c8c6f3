"""Idle is decided by the innermost function and the task."""

from __future__ import annotations

import pytest
from hypothesis import given

from sexton.profile.idle import idle_nodes, is_idle_function, unnamed_idle
from tests.profile.naive import idle, lists
from tests.support.profiles import Sample, profile_of

SLEEP = ("k:cpu_startup_entry", "k:do_idle", "k:cpuidle_enter", "k:acpi_safe_halt")


def of(sample: Sample) -> bool:
    profile = profile_of([sample])
    return bool(idle_nodes(profile.tree)[profile.node[0]])


def test_the_idle_task_asleep_is_idle():
    assert of(Sample(0, stack=SLEEP, comm="swapper", pid=0))


def test_softirq_work_that_interrupted_idle_is_no_idle():
    work = (*SLEEP, "k:asm_common_interrupt", "k:__do_softirq", "k:net_rx_action")
    assert not of(Sample(0, stack=work, comm="swapper", pid=0))


def test_another_task_in_a_function_called_like_an_idle_one_is_at_work():
    assert not of(Sample(0, stack=SLEEP, comm="app"))
    assert not of(Sample(0, stack=("main", "poll_idle"), comm="swapper"))


def test_the_idle_task_is_idle_in_a_format_without_kernel_marks():
    assert of(Sample(0, stack=("?:do_idle", "?:default_idle_[k]"), comm="swapper"))


@pytest.mark.parametrize(
    "name",
    [
        *("default_idle", "native_safe_halt", "pv_native_safe_halt", "acpi_safe_halt"),
        *("acpi_idle_do_entry", "intel_idle", "intel_idle_ibrs", "intel_idle_irq", "mwait_idle"),
        *("mwait_idle_with_hints.constprop.0", "cpuidle_enter_state", "poll_idle", "cpu_do_idle"),
        *("arch_cpu_idle", "do_idle", "cpu_startup_entry", "psci_cpu_suspend_enter", "psw_idle"),
        *("default_idle_call", "xen_safe_halt", "acpi_processor_ffh_cstate_enter"),
    ],
)
def test_a_core_rests_there(name):
    assert is_idle_function(name)


@pytest.mark.parametrize(
    "name",
    [
        *("net_rx_action", "__do_softirq", "menu_select", "tick_nohz_idle_enter", "idle_cpu"),
        *("asm_sysvec_apic_timer_interrupt", "cpuidle_select", "[unknown]", "", "idle_worker"),
        *("find_idlest_group", "newidle_balance", "do_idle_things", "wake_up_idle_cpu"),
    ],
)
def test_a_core_works_there(name):
    assert not is_idle_function(name)


def test_a_kernel_without_names_is_not_taken_for_idle_but_counted():
    profile = profile_of(
        [
            Sample(0, stack=("k:[unknown]", "k:[unknown]"), comm="swapper"),
            Sample(1, stack=(), comm="swapper"),
            Sample(2, stack=SLEEP, comm="swapper"),
            Sample(3, stack=("k:[unknown]",), comm="app"),
        ]
    )
    assert idle_nodes(profile.tree)[profile.node].tolist() == [False, False, True, False]
    assert unnamed_idle(profile) == 2


@given(lists)
def test_idle_nodes_agree_with_checking_each_sample(samples):
    profile = profile_of(samples)
    ordered = sorted(samples, key=lambda sample: sample.time_ns)
    assert idle_nodes(profile.tree)[profile.node].tolist() == [idle(sample) for sample in ordered]
