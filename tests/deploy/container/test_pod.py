"""The image under the limits of the chart's pod: runc, the node's cgroups, containerd's seccomp.

What a kubelet adds (scheduling, tokens) is not here; what a container may and may not do is.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from sexton.sandbox import end_with
from tests.deploy.helm.conftest import Helm, helm
from tests.deploy.helm.test_chart import NAME
from tests.deploy.peers import until
from tests.support.kubernetes import Programs, programs

__all__ = ("helm",)
pytestmark = [pytest.mark.whole, pytest.mark.root]

#: A pod's file system that is made here; others are the node's own, where they exist.
_OF_THE_TEST = ("recording", "tracing", "pod-logs", "container-logs")
_ENDS_S = 60


class Pod:
    """The chart's container as runc runs it."""

    def __init__(self, tools: Programs, folder: Path) -> None:
        self.tools, self.folder = tools, folder
        self.name = f"sexton-test-{os.getpid()}"

    def runc(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        argv = [self.tools.of_debian("runc"), "--root", self.folder / "runc", *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120)

    def sexton(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command in the running container, as by `kubectl exec`."""
        return self.runc("exec", self.name, "/usr/bin/sexton", *words)


def default_spec(
    tools: Programs, image: Path, folder: Path, capabilities: list[str]
) -> dict[str, Any]:
    """What containerd makes of a container: devices, masked files, and its profile of system calls,
    which depends on the capabilities."""
    socket = folder / "containerd.sock"
    settings = f'version = 3\nroot = "{folder}/r"\nstate = "{folder}/s"\n'
    # The plug-in of kubelets wants a network; it is not needed for a container's limits.
    settings += 'disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"]\n'
    settings += f'[grpc]\naddress = "{socket}"\n'
    (folder / "config.toml").write_text(settings)
    us = os.getpid()
    with (folder / "containerd.log").open("wb") as log:
        server = subprocess.Popen(
            # It would make /run/containerd, by which Sexton knows a node with containerd.
            ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /run && exec "$@"', "sh",
             tools.of_debian("containerd"), "-c", folder / "config.toml"],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={"PATH": f"{tools.of_debian('runc').parent}:{os.environ['PATH']}"},
            preexec_fn=lambda: end_with(us),
        )  # fmt: skip

    def ctr(*words: str | Path) -> subprocess.CompletedProcess[str]:
        argv = [tools.of_debian("ctr"), "--address", socket, *words]
        return subprocess.run(argv, capture_output=True, text=True, timeout=60)

    try:
        until(lambda: ctr("version").returncode == 0, "containerd")
        added = [word for name in capabilities for word in ("--cap-add", f"CAP_{name}")]
        create = ("containers", "create", "--rootfs", "--seccomp", *added)
        made = ctr(*create, image, "x", "/usr/bin/sexton")
        assert made.returncode == 0, made.stderr
        found: dict[str, Any] = json.loads(ctr("containers", "info", "x").stdout)["Spec"]
        return found
    finally:
        server.terminate()
        server.wait(_ENDS_S)


def limited(spec: dict[str, Any], pod: dict[str, Any], places: dict[str, Path]) -> dict[str, Any]:
    """containerd's container with the chart's capabilities, mounts and namespaces."""
    (container,) = pod["containers"]
    security = container["securityContext"]
    own = {"pid": pod.get("hostPID"), "network": pod.get("hostNetwork")}
    linux = spec["linux"]
    linux["namespaces"] = [n for n in linux["namespaces"] if not own.get(n["type"])]
    linux["maskedPaths"] = [*linux["maskedPaths"], "/proc/interrupts"]  # newer kubelets do
    capabilities = [f"CAP_{name}" for name in security["capabilities"]["add"]]
    process = spec["process"]
    process["capabilities"] = dict.fromkeys(("bounding", "effective", "permitted"), capabilities)
    process["noNewPrivileges"] = not security["allowPrivilegeEscalation"]
    process["terminal"] = False
    process["env"] = ["PATH=/usr/bin", "PYTHONUTF8=1", "PYTHONDONTWRITEBYTECODE=1"]
    process["env"] += ["NODE_NAME=n", "OPENBLAS_NUM_THREADS=1"]
    spec["root"]["readonly"] = security["readOnlyRootFilesystem"]
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    spec["mounts"] = [m for m in spec["mounts"] if m["destination"] not in mounts]
    for target, mount in mounts.items():
        volume = volumes[mount["name"]]
        if "emptyDir" in volume:
            spec["mounts"].append({"destination": target, "type": "tmpfs", "source": "tmpfs"})
            continue
        source = places.get(mount["name"], Path(volume["hostPath"]["path"]))
        if source.exists():
            spreads = "rslave" if mount.get("mountPropagation") else "rprivate"
            options = ["rbind", spreads, "ro" if mount.get("readOnly") else "rw"]
            spec["mounts"].append(
                {"destination": target, "type": "bind", "source": str(source), "options": options}
            )
    return spec


@contextmanager
def tracefs(folder: Path) -> Iterator[Path]:
    """The node's, whether or not it is mounted at its usual place."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tracefs", "none", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@pytest.fixture(scope="module")
def pod(image: Path, helm: Helm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pod]:
    """An agent that records and judges, for the tests of this file."""
    folder = tmp_path_factory.mktemp("pod")
    tools = programs()
    made = helm.made({"extraArgs": ["--no-api", "--npd", "/tmp/npd", "--no-ring"]})
    whole = made["DaemonSet", NAME]["spec"]["template"]["spec"]
    capabilities = whole["containers"][0]["securityContext"]["capabilities"]["add"]
    one = Pod(tools, folder)
    logs = folder / "containers"
    logs.mkdir()
    (logs / f"api-7c9_prod_app-{'0f' * 32}.log").symlink_to("/var/log/pods/x/app/3.log")
    for name in ("pods", "recording", "bundle"):
        (folder / name).mkdir()
    with tracefs(folder / "tracing") as tracing:
        places = dict(
            zip(_OF_THE_TEST, (folder / "recording", tracing, folder / "pods", logs), strict=True)
        )
        spec = limited(default_spec(tools, image, folder, capabilities), whole, places)
        spec["process"]["args"] = ["/usr/bin/sexton", *whole["containers"][0]["args"]]
        spec["linux"]["cgroupsPath"] = f"/{one.name}/agent"
        (folder / "bundle/config.json").write_text(json.dumps(spec))
        with (folder / "log").open("wb") as log:
            argv = [tools.of_debian("runc"), "--root", folder / "runc", "run"]
            us = os.getpid()
            process = subprocess.Popen(
                [*argv, "--bundle", folder / "bundle", one.name],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                preexec_fn=lambda: end_with(us),
            )  # fmt: skip
        try:

            def judged() -> bool:
                assert process.poll() is None, (folder / "log").read_text()
                # 2: no verdict yet.
                return one.sexton("npd", "/tmp/npd").returncode in (0, 1)

            until(judged, "a verdict")
            yield one
        finally:
            one.runc("kill", one.name, "KILL")
            process.wait(_ENDS_S)
            one.runc("delete", "--force", one.name)
            for place in Path("/sys/fs/cgroup").glob(f"*/{one.name}"):
                place.rmdir()
            for place in Path("/sys/fs/cgroup").glob(one.name):
                place.rmdir()


def test_it_reads_what_the_chart_grants(pod: Pod):
    status = json.loads((pod.folder / "recording/status.json").read_text())
    assert status["state"] == "recording"
    read = {"kmsg.log", "bpf.softirq_wait", "tracefs.cgroup_events", "cgroupfs.census"}
    read |= {"procfs.tasks", "nic.devices", "kubernetes.container_logs", "procfs.interrupts"}
    assert read <= set(status["sources"]["ok"]), status["sources"]
    assert not status["sources"].get("denied")
    assert not status["problem"]


def test_the_kernel_log_comes_through_the_system_call(pod: Pod):
    said = json.loads(pod.sexton("sources", "--json").stdout)
    assert "kmsg.log" in json.dumps(said)
    opened = pod.runc("exec", pod.name, "/usr/bin/python3", "-c", "open('/dev/kmsg')")
    assert opened.returncode != 0


@pytest.mark.parametrize(
    "code",
    [
        "open('/usr/x', 'w')",
        "open('/etc/os-release', 'a')",
        "import os; os.mkdir('/sys/fs/cgroup/memory/sexton-test-x')",
        "open('/proc/sysrq-trigger', 'w')",
        "open('/proc/sys/kernel/panic', 'w').write('0')",
        "open('/proc/1/root/etc/shadow')",
        "open('/dev/mem')",
        "import ctypes as c; assert c.CDLL(None).mount(b'x', b'/tmp', b'tmpfs', 0, 0) == 0",
        "import os; os.setns(os.open('/proc/1/ns/mnt', os.O_RDONLY), 0)",
    ],
)
def test_and_nothing_else(pod: Pod, code: str):
    done = pod.runc("exec", pod.name, "/usr/bin/python3", "-c", code)
    assert done.returncode == 1, done.stdout + done.stderr
