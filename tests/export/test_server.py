"""The real commands: a recorder that serves its metrics and its page, and `sexton export`."""

from __future__ import annotations

import contextlib
import gzip
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sexton.detect.custom_patterns import finding_id
from sexton.detect.registry import detector_ids
from tests.support.cli import ENVIRONMENT, SEXTON, sexton

_URL = re.compile(r"https?://([\w.-]+|\[::1\]):([0-9]+)/metrics")
PATIENCE_S = 60.0


class Served(NamedTuple):
    """A running command, and where it listens."""

    process: subprocess.Popen[bytes]
    host: str
    port: int
    said: Callable[[], str]

    def get(self, path: str = "/metrics", **headers: str) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection(self.host, self.port, timeout=20)
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return answer.status, found, answer.read()
        finally:
            connection.close()

    def values(self) -> dict[str, float]:
        """Series without labels; empty while it is starting."""
        with contextlib.suppress(OSError, http.client.HTTPException):
            status, _, content = self.get()
            if status == 200:
                families = text_string_to_metric_families(content.decode())
                samples = (sample for family in families for sample in family.samples)
                return {sample.name: sample.value for sample in samples if not sample.labels}
        return {}

    def wait_for(self, name: str, value: float | None = None) -> dict[str, float]:
        until = time.monotonic() + PATIENCE_S
        while True:
            found = self.values()
            if name in found and value in (None, found[name]):
                return found
            assert time.monotonic() < until, (name, value, found, self.said())
            assert self.process.poll() is None, self.said()
            time.sleep(0.1)


@contextlib.contextmanager
def serving(tmp_path: Path, *arguments: str | Path) -> Iterator[Served]:
    """Run a command that prints the URL of its metrics, on either stream."""
    place = tmp_path / f"said-{time.monotonic_ns()}"
    with place.open("wb") as stream:
        process = subprocess.Popen(
            [*SEXTON, *arguments], stdin=subprocess.DEVNULL, stdout=stream, stderr=stream,
            env=ENVIRONMENT,
        )  # fmt: skip

    def said() -> str:
        return place.read_text("utf-8", "replace")

    try:
        until = time.monotonic() + PATIENCE_S
        while (found := _URL.search(said())) is None:
            assert process.poll() is None, said()
            assert time.monotonic() < until, said()
            time.sleep(0.05)
        yield Served(process, found[1].strip("[]"), int(found[2]), said)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(30)
        if process.poll() is None:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def recorder(tmp_path_factory) -> Iterator[Served]:
    place = tmp_path_factory.mktemp("record")
    listen = ("--listen", "127.0.0.1:0")
    with serving(place, "record", place / "recording", "--no-ring", "--no-probe", *listen) as made:
        made.wait_for("sexton_verdict")
        yield made


def test_a_recorder_serves_its_own_metrics(recorder):
    found = recorder.wait_for("sexton_recorder_up", 1)
    assert found["sexton_core_kernel_ratio_count"] > 0
    assert found["sexton_recorder_problem"] == 0
    assert 0 <= time.time() - found["sexton_recorder_last_reading_timestamp_seconds"] < 60


def test_the_format_is_chosen_by_the_client(recorder):
    _, plain, _ = recorder.get()
    assert plain["content-type"].startswith("text/plain; version=0.0.4")
    status, headers, content = recorder.get(Accept="application/openmetrics-text; version=1.0.0")
    assert status == 200
    assert headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    assert content.endswith(b"# EOF\n")
    _, headers, content = recorder.get(**{"Accept-Encoding": "gzip"})
    assert headers["content-encoding"] == "gzip"
    assert b"sexton_verdict" in gzip.decompress(content)


def test_the_page_is_on_the_same_port(recorder):
    status, headers, content = recorder.get("/")
    assert status == 200
    assert b"<html" in content.lower()
    assert "default-src 'none'" in headers["content-security-policy"]
    status, _, content = recorder.get("/api/recording")
    assert status == 200
    assert json.loads(content)["live"] is True


def test_a_runbook_is_the_page_of_its_detector(recorder):
    status, headers, content = recorder.get("/runbooks/zombie_memcgs")
    assert status == 200
    assert headers["content-type"] == "text/plain; charset=utf-8"
    assert b"What would make it wrong" in content
    for name in ("none", "../metrics", "zombie_memcgs/", "%00"):
        assert recorder.get(f"/runbooks/{name}")[0] == 404


