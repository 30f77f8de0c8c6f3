"""A Lease of the cluster as a lock: one node at a time acts, and a dead holder loses it.

Clocks of other nodes are not believed. Somebody else's Lease is dead if nobody changed it while we
watched it for as long as it is granted (`leaseDurationSeconds`), by our monotonic clock. Each
change is on condition of `resourceVersion`, so that of two that try one has it.

The holder renews it from a thread, three times in its duration, and counts it as lost when that
failed for two thirds of it: before anybody else can take it.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any
from urllib.parse import quote

from sexton.cluster.client import Answer
from sexton.cure.auto.policy import Named
from sexton.cure.nodes import RIGHTS, SERVER, Cluster, metadata, part
from sexton.errors import SourceDenied, SourceError
from sexton.model.text import printable

#: Nobody waits longer than this for a dead holder, whatever its Lease says.
_MOST_S = 600


def holder_name(node: str) -> str:
    """Of this process: another one on this node is another holder."""
    return f"{node}_{os.getpid()}_{random.getrandbits(48):012x}"


_TAKEN = "somebody else has the Lease"


def _stamp() -> str:
    """For people and other clients; we never read it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _now_s() -> float:
    """Goes on while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(slots=True)
class Lease:
    """Ours while it is entered as a context; `lost` is then why it no longer is."""

    cluster: Cluster
    named: Named
    holder: str
    seconds: int
    lost: str = ""
    _version: str = ""
    _spec: dict[str, Any] = field(default_factory=dict)
    _renewed_s: float = 0.0
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    @property
    def _folder(self) -> str:
        return f"/apis/coordination.k8s.io/v1/namespaces/{quote(self.named.namespace)}/leases"

    @property
    def _path(self) -> str:
        return f"{self._folder}/{quote(self.named.name)}"

    def acquire(self, interrupted: Callable[[], str] = lambda: "") -> str:
        """Take it; why not, if somebody who is alive holds it. Waits for at most one duration."""
        found = self._read()
        if found is None:
            return self._won(self._send("", self._taken(0)))
        spec = part(found, "spec")
        held_by = str(spec.get("holderIdentity") or "")
        version = metadata(found, "resourceVersion")
        if held_by:
            granted_s = _granted_s(spec)
            if granted_s > _MOST_S:
                return f"{printable(held_by)} holds the Lease for {granted_s:,} s: delete it"
            if why := self._watch(version, held_by, granted_s, interrupted):
                return why
        before = spec.get("leaseTransitions")
        transitions = (before if isinstance(before, int) else 0) + 1
        return self._won(self._send(version, self._taken(transitions)))

    def _watch(
        self, version: str, held_by: str, granted_s: int, interrupted: Callable[[], str]
    ) -> str:
        """Empty once it was left unchanged for as long as it is granted."""
        end_s = time.monotonic() + granted_s
        while (left_s := end_s - time.monotonic()) > 0:
            time.sleep(min(left_s, max(0.2, granted_s / 10)))
            if why := interrupted():
                return why
            found = self._read()
            if found is None or metadata(found, "resourceVersion") != version:
                return f"{printable(held_by)} is at work (it holds or held the Lease)"
        return ""

    def _won(self, answer: Answer) -> str:
        if answer.status in (200, 201):
            return ""
        if answer.status == 409:
            return "another node took the Lease at the same moment"
        raise self._refused(answer)

    def _refused(self, answer: Answer) -> SourceError:
        said = f"Lease {self.named.namespace}/{self.named.name}: {answer.status}"
        said += f" {printable(answer.message)[:300]}"
        if answer.status in (401, 403):
            return SourceDenied(SERVER, f"{said} ({RIGHTS} grants what is needed)", RIGHTS)
        return SourceError(SERVER, said)

    def _took(self, body: Mapping[str, Any]) -> None:
        self._version = metadata(body, "resourceVersion")
        self._spec = dict(part(body, "spec"))

    def _read(self) -> Mapping[str, Any] | None:
        answer = self.cluster.call(lambda server: server.get(self._path))
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise self._refused(answer)
        return answer.body

    def _taken(self, transitions: int) -> dict[str, Any]:
        """The spec of a Lease that we take."""
        return {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.seconds,
            "acquireTime": _stamp(),
            "renewTime": _stamp(),
            "leaseTransitions": transitions,
        }

    def _send(self, version: str, spec: Mapping[str, Any]) -> Answer:
        """Create it, or change it on condition that it is still as in `version`."""
        about = {"name": self.named.name, "namespace": self.named.namespace}
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {**about, "resourceVersion": version} if version else about,
            "spec": dict(spec),
        }
        sent_s = _now_s()  # it is granted from then on, or later
        if version:
            answer = self.cluster.call(lambda server: server.put(self._path, body))
        else:
            answer = self.cluster.call(lambda server: server.post(self._folder, body))
        if answer.status in (200, 201):
            self._took(answer.body)
            self._renewed_s = sent_s
        return answer

    def __enter__(self) -> Lease:
        """After `acquire`: renew it until the end."""
        self._thread = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Give it back, if it is still ours; what cannot be given back expires."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self.lost:
            return
        try:
            self._send(self._version, {**self._spec, "holderIdentity": "", "renewTime": _stamp()})
        except SourceError:
            return

    def _renew(self) -> None:
        while not self._ended.wait(self.seconds / 3):
            try:
                answer = self._send(self._version, {**self._spec, "renewTime": _stamp()})
                if answer.status == 200:
                    continue
                why = f"{answer.status} {printable(answer.message)[:200]}"
                if answer.status in (404, 409) and not self._is_ours():
                    self.lost = _TAKEN
                    return
            except SourceError as error:
                why = error.detail
            if _now_s() - self._renewed_s > self.seconds * 2 / 3:
                self.lost = f"the Lease could not be renewed: {why}"
                return

    def _is_ours(self) -> bool:
        """Read it again: a change by others that left it ours is no loss."""
        found = self._read()
        if found is None or part(found, "spec").get("holderIdentity") != self.holder:
            return False
        self._took(found)
        return True

    def why_lost(self) -> str:
        """Why it is no longer ours, without asking; a thread that cannot run counts as well."""
        if not self.lost and _now_s() - self._renewed_s > self.seconds:
            return "the Lease has expired"
        return self.lost

    def why_not_ours(self) -> str:
        """The same, by asking the server."""
        if why := self.why_lost():
            return why
        found = self._read()
        if found is None or part(found, "spec").get("holderIdentity") != self.holder:
            return _TAKEN
        return ""


def _granted_s(spec: Mapping[str, Any]) -> int:
    granted = spec.get("leaseDurationSeconds")
    return granted if type(granted) is int and granted > 0 else _MOST_S
