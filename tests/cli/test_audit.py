"""`sexton audit` as a person types it: text, JSON, policies, changes, bad input."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest

from sexton.cli.main import main
from tests.prevent.audit.trees import ECS_DEB, Tree


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    (tmp_path / "image").mkdir()
    found = Tree(tmp_path / "image")
    found.unit("ecs.service", ECS_DEB)
    found.unit("kubelet.service", "[Service]\nExecStart=/k\nRestart=always\nRestartSec=10\n")
    found.unit("mine.service")
    found.unit("cron.service")
    return found


@pytest.fixture
def healthy(tmp_path: Path) -> Tree:
    (tmp_path / "healthy").mkdir()
    found = Tree(tmp_path / "healthy")
    found.unit("ssh.service")
    found.unit("cron.service")
    return found


def test_the_verdict_comes_first_and_the_evidence_after_it(tree: Tree, capsys):
    assert main(["audit", "--root", str(tree.root)]) == 1
    out = capsys.readouterr().out
    lines = out.splitlines()
    assert lines[0].startswith("PROBLEMS FOUND  ")
    lead = lines[lines.index("") + 1]
    assert lead.startswith(" ecs.service starts at boot, but nothing here needs it.")
    assert "multi-user.target.wants/ecs.service" in out
    assert "kubelet.service starts at boot" in out
    assert "5 starts take 50 s" in " ".join(out.split())
    assert "wrong if user data writes ECS_CLUSTER" in out
    assert "nothing was executed, mounted or changed" in out
    assert lines[-1] == " exit 1: problems found"
    assert "safe to disable" not in out
    commands = " " * 14
    assert all(len(line) <= 110 for line in lines if not line.startswith(commands))


def test_a_healthy_image_is_told_in_a_few_lines(healthy: Tree, capsys):
    assert main(["audit", "--root", str(healthy.root)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("NO PROBLEMS FOUND  ")
    assert len(lines) <= 15


def test_a_tar_of_the_same_image_gets_the_same_verdicts(tree: Tree, tmp_path: Path, capsys):
    packed = tmp_path / "image.tar.gz"
    with tarfile.open(packed, "w:gz") as out:
        out.add(tree.root, ".")
    told = []
    for image in (tree.root, packed):
        assert main(["audit", "--root", str(image), "--json"]) == 1
        told.append(json.loads(capsys.readouterr().out))
    verdicts = [
        {subject["unit"]: subject["verdict"] for subject in one["subjects"]} for one in told
    ]
    assert verdicts[0] == verdicts[1]
    assert verdicts[0] == {
        "cron.service": "unknown",
        "ecs.service": "unneeded",
        "kubelet.service": "protected",
        "mine.service": "unknown",
    }
    assert told[0]["schema"] == "sexton.audit/1"
    assert told[0]["workloads"] is None
    assert told[0]["counts"]["unneeded"] == 1


def test_text_json_and_gate_count_the_same_units(tree: Tree, capsys):
    tree.unit("ssh.service")
    tree.unit("systemd-networkd.service")
    main(["audit", "--root", str(tree.root), "--json"])
    counts = json.loads(capsys.readouterr().out)["counts"]
    main(["audit", "--root", str(tree.root)])
    text = capsys.readouterr().out
    for word in ("unknown", "needed", "protected"):
        shown = [line.split()[1].rstrip(":") for line in text.splitlines()
                 if line.startswith(f" {word.upper()} ")]  # fmt: skip
        assert shown == ([f"{counts[word]:,}"] if counts[word] else [])
    assert counts["protected"] > 1
    main(["gate", "--root", str(tree.root)])
    assert f"{counts['protected']} protected" in capsys.readouterr().out


def test_a_policy_is_written_filled_in_checked_and_kept(tree: Tree, tmp_path: Path, capsys):
    path = tmp_path / "agents.toml"
    root = ["--root", str(tree.root)]
    main(["audit", *root, "--write-policy", str(path)])
    assert "fill in the owners" in capsys.readouterr().err
    text = path.read_text()
    assert 'unit = "mine.service"' in text
    assert "kubelet" not in text
    assert "cron" not in text
    main(["audit", *root, "--policy", str(path)])
    assert "no owner: ecs.service, mine.service" in capsys.readouterr().out
    path.write_text(text.replace('owner = ""', 'owner = "ops"'))
    tree.unit("late.service")
    main(["audit", *root, "--policy", str(path)])
    assert "not in the policy: late.service" in capsys.readouterr().out
    main(["audit", *root, "--write-policy", str(path)])
    assert path.read_text().count('owner = "ops"') == 2
    assert 'unit = "late.service"' in path.read_text()
    path.write_text(path.read_text().replace("expires = 20", "expires = 10"))
    main(["audit", *root, "--policy", str(path)])
    assert "expired: ecs.service" in capsys.readouterr().out


def test_a_policy_alone_can_cost_the_exit_status(healthy: Tree, tmp_path: Path, capsys):
    healthy.unit("mine.service")
    path = tmp_path / "agents.toml"
    path.write_text('schema = "sexton.audit-policy/1"\n')
    assert main(["audit", "--root", str(healthy.root)]) == 0
    assert main(["audit", "--root", str(healthy.root), "--policy", str(path)]) == 1
    assert "POLICY VIOLATIONS" in capsys.readouterr().out


def test_only_what_changed_is_shown_and_only_that_costs_the_exit(tree: Tree, tmp_path, capsys):
    last = tmp_path / "last.json"
    often = ["audit", "--root", str(tree.root), "--since", str(last), "--save", str(last)]
    assert main(often) == 1, "the first run: everything is new"
    out = capsys.readouterr().out
    assert "NEW" in out
    assert "1970" not in out
    assert main(often) == 0, "ecs.service was known already"
    out = capsys.readouterr().out
    assert "No changes in 4 units." in out
    tree.write(
        "/etc/systemd/system/mine.service.d/x.conf", "[Service]\nRestart=always\nRestartSec=5\n"
    )
    (tree.root / "etc/systemd/system/multi-user.target.wants/cron.service").unlink()
    assert main(often) == 1
    out = capsys.readouterr().out
    assert "CHANGED    mine.service: faults: none → endless-restart" in out
    assert "GONE       cron.service" in out
    assert "ecs.service" not in out


def test_json_has_the_changes_too(tree: Tree, tmp_path: Path, capsys):
    last = tmp_path / "last.json"
    main(["audit", "--root", str(tree.root), "--json"])
    last.write_text(capsys.readouterr().out)
    tree.unit("new.service")
    assert main(["audit", "--root", str(tree.root), "--json", "--since", str(last)]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["changes"] == [{"unit": "new.service", "kind": "new", "what": ["unknown"]}]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--root", "/no/such"], "/no/such: No such file or directory"),
        (["--root", "{file}"], "not a directory, a tar"),
        (["--root", "{image}", "--seconds", "3"], "--seconds cannot be used with --root"),
        (["--root", "{image}", "--since", "/no/such.json"], "/no/such.json: No such file"),
        (["--root", "{image}", "--since", "{file}"], "not the output of sexton audit --json"),
        (["--root", "{image}", "--policy", "/no/such.toml"], "/no/such.toml: No such file"),
        (["--root", "{image}", "--policy", "{file}"], "file:"),
        (["--root", "{image}", "--write-policy", "/no/such/x"], "/no/such/x: No such file"),
        (["--root", "{image}", "--save", "{image}"], "Is a directory"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(tree: Tree, tmp_path: Path, capsys, options, words):
    (tmp_path / "file").write_text("#!/bin/sh\n:\n" * 99)
    put = {"file": str(tmp_path / "file"), "image": str(tree.root)}
    assert main(["audit", *(option.format(**put) for option in options)]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert captured.err.count("\n") == 1
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")], "no half file"


def test_a_tree_without_units_is_exit_3_with_what_to_try(tmp_path: Path, capsys):
    (tmp_path / "etc").mkdir()
    assert main(["audit", "--root", str(tmp_path)]) == 3
    out = capsys.readouterr().out
    assert out.startswith("UNKNOWN  ")
    assert "etc and usr" in out


def test_kubelets_configuration_is_checked_and_mended(healthy: Tree, tmp_path: Path, capsys):
    healthy.unit("kubelet.service", "[Service]\nExecStart=/usr/bin/kubelet\n")
    head = {"kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1"}
    place = "/var/lib/kubelet/config.yaml"
    healthy.write(place, json.dumps({**head, "cgroupVersion": "v2"}))
    out = tmp_path / "kubelet.json"
    root = ["--root", str(healthy.root)]
    assert main(["audit", *root, "--kubelet-out", str(out)]) == 1
    captured = capsys.readouterr()
    assert "KUBELET CONFIGURATION" in captured.out
    assert "error: cgroupVersion" in captured.out
    assert str(out) in captured.err
    assert "cgroupVersion:" not in out.read_text()
    healthy.write(place, out.read_text())
    assert main(["audit", *root]) == 0


def test_what_the_kubelet_runs_with_is_compared(tmp_path: Path, capsys, monkeypatch):
    served = {"kubeletconfig": {"cgroupDriver": "cgroupfs", "readOnlyPort": 10255}}
    place, out = tmp_path / "configz.json", tmp_path / "kubelet.json"
    place.write_text(json.dumps(served))
    main(
        ["audit", "--seconds", "0.2", "--json", "--configz", str(place), "--kubelet-out", str(out)]
    )
    found = json.loads(capsys.readouterr().out)["kubelet"]
    live = {each["message"].partition(":")[0] for each in found if each["read_from"] == "/configz"}
    assert {"cgroupDriver", "readOnlyPort", "systemReserved"} <= live
    assert json.loads(out.read_text())["readOnlyPort"] == 0
    for wrong in (["--configz", str(tmp_path / "none")], ["--configz", "/dev/null"]):
        assert main(["audit", "--seconds", "0.2", *wrong]) == 2
    assert main(["audit", "--root", str(tmp_path), "--configz", str(place)]) == 2
    assert "no kubelet runs in an image" in capsys.readouterr().err


def test_hostile_names_do_not_reach_the_terminal(tree: Tree, capsys):
    text = "[Unit]\nDescription=\x1b]0;gone\x07\n[Service]\nExecStart=/a\x1b[2J\n"
    tree.unit("evil.service", f"{text}Restart=always\nRestartSec=9\n")
    strange = tree.root / "etc/systemd/system" / os.fsdecode(b"\xff\x1b.service")
    strange.write_text("[Service]\n")
    main(["audit", "--root", str(tree.root)])
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert "evil.service" in out
    main(["audit", "--root", str(tree.root), "--json"])
    assert "\\u001b" not in capsys.readouterr().out
