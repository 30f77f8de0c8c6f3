"""Packets run in circles between two namespaces of our own and flood a core, for real.

Each end sends what is not its own back to the other, so one packet is carried until its time to
live has run out, in softirq, on the core of whoever sent it. The packets of a card come before any
task; these are sent by a task, which is put before the others for those seconds.
"""

from __future__ import annotations

import os

import pytest

from sexton.detect.detectors.network.softirq_flood import detect
from sexton.host.host import open_host
from sexton.model.finding import Severity, Verdict
from sexton.model.rows.cpu import CoreTimes, SoftnetCpu
from sexton.model.rows.net import NetDevice, Nic, NicQueue
from sexton.model.rows.task import Process
from sexton.record.sampler import Sampler
from sexton.sources.registry import sources_of
from tests.kernel.conftest import until
from tests.support.netns import Place, two_places

#: With a source that is neither's own: an end that meets itself as the sender drops the packet.
SEND = """
import os, socket, struct, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
out = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)
ends = socket.inet_aton("198.51.100.7") + socket.inet_aton("203.0.113.9")
packet = struct.pack("!BBHHHBBH", 0x45, 0, 28, 0, 0, 255, 17, 0) + ends
packet += struct.pack("!HHHH", 9, 9, 8, 0)
while True:
    try:
        out.sendto(packet, ("203.0.113.9", 0))
    except OSError:
        pass
"""


def circle(left: Place, right: Place) -> None:
    """Each is the other's way to everywhere."""
    for place, other in ((left, right), (right, left)):
        place.set("ipv4/ip_forward", 1)
        for name in ("all", place.device):
            place.set(f"ipv4/conf/{name}/rp_filter", 0)
            place.set(f"ipv4/conf/{name}/send_redirects", 0)
        place.run("ip", "route", "add", "default", "via", other.address)


@pytest.mark.alone
@pytest.mark.root
def test_packets_in_a_circle_flood_the_core_they_are_sent_from():
    cores = sorted(os.sched_getaffinity(0))
    core = cores[-1]
    kinds = (CoreTimes, SoftnetCpu, NetDevice, Nic, NicQueue, Process)
    with two_places() as (left, right):
        circle(left, right)
        with left.doing(SEND, str(core)), Sampler(open_host(), sources_of(*kinds)) as sampler:
            assert until(lambda: carried(core) > 100_000)
            window = sampler.run(7.0)
    finding = detect(window)
    print(finding.summary)
    for item in finding.evidence:
        print(f"  {item.what}: {item.value} {item.unit}")
    assert finding.verdict is Verdict.PRESENT, finding.summary
    assert finding.severity is Severity.WARNING
    assert finding.entities["core"][0] == str(core)
    assert "nic" not in finding.entities, "no interface of the node brought them"
    (rate,) = [item.number for item in finding.evidence if item.what == f"core {core} carried"]
    assert rate is not None
    assert rate > 20_000


def carried(core: int, since: dict[int, int] = {}) -> int:  # noqa: B006 - remembered on purpose
    """Packets that core has carried since this was first asked."""
    with open("/proc/net/softnet_stat") as file:
        lines = [[int(word, 16) for word in line.split()] for line in file]
    now = next(line[0] for line in lines if len(line) < 13 or line[12] == core)
    return now - since.setdefault(core, now)
