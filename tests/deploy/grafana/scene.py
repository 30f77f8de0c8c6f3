"""Made nodes with hostile names, as a Prometheus sees them: the pages are the exporter's own."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import yaml

from sexton.export import families as f
from sexton.export.exposition import Page
from sexton.export.families import Family
from sexton.export.samples import Counts, Samples
from tests.deploy.peers import answer, prometheus, until

HOSTILE = 'x "quoted" \\back\\slashed {a="b"} `tick` $1 (a|b).*'
LONG = "l" * 120
CHAIN = ("crash_looping_unit", "zombie_memcgs", "saturated_core", "starved_napi", "nic_resets")


class Chosen(NamedTuple):
    """A node as it is chosen in a board's variables."""

    job: str
    instance: str


# No backtick in these two: they are named by Prometheus' configuration, not by a node.
SICK = Chosen("se\"x\\ton's (a|b)", 'node "13"\\d+{}|.*')
HEALTHY = Chosen("sexton-healthy", LONG)
UNKNOWN = Chosen("sexton", "unknown:9643")
STALE = Chosen("sexton", "stale:9643")
GONE = Chosen("sexton", "gone:9643")


def _counts(family: Family, tick: int, at: int) -> Counts:
    """Observations in the first bucket, and one per scrape in bucket `at`."""
    buckets = [0.0] * (len(family.buckets) + 1)
    buckets[0] += 10.0 * tick
    buckets[at] += 1.0 * tick
    return Counts(tuple(buckets), float(tick))


def _recorder(samples: Samples, tick: int) -> None:
    samples.add(f.BUILD, 1, "0.1.0")
    samples.add(f.RECORDER, 1)
    samples.add(f.LAST_READING, time.time())
    samples.add(f.PROBLEM, 0)
    samples.add(f.ALARMS, 0)
    samples.add(f.LOST, 0)
    samples.add(f.WRITTEN, 10_000 * tick)
    for part in ("own", "children", "kernel"):
        samples.add(f.RECORDER_CPU, 0.01 * tick, part)
    for part in ("own", "children"):
        samples.add(f.RECORDER_MEMORY, 60e6, part)
    samples.add(f.EXPORTER_CPU, 0.001 * tick)
    samples.add(f.EXPORTER_MEMORY, 50e6)
    samples.add(f.FAILURES, 0)
    samples.add(f.SOURCE, 1, "procfs.stat")


def healthy(tick: int) -> Samples:
    """Nothing is wrong: no chain, no leak, no owner, no reset, no restart."""
    samples = Samples()
    _recorder(samples, tick)
    samples.add(f.NODE, 1, "6.1.0", "v2", "96")
    samples.add(f.VERDICT, 0)
    samples.add(f.VERDICT_TIME, time.time())
    samples.add(f.VERDICT_WINDOW, 300)
    samples.add(f.UNKNOWN, 0)
    for detector in CHAIN:
        samples.add(f.FINDING, 0, detector, "")
    samples.add(f.DYING, 20)
    samples.add(f.LIVE, 300)
    samples.add(f.LEAK, 0)
    samples.add(f.CORE_KERNEL, _counts(f.CORE_KERNEL, tick, 1))
    samples.add(f.WORST_CORE, 0.1)
    for vector in ("NET_RX", "NET_TX"):
        samples.add(f.SOFTIRQ_WAIT, _counts(f.SOFTIRQ_WAIT, tick, 1), vector)
        samples.add(f.SOFTIRQ_PENDING, 0, vector)
    samples.add(f.NIC_RESETS, 0, "eth0")
    samples.add(f.RECLAIM_RATIO, 0)
    for by in ("direct", "kswapd"):
        samples.add(f.RECLAIM, 0, by)
    for kind in ("minor", "major"):
        samples.add(f.FAULTS, 1_000 * tick, kind)
    samples.add(f.OOM_KILLS, 0)
    for resource in ("cpu", "memory", "io"):
        for kind in ("some", "full"):
            samples.add(f.PRESSURE, 0.001 * tick, resource, kind)
    return samples


