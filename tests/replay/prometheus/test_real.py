"""A real Prometheus and a real node_exporter, on loopback, while a core is held in the kernel."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest

from bench.programs import find
from sexton.cli.main import main
from sexton.errors import SourceError
from sexton.explain.diagnosis import diagnose
from sexton.model.finding import Verdict
from sexton.model.rows.memory import VmCounter
from sexton.replay.prometheus.client import Client
from sexton.replay.prometheus.window import window
from sexton.series.cores import core_series
from sexton.series.rates import steps_of
from tests.support.prometheus import kept, serving

KEPT = Path(__file__).parents[2] / "fixtures/prometheus/held-core-5s.json.gz"
LOAD = ("dd", "if=/dev/zero", "of=/dev/null", "bs=4M", "status=none")
WAIT_S = 60.0
_JOBS = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: node
    static_configs: [{{targets: ['127.0.0.1:{port}']}}]
  - job_name: slow
    scrape_interval: 5s
    static_configs: [{{targets: ['127.0.0.1:{port}'], labels: {{instance: 'slow:9100'}}}}]
"""


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    """Where the Prometheus answers; the exporter's own name is slow:9100 in the second job."""
    server, exporter = find("prometheus"), find("prometheus-node-exporter")
    if server is None or exporter is None:
        pytest.skip("Prometheus is not there: scripts/system-packages unpacks it")
    place = tmp_path_factory.mktemp("prometheus")
    ports = free_port(), free_port()
    (place / "jobs.yml").write_text(_JOBS.format(port=ports[0]))
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": place}
    with contextlib.ExitStack() as started:
        for argv in (
            [exporter, f"--web.listen-address=127.0.0.1:{ports[0]}", "--no-collector.systemd"],
            [server, "--config.file=jobs.yml", "--storage.tsdb.path=data",
             f"--web.listen-address=127.0.0.1:{ports[1]}"],
        ):  # fmt: skip
            child = started.enter_context(subprocess.Popen(argv, **quiet))
            started.callback(child.kill)
        yield f"http://127.0.0.1:{ports[1]}"


def judged(url, name, seconds):
    """The last seconds of a node, once Prometheus has scraped it."""
    end = time.time()
    with Client(url) as client:
        found = window(client, name, end - seconds, end).window
    return found, diagnose(found)


def awaited(condition):
    """Its first result that is not empty, from when Prometheus has anything to tell."""
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        with contextlib.suppress(SourceError):
            if found := condition():
                return found
        time.sleep(0.3)
    raise AssertionError(f"not within {WAIT_S:.0f} s")


@contextlib.contextmanager
def held_core(core):
    """A core that a child holds in the kernel."""

    def settle():
        os.sched_setaffinity(0, {core})
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, -15)

    with subprocess.Popen(LOAD, preexec_fn=settle) as child:
        try:
            yield
        finally:
            child.kill()


def asked(url, query, moment):
    """What PromQL says at a moment, by series."""
    text = urlencode({"query": query, "time": f"{moment:.3f}"})
    with urllib.request.urlopen(f"{url}/api/v1/query?{text}") as answer:
        return json.load(answer)["data"]["result"]


@pytest.mark.oracle
@pytest.mark.alone
def test_a_held_core_is_named_where_scrapes_show_it_and_rates_are_those_of_promql(url, capsys):
    core = max(os.sched_getaffinity(0))
    awaited(lambda: judged(url, "127.0.0.1", 60)[0].bounds_of(VmCounter))
    with held_core(core):

        def named():
            finding = judged(url, "127.0.0.1", 60)[1].by_id["saturated_core"]
            return finding if str(core) in finding.entities.get("core", ()) else None

        finding = awaited(named)
        assert finding.verdict is Verdict.PRESENT
        found = awaited(lambda: lasted(url, 8.0))
    the_same_rates(url, found, core)
    # Of the same node by another job, whose scrapes are too far apart to rule anything out.
    slow = awaited(lambda: judged(url, "slow", 60)[1].by_id["saturated_core"])
    assert slow.verdict is not Verdict.ABSENT
    assert main(["diagnose", "--prometheus", url, "--node", "127.0.0.1", "--window", "60s.."]) == 1
    assert f"core {core}" in capsys.readouterr().out
    assert main(["diagnose", "--prometheus", url, "--node", "127.0.0.2"]) == 2
    assert "did you mean 127.0.0.1?" in capsys.readouterr().err


