"""From a scrape to a page, through a real Prometheus and a real Alertmanager.

The rules and the configuration are those that are shipped; only their times are shorter, and
PagerDuty, Slack and the webhook are a server of the test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.alertmanager.scene import CHAIN, Names, Node, Receiver, node, receiver
from tests.deploy.peers import alertmanager, answer, prometheus, until

DEPLOY = Path(__file__).parents[3] / "deploy"
ALERTS = DEPLOY / "prometheus" / "sexton-alerts.yml"
CONFIG = DEPLOY / "alertmanager" / "alertmanager.yml"
TEMPLATES = DEPLOY / "alertmanager" / "sexton.tmpl"
KEY = "0123456789abcdef0123456789abcdef"
#: Every `for:` and `keep_firing_for:` divided by this.
FASTER = 200
SECONDS = {"m": 60, "h": 3600, "d": 86400}
BODIES = ("/webhook", "/pagerduty", "/slack")
#: What a name on a node may do to a template, a query, JSON, Slack and HTML.
HOSTILE = Names(
    unit='a"b\\c\nd{{ .Labels }}<script>`$(x)`.service',
    owner="/kubepods.slice/<!channel>" + "é\"'{{" * 18,
    task="{{ query }}%q%!s(MISSING)",
    nic='eth"0\\',
)


def shorter(duration: str) -> str:
    found = re.fullmatch(r"(\d+)([mhd])", duration)
    assert found, duration
    return f"{int(found[1]) * SECONDS[found[2]] * 1000 // FASTER}ms"


class Scene:
    """Two nodes, Prometheus, Alertmanager and who is notified."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self.folder = folder
        self.receiver: Receiver = stack.enter_context(receiver())
        self.nodes: list[Node] = [stack.enter_context(node(names)) for names in (Names(), HOSTILE)]
        self.alertmanager = stack.enter_context(alertmanager(self._alertmanager_folder()))
        self.prometheus = stack.enter_context(prometheus(self._prometheus_folder()))

    def _alertmanager_folder(self) -> Path:
        folder = self.folder / "alertmanager"
        folder.mkdir()
        config = yaml.safe_load(CONFIG.read_text())
        config["templates"] = [str(TEMPLATES)]
        for route in (config["route"], *config["route"]["routes"]):
            route |= {"group_wait": "1s", "group_interval": "1s"}
        secrets = {"slack_url": f"{self.receiver.url}/slack", "pagerduty_key": KEY}
        for name, text in {**secrets, "webhook_token": "token"}.items():
            (folder / name).write_text(text + "\n")
        for entry in config["receivers"]:
            for pagerduty in entry.get("pagerduty_configs", []):
                pagerduty["routing_key_file"] = str(folder / "pagerduty_key")
                pagerduty["url"] = f"{self.receiver.url}/pagerduty"
            for slack in entry.get("slack_configs", []):
                slack["api_url_file"] = str(folder / "slack_url")
            for webhook in entry.get("webhook_configs", []):
                webhook["url"] = f"{self.receiver.url}/webhook"
                credentials = {"credentials_file": str(folder / "webhook_token")}
                webhook["http_config"]["authorization"] = credentials
        (folder / "alertmanager.yml").write_text(yaml.safe_dump(config))
        return folder

    def _prometheus_folder(self) -> Path:
        folder = self.folder / "prometheus"
        folder.mkdir()
        rules = yaml.safe_load(ALERTS.read_text())
        for group in rules["groups"]:
            del group["interval"]
            if group["name"] == "sexton-recorder-alerts":
                continue  # one slow scrape on a busy machine is no target that is down
            for rule in group["rules"]:
                for key in {"for", "keep_firing_for"} & set(rule):
                    rule[key] = shorter(rule[key])
        (folder / "rules.yml").write_text(yaml.safe_dump(rules))
        targets = [made.address for made in self.nodes]
        address = self.alertmanager.removeprefix("http://")
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "scrape_configs": [{"job_name": "sexton", "static_configs": [{"targets": targets}]}],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [address]}]}]},
        }
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        return folder

    def scraped(self, made: Node) -> bool:
        answered = answer(f"{self.prometheus}/api/v1/query?query=sexton_nic_resets_total")
        found = answered["data"]["result"]
        return any(series["metric"]["instance"] == made.address for series in found)

    def firing(self, address: str) -> set[str]:
        alerts = answer(f"{self.prometheus}/api/v1/alerts")["data"]["alerts"]
        return {
            alert["labels"]["alertname"]
            for alert in alerts
            if alert["state"] == "firing" and alert["labels"].get("instance") == address
        }

    def muted(self, address: str) -> set[str]:
        """Alerts that Alertmanager has and tells nobody, because of another."""
        return {
            alert["labels"]["alertname"]
            for alert in answer(f"{self.alertmanager}/api/v2/alerts")
            if alert["status"]["inhibitedBy"] and alert["labels"].get("instance") == address
        }

    def notified(self, about: str, count: int) -> dict[str, list[Any]]:
        """The bodies about a node, as soon as there are `count` of each."""

        def bodies() -> dict[str, list[Any]]:
            posts = {path: self.receiver.at(path, about) for path in BODIES}
            return {path: [post.body for post in found] for path, found in posts.items()}

        until(lambda: min(map(len, bodies().values())) >= count, f"{count} notifications")
        return bodies()


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with ExitStack() as stack:
        yield Scene(tmp_path_factory.mktemp("alerting"), stack)


