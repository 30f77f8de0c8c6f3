"""Fuzz target: the kernel's log in any form. Processes write into it, and so do names of theirs."""

from __future__ import annotations

from sexton.sources.kmsg.catalogue import Recogniser, patterns
from sexton.sources.kmsg.records import parse_log, record

_MOST_LINES = 300


def one(data: bytes) -> None:
    text = data.decode("utf-8", "surrogateescape")
    record(text)
    known = Recogniser(trust_user_records=True)
    for number, line in enumerate(parse_log(text)):
        if number == _MOST_LINES:
            break
        known.event(line)


def seeds() -> list[bytes]:
    """Every line that a pattern matches, in each form a few."""
    lines = [pattern.examples["match"] for pattern in patterns()]
    stamped = [f"[   12.{number:06}] {line}" for number, line in enumerate(lines)]
    records = [f"4,{number},8123456789,-;{line}" for number, line in enumerate(lines)]
    entries = [f'{{"MESSAGE": "{line[:50]}", "__MONOTONIC_TIMESTAMP": "5"}}' for line in lines[:9]]
    made = [stamped[at : at + 9] for at in range(0, len(lines), 9)]
    made += [records[at : at + 9] for at in range(0, len(lines), 9)]
    return ["\n".join(each).encode("utf-8", "surrogateescape") for each in [*made, entries]]
