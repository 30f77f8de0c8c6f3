"""The corrected file: mended where there is one answer, told where there is not."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from sexton.prevent.kubelet import corrected, judge
from sexton.prevent.kubelet.fields import FIELDS
from tests.prevent.kubelet.test_checks import EKS, HEAD, KEPT, KUBEADM

BAD = f"""# the training nodes'
{HEAD}{KEPT}
# press says so
cgroupVersion: v2

# as flags have it
max-pods: 110   # enough
evictionHard:
  memory.available: 500Mi   # half
featureGates:
  CgroupV2: true
  NodeSwap: true
systemReserved:
  cpu: 1
readOnlyPort: 10255
# the end
"""


def test_every_fault_with_one_answer_is_mended_and_the_rest_is_as_it_was() -> None:
    text = corrected(judge(BAD, "/var/lib/kubelet/config.yaml"))
    told = yaml.safe_load(text)
    assert told == {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "kubeReserved": {"cpu": "200m", "memory": "500Mi"},
        "maxPods": 110,
        "evictionHard": {
            "memory.available": "500Mi",
            "nodefs.available": "10%",
            "nodefs.inodesFree": "5%",
            "imagefs.available": "15%",
        },
        "featureGates": {"NodeSwap": True},
        "systemReserved": {"cpu": "1"},
        "readOnlyPort": 0,
    }
    assert not judge(text, "/k").problems


def test_comments_and_what_was_taken_out_stay_to_be_read() -> None:
    text = corrected(judge(BAD, "/k"))
    for kept in ("# the training nodes'", "# press says so", "# cgroupVersion: v2", "# the end"):
        assert kept in text
    assert "# sexton: cgroupVersion: not a field" in text


def test_a_good_file_only_gains_a_line_that_says_so() -> None:
    good = HEAD + KEPT
    text = corrected(judge(good, "/k"))
    assert text == f"# Corrected by sexton from /k: 0 changes.\n{good}"


def test_what_has_no_one_answer_is_left_to_its_owner() -> None:
    text = corrected(judge(HEAD + KEPT + "syncFrequency: 10\n", "/k"))
    assert "# Left for you to decide:\n#   syncFrequency: 10 is not a duration" in text
    assert yaml.safe_load(text)["syncFrequency"] == 10


def test_json_stays_json() -> None:
    text = corrected(judge(json.dumps({**EKS, "cgroupVersion": "v2"}), "/k"))
    assert json.loads(text) == EKS


def test_a_one_line_map_is_written_anew() -> None:
    text = corrected(judge("{kind: KubeletConfiguration, cgroupVersion: v2}", "/k"))
    assert yaml.safe_load(text) == {
        "kind": "KubeletConfiguration",
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
    }


def test_a_file_that_is_none_has_no_corrected_one() -> None:
    assert corrected(judge("a: [", "/k")) is None


def test_a_note_of_what_kubeadm_writes_is_mended_too() -> None:
    told = yaml.safe_load(corrected(judge(KUBEADM, "/k")))
    wanted = yaml.safe_load(KUBEADM)
    del wanted["streamingConnectionIdleTimeout"]
    assert told == wanted


def test_a_rename_never_overwrites_what_is_there() -> None:
    text = corrected(judge(HEAD + KEPT + "maxPods: 50\nmax-pods: 110\n", "/k"))
    assert yaml.safe_load(text)["maxPods"] == 50


@pytest.mark.parametrize("name", ["/k\n# evil: true\nevil: true", "/k\x1b[2J"])
def test_a_hostile_path_cannot_write_a_line_of_its_own(name: str) -> None:
    text = corrected(judge(HEAD + KEPT, name))
    assert yaml.safe_load(text).keys() == {"apiVersion", "kind", "kubeReserved"}


_VALUES = st.sampled_from(
    [
        "1",
        "'1'",
        "true",
        "10s",
        "{}",
        "[]",
        "[a, 1]",
        "\n  a: 1\n  cpu: 2",
        "\n- x\n- y",
        "",
        "|\n  x",
    ]
)


@given(
    st.dictionaries(
        st.sampled_from([*sorted(FIELDS), "cgroupVersion", "max-pods", "eviction_hard", "nope"]),
        _VALUES,
        max_size=6,
    )
)
def test_no_error_that_was_mended_comes_back(values: dict[str, str]) -> None:
    before = judge("".join(f"{name}: {value}\n" for name, value in values.items()) or "{}", "/k")
    text = corrected(before)
    if text is None:
        return
    after = judge(text, "/k")
    assert after.tree is not None, text
    mended = {(p.field, p.message) for p in before.problems if p.fix and p.fix.kind != "rename"}
    assert not mended & {(p.field, p.message) for p in after.problems}, text


def test_a_file_that_is_written_anew_says_at_its_top_what_was_changed() -> None:
    """A map on one line cannot be mended line by line."""
    file = judge(f"{HEAD}{KEPT}cgroupVersion: v2\nsystemReserved: {{cpu: 1}}\n", "/k")
    text = corrected(file)
    assert "# Rewritten from its values" in text
    for field in ("cgroupVersion", "systemReserved.cpu"):
        assert f"#   {field}: " in text
    assert yaml.safe_load(text)["systemReserved"] == {"cpu": "1"}
