"""A small API server in memory: Nodes, pods, evictions, Leases, ConfigMaps, `resourceVersion`.

For what a real one cannot be made to do at a given moment. The real one is in
`tests.support.kubernetes`.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from sexton.cluster.client import MERGE, Answer, Unreachable
from sexton.cure.nodes import Cluster

NODE = "node-a"


def pod(name: str, *, owner: str = "ReplicaSet", node: str = NODE, **more: Any) -> dict[str, Any]:
    about: dict[str, Any] = {"name": name, "namespace": "prod", "uid": f"uid-{name}"}
    if owner:
        about["ownerReferences"] = [{"kind": owner, "controller": True}]
    about["annotations"] = more.pop("annotations", {})
    volumes = [{"name": "x", "emptyDir": {}}] if more.pop("emptydir", False) else []
    spec = {"nodeName": node, "volumes": volumes}
    return {"metadata": about, "spec": spec, "status": {"phase": more.pop("phase", "Running")}}


def node(name: str = NODE, *, zone: str = "z1", ready: str = "True", **spec: Any) -> dict[str, Any]:
    labels = {"pool": "gpu"} | ({"topology.kubernetes.io/zone": zone} if zone else {})
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": labels},
        "spec": spec,
        "status": {
            "conditions": [{"type": "Ready", "status": ready}],
            "nodeInfo": {"bootID": "boot-1"},
        },
    }


class FakeKubernetes:
    """`on` is called before each request, and may change things, raise `Unreachable` or answer."""

    def __init__(self, *nodes: dict[str, Any]) -> None:
        self._version = 0
        self._lock = threading.Lock()
        self.things: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.on: Callable[[str, str], Answer | None] = lambda verb, path: None
        #: Answers to evictions of these pods, the last one again and again.
        self.budgets: dict[str, list[Answer]] = {}
        self.denied: set[str] = set()
        self.ahead_s = 0.0
        for each in nodes or (node(),):
            self.put_thing(f"/api/v1/nodes/{each['metadata']['name']}", each)
        self.put_thing("/api/v1/namespaces/sexton/configmaps/sexton-fix", {"data": {"stop": ""}})

    def put_thing(self, path: str, thing: Mapping[str, Any]) -> dict[str, Any]:
        self._version += 1
        new = copy.deepcopy(dict(thing))
        new.setdefault("metadata", {})["resourceVersion"] = str(self._version)
        self.things[path] = new
        return new

    def add_pod(self, thing: dict[str, Any]) -> None:
        about = thing["metadata"]
        self.put_thing(f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}", thing)

    def cluster(self, dry: bool = False) -> Cluster:
        return Cluster(lambda: self, dry)  # type: ignore[arg-type, return-value]

    def __enter__(self) -> FakeKubernetes:
        return self

    def __exit__(self, *_: object) -> None:
        """A connection has ended."""

    def node(self, name: str = NODE) -> dict[str, Any]:
        return self.things[f"/api/v1/nodes/{name}"]

    @property
    def pods(self) -> list[str]:
        return [path.rpartition("/")[2] for path in self.things if "/pods/" in path]

    @property
    def writes(self) -> list[str]:
        return [call for call in self.calls if not call.startswith("GET") and "review" not in call]

    def get(self, path: str) -> Answer:
        return self._call("GET", path, lambda: self._got(path))

    def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        return self._call("POST", path, lambda: self._posted(path, body))

    def put(self, path: str, body: Mapping[str, Any]) -> Answer:
        def put() -> Answer:
            if (conflict := self._conflict(path, body)) is not None:
                return conflict
            return Answer(200, copy.deepcopy(self.put_thing(path, body)))

        return self._call("PUT", path, put)

    def patch(self, path: str, body: Mapping[str, Any], kind: str) -> Answer:
        def patch() -> Answer:
            assert kind == MERGE
            place, _, query = path.partition("?")
            if (conflict := self._conflict(place, body)) is not None:
                return conflict
            merged = copy.deepcopy(self.things[place])
            _merge(merged, body)
            return Answer(200, merged if query else copy.deepcopy(self.put_thing(place, merged)))

        return self._call("PATCH", path, patch)

    def _call(self, verb: str, path: str, do: Callable[[], Answer]) -> Answer:
        self.calls.append(f"{verb} {path}")
        answer = self.on(verb, path)
        if answer is None:
            with self._lock:
                answer = do()
        return answer._replace(unix=time.time() + self.ahead_s)

    def _conflict(self, path: str, body: Mapping[str, Any]) -> Answer | None:
        found = self.things.get(path)
        if found is None:
            return Answer(404, {"message": f"{path} not found"})
        if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
            return Answer(409, {"message": "the object has been modified"})
        return None

    def _got(self, path: str) -> Answer:
        place = urlsplit(path)
        if place.path in self.things:
            return Answer(200, copy.deepcopy(self.things[place.path]))
        asked = parse_qs(place.query)
        if place.path == "/api/v1/pods":
            on = asked["fieldSelector"][0].partition("=")[2]
            found = [
                thing for path, thing in self.things.items()
                if "/pods/" in path and thing["spec"]["nodeName"] == on
            ]  # fmt: skip
            return Answer(200, {"items": copy.deepcopy(found), "metadata": {}})
        if place.path == "/api/v1/nodes":
            key, _, value = asked["labelSelector"][0].partition("=")
            found = [
                thing for path, thing in self.things.items()
                if "/nodes/" in path and thing["metadata"]["labels"].get(key) == value
            ]  # fmt: skip
            return Answer(200, {"items": copy.deepcopy(found), "metadata": {}})
        return Answer(404, {"message": f"{place.path} not found"})

    def _posted(self, path: str, body: Mapping[str, Any]) -> Answer:
        if path.endswith("selfsubjectaccessreviews"):
            asked = body["spec"]["resourceAttributes"]
            word = f"{asked['verb']} {asked['resource']}"
            return Answer(201, {"status": {"allowed": word not in self.denied}})
        if path.endswith("/eviction"):
            return self._evicted(path.removesuffix("/eviction"), body)
        name = f"{path}/{body['metadata']['name']}"
        if name in self.things:
            return Answer(409, {"message": "already exists"})
        return Answer(201, copy.deepcopy(self.put_thing(name, body)))

    def _evicted(self, path: str, body: Mapping[str, Any]) -> Answer:
        found = self.things.get(path)
        if found is None:
            return Answer(404, {"message": "not found"})
        if found["metadata"]["uid"] != body["deleteOptions"]["preconditions"]["uid"]:
            return Answer(409, {"message": "the UID in the precondition does not match"})
        answers = self.budgets.get(found["metadata"]["name"], [])
        answer = answers.pop(0) if len(answers) > 1 else (answers or [Answer(201, {})])[0]
        if answer.status == 201 and "dryRun" not in body["deleteOptions"]:
            del self.things[path]
        return answer


def _merge(into: dict[str, Any], patch: Mapping[str, Any]) -> None:
    """RFC 7386."""
    for key, value in patch.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, Mapping):
            _merge(into.setdefault(key, {}), value)
        else:
            into[key] = copy.deepcopy(value)


AWAY = Unreachable("127.0.0.1:6443: connection refused")
