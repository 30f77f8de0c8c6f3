"""Calls of a fake server end in time and raise only `Unreachable`, whatever it answers."""

from __future__ import annotations

import json
import socket
import time

import pytest

from sexton.cluster.access import Access, Given, Place
from sexton.cluster.client import STRATEGIC, ApiServer, Unreachable
from tests.cluster.https import answering, fake_server


def test_a_call_has_our_token_and_body_and_its_answer(tmp_path):
    token = tmp_path / "token"
    token.write_text("one\n")
    with fake_server(tmp_path, answering(200, b'{"a": 1}')) as fake:
        with ApiServer(fake.access(token)) as server:
            assert server.patch("/x", {"ü": 2}).body == {"a": 1}
            token.write_text("two\n")
            assert server.get("/y").status == 200
        with ApiServer(fake.access(token)) as server:
            server.get("/z")
    (verb, path, headers, content), second, third = fake.requests
    assert (verb, path, json.loads(content)) == ("PATCH", "/x", {"ü": 2})
    assert headers["Content-Type"] == STRATEGIC
    tokens = [request[2]["Authorization"] for request in (fake.requests[0], second, third)]
    assert tokens == ["Bearer one", "Bearer one", "Bearer two"], "read again with each connection"


def test_refusals_have_the_servers_words_and_its_retry_after(tmp_path):
    said = b'{"kind": "Status", "message": "slow down", "code": 429}'
    with (
        fake_server(tmp_path, answering(429, said, Retry_After="7")) as fake,
        ApiServer(fake.access()) as server,
    ):
        answer = server.get("/x")
    assert (answer.status, answer.message, answer.asked_s) == (429, "slow down", 7.0)


@pytest.mark.parametrize(
    "content", [b"", b"<html>", b"[1]", b"\xff\xfe", b"[" * 100_000, b'"text"', b'{"message": 7}']
)
def test_answers_that_are_not_of_an_api_server(tmp_path, content):
    with fake_server(tmp_path, answering(502, content)) as fake, ApiServer(fake.access()) as server:
        assert server.get("/x").message == "Bad Gateway"


def test_a_certificate_of_another_authority_is_refused(tmp_path):
    with (
        fake_server(tmp_path / "one", answering(200, b"{}")) as fake,
        fake_server(tmp_path / "two", answering(200, b"{}")) as other,
        ApiServer(fake.access()._replace(authority=Given(str(other.authority)))) as server,
    ):
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            server.get("/x")
        assert fake.requests == []


def test_a_certificate_for_another_name_needs_that_name(tmp_path):
    with fake_server(tmp_path, answering(200, b"{}"), "DNS:api.example") as fake:
        with ApiServer(fake.access()) as server, pytest.raises(Unreachable, match="mismatch"):
            server.get("/x")
        with ApiServer(fake.access()._replace(server_name="api.example")) as server:
            assert server.get("/x").status == 200


def test_nobody_listens(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as one:
        port = one.getsockname()[1]
    with (
        ApiServer(Access(Place("127.0.0.1", port), Given())) as server,
        pytest.raises(Unreachable, match="refused"),
    ):
        server.get("/x")


def test_a_server_that_accepts_and_says_nothing(tmp_path):
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        ApiServer(Access(Place(*listening.getsockname()), Given()), silent_s=0.2) as server,
        pytest.raises(Unreachable, match="timed out"),
    ):
        server.get("/x")


def test_a_server_that_sends_a_byte_now_and_then(tmp_path):
    def drip(request):
        for _ in range(1000):
            request.wfile.write(b"H")
            time.sleep(0.05)

    with (
        fake_server(tmp_path, drip) as fake,
        ApiServer(fake.access(), silent_s=30.0, call_s=0.5) as server,
        pytest.raises(Unreachable),
    ):
        server.get("/x")


def test_an_answer_that_is_too_long_or_cut_off(tmp_path):
    def endless(request):
        request.send_response(200)
        request.end_headers()
        for _ in range(100):
            request.wfile.write(b" " * (1 << 20))

    def cut(request):
        request.send_response(200)
        request.send_header("Content-Length", "100")
        request.end_headers()
        request.wfile.write(b"{")
        request.close_connection = True

    for handle, words in ((endless, "too long"), (cut, "cut off")):
        with (
            fake_server(tmp_path, handle) as fake,
            ApiServer(fake.access()) as server,
            pytest.raises(Unreachable, match=words),
        ):
            server.get("/x")


def test_a_connection_that_was_closed_is_opened_again(tmp_path):
    with (
        fake_server(tmp_path, answering(200, b"{}", Connection="close")) as fake,
        ApiServer(fake.access()) as server,
    ):
        assert [server.get("/x").status for _ in range(3)] == [200] * 3


def test_a_token_that_is_missing_or_hostile_is_no_request(tmp_path):
    with fake_server(tmp_path, answering(200, b"{}")) as fake:
        token = tmp_path / "token"
        with (
            ApiServer(fake.access(token)) as server,
            pytest.raises(Unreachable, match="no such file"),
        ):
            server.get("/x")
        token.write_bytes(b"a\r\nX-Evil: 1")
        with ApiServer(fake.access(token)) as server, pytest.raises(Unreachable, match="token"):
            server.get("/x")
    assert fake.requests == []
