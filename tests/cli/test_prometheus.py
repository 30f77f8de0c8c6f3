"""`sexton diagnose --prometheus`: its options, its output and its errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sexton.cli.main import main
from tests.support.prometheus import Server, kept, send, serving

KEPT = Path(__file__).parents[1] / "fixtures/prometheus/held-core-5s.json.gz"
URL = "http://127.0.0.1:1"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--prometheus", URL], "--prometheus requires --node NAME"),
        (["--node", "n1"], "require --prometheus URL"),
        (["--prometheus-config", "x"], "require --prometheus URL"),
        (["--prometheus", URL, "--node", "n1", "--from", "x"], "cannot be combined with --from"),
        (["--prometheus", URL, "--node", "n1", "--root", "/usr"], "cannot be combined with"),
        (["--prometheus", URL, "--node", "n1", "--seconds", "5"], "--seconds"),
        (["--prometheus", URL, "--node", "n1", "--window", "3d.."], "at most 24 hours"),
        (["--prometheus", URL, "--node", "n1", "--window", "@4000000000..@4000000001"],
         "empty or in the future"),
        (["--prometheus", URL, "--node", "n1", "--around", "soon"], "invalid time"),
        (["--prometheus", URL, "--node", "n1"], "Connection refused"),
        (["--prometheus", "prometheus:9090", "--node", "n1"], "must begin with http"),
        (["--prometheus", URL, "--node", "n1", "--prometheus-config", "/nonexistent"],
         "No such file"),
        (["--around", "10:15"], "require --from DIR or --prometheus URL"),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_one_line_and_exit_2(arguments, words, capsys):
    assert main(["diagnose", *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


def test_a_login_page_is_one_line_and_exit_2(capsys):
    with Server(lambda request: send(request, b"<html>", Content_Type="text/html")) as server:
        assert main(["diagnose", "--prometheus", server.url, "--node", "n1"]) == 2
    assert "no answer of Prometheus' API (HTTP 200, text/html)" in capsys.readouterr().err


def test_a_past_window_is_judged_as_json_and_as_a_page(capsys, tmp_path):
    document = kept(KEPT)
    span = f"@{document['start']:.3f}..@{document['end']:.3f}"
    page = tmp_path / "incident.html"
    with serving(document) as server:
        asked = ["diagnose", "--prometheus", server.url, "--node", "vm", "--window", span]
        assert main([*asked, "--json", "--html", str(page)]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["replayed"]["recording"] == f"Prometheus at {server.url}"
    assert "2 jobs scrape its node_exporter" in found["replayed"]["notes"][0]
    held = next(one for one in found["findings"] if one["id"] == "saturated_core")
    assert held["verdict"] == "present"
    assert "was held in the kernel" in page.read_text()
