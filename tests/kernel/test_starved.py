"""A core of this machine is held with its softirqs off, for real, and the diagnosis says so."""

from __future__ import annotations

import os
import re
import threading

import pytest

from sexton.detect.detectors.network.starved_napi import detect
from sexton.host.host import open_host
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.cpu import SoftirqWait
from sexton.model.rows.net import Nic, NicQueue
from sexton.record.sampler import Sampler
from sexton.sources.registry import sources_of
from tests.sources.bpf.hold import held_core


@pytest.mark.alone
@pytest.mark.root
def test_a_starved_softirq_is_found_on_its_core_and_on_no_other():
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        pytest.skip("one core cannot watch itself starve")
    with (
        held_core(cores[-1]) as hold,
        Sampler(open_host(), sources_of(SoftirqWait, Nic, NicQueue)) as it,
    ):
        began = threading.Timer(1.2, hold.begin)
        os.sched_setaffinity(0, {cores[0]})
        try:
            began.start()
            window = it.run(5.5)
        finally:
            began.join()
            os.sched_setaffinity(0, cores)
        held_s = hold.seconds()
        if held_s < 1:
            pytest.skip("this kernel ends a BPF loop too soon to hold a core")
    finding = detect(window)
    assert finding.verdict is Verdict.PRESENT, finding.summary
    assert finding.severity is Severity.WARNING
    match = re.search(r"NET_RX waited ([0-9.]+) s for core (\d+)", finding.summary)
    assert match, finding.summary
    assert int(match[2]) == cores[-1]
    assert 1 <= float(match[1]) <= held_s + 0.1
    assert finding.entities["core"] == (str(cores[-1]),)
    assert not any("bpftrace" in item.grant for item in finding.missing)