#: Alerts of the chain's findings. crash_looping_unit is the root, so its finding is muted as well.
EFFECTS = {"SextonLeakUrgent", "SextonCoreHeld", "SextonNicResetExplained", "SextonOtherCritical"}
EFFECTS |= {"SextonUnitCrashLooping"}


def test_an_incident_is_one_notification_until_it_ends(scene: Scene):
    """One node gets sick, then the other, with names made to break things; both recover."""
    plain, hostile = scene.nodes
    until(lambda: all(map(scene.scraped, scene.nodes)), "both nodes to be scraped")
    plain.sicken()
    until(lambda: scene.muted(plain.address) >= EFFECTS, "all effects to be muted")
    assert scene.firing(plain.address) == {*EFFECTS, "SextonRootCause"}
    says_what_it_is(scene.notified(plain.address, 1), plain.address)

    hostile.sicken()
    until(lambda: scene.muted(hostile.address) >= EFFECTS, "all effects to be muted")
    says_it_unharmed(scene.notified(hostile.address, 1), hostile.address)

    for made in scene.nodes:
        made.heal()
    for made in scene.nodes:
        bodies = scene.notified(made.address, 2)
        assert {path: len(found) for path, found in bodies.items()} == dict.fromkeys(BODIES, 2)
        assert [body["status"] for body in bodies["/webhook"]] == ["firing", "resolved"]
        first, last = bodies["/pagerduty"]
        assert [first["event_action"], last["event_action"]] == ["trigger", "resolve"]
        assert first["dedup_key"] == last["dedup_key"]
        assert bodies["/slack"][1]["attachments"][0]["title"].startswith("[RESOLVED] ")
    assert scene.receiver.at("/webhook", "")[0].authorization == "Bearer token"


def says_what_it_is(bodies: dict[str, list[Any]], address: str) -> None:
    """Root cause, owner, pace and command, in all three."""
    assert {path: len(found) for path, found in bodies.items()} == dict.fromkeys(BODIES, 1)
    title = f"[CRITICAL] {address}: {Names().sentence}"
    owner = "/system.slice/ecs.service (69000 dying)"
    command = "sudo sexton diagnose; sudo sexton fix plan"

    (webhook,) = bodies["/webhook"]
    (alert,) = webhook["alerts"]
    assert webhook["groupLabels"] == {"instance": address, "job": "sexton"}
    assert alert["labels"] == {
        "alertname": "SextonRootCause",
        "severity": "critical",
        "job": "sexton",
        "instance": address,
        "root": CHAIN[0],
        "detector": CHAIN[0],
        "culprit": "ecs.service",
    }
    notes = alert["annotations"]
    assert notes["chain"] == f"{Names().sentence} (proven)"
    pace = notes["pace"]
    assert re.fullmatch(r"360 more dying an hour, \d+ restarts in the last hour", pace)
    assert (notes["owner"], notes["command"]) == (owner, command)
    assert notes["count"] == "70123 dying memory cgroups, 300 live"
    assert notes["runbook_url"] == f"http://{address}/runbooks/{CHAIN[0]}"
    assert notes["explorer"] == f"http://{address}/"

    (pagerduty,) = bodies["/pagerduty"]
    payload = pagerduty["payload"]
    assert pagerduty["routing_key"] == KEY
    assert payload["summary"] == title
    assert (payload["source"], payload["severity"]) == (address, "critical")
    details = payload["custom_details"]
    assert details["root cause"] == CHAIN[0]
    assert details["culprit"] == "ecs.service"
    assert (details["owner"], details["pace"], details["command"]) == (owner, pace, command)
    assert [link["text"] for link in pagerduty["links"]] == ["explorer", "runbook"]

    (slack,) = bodies["/slack"]
    (attachment,) = slack["attachments"]
    assert attachment["title"] == title
    assert attachment["color"] == "danger"
    assert attachment["title_link"] == f"http://{address}/"
    assert attachment["text"] == (
        f"*Chain:* {Names().sentence} (proven)\n"
        "*Culprit:* ecs.service\n"
        f"*Owner:* {owner}\n"
        "*Count:* 70123 dying memory cgroups, 300 live\n"
        f"*Pace:* {pace}\n"
        "Root cause, proven: ecs.service (crash_looping_unit). Stop it first;"
        " the other problems of the chain follow from it.\n"
        f"*Run on the node:* `{command}`\n"
        f"<http://{address}/|explorer> · <http://{address}/runbooks/{CHAIN[0]}|runbook>"
    )