def sick(tick: int) -> Samples:
    """The whole chain, under names that try to break out of every string."""
    samples = Samples()
    samples.add(f.VERDICT, 1)
    samples.add(f.UNKNOWN, 2)
    for detector in CHAIN:
        samples.add(f.FINDING, 1, detector, "critical")
        samples.add(f.EXPLAINED, int(detector != CHAIN[0]), detector)
    samples.add(f.CHAIN, 1, CHAIN[0], CHAIN[-1], "proven")
    samples.add(
        f.CHAIN_INFO, 1, CHAIN[0], CHAIN[-1], f"crash-looping {HOSTILE} → NIC reset", HOSTILE
    )
    samples.add(f.DYING, 70_000 + tick)
    samples.add(f.LEAK, 0.1)
    for owner in (HOSTILE, LONG, "\x1b[2J\n", "\udcff", "l" * 10_000, "other"):
        samples.add(f.OWNERS, 11_000, owner)
    samples.add(f.CORE_KERNEL, _counts(f.CORE_KERNEL, tick, -2))
    samples.add(f.WORST_CORE, 1)
    samples.add(f.WORST_CORE_INFO, 1, "13", HOSTILE)
    samples.add(f.HELD_CORE, 5.4, "13", HOSTILE)
    samples.add(f.SOFTIRQ_WAIT, _counts(f.SOFTIRQ_WAIT, tick, -3), "NET_RX")
    samples.add(f.SOFTIRQ_PENDING, 4.2, "NET_RX")
    samples.add(f.NIC_RESETS, tick, HOSTILE)
    samples.add(f.UNIT_RESTARTS, tick, HOSTILE)
    for unit in (LONG, "\udcff", "l" * 10_000):
        samples.add(f.UNIT_RESTARTS, 2 * tick, unit)
    samples.add(f.RECLAIM_RATIO, 0.9)
    samples.add(f.RECLAIM, 2_000 * tick, "direct")
    samples.add(f.THROTTLED, 0.5, "/" + HOSTILE)
    samples.add(f.OOM_KILLS, tick)
    samples.add(f.ALARMS, tick)
    samples.add(f.LOST, tick)
    samples.add(f.PROBLEM, 1)
    samples.add(f.SOURCE, 0, "kmsg.log")
    samples.add(f.SHED, 1, "procfs.stat", "slow")
    rest = healthy(tick)
    rest.update(samples)
    return rest


def unknown(tick: int) -> Samples:
    samples = Samples()
    samples.add(f.VERDICT, 3)
    samples.add(f.UNKNOWN, 30)
    rest = healthy(tick)
    rest.update(samples)
    return rest


def stale(tick: int) -> Samples:
    """No recorder runs: everything about the node has disappeared."""
    samples = Samples()
    samples.add(f.BUILD, 1, "0.0.9")
    samples.add(f.RECORDER, 0)
    samples.add(f.LAST_READING, time.time() - 900)
    return samples


NODES: dict[Chosen, Callable[[int], Samples]] = {
    SICK: sick,
    HEALTHY: healthy,
    UNKNOWN: unknown,
    STALE: stale,
    GONE: healthy,
}


@contextmanager
def _node(make: Callable[[int], Samples]) -> Iterator[str]:
    ticks = iter(range(1, 1_000_000))

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body, kind = Page(make(next(ticks))).body(self.headers.get("Accept", ""), False)
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Nothing on the terminal of the tests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def _configuration(addresses: dict[Chosen, str]) -> str:
    jobs = [
        {
            "job_name": job,
            "static_configs": [
                {"targets": [address], "labels": {"instance": chosen.instance}}
                for chosen, address in addresses.items()
                if chosen.job == job
            ],
        }
        for job in dict.fromkeys(chosen.job for chosen in addresses)
    ]
    every = {"scrape_interval": "1s", "scrape_timeout": "1s"}
    return yaml.safe_dump({"global": every, "scrape_configs": jobs}, allow_unicode=True)


@contextmanager
def scraped(folder: Path) -> Iterator[str]:
    """A Prometheus that scraped all nodes, of which one has gone since."""
    with ExitStack() as open_nodes, ExitStack() as gone:
        addresses = {
            chosen: (gone if chosen == GONE else open_nodes).enter_context(_node(make))
            for chosen, make in NODES.items()
        }
        (folder / "prometheus.yml").write_text(_configuration(addresses))
        url = open_nodes.enter_context(prometheus(folder))
        until(lambda: _value(url, "count(sexton_recorder_up)") == len(NODES), "five scraped nodes")
        gone.close()
        until(lambda: _value(url, "sum(up)") == len(NODES) - 1, "one silent node")
        yield url


def _value(url: str, expr: str) -> float | None:
    found = answer(f"{url}/api/v1/query?query={expr}")["data"]["result"]
    return float(found[0]["value"][1]) if found else None
