"""``python -m tests.docs.prometheus_source`` writes the table and the output of its page anew."""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import isinf
from pathlib import Path

from sexton.detect.registry import Detector, all_detectors
from sexton.explain.diagnosis import diagnose
from sexton.model.text import seconds
from sexton.replay.prometheus.client import Client
from sexton.replay.prometheus.table import KUBELET, Table, table_of
from sexton.replay.prometheus.window import window
from sexton.reports.text.verdict import verdict_text
from tests.support.prometheus import kept, serving

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/prometheus-source.md"
KEPT = ROOT / "tests/fixtures/prometheus/held-core-5s.json.gz"
_BLOCKS = re.compile(r"(<!-- (\w+): begin -->\n)(.*?)(<!-- \w+: end -->)", re.DOTALL)


def table() -> str:
    """Every detector, on which series it is judged, and from which interval on."""
    lines = [
        "| detector | series | collector or flag | can say *absent* with scrapes |",
        "|---|---|---|---|",
        *(_row(detector) for detector in all_detectors() if detector.averages is not None),
    ]
    return "\n".join(lines) + "\n"


def _row(detector: Detector) -> str:
    assert detector.averages is not None
    found = {table.row: table for table in map(table_of, detector.averages.of) if table}
    tables = list(found.values())
    assert tables, detector.id
    names = "<br>".join(f"`{name}`" for table in tables for name in table.names.split(", "))
    flags = "<br>".join(map(_flag, tables))
    every = detector.averages.every_s
    when = "at any interval" if isinf(every) else f"at most {seconds(every)} apart"
    return f"| [{detector.id}](detectors/{detector.id}.md) | {names} | {flags} | "\
        f"{when if every else 'never'} |"  # fmt: skip


def _flag(table: Table) -> str:
    if table.exporter == KUBELET:
        return "kubelet's `/metrics/cadvisor`"
    flag = table.turn_on.partition("  #")[0].replace("|", "\\|")
    return f"`{flag}`" + (" (on by default)" if table.by_default and "=" not in flag else "")


def unjudged() -> str:
    """The detectors that stay unknown."""
    names = [one.id for one in all_detectors() if one.averages is None]
    return ", ".join(f"[{name}](detectors/{name}.md)" for name in names) + ".\n"


def output() -> str:
    """The verdict on kept answers of a real Prometheus."""
    document = kept(KEPT)
    with serving(document) as server, Client(server.url) as client:
        found = window(client, "127.0.0.1", document["start"], document["end"])
    return f"```text\n{verdict_text(diagnose(found.window), 88)}```\n"


def made(text: str) -> str:
    """The page with its generated blocks."""
    blocks = {"table": table, "unjudged": unjudged, "output": output}
    return _BLOCKS.sub(lambda found: found[1] + blocks[found[2]]() + found[4], text)


def blocks() -> Iterator[str]:
    """The names of the page's blocks."""
    return (found[2] for found in _BLOCKS.finditer(PAGE.read_text()))


if __name__ == "__main__":
    PAGE.write_text(made(PAGE.read_text()))
