"""A live audit against a real systemd: dependants, sockets, restarts, deaths, CPU time."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator

import pytest

from tests.yard.yard import Yard, why_not

pytestmark = [pytest.mark.root, pytest.mark.systemd]

UNIT = "[Unit]\nDefaultDependencies=no\n"
CRASH = f"{UNIT}[Service]\nExecStart=/bin/false\nRestart=on-failure\nRestartSec=2s\n"
SLEEP = f"{UNIT}[Service]\nExecStart=/bin/sleep 1000\n"
LEANING = f"{UNIT}Requires=base.service\n[Service]\nExecStart=/bin/sleep 1000\n"


def python(code: str) -> str:
    return f'{UNIT}[Service]\nExecStart=/usr/bin/python3 -c "import os,socket,time;{code}"\n'


TCP_SERVER = python(
    "s=socket.create_server(('127.0.0.1',0));open('/run/port','w').write(str(s.getsockname()[1]));"
    "c=[s.accept() for _ in range(9)]"
)
TCP_CLIENT = python(
    "s=socket.create_connection(('127.0.0.1',int(open('/run/port').read())));"
    "open('/run/joined','w').close();[x for x in iter(int,1)]"
)
UNIX_SERVER = python(
    "s=socket.socket(socket.AF_UNIX);s.bind('/run/greet');s.listen();"
    "c=[s.accept() for _ in range(9)]"
)
UNIX_CLIENT = python(
    "s=socket.socket(socket.AF_UNIX);s.connect('/run/greet');open('/run/met','w').close();"
    "time.sleep(1000)"
)
#: The yard is a container to us, and of a container no workloads are told. Here it is the node.
AS_NODE = """
import json, sys
from dataclasses import replace
from sexton.prevent.audit import audit, wanted_sources
from sexton.model.rows.node import Node
from sexton.model.window import Batch, Window
from sexton.record.sampler import Sampler
from sexton.host.host import open_host
from sexton.reports.text.audit import audit_json

host = open_host()
with Sampler(host, wanted_sources()) as sampler:
    window = sampler.run(3)
batch = window.batches(Node)[-1]
rows = tuple(replace(row, container=None) for row in batch.rows)
window._batches[Node] = (Batch(batch.mono_s, batch.wall_s, rows),)
print(json.dumps(audit_json(audit(host, window))))
"""


@pytest.fixture(scope="module")
def subjects() -> Iterator[dict[str, dict]]:
    reason = why_not()
    if reason is not None:
        pytest.skip(reason)
    with Yard() as yard:
        for name, text in (
            ("base", SLEEP), ("leaning", LEANING), ("alone", SLEEP), ("kubelet", SLEEP),
            ("tcp-server", TCP_SERVER), ("unix-server", UNIX_SERVER),
            ("tcp-client", TCP_CLIENT), ("unix-client", UNIX_CLIENT),
            ("ecs", CRASH.replace("2s", "100ms").replace(UNIT, f"{UNIT}StartLimitIntervalSec=0\n")),
        ):  # fmt: skip
            yard.install(f"{name}.service", text)
        yard.run("systemctl", "start", *(f"{name}.service" for name in (
            "leaning", "alone", "kubelet", "tcp-server", "unix-server")))  # fmt: skip
        yard.run("systemctl", "start", "--no-block", "ecs.service")
        there = "test -s /run/port -a -S /run/greet && echo yes"
        yard.wait("the servers", lambda: "yes" in yard.run("sh", "-c", there, check=False))
        yard.run("systemctl", "start", "tcp-client.service", "unix-client.service")
        both = "test -e /run/joined -a -e /run/met && echo yes"
        yard.wait("the clients", lambda: "yes" in yard.run("sh", "-c", both, check=False))
        yard.wait("restarts", lambda: int(yard.show("ecs.service", "NRestarts")["NRestarts"]) > 5)
        document = json.loads(yard.python(AS_NODE))
        seen = json.loads(
            yard.run(sys.executable, "-B", "-m", "sexton", "audit", "--json", "--seconds", "1",
                     check=False)
        )  # fmt: skip
        yield {
            "node": {subject["unit"]: subject for subject in document["subjects"]},
            "container": {subject["unit"]: subject for subject in seen["subjects"]},
            "unseen": {"in a container": seen["unseen"], "workloads": seen["workloads"]},
        }


def whats(subject: dict, side: str = "reasons") -> dict[str, str]:
    return {item["what"]: item["value"] for item in subject[side]}


def test_a_unit_that_a_running_one_requires_is_needed(subjects):
    found = subjects["node"]["base.service"]
    assert found["verdict"] == "needed"
    assert whats(found)["running units require it"] == "leaning.service"


@pytest.mark.parametrize("kind", ["tcp", "unix"])
def test_a_server_with_a_client_is_needed_and_its_client_is_not_for_that(subjects, kind):
    server = subjects["node"][f"{kind}-server.service"]
    assert server["verdict"] == "needed"
    assert whats(server)["connected clients"] == f"{kind}-client.service"
    client = subjects["node"][f"{kind}-client.service"]
    assert client["verdict"] == "unknown"
    assert whats(client, "against")["connected to"] == f"{kind}-server.service"


def test_what_nobody_was_seen_using_is_unknown_and_never_unneeded(subjects):
    found = subjects["node"]["alone.service"]
    assert found["verdict"] == "unknown"
    assert found["state"] == "active (running)"


def test_the_cpu_time_it_used_speaks_for_a_unit(subjects):
    used = whats(subjects["node"]["tcp-client.service"], "against")
    assert re.search(r" in \d", used["CPU used"]), used
    assert "CPU used" not in whats(subjects["node"]["alone.service"], "against")


def test_a_crash_looping_agent_on_another_clusters_node_is_unneeded(subjects):
    found = subjects["node"]["ecs.service"]
    assert found["verdict"] == "unneeded"
    assert {fault["id"] for fault in found["faults"]} == {"crash-loop", "endless-restart"}
    assert found["restarts"] > 5
    assert whats(found)["this is a Kubernetes node"] == "kubelet.service is running"
    assert whats(found)["ruled out: ECS tasks run here"] == "none"
    assert found["wrong_if"]


def test_the_same_agent_is_unknown_where_workloads_cannot_be_seen(subjects):
    found = subjects["container"]["ecs.service"]
    assert found["verdict"] == "unknown"
    assert found["unseen"] == ["whether ECS tasks run here (workloads could not be read)"]
    assert subjects["unseen"]["workloads"] is None
    assert any("container" in item for item in subjects["unseen"]["in a container"])


def test_a_protected_unit_is_protected_whatever_was_seen(subjects):
    assert subjects["node"]["kubelet.service"]["verdict"] == "protected"


def test_its_dead_cgroups_are_counted(subjects):
    deaths = subjects["node"]["ecs.service"]["deaths"]
    if deaths is None:
        pytest.skip("no tracefs in this yard")
    assert deaths > 0
    assert subjects["node"]["alone.service"]["deaths"] == 0