def test_a_browser_gets_runbooks_as_pages(recorder):
    """What an alert links to is read on a phone, at night."""
    status, headers, content = recorder.get("/runbooks/zombie_memcgs", Accept="text/html,*/*")
    assert status == 200
    assert headers["content-type"] == "text/html; charset=utf-8"
    assert b"<strong>What would make it wrong.</strong>" in content
    assert b'<a href="crash_looping_unit">' in content
    status, headers, content = recorder.get("/runbooks/style.css")
    assert status == 200
    assert headers["content-type"] == "text/css; charset=utf-8"


def test_the_index_lists_every_runbook(recorder):
    as_text = recorder.get("/runbooks/")[2].decode().splitlines()
    assert [line.partition(" ")[0] for line in as_text] == list(detector_ids())
    content = recorder.get("/runbooks/", Accept="text/html")[2].decode()
    assert all(f'<a href="{name}">' in content for name in detector_ids())


@pytest.mark.parametrize("accept", ["*/*", "text/html"])
def test_the_finding_of_a_custom_pattern_has_a_page(recorder, accept):
    """Its alert links there as to that of a detector."""
    name = finding_id("bmc-silent")
    status, headers, content = recorder.get(f"/runbooks/{name}", Accept=accept)
    assert status == 200
    assert headers["content-type"].startswith(
        "text/html" if accept == "text/html" else "text/plain"
    )
    assert b"bmc_silent" in content
    assert b"/etc/sexton/patterns.d" in content
    for other in ("pattern_", "pattern_<b>", "pattern_%0a", f"pattern_{'x' * 41}", "pattern_a/b"):
        assert recorder.get(f"/runbooks/{other}", Accept=accept)[0] == 404


@pytest.mark.parametrize("path", ["/metrics", "/", "/runbooks/nic_resets"])
def test_another_site_reads_nothing(recorder, path):
    assert recorder.get(path, Host="evil.example")[0] == 403
    assert recorder.get(path, Origin="http://evil.example")[0] == 403


def test_other_methods_are_refused(recorder):
    connection = http.client.HTTPConnection(recorder.host, recorder.port, timeout=20)
    connection.request("POST", "/metrics", body=b"x")
    assert connection.getresponse().status == 405
    connection.close()


def test_the_server_is_started_again_and_clients_wait_meanwhile(recorder):
    before = _server_of(recorder)
    os.kill(before, signal.SIGKILL)
    recorder.wait_for("sexton_verdict")
    assert _server_of(recorder) != before


def _server_of(recorder: Served) -> int:
    """The process below the one that serves, which reads for it."""
    return _children(_metrics_pid(recorder))[0]


def _metrics_pid(recorder: Served) -> int:
    """The process that serves, once it has begun to read."""
    until = time.monotonic() + PATIENCE_S
    while True:
        status = json.loads((_directory(recorder) / "status.json").read_text())
        pid = status["companions"]["metrics"]["pid"]
        if pid is not None and _children(pid):
            return int(pid)
        assert time.monotonic() < until
        time.sleep(0.1)


def _directory(recorder: Served) -> Path:
    arguments = recorder.process.args
    assert isinstance(arguments, list)
    return Path(arguments[arguments.index("record") + 1])


def _children(pid: int) -> list[int]:
    with contextlib.suppress(OSError):
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii")
        return [int(word) for word in text.split()]
    return []


def test_killed_with_its_recorder_nothing_is_left(tmp_path):
    listen = ("--listen", "127.0.0.1:0")
    with serving(tmp_path, "record", tmp_path / "r", "--no-ring", "--no-probe", *listen) as made:
        made.wait_for("sexton_verdict")
        below = _below(made.process.pid)
        assert len(below) > 2
        made.process.kill()
        made.process.wait()
        until = time.monotonic() + PATIENCE_S
        while left := [pid for pid in below if Path(f"/proc/{pid}").exists()]:
            assert time.monotonic() < until, left
            time.sleep(0.1)
        assert made.values() == {}


def _below(pid: int) -> list[int]:
    found = _children(pid)
    return found + [other for child in found for other in _below(child)]


def test_where_nobody_records_it_records_into_memory(tmp_path):
    with serving(tmp_path, "export", "--listen", "127.0.0.1:0") as made:
        found = made.wait_for("sexton_verdict")
        assert found["sexton_recorder_up"] == 1
        place = next(Path("/run").glob("sexton-export-*"), None) if os.geteuid() == 0 else None
        made.process.send_signal(signal.SIGTERM)
        assert made.process.wait(60) == 0, made.said()
    if place is not None:
        assert not place.exists()


def test_a_recording_of_another_recorder(recorder, tmp_path):
    with serving(
        tmp_path, "export", "--from", _directory(recorder), "--listen", "127.0.0.1:0"
    ) as other:
        found = other.wait_for("sexton_verdict")
        assert found["sexton_recorder_up"] == 1