def says_it_unharmed(bodies: dict[str, list[Any]], address: str) -> None:
    assert {path: len(found) for path, found in bodies.items()} == dict.fromkeys(BODIES, 1)
    (alert,) = bodies["/webhook"][0]["alerts"]
    notes = alert["annotations"]
    assert alert["labels"]["culprit"] == HOSTILE.unit
    assert notes["summary"] == f"{address}: {HOSTILE.sentence}"
    assert notes["owner"] == f"{HOSTILE.owner} (69000 dying)"
    assert not [text for text in notes.values() if "error expanding" in text]
    assert "{{ .Labels }}<script>" in bodies["/pagerduty"][0]["payload"]["summary"]
    (attachment,) = bodies["/slack"][0]["attachments"]
    assert "{{ .Labels }}‹script›'$(x)'.service" in attachment["title"]
    assert "‹!channel›" in attachment["text"]
    links = r"<http://[\d.:]+/(?:runbooks/\w+)?\|\w+>"
    assert not re.search("[<>]", re.sub(links, "", attachment["text"])), attachment["text"]
    assert attachment["text"].count("`") == 2, "only the command is code"


def test_the_longest_texts_stay_below_the_limits(scene: Scene):
    """Ten alerts in one group, each field 5,000 characters long."""
    long = '<&`"é' * 1000
    fields = ("summary", "description", "chain", "owner", "count", "pace", "command", "runbook_url")
    alerts = [
        {
            "labels": {
                "alertname": "SextonRootCause" if number == 5 else f"Sexton{number}",
                "severity": "critical",
                "instance": "long:1",
                "culprit": long,
            },
            "annotations": {**dict.fromkeys(fields, long), "explorer": "http://long:1/"},
        }
        for number in range(10)
    ]
    answer(f"{scene.alertmanager}/api/v2/alerts", alerts)
    bodies = scene.notified("long:1", 1)
    summary = bodies["/pagerduty"][0]["payload"]["summary"]
    assert len(summary) <= 1024
    assert summary.endswith("… (+9 more)")
    (attachment,) = bodies["/slack"][0]["attachments"]
    assert len(attachment["text"]) <= 3000
    assert len(bodies["/webhook"][0]["alerts"]) == 10


@pytest.mark.parametrize(
    ("source", "muted"),
    [
        ("SextonLeakUrgent", {"SextonLeakFound", "SextonDyingGrowing"}),
        ("SextonTargetDown", {"SextonRecorderDown", "SextonRecorderCannotWrite",
                              "SextonRecorderShedding", "SextonNodeUnknown"}),
        ("SextonRecorderDown", {"SextonRecorderShedding", "SextonNodeUnknown"}),
        ("SextonNicKeepsResetting", {"SextonNicResetUnexplained"}),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_says_less_about_the_same_thing_is_muted(scene: Scene, source: str, muted: set[str]):
    address, other = f"{source.lower()}:9643", f"not-{source.lower()}:9643"
    elsewhere = [(other, min(muted))]
    alerts = [
        {
            "labels": {"alertname": name, "instance": where, "job": "sexton", "severity": "info"},
            "annotations": {"summary": f"{name} of {where}", "command": "sexton"},
        }
        for where, name in [*((address, each) for each in (source, *muted)), *elsewhere]
    ]
    answer(f"{scene.alertmanager}/api/v2/alerts", alerts)
    until(lambda: scene.muted(address) == muted, f"{source} to mute")
    assert scene.muted(other) == set()


def test_a_node_of_another_cluster_is_not_muted_though_its_address_is_the_same(scene: Scene):
    node = {"job": "sexton", "instance": "10.0.0.5:9643", "severity": "critical"}
    alerts = [
        {
            "labels": {**node, **labels},
            "annotations": {"summary": f"incident of {labels['cluster']}", "command": "sexton"},
        }
        for labels in (
            {"cluster": "east", "alertname": "SextonRootCause", "detector": "crash_looping_unit"},
            {"cluster": "east", "alertname": "SextonLeakUrgent", "explained": "yes"},
            {"cluster": "west", "alertname": "SextonLeakUrgent", "explained": "yes"},
        )
    ]
    answer(f"{scene.alertmanager}/api/v2/alerts", alerts)
    bodies = scene.notified("incident of west", 1)
    assert [len(body["alerts"]) for body in bodies["/webhook"]] == [1]
    (east,) = scene.notified("incident of east", 1)["/webhook"]
    assert [alert["labels"]["alertname"] for alert in east["alerts"]] == ["SextonRootCause"]


def test_a_fleet_wide_alert_has_no_node(scene: Scene):
    labels = {"alertname": "SextonFleetUnknown", "severity": "warning", "job": "other"}
    notes = {"summary": "42% of the nodes cannot be judged", "description": "A rollout."}
    alert = {"labels": labels, "annotations": notes}
    answer(f"{scene.alertmanager}/api/v2/alerts", [alert])

    def texts() -> list[str]:
        posts = scene.receiver.at("/slack", "42%")
        return [post.body["attachments"][0]["title"] for post in posts]

    until(texts, "the notification")
    assert texts() == ["[WARNING] 42% of the nodes cannot be judged"]
    assert not scene.receiver.at("/pagerduty", "42%"), "a ticket pages nobody"
