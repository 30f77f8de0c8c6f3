"""What mpstat, free, vmstat, ps and ip say of this machine, and what our sources say.

Each answer of theirs is taken between two of ours, so that what moves meanwhile has to lie
between them; where that cannot be, the tolerance says why.
"""

import json
import os
import re
import subprocess
import time

import pytest

from sexton.host.host import open_host
from sexton.host.reader import text
from sexton.model.rows.cpu import CoreTimes
from sexton.model.rows.task import Process
from sexton.sources.procfs import net_dev, stat, vmstat
from sexton.sources.procfs.tasks import Tasks
from tests.support.tools import need

pytestmark = pytest.mark.oracle
HOST = open_host()


def output(*argv):
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "S_COLORS": "never"}
    return subprocess.run(argv, env=environment, check=True, capture_output=True, text=True).stdout


def times():
    rows = stat.parse(text(HOST.files, stat.PATH))
    return {row.cpu: row for row in rows if isinstance(row, CoreTimes)}


def share(before, after, *fields):
    """Percent of a core's time between two readings that went to `fields`."""
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
    spent = {n: getattr(after, f"{n}_ms") - getattr(before, f"{n}_ms") for n in names}
    return 100 * sum(spent[name] for name in fields) / sum(spent.values())


def agreed(compare, times=5):
    """Compares up to so often: what others do between two readings is in one of them alone."""
    for left in reversed(range(times)):
        try:
            return compare()
        except AssertionError:
            if not left:
                raise


def test_each_cores_share_is_what_mpstat_says():
    agreed(compare_shares)


def compare_shares():
    mpstat = need("mpstat", package="sysstat")
    core = max(os.sched_getaffinity(0))
    # A known load, so that there is something to agree on: one core's user time.
    burner = subprocess.Popen(
        ["sh", "-c", "while :; do :; done"], preexec_fn=lambda: os.sched_setaffinity(0, {core})
    )
    try:
        time.sleep(0.1)
        before = times()
        report = json.loads(output(mpstat, "-P", "ALL", "-o", "JSON", "2", "1"))
        after = times()
    finally:
        burner.kill()
        burner.wait()
    (sample,) = report["sysstat"]["hosts"][0]["statistics"]
    theirs = {row["cpu"]: row for row in sample["cpu-load"]}
    assert set(theirs) == {"all"} | {str(cpu) for cpu in after}
    for cpu, row in after.items():
        said = theirs[str(cpu)]
        busy = 100 - share(before[cpu], row, "idle", "iowait")
        # Its two seconds lie within ours, which are longer by its own start and end.
        assert busy == pytest.approx(100 - said["idle"] - said["iowait"], abs=12)
        assert share(before[cpu], row, "steal") == pytest.approx(said["steal"], abs=12)
    assert share(before[core], after[core], "user", "system", "nice", "steal") > 50


def counters():
    return {row.name: row.value for row in vmstat.parse(text(HOST.files, vmstat.PATH))}


def test_cache_and_shared_memory_are_what_free_says():
    """Not the free pages: a hypervisor may count memory it can give as free in one of the two."""
    free = need("free", package="procps")
    memory = os.memfd_create("sexton-test")
    try:
        os.posix_fallocate(memory, 0, 256 << 20)  # more than the room we allow below
        before = counters()
        said = next(line for line in output(free, "-b").splitlines() if line.startswith("Mem:"))
        after = counters()
    finally:
        os.close(memory)
    shared, cache = (int(column) for column in said.split()[4:6])
    # The counters are kept per core and folded once a second.
    room = 64 << 20
    assert between(cached(before), cache, cached(after), room)
    assert between(shmem(before), shared, shmem(after), room)
    assert shmem(after) > (256 << 20) - room


def cached(pages):
    files = pages["nr_file_pages"] - pages.get("nr_swapcached", 0)
    return (files + pages["nr_slab_reclaimable"]) * os.sysconf("SC_PAGE_SIZE")


def shmem(pages):
    return pages["nr_shmem"] * os.sysconf("SC_PAGE_SIZE")


def between(one, theirs, other, room):
    """It may rise or fall meanwhile: other programs run too."""
    return min(one, other) - room <= theirs <= max(one, other) + room


def test_the_ticks_of_vmstat_lie_between_two_readings_of_ours():
    program = need("vmstat", package="procps")
    before = times()
    said = output(program, "-s")
    after = times()
    ticks = {
        "non-nice user cpu ticks": "user_ms",
        "system cpu ticks": "system_ms",
        "softirq cpu ticks": "softirq_ms",
    }
    for words, field in ticks.items():
        (found,) = re.findall(rf"^\s*(\d+) {words}$", said, re.MULTILINE)
        low, high = (sum(getattr(r, field) for r in at.values()) for at in (before, after))
        # The kernel's sum is made before it is cut to ticks, ours of each core's cut time.
        slack = 10 * (len(after) + 1)
        assert low - slack <= int(found) * 10 <= high + slack


def test_every_process_ps_lists_is_ours_too():
    agreed(compare_processes)


def compare_processes():
    ps = need("ps", package="procps")

    def ours():
        return {row.pid: row for row in Tasks(HOST).collect() if isinstance(row, Process)}

    before = ours()
    listed = [
        line.split(None, 3)
        for line in output(ps, "-e", "-o", "pid=,ppid=,nlwp=,comm=").splitlines()
    ]
    after = ours()
    theirs = {int(pid): (int(ppid), comm) for pid, ppid, _, comm in listed}
    stayed = {
        pid for pid in before.keys() & after.keys() if before[pid].start_ms == after[pid].start_ms
    }
    assert stayed <= theirs.keys(), "what was there before and after, ps saw as well"
    unknown = theirs.keys() - before.keys() - after.keys()
    assert len(unknown) <= 1 + len(after.keys() ^ before.keys()), "ps itself, and short-lived ones"
    for pid in stayed:
        # One may be given to another parent meanwhile, or become another program.
        assert theirs[pid][0] in (before[pid].ppid, after[pid].ppid)
        names = {before[pid].comm, after[pid].comm}
        if all(re.fullmatch(r"[\w/.-]+", name) and len(name) < 15 for name in names):
            assert theirs[pid][1].split(" <")[0] in names


def test_interface_counters_lie_around_those_of_ip():
    ip = need("ip", package="iproute2")

    def ours():
        return {row.name: row for row in net_dev.parse(text(HOST.files, "/proc/self/net/dev"))}

    before = ours()
    links = json.loads(output(ip, "-j", "-s", "link", "show"))
    after = ours()
    assert {link["ifname"] for link in links} == set(after)
    for link in links:
        name, said = link["ifname"], link["stats64"]
        for side in ("rx", "tx"):
            for what in ("bytes", "packets", "errors", "dropped"):
                low, high = (getattr(at[name], f"{side}_{what}") for at in (before, after))
                assert low <= said[side][what] <= high, f"{name} {side}_{what}"