def test_one_file_for_the_textfile_collector(recorder, tmp_path):
    file = tmp_path / "sexton.prom"
    ended = sexton("export", "--once", file, "--from", _directory(recorder))
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    assert file.stat().st_mode & 0o777 == 0o644
    assert [path.name for path in tmp_path.iterdir()] == ["sexton.prom"]
    names = {family.name for family in text_string_to_metric_families(file.read_text())}
    assert {"sexton_verdict", "sexton_memcgs_dying", "sexton_node_info"} <= names


def test_once_watches_this_node_itself():
    ended = sexton("export", "--once", "-", "--seconds", "3")
    assert ended.returncode == 0, ended.stderr
    families = text_string_to_metric_families(ended.stdout.decode())
    assert {"sexton_verdict", "sexton_build_info"} <= {family.name for family in families}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--listen", "nowhere"), "invalid address 'nowhere'"),
        (("--listen", "127.0.0.1:99999"), "invalid address"),
        (("--listen", "203.0.113.7:9643"), "203.0.113.7:9643: Cannot assign"),
        (("--from", "/nowhere"), "/nowhere"),
        (("--from", "/etc"), "/etc"),
        (("--once", "/tmp/x.txt"), "only files that end in .prom"),
        (("--once", "/nowhere/x.prom"), "/nowhere/x.prom: No such file or directory"),
        (("--seconds", "5"), "--seconds requires --once"),
        (("--once", "-", "--listen", ":1"), "--listen and --web.config.file serve"),
        (("--web.config.file", "/nowhere.yml"), "/nowhere.yml"),
    ],
)
def test_bad_usage_is_one_line_and_exit_2(arguments, words):
    ended = sexton("export", *arguments, timeout=60)
    said = ended.stderr.decode()
    assert ended.returncode == 2, said
    assert said.startswith("sexton: ")
    assert words in said
    assert said.count("\n") == 1
    assert ended.stdout == b""


def test_the_page_of_a_recorder_opens_with_the_printed_token_and_again_after_a_crash(tmp_path):
    directory = tmp_path / "recording"
    quiet = ("--no-ring", "--no-probe")
    with serving(tmp_path, "record", directory, *quiet, "--listen", "0.0.0.0:0") as made:
        token = re.search(r"explorer: http://\S+/\?token=(\S+)", made.said())
        assert token is not None, made.said()
        page = made._replace(host="127.0.0.1")
        page.wait_for("sexton_recorder_up", 1)
        bearer = {"Authorization": f"Bearer {token[1]}"}
        assert page.get("/")[0] == 401
        assert page.get("/", **bearer)[0] == 200
        for pid in _below(made.process.pid):
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
            assert token[1].encode() not in arguments  # all users see those
        served = _metrics_pid(made)
        those = [served, *_below(served)]
        os.kill(served, signal.SIGKILL)
        until = time.monotonic() + PATIENCE_S
        while any(
            Path(f"/proc/{pid}/fd/0").exists() for pid in those
        ):  # its child serves, and ends
            assert time.monotonic() < until
            time.sleep(0.02)
        page.wait_for("sexton_recorder_up", 1)
        assert page.get("/", **bearer)[0] == 200


def test_what_the_server_of_a_recorder_says_is_said_by_the_recorder(tmp_path):
    directory, web = tmp_path / "recording", tmp_path / "web.yml"
    web.write_text("{}\n")
    quiet = ("--no-ring", "--no-probe", "--listen", "127.0.0.1:0", "--web.config.file", web)
    with serving(tmp_path, "record", directory, *quiet) as made:
        made.wait_for("sexton_recorder_up")
        web.write_text("nonsense: 1\n")
        until = time.monotonic() + PATIENCE_S
        while "nonsense: no such key" not in made.said():
            assert time.monotonic() < until, made.said()
            made.values()
            time.sleep(0.1)


def test_a_recorder_holds_no_web_server_and_no_reader_in_its_memory():
    """They took 60 MB of the process that must stay small."""
    code = (
        "import sys, argparse; from sexton.cli.listen import served_by;"
        "served_by(argparse.Namespace(listen='127.0.0.1:0', web_config=None, config=None));"
        "print(*sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(ended.stdout.split())
    heavy = {"uvicorn", "starlette", "pyarrow", "prometheus_client", "sexton.explorer"}
    assert not loaded & heavy
    assert "sexton.export.companion" in loaded


def test_a_port_in_use_is_an_error_before_anything_is_recorded(recorder, tmp_path):
    taken = f"127.0.0.1:{recorder.port}"
    ended = sexton("record", tmp_path / "r", "--listen", taken, timeout=60)
    assert ended.returncode == 2
    assert b"Address already in use" in ended.stderr
    assert not (tmp_path / "r").exists()
