"""Answers that Prometheus would not give, or gives when something is wrong: one line, in time."""

from __future__ import annotations

import json
import time

import pytest

from sexton.errors import SourceError
from sexton.replay.prometheus import client as module
from sexton.replay.prometheus.client import Access, Client, matching
from sexton.replay.prometheus.window import window
from tests.support.prometheus import Server, send
from tests.web.certificates import Authority

MATRIX = {"status": "success", "data": {"resultType": "matrix", "result": []}}


def failure(answer, path=""):
    with Server(answer) as server, Client(server.url + path) as client:
        with pytest.raises(SourceError) as found:
            client.samples("up", 0.0, 10.0)
        assert "\n" not in str(found.value)
        return str(found.value)


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"<html>Sign in</html>", 200, "no answer of Prometheus' API (HTTP 200"),
        (b'{"status":"success","data":{"resultType":"matr', 200, "no answer of Prometheus' API"),
        (b"[" * 100_000, 200, "no answer of Prometheus' API"),
        (b'{"status":"error","error":"query processing would load too many samples"}', 422,
         "HTTP 422: query processing would load too many samples"),
        (b'{"status":"error","error":{}}', 503, "HTTP 503: no reason given"),
        (b'{"status":"success"}', 200, "expected a matrix"),
        (b'{"status":"success","data":[]}', 200, "expected a matrix"),
        (b'{"status":"success","data":{"resultType":"vector","result":[]}}', 200, "a matrix"),
        (b"{}", 401, "refused with HTTP 401"),
        (b"Client sent an HTTP request to an HTTPS server.\n", 400, "begin the URL with https://"),
        (b"", 302, "redirects (HTTP 302)"),
    ],
)  # fmt: skip
def test_another_answer_is_one_line(body, status, words):
    assert words in failure(lambda request: send(request, body, status))


def test_an_answer_of_100_mb_is_refused(monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 1 << 20)

    def huge(request):
        request.send_response(200)
        request.send_header("Content-Length", str(100 << 20))
        request.end_headers()
        try:
            for _ in range(100):
                request.wfile.write(b" " * (1 << 20))
        except OSError:
            return

    assert "sent more than 1 MB" in failure(huge)


def test_an_answer_that_ends_too_early_or_drips_is_given_up(monkeypatch):
    def short(request):
        request.send_response(200)
        request.send_header("Content-Length", "1000")
        request.end_headers()
        request.wfile.write(b"{")
        request.close_connection = True

    def drip(request):
        request.send_response(200)
        request.send_header("Content-Length", "1000000")
        request.end_headers()
        try:
            while True:
                request.wfile.write(b" ")
                request.wfile.flush()
                time.sleep(0.05)
        except OSError:
            request.close_connection = True

    assert "too early" in failure(short)
    monkeypatch.setattr(module, "ANSWER_S", 0.5)
    assert "took more than" in failure(drip)
    assert "for all" not in failure(drip)
    monkeypatch.setattr(module, "ALL_S", 0.3)
    assert "for all answers: choose a shorter window" in failure(drip)


def test_an_answer_may_take_longer_than_connecting(monkeypatch):
    """A long window takes a Prometheus its time."""

    def slow(request):
        time.sleep(0.5)
        send(request, json.dumps(MATRIX).encode())

    monkeypatch.setattr(module, "_CONNECT_S", 0.2)
    with Server(slow) as server, Client(server.url) as client:
        assert client.samples("up", 0, 1) == []


def test_a_server_that_is_down_or_a_url_that_is_none_is_one_line():
    with Client("http://127.0.0.1:1") as client, pytest.raises(SourceError, match="refused"):
        client.series("up", 0, 1)
    for url in ("localhost:9090", "ftp://x", "http://", "http://[", "http://h:99999"):
        with pytest.raises(SourceError):
            Client(url)
    with pytest.raises(SourceError) as found:
        Client("http://me:secret@host:9090")
    assert "secret" not in str(found.value)


def test_credentials_that_are_refused_are_others_to_get(tmp_path):
    """Who has given some is not told to give some."""
    (tmp_path / "token").write_text("t0ken")
    (tmp_path / "access.toml").write_text('bearer_token_file = "token"\n')
    with Server(lambda request: send(request, b"", 401)) as server:
        for access, whose in ((None, "its"), (Access.read(str(tmp_path / "access.toml")), "other")):
            with Client(server.url, access) as client, pytest.raises(SourceError) as raised:
                client.samples("up", 0, 1)
            assert f"{whose} credentials in --prometheus-config" in raised.value.grant


