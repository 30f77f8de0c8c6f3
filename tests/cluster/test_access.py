"""Pods' tokens and kubeconfigs."""

from __future__ import annotations

import base64
import json

import pytest

from sexton.cluster.access import HOST, PORT, Place, from_kubeconfig, in_cluster
from sexton.errors import CommandError
from tests.web.certificates import Authority


def test_in_a_pod(tmp_path):
    (tmp_path / "token").write_text("secret")
    found = in_cluster({HOST: "10.96.0.1", PORT: "6443"}, tmp_path)
    assert found is not None
    assert found.place == Place("10.96.0.1", 6443)
    assert found.bearer() == "secret"
    (tmp_path / "token").write_text("rotated\n")
    assert found.bearer() == "rotated"


def test_outside_of_a_pod_and_with_a_bad_port():
    assert in_cluster({}) is None
    with pytest.raises(CommandError, match="invalid port"):
        in_cluster({HOST: "a", PORT: "x"})


def config(**changes) -> dict:
    cluster = {"server": "https://[fd00::1]:8443/under", **changes.pop("cluster", {})}
    return {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "other", "cluster": {}}, {"name": "k", "cluster": cluster}],
        "users": [{"name": "u", "user": changes.pop("user", {"token": "secret"})}],
        **changes,
    }


def test_a_kubeconfig_in_json_and_in_yaml(tmp_path):
    place = tmp_path / "config"
    place.write_text(json.dumps(config()))
    found = from_kubeconfig(str(place))
    assert found.place == Place("fd00::1", 8443, "/under")
    assert found.bearer() == "secret"
    import yaml

    place.write_text(yaml.safe_dump(config()))
    assert from_kubeconfig(str(place)) == found


def test_files_beside_it_are_read_again_and_data_is_decoded(tmp_path):
    authority = Authority(tmp_path, "authority")
    client = authority.sign("client")
    place = tmp_path / "config"
    data = base64.b64encode(authority.pair.cert.read_bytes()).decode()
    user = {"client-certificate": "client.crt", "client-key": "client.key", "tokenFile": "token"}
    place.write_text(json.dumps(config(user=user, cluster={"certificate-authority-data": data})))
    found = from_kubeconfig(str(place))
    (tmp_path / "token").write_text("a")
    assert found.bearer() == "a"
    assert found.context().check_hostname
    assert client.key.exists()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "not a kubeconfig"),
        ("[", "not YAML"),
        ("17", "not a kubeconfig"),
        (json.dumps({"current-context": "x"}), "no context 'x'"),
        (json.dumps(config(user={"exec": {"command": "rm"}})), "has 'exec'"),
        (json.dumps(config(cluster={"server": "http://a"})), "https://"),
        (json.dumps(config(cluster={"server": 7})), "https://"),
        (json.dumps(config(cluster={"certificate-authority-data": "%"})), "not a kubeconfig"),
        (json.dumps(config(clusters=[])), "no cluster 'k'"),
        ("!!python/object/apply:os.system ['true']", "not YAML"),
    ],
)
def test_a_bad_kubeconfig_is_one_line(tmp_path, content, words):
    place = tmp_path / "config"
    place.write_text(content)
    with pytest.raises(CommandError, match=words) as raised:
        from_kubeconfig(str(place))
    assert "\n" not in str(raised.value)


def test_a_kubeconfig_that_is_not_there(tmp_path):
    with pytest.raises(CommandError, match="no such file"):
        from_kubeconfig(str(tmp_path / "config"))
