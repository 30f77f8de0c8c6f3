"""A fake API server, which fails on demand. The real one is in `tests.support.kubernetes`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from sexton.cluster.client import Answer, Unreachable

NODE = "node-a"


class FakeServer:
    """Holds one Node and its events; counts calls. `failing` is answered instead, while set."""

    def __init__(self, uid: str = "uid-1") -> None:
        self.node: dict[str, Any] | None = node(uid)
        self.events: dict[str, dict[str, Any]] = {}
        self.calls: list[str] = []
        self.failing: Answer | Unreachable | None = None
        #: The same for calls that begin so: "POST".
        self.failing_calls: dict[str, Answer] = {}

    def __enter__(self) -> FakeServer:
        return self

    def __exit__(self, *_: object) -> None:
        """A connection has ended."""

    @property
    def condition(self) -> dict[str, Any] | None:
        assert self.node is not None
        found = [each for each in self.node["status"]["conditions"] if each["type"][:1] == "S"]
        assert len(found) <= 1
        return found[0] if found else None

    def get(self, path: str) -> Answer:
        return self._failed("GET", path) or self._found(self.node)

    def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        failed = self._failed("POST", path)
        name = body["metadata"]["name"]
        if failed is None and name in self.events:
            return Answer(409, {"message": "already exists"})
        if failed is None:
            self.events[name] = copy.deepcopy(dict(body))
        return failed or Answer(201, body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Answer:
        failed = self._failed("PATCH", path)
        if failed is not None:
            return failed
        if "/events/" in path:
            event = self.events.get(path.rpartition("/")[2])
            if event is not None:
                event.update(body)
            return self._found(event)
        if self.node is not None:
            (new,) = body["status"]["conditions"]
            others = [c for c in self.node["status"]["conditions"] if c["type"] != new["type"]]
            self.node["status"]["conditions"] = [*others, dict(new)]
        return self._found(self.node)

    def _failed(self, verb: str, path: str) -> Answer | None:
        self.calls.append(f"{verb} {path}")
        if isinstance(self.failing, Unreachable):
            raise self.failing
        return self.failing or self.failing_calls.get(verb)

    def _found(self, thing: Mapping[str, Any] | None) -> Answer:
        if thing is None:
            return Answer(404, {"message": f'nodes "{NODE}" not found'})
        return Answer(200, copy.deepcopy(dict(thing)))

    @property
    def writes(self) -> list[str]:
        return [call for call in self.calls if not call.startswith("GET")]


def node(uid: str) -> dict[str, Any]:
    ready = {"type": "Ready", "status": "True"}
    return {"metadata": {"name": NODE, "uid": uid}, "status": {"conditions": [ready]}}
