"""A real API server with its etcd, on loopback; `scripts/kubernetes` builds and unpacks both."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import urllib.request
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from ssl import create_default_context
from typing import Any, NamedTuple

import pytest

from sexton.sandbox import end_with
from tests.deploy.peers import until

ROOT = Path(__file__).parents[2]
BUILD_DEADLINE_S = 3600
_TOKEN = "admin-token"
_ENDS_S = 60


class Programs(NamedTuple):
    """Folders of what was built and of what was unpacked."""

    built: Path
    unpacked: Path

    def of_debian(self, name: str) -> Path:
        return next(path for path in self.unpacked.glob(f"usr/*bin/{name}"))


def programs(*more: str) -> Programs:
    """Builds them on first use, which takes minutes, and says so; `more` are named parts of the
    script. Skips the test where they cannot be built."""
    script = ["nice", "-n", "19", str(ROOT / "scripts/kubernetes"), *more]
    made = subprocess.run(script, capture_output=True, text=True, timeout=BUILD_DEADLINE_S)
    if made.returncode == 3:
        pytest.skip(made.stderr.strip())
    assert made.returncode == 0, made.stderr[-4000:]
    for line in made.stderr.splitlines():
        if line.startswith(("building", "getting")):
            warnings.warn(line, stacklevel=2)  # said at the end of a run, by a worker as well
    built, unpacked = made.stdout.split("\n")[:2]
    return Programs(Path(built), Path(unpacked))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return int(one.getsockname()[1])


class Cluster:
    """etcd and kube-apiserver; nothing else, so nothing happens by itself.

    `admin` and `kubeconfig` may do everything. `stop_api` and `start_api` keep what is stored.
    """

    def __init__(self, programs: Programs, folder: Path) -> None:
        self.programs, self.folder = programs, folder
        self.port, self._etcd_port = _free_port(), _free_port()
        self.certificates = folder / "certs"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._keys()
        self.kubeconfig = self.kubeconfig_of(_TOKEN, "admin")

    @property
    def authority(self) -> Path:
        return self.certificates / "apiserver.crt"

    def kubeconfig_of(self, token: str, name: str) -> Path:
        """How `token` reaches it."""
        place = self.folder / f"{name}.kubeconfig"
        cluster = {
            "server": f"https://127.0.0.1:{self.port}",
            "certificate-authority": str(self.authority),
        }
        place.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "c", "cluster": cluster}],
                    "users": [{"name": "u", "user": {"token": token}}],
                    "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                    "current-context": "x",
                }
            )
        )
        return place

    def _keys(self) -> None:
        self.certificates.mkdir(parents=True)
        key = self.folder / "sa.key"
        public = ("rsa", "-in", key, "-pubout", "-out", self.folder / "sa.pub")
        for command in (("genrsa", "-out", key, "2048"), public):
            subprocess.run(["openssl", *command], capture_output=True, check=True)
        (self.folder / "tokens.csv").write_text(f'{_TOKEN},admin,admin,"system:masters"\n')

    def _start(self, name: str, argv: list[str | Path]) -> None:
        us = os.getpid()
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(
                argv,
                cwd=self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=lambda: end_with(us),  # also if the test is killed
            )

    def start(self) -> None:
        client = f"http://127.0.0.1:{self._etcd_port}"
        peer = "http://127.0.0.1:0"
        self._start(
            "etcd",
            [
                self.programs.of_debian("etcd"), "--data-dir", "etcd", "--unsafe-no-fsync",
                "--log-level=warn", "--listen-client-urls", client, "--advertise-client-urls",
                client, "--listen-peer-urls", peer,
            ],
        )  # fmt: skip
        self.start_api()

    def start_api(self) -> None:
        self._start(
            "apiserver",
            [
                self.programs.built / "kube-apiserver",
                f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
                f"--secure-port={self.port}",
                "--bind-address=127.0.0.1",
                f"--cert-dir={self.certificates}",
                "--service-cluster-ip-range=10.96.0.0/24",
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-account-key-file=sa.pub",
                "--service-account-signing-key-file=sa.key",
                "--token-auth-file=tokens.csv",
                "--authorization-mode=Node,RBAC",
                "--allow-privileged=true",
                "--disable-admission-plugins=ServiceAccount",
            ],
        )
        until(self._is_ready, "the API server to be ready")

    def _is_ready(self) -> bool:
        for name, process in self._processes.items():
            log = (self.folder / f"{name}.log").read_text("utf-8", "replace")
            assert process.poll() is None, log[-4000:]
        with suppress(OSError):
            url = f"https://127.0.0.1:{self.port}/readyz"
            request = urllib.request.Request(url, headers={"Authorization": f"Bearer {_TOKEN}"})
            context = create_default_context(cafile=self.authority)
            with urllib.request.urlopen(request, timeout=10, context=context) as answer:
                return bool(answer.read() == b"ok")
        return False

    def stop_api(self) -> None:
        self._stop("apiserver")

    def _stop(self, name: str) -> None:
        process = self._processes.pop(name, None)
        if process is not None:
            process.terminate()
            try:
                process.wait(_ENDS_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def stop(self) -> None:
        for name in ("apiserver", "etcd"):
            self._stop(name)

    def kubectl(self, *arguments: str | Path, given: str = "", ok: bool = True) -> str:
        """What it prints; standard error, if it is to fail."""
        ended = subprocess.run(
            [self.programs.of_debian("kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments],
            env={"PATH": os.environ["PATH"], "HOME": str(self.folder)},
            input=given,
            capture_output=True,
            text=True,
            timeout=180,
        )
        assert (ended.returncode == 0) == ok, ended.stdout + ended.stderr
        return ended.stdout if ok else ended.stderr

    def get(self, *what: str) -> Any:
        return json.loads(self.kubectl("get", *what, "-o", "json"))

    def checked_policies(self) -> list[dict[str, Any]]:
        """The status of each admission policy, once the controller manager has checked its types:
        it says what it would refuse."""
        program = programs("kube-controller-manager").built / "kube-controller-manager"
        only = "--controllers=validatingadmissionpolicy-status-controller"
        config = f"--kubeconfig={self.kubeconfig}"
        self._start("manager", [program, config, only, "--leader-elect=false", "--secure-port=0"])

        def checked() -> list[dict[str, Any]] | None:
            log = (self.folder / "manager.log").read_text("utf-8", "replace")
            assert self._processes["manager"].poll() is None, log[-4000:]
            policies = self.get("validatingadmissionpolicies")["items"]
            found = [policy.get("status", {}) for policy in policies]
            return found if all("typeChecking" in status for status in found) else None

        try:
            return until(checked, "types to be checked") or []
        finally:
            self._stop("manager")

    def add_node(self, name: str) -> Mapping[str, Any]:
        """A Node as a kubelet would have registered it."""
        node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
        self.kubectl("create", "-f", "-", given=json.dumps(node))
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "posting"}
        status = {"status": {"capacity": {"cpu": "2"}, "conditions": [ready]}}
        self.kubectl("patch", "node", name, "--subresource=status", "-p", json.dumps(status))
        found: Mapping[str, Any] = self.get("node", name)
        return found


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """One that is stopped at the end, with its etcd."""
    cluster = Cluster(programs(), folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