def test_tls_that_fails_says_what_to_change(tmp_path):
    ours = Authority(tmp_path, "ca")
    trusted = Access({}, ca_file=str(ours.pair.cert))

    def answer(request):
        send(request, json.dumps(MATRIX).encode())

    def refused(url, access=None):
        with Client(url, access) as client, pytest.raises(SourceError) as raised:
            client.samples("up", 0, 1)
        return raised.value

    with Server(answer, ours.sign("server", "DNS:localhost")) as server:
        named = server.url.replace("127.0.0.1", "localhost")
        with Client(named, trusted) as client:
            assert client.samples("up", 0, 1) == []
        assert "ca_file in --prometheus-config" in refused(named).grant
        assert "not valid for '127.0.0.1'" in str(refused(server.url, trusted))
    with Server(answer) as plain:
        assert "http:// instead of https://" in str(refused(plain.url.replace("http", "https")))


def test_a_certificate_file_that_cannot_be_read_is_named(tmp_path):
    missing = str(tmp_path / "missing.pem")
    with pytest.raises(SourceError) as raised:
        Client("https://localhost:1", Access({}, ca_file=missing))
    assert str(raised.value) == f"{missing}: certificates: No such file or directory"


def series(labels, *values):
    return {"metric": labels, "values": [list(pair) for pair in values]}


def test_values_that_are_no_numbers_and_labels_that_are_no_names_are_left_out():
    odd = [[1, "NaN"], [2, "+Inf"], [3, "x"], [4], "5", [None, "1"], [True, "1"], [6, 7], [7, "8"]]
    answer = json.loads(json.dumps(MATRIX))
    answer["data"]["result"] = [
        {"metric": {"__name__": "up"}, "values": odd},
        series({"__name__": "up", "a": "x" * 2000}, (1, "1")),
        series({"__name__": "up", 'a"}': "x"}, (1, "1")),
        {"metric": [], "values": {}},
        None,
        series({"__name__": "up", "a": "\ud800"}, (1, "1")),
        series({"__name__": "up", "a": "\x1b[2J\n"}, (1, "1")),
    ]
    body = json.dumps(answer).encode()
    with Server(lambda request: send(request, body)) as server:
        found = Client(server.url + "/prefix/").samples("up", 0, 10)
    assert [list(one.values) for one in found] == [[(7.0, 8.0)], [(1.0, 1.0)]]


def test_a_selector_cannot_be_broken_out_of():
    made = matching({"instance": 'a"} or up{b="\\\n'}, "node_cpu")
    assert made == '{__name__=~"node_cpu",instance="a\\"} or up{b=\\"\\\\\\n"}'


def test_credentials_are_read_from_files_and_sent(tmp_path):
    (tmp_path / "password").write_text("p4ss\n")
    config = tmp_path / "access.toml"
    config.write_text(
        'username = "me"\npassword_file = "password"\n[headers]\nX-Scope-OrgID = "t1"\n'
    )  # a path is relative to the file
    seen = {}

    def answer(request):
        seen.update(request.headers.items())
        send(request, json.dumps(MATRIX).encode())

    with Server(answer) as server, Client(server.url, Access.read(str(config))) as client:
        assert client.samples("up", 0, 1) == []
    assert seen["Authorization"] == "Basic bWU6cDRzcw=="
    assert seen["X-Scope-OrgID"] == "t1"


@pytest.mark.parametrize(
    "text",
    ["=", 'user = "x"', 'username = "x"', "ca_file = 1", 'headers = "x"',
     'bearer_token_file = "/nonexistent/file"', '[headers]\nA = "b\\nc"', '[headers]\n"a b" = "c"',
     "a = " + "[" * 50_000, "a = " + "9" * 5_000],
)  # fmt: skip
def test_a_bad_config_is_one_line(tmp_path, text):
    config = tmp_path / "access.toml"
    config.write_text(text)
    with pytest.raises(SourceError) as found:
        Access.read(str(config))
    assert "\n" not in str(found.value)


def node(name, job="node", **more):
    return {"__name__": "node_uname_info", "nodename": name, "release": "6.1", "job": job,
            "instance": f"{name}:9100", **more}  # fmt: skip


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ([], "was scraped from 1970-01-01 00:00:00 to 1970-01-01 00:10:00 UTC"),
        ([node("N17.example"), node("n18")], "did you mean N17.example?"),
        ([node("n16"), node("web")], "did you mean n16?"),
        ([node("n17", cluster="a"), node("n17", cluster="b")], "2 nodes match 'n17'"),
        ([node("\x1b[2Jzz")], "known: "),
    ],
)
def test_an_unknown_or_ambiguous_name_says_which_there_are(found, words):
    answer = json.dumps({"status": "success", "data": found}).encode()
    server = Server(lambda request: send(request, answer))
    with server, pytest.raises(SourceError) as raised:
        window(Client(server.url), "n17", 0.0, 600.0)
    assert words in str(raised.value)
    assert str(raised.value).isprintable()
