"""It barks when a counter rises or somebody waits, and not for our own reclaim."""

from __future__ import annotations

import time

import pytest

from sexton.cure.watchdog import Levels, Watchdog, shares
from tests.support.trees import plant

_LO = "    lo: 1 1 9 0 0 0 0 0 1 1 9 0 0 0 0 0\n"
NET = "Inter-|\n face |\n  eth0: 1 1 {rx} 0 0 0 0 0 1 1 {tx} 0 0 0 0 0\n" + _LO
UEVENT = "DRIVER=virtio_net\nMODALIAS=virtio:d00000001v00001AF4\n"


def pressure(total_us: int) -> str:
    return f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total_us}\n"


def files(io_us: int = 0, memory_us: int = 0, rx: int = 0, resets: int = 0) -> dict[str, str]:
    return {
        "/proc/pressure/cpu": pressure(0),
        "/proc/pressure/io": pressure(io_us),
        "/proc/pressure/memory": pressure(memory_us),
        "/proc/1/net/dev": NET.format(rx=rx, tx=0),
        "/sys/class/net/eth0/device/uevent": UEVENT,
        "/sys/class/net/lo/operstate": "unknown\n",
        "/commands/ethtool_S_eth0": f"NIC statistics:\n     total_resets: {resets}\n",
    }


@pytest.fixture
def watched(tmp_path):
    host = plant(tmp_path, files())
    watch = Watchdog(host, 60)
    yield watch, lambda **now: plant(tmp_path, files(**now))
    watch.close()


def looked(watch: Watchdog, later_s: float) -> str:
    """What it would say of a look `later_s` after the first."""
    now = watch.read()
    return watch._worse(now._replace(mono_s=watch.first.mono_s + later_s))


def test_it_says_what_it_looks_at(watched):
    watch, _ = watched
    assert watch.watches.startswith(
        "cpu pressure, io pressure, memory pressure, 3 NIC reset and error"
    )


def test_as_long_as_nothing_moves_it_is_silent(watched):
    watch, _ = watched
    assert looked(watch, 5) == ""


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ({"rx": 1}, "eth0 rx_errors rose from 0 to 1"),
        ({"resets": 2}, "eth0 total_resets rose from 0 to 2"),
    ],
)
def test_one_error_or_reset_is_one_too_many(watched, now, said: str):
    watch, become = watched
    become(**now)
    assert looked(watch, 0.5) == said


def test_an_error_of_an_interface_that_is_none_of_the_hardware_is_not_ours(watched, tmp_path):
    watch, _ = watched
    path = tmp_path / "proc/1/net/dev"
    path.write_text(path.read_text().replace("lo: 1 1 9", "lo: 1 1 99"))
    assert looked(watch, 5) == ""


def test_io_pressure_counts_over_some_seconds_and_beyond_what_was_usual(watched):
    watch, become = watched
    become(io_us=2_000_000)
    assert looked(watch, 1) == "", "a burst is not yet pressure"
    assert looked(watch, 4).startswith("io pressure is 50 % over the last 4.0 s, was 0 %")
    watch._before = {"io": 30.0}
    assert looked(watch, 4) == ""


def test_memory_pressure_is_our_own_while_we_reclaim(watched):
    watch, become = watched
    become(memory_us=3_000_000)
    assert looked(watch, 4).startswith("memory pressure")
    watch.reclaiming(True)
    assert looked(watch, 4) == ""


def test_time_that_is_over_is_a_reason(tmp_path):
    watch = Watchdog(plant(tmp_path, files()), 0.01)
    time.sleep(0.02)
    assert watch.reason == "--max-seconds 0.01 reached"
    watch.close()


def test_a_kernel_that_tells_nothing_is_watched_by_the_clock_alone(tmp_path):
    watch = Watchdog(plant(tmp_path, {"/proc/stat": ""}), 60)
    assert watch.watches.startswith("nothing")
    assert looked(watch, 5) == ""
    watch.close()


def test_the_thread_finds_it_and_keeps_the_first_reason(watched):
    watch, become = watched
    watch.settle(0.0)
    become(resets=1)
    while not watch.reason:
        time.sleep(0.05)
    become(resets=5)
    time.sleep(0.7)
    assert watch.reason == "eth0 total_resets rose from 0 to 1"


def test_shares_need_both_sides():
    assert shares(Levels(0, {}, {}), Levels(1, {"io": 5}, {})) == {}
    assert shares(Levels(1, {"io": 5}, {}), Levels(1, {"io": 5}, {})) == {}
