"""What a kubelet runs with, beside what its files say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sexton.errors import CommandError
from sexton.prevent.kubelet import corrected, differences, judge, running_config
from tests.prevent.kubelet.test_checks import HEAD, KEPT

REAL = Path(__file__).parents[2] / "fixtures/kubernetes/configz"


def served(**config: object) -> str:
    kept = {"kubeReserved": {"memory": "500Mi"}}
    return json.dumps({"kubeletconfig": {**kept, **config}})


def test_a_real_kubelet_and_the_file_it_read() -> None:
    file = judge((REAL / "1.36.yaml").read_text(), "/k.yaml")
    live = running_config((REAL / "1.36.json").read_text())
    assert list(differences(live, [file])) == []
    assert {problem.field for problem in live.problems} == {
        "authentication.anonymous.enabled", "cgroupDriver", "failCgroupV1",
    }  # fmt: skip
    changed = file.text.replace("maxPods: 40", "maxPods: 50")
    (problem,) = differences(live, [judge(changed, "/k.yaml")])
    assert "the file says 50, the kubelet runs with 40" in problem.message


def test_its_values_are_judged_as_a_files_are() -> None:
    found = running_config(served(cgroupDriver="cgroupfs", readOnlyPort=10255))
    assert [problem.field for problem in found.problems] == ["cgroupDriver", "readOnlyPort"]
    assert {problem.line for problem in found.problems} == {0}


def test_a_field_that_is_newer_than_our_list_is_the_kubelets_own() -> None:
    assert running_config(served(fieldOfNextYear=1)).problems == ()


@pytest.mark.parametrize(
    ("file", "live", "words"),
    [
        ("maxPods: 110", {"maxPods": 250}, "the file says 110, the kubelet runs with 250"),
        ("evictionHard:\n  memory.available: 1Gi", {"evictionHard": {"memory.available": "100Mi"}},
         'the file says "1Gi", the kubelet runs with "100Mi"'),
        ("evictionHard:\n  pid.available: 10%", {"evictionHard": {}}, "runs with nothing"),
        ("cgroupDriver: systemd", {"cgroupDriver": "cgroupfs"}, 'runs with "cgroupfs"'),
        ("clusterDNS: [10.0.0.10]", {"clusterDNS": ["10.0.0.11"]}, "10.0.0.11"),
    ],
)  # fmt: skip
def test_what_differs_from_the_file_is_named(file: str, live: dict, words: str) -> None:
    (problem,) = differences(running_config(served(**live)), [judge(HEAD + file + "\n", "/k")])
    assert words in problem.message
    assert "restarted" in problem.message


@pytest.mark.parametrize(
    ("file", "live"),
    [
        ("syncFrequency: 60s", {"syncFrequency": "1m0s"}),
        ("kubeReserved:\n  memory: 1Gi", {"kubeReserved": {"memory": "1024Mi"}}),
        ('nodeStatusReportFrequency: "0s"', {"nodeStatusReportFrequency": "5m0s"}),
        ('resolvConf: ""', {"resolvConf": "/etc/resolv.conf"}),
        ("cgroupVersion: v2", {}),
    ],
)
def test_the_same_in_other_words_and_defaults_are_no_difference(file: str, live: dict) -> None:
    assert list(differences(running_config(served(**live)), [judge(HEAD + file, "/k")])) == []


def test_of_several_files_the_last_counts() -> None:
    files = [judge(HEAD + f"maxPods: {number}\n", "/k") for number in (1, 2)]
    assert list(differences(running_config(served(maxPods=2)), files)) == []


def test_without_a_file_the_corrected_one_is_made_from_it() -> None:
    made = corrected(running_config(served(readOnlyPort=10255)))
    assert made is not None
    again = judge(made, "/k")
    assert json.loads(made)["readOnlyPort"] == 0
    assert again.problems == ()


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "[]", "{}", '{"kubeletconfig": []}', '{"kubeletconfig": {}', "null", "[" * 5000,
        '{"kubeletconfig": {"a": 1, "a": 2}}',
        '{"kubeletconfig": {"x": "' + "y" * (300 << 10) + '"}}',
    ],
)  # fmt: skip
def test_anything_else_is_refused_in_a_line(text: str) -> None:
    with pytest.raises(CommandError, match="/configz: "):
        running_config(text)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("imageGCHighThresholdPercent: 100", "imageGCHighThresholdPercent"),
        ("imageGCHighThresholdPercent: 95", "imageGCHighThresholdPercent"),
        ("imageMaximumGCAge: 2m", "imageMaximumGCAge"),
        ("imageMinimumGCAge: 1h\nimageMaximumGCAge: 30m", "imageMaximumGCAge"),
        (
            "evictionSoft:\n  memory.available: 50Mi\nevictionSoftGracePeriod:\n"
            "  memory.available: 1m",
            "evictionSoft.memory.available",
        ),
    ],
)
def test_images_and_soft_evictions_that_come_too_late(text: str, field: str) -> None:
    (problem,) = judge(HEAD + KEPT + text + "\n", "/k").problems
    assert problem.field == field


@pytest.mark.parametrize(
    "text",
    [
        "imageGCHighThresholdPercent: 85",
        "imageGCHighThresholdPercent: 70\nimageGCLowThresholdPercent: 50",
        "imageMaximumGCAge: 168h",
        "evictionSoft:\n  memory.available: 1Gi\nevictionSoftGracePeriod:\n  memory.available: 1m",
    ],
)
def test_and_those_that_do_not(text: str) -> None:
    assert judge(HEAD + KEPT + text + "\n", "/k").problems == ()
