"""Fuzz target: answers of a Prometheus. Parts: `A` an answer; the next question gets the next."""

from __future__ import annotations

import gzip
import json
from functools import cache
from typing import Any

from sexton.errors import SextonError
from sexton.explain.diagnosis import diagnose
from sexton.replay.prometheus.client import Client
from sexton.replay.prometheus.window import window
from sexton.reports.text.verdict import verdict_text
from tests.fuzz.parts import joined, parts
from tests.support.fixtures import FIXTURES
from tests.support.prometheus import question


class _Answered(Client):
    """Gets the fuzzer's answers, and those that were kept for questions that have none."""

    def __init__(self, answers: list[bytes]) -> None:
        super().__init__("http://127.0.0.1:1")
        self._left = answers

    def _get(self, path: str) -> tuple[int, str, bytes]:
        known = _kept()["answers"].get(question(path), {"status": "success", "data": []})
        answer = self._left.pop(0) if self._left else b""
        return 200, "application/json", answer or json.dumps(known).encode()


@cache
def _kept() -> dict[str, Any]:
    """A few series of each kind of a real one."""
    with gzip.open(FIXTURES / "prometheus/held-core-5s.json.gz") as stream:
        kept: dict[str, Any] = json.load(stream)
    for answer in kept["answers"].values():
        if isinstance(answer["data"], dict):
            answer["data"]["result"] = [
                {**one, "values": one["values"][:4]} for one in answer["data"]["result"][:6]
            ]
        else:
            answer["data"] = answer["data"][:4]
    return kept


def one(data: bytes) -> None:
    kept = _kept()
    answers = [content for kind, content in parts(data) if kind == b"A"]
    with _Answered(answers) as client:
        found = window(client, "127.0.0.1", kept["start"], kept["end"])
    assert all("\n" not in note for note in found.notes)
    try:
        shown = verdict_text(diagnose(found.window), 100)
    except SextonError as error:
        raise AssertionError("a verdict must come of any window") from error
    assert "\x1b" not in shown


def seeds() -> list[bytes]:
    """All answers as they are kept, and a few at a time at their places."""
    every = [json.dumps(answer).encode() for answer in _kept()["answers"].values()]
    short = [answer for answer in every if len(answer) < 20_000]
    return [
        joined((b"A", answer) for answer in short[:8]),
        *(joined([*[(b"A", b"")] * at, (b"A", answer)]) for at, answer in enumerate(short)),
    ]