def lasted(url, seconds):
    """The window once it is so long."""
    found = judged(url, "127.0.0.1", 60)[0]
    return found if found.seconds >= seconds else None


def the_same_rates(url, found, core):
    """PromQL extrapolates to the edges of its range, which here are within a scrape of samples:
    by at most one scrape interval at either end."""
    moment, length = found.end, found.seconds
    slack = 2.2 / length + 0.01
    cores = core_series(found)
    spent = {"system": cores.system, "user": cores.user}
    row = cores.cores.index(core)
    ours = float(np.nansum(spent["system"][row])) / length
    query = f'rate(node_cpu_seconds_total{{job="node",cpu="{core}",mode="system"}}[{length:.0f}s])'
    (theirs,) = asked(url, query, moment)
    assert ours == pytest.approx(float(theirs["value"][1]), rel=slack, abs=0.01)
    steps = steps_of(found.columns(VmCounter, ("value",)))
    row = steps.things.index(("pgfault",))
    ours = float(np.nansum(steps.moved["value"][row])) / length
    (theirs,) = asked(url, f'rate(node_vmstat_pgfault{{job="node"}}[{length:.0f}s])', moment)
    assert ours == pytest.approx(float(theirs["value"][1]), rel=slack)


def diagnosed(document):
    with serving(document) as server, Client(server.url) as client:
        return diagnose(window(client, "127.0.0.1", document["start"], document["end"]).window)


def test_a_core_held_through_whole_scrapes_of_5_s_is_found_in_kept_answers():
    """Prometheus 2.42 and node_exporter 1.5 on Linux 6.18, `dd` on core 1 for 40 s."""
    diagnosis = diagnosed(kept(KEPT))
    finding = diagnosis.by_id["saturated_core"]
    assert finding.verdict is Verdict.PRESENT
    assert finding.entities["core"] == ("1",)
    assert diagnosis.node.hostname == "vm"
    assert diagnosis.node.cores == 2
    unknown = diagnosis.by_id["zombie_memcgs"]
    assert unknown.verdict is Verdict.UNKNOWN
    assert "live and dying together" in unknown.summary
    assert "sexton record" in unknown.missing[0].grant


def test_why_answers_about_a_core_and_about_a_time(capsys):
    document = kept(KEPT)
    held = diagnosed(document).by_id["saturated_core"]
    window_of_it = f"@{document['start']:.3f}..@{document['end']:.3f}"
    with serving(document) as server:
        there = ["--prometheus", server.url, "--node", "127.0.0.1"]
        for query in (["core", "1", "--window", window_of_it], [f"@{held.start:.3f}"]):
            assert main(["why", *query, *there]) == 1
            said = capsys.readouterr().out
            assert "was held in the kernel for 15.0 s" in " ".join(said.split())
            assert f"Prometheus at {server.url}" in " ".join(said.split())
            assert "averages over scrapes are too coarse" in said
        assert main(["why", "core", "7", *there, "--window", window_of_it]) == 2
        assert "core 7" in capsys.readouterr().err
    assert main(["why", "core", "1", "--node", "n1"]) == 2
    assert "require --prometheus" in capsys.readouterr().err


def test_what_such_scrapes_hide_is_unknown_and_says_what_would_tell():
    """The same answers without the seconds in which the core was held."""
    document = kept(KEPT)
    held = diagnosed(document).by_id["saturated_core"]
    calm = {**document, "start": document["start"], "end": held.start + 1}
    finding = diagnosed(calm).by_id["saturated_core"]
    assert finding.verdict is Verdict.UNKNOWN
    assert "cannot show a core held in the kernel for less than about 10." in finding.summary
    assert finding.missing[0].what == "readings at most 2.0 s apart"
    fabric = diagnosed(document).by_id["fabric_errors"]
    assert fabric.verdict is Verdict.UNKNOWN  # nobody scraped it: it may well be there
