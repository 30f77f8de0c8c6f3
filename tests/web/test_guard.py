"""Who may ask: names, sites, tokens, methods; and what every answer forbids a browser."""

from __future__ import annotations

import contextlib
import hmac
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from sexton.web.guard import POLICY, Door, refused
from tests.explorer.server.asking import Running, stand_in

TOKEN = "correct-horse-battery-staple"
EVERY = (
    "/",
    "/main.js",
    "/api/recording",
    "/api/strip/cores?level=0&first=6640625",
    "/api/marks?from=1&to=2",
    "/api/live",
    "/openapi.json",
    "/nothing",
)


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with stand_in() as running:
        yield running


@pytest.fixture(scope="module")
def locked() -> Iterator[Running]:
    with stand_in("--token", TOKEN) as running:
        yield running


def asked(method: str = "GET", path: str = "/", query: bytes = b"", **headers: str) -> dict:
    named = [
        (name.replace("_", "-").encode(), text.encode("latin-1")) for name, text in headers.items()
    ]
    return {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query,
        "headers": named,
        "server": ("10.1.2.3", 8477),
    }


def status(door: Door = Door(), **request: str) -> int:  # noqa: B008 - it is frozen
    refusal = refused(asked(**{"host": "127.0.0.1:8477", **request}), door)
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:8477",
        "127.8.9.1:1",
        "localhost",
        "LOCALHOST:9000",
        "localhost.",
        "[::1]",
        "[::1]:8477",
        "[0:0:0:0:0:0:0:1]:8477",
        "10.1.2.3:8477",
        "node-7:8477",
    ],
)
def test_our_own_names_and_addresses_are_taken_with_any_port(host: str) -> None:
    assert status(Door(frozenset({"node-7"})), host=host) == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8477",
        "127.0.0.1.evil.example",
        "localhost.evil.example:8477",
        "evil.example:80@127.0.0.1",
        "127.0.0.1@evil.example",
        "127.0.0.1:8477/",
        "127.0.0.1 ",
        "127.0.0.1:8477, evil.example",
        "2130706433",
        "0x7f.1",
        "127.1",
        "0.0.0.0",
        "[::]",
        "[::1",
        "::1",
        "10.1.2.4",
        "169.254.169.254",
        "",
        "\xff",
        "node-7",
        "x" * 300,
    ],
)
def test_a_name_that_was_made_to_lead_here_is_refused(host: str) -> None:
    assert status(host=host) == 403


def test_no_host_and_two_hosts_are_refused() -> None:
    without = asked()
    assert refused(without, Door()).status == 403
    without["headers"] = [(b"host", b"localhost"), (b"Host", b"localhost")]
    assert refused(without, Door()).status == 403


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://127.0.0.1:8477", 200),
        ("https://127.0.0.1:8477", 200),  # behind somebody's TLS
        ("http://127.0.0.1:9999", 403),  # another server of this machine
        ("http://localhost:8477", 403),  # a page asks by the name it was opened with
        ("http://evil.example", 403),
        ("null", 403),
        ("file://", 403),
        ("", 403),
        ("chrome-extension://127.0.0.1:8477", 403),
        ("http://127.0.0.1:8477@evil.example", 403),
    ],
)
def test_only_our_own_page_may_ask_from_a_script(origin: str, expected: int) -> None:
    assert status(origin=origin) == expected


@pytest.mark.parametrize("site", ["cross-site", "same-site", "other"])
def test_another_site_may_open_the_page_by_a_link_and_read_nothing(site: str) -> None:
    link = {"sec_fetch_site": site, "sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}
    assert status(path="/", **link) == 200
    assert status(path="/api/recording", **link) == 403
    assert status(path="/", **{**link, "sec_fetch_dest": "iframe"}) == 403
    assert status(path="/main.js", sec_fetch_site=site, sec_fetch_mode="no-cors") == 403
    assert status(path="/api/recording", sec_fetch_site="same-origin") == 200


def test_a_rebound_name_gets_nothing_from_a_real_server(server: Running) -> None:
    for path in EVERY:
        answer = server.ask(path, {"Host": f"evil.example:{server.port}"})
        assert (answer.status, list(answer.json)) == (403, ["error"])


def test_another_sites_script_gets_nothing_from_a_real_server(server: Running) -> None:
    for path in EVERY:
        answer = server.ask(path, {"Origin": "http://evil.example"})
        assert answer.status == 403
        assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT", "PROPFIND", "get"]
)
def test_other_methods_are_refused_everywhere(server: Running, method: str) -> None:
    for path in EVERY:
        answer = server.ask(path, method=method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_head_is_get_without_the_body(server: Running) -> None:
    for path in ("/", "/api/recording", "/openapi.json"):
        got, headed = server.ask(path), server.ask(path, method="HEAD")
        assert (headed.status, headed.sent) == (200, b"")
        assert headed.headers["etag"] == got.headers["etag"]


def test_every_answer_forbids_what_a_page_could_be_talked_into(server: Running) -> None:
    answers = [server.ask(path) for path in EVERY]
    answers.append(server.ask("/", method="POST"))
    answers.append(server.ask("/", {"Host": "evil.example"}))
    answers.append(server.ask("/api/next?kind=bug&after=1"))
    assert {answer.status for answer in answers} == {200, 403, 404, 405, 500}
    for answer in answers:
        assert answer.headers["content-security-policy"] == POLICY
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert answer.headers["cache-control"]
        assert "server" not in answer.headers
    assert "unsafe" not in POLICY
    assert "http" not in POLICY


def test_a_request_to_become_a_web_socket_becomes_none(server: Running) -> None:
    upgrade = {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Key": "eA==",
        "Sec-WebSocket-Version": "13",
    }
    assert server.ask("/api/live", upgrade).status == 404


def test_without_the_token_nothing_is_answered(locked: Running) -> None:
    for path in EVERY:
        answer = locked.ask(path)
        assert answer.status == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert TOKEN.encode() not in answer.sent


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": f"Bearer {TOKEN[:-1]}"},
        {"Authorization": f"Bearer {TOKEN}x"},
        {"Authorization": "Bearer "},
        {"Authorization": TOKEN},
        {"Authorization": f"Basic {TOKEN}"},
        {"Authorization": "Bearer \xff\xfe"},
        {"Cookie": "sexton-PORT=wrong"},
        {"Cookie": f"sexton={TOKEN}"},
        {"Cookie": f"xsexton-PORT={TOKEN}"},
        {"Cookie": "sexton-PORT"},
    ],
    ids=str,
)
def test_a_wrong_token_is_as_good_as_none(locked: Running, headers: dict[str, str]) -> None:
    sent = {name: text.replace("PORT", str(locked.port)) for name, text in headers.items()}
    assert locked.ask("/api/recording", sent).status == 401


def test_the_right_token_opens_as_a_header_or_a_cookie(locked: Running) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    cookie = {"Cookie": f"a=b; sexton-{locked.port}={TOKEN}; c=d"}
    for headers in (bearer, cookie):
        assert locked.ask("/api/recording", headers).status == 200
        assert locked.ask("/", headers).status == 200


def test_the_printed_address_gives_a_cookie_and_leaves_the_address_bar(locked: Running) -> None:
    answer = locked.ask(f"/?token={TOKEN}")
    assert (answer.status, answer.headers["location"]) == (303, "/")
    assert answer.headers["cache-control"] == "no-store"
    cookie, *rest = [part.strip() for part in answer.headers["set-cookie"].split(";")]
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} == set(rest)
    assert locked.ask("/api/recording", {"Cookie": cookie}).status == 200


@pytest.mark.parametrize("query", ["token=wrong", "token=", f"token={TOKEN}&token={TOKEN}"])
def test_a_wrong_token_in_the_address_is_refused(locked: Running, query: str) -> None:
    answer = locked.ask(f"/?{query}")
    assert answer.status == 401
    assert "set-cookie" not in answer.headers


def test_the_api_takes_no_token_in_its_address(locked: Running) -> None:
    assert locked.ask(f"/api/recording?token={TOKEN}").status == 401


def test_the_token_is_no_excuse_for_another_site(locked: Running) -> None:
    bearer = {"Authorization": f"Bearer {TOKEN}"}
    assert locked.ask("/api/recording", {**bearer, "Host": "evil.example"}).status == 403
    assert locked.ask("/api/recording", {**bearer, "Origin": "http://evil.example"}).status == 403


def test_tokens_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((one, other))
        return False

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert status(Door(token=TOKEN), authorization=f"Bearer {TOKEN}") == 401
    assert compared == [(TOKEN.encode(), TOKEN.encode())]


def test_a_public_address_gets_a_token_by_default() -> None:
    with stand_in("--host", "0.0.0.0") as open_to_all:
        query = urlsplit(open_to_all.line).query
        assert query.startswith("token=")
        token = query.removeprefix("token=")
        assert len(token) >= 32
        assert open_to_all.ask("/api/recording").status == 401
        bearer = {"Authorization": f"Bearer {token}"}
        assert open_to_all.ask("/api/recording", bearer).status == 200
        named = {**bearer, "Host": f"{socket.gethostname()}:{open_to_all.port}"}
        assert open_to_all.ask("/api/recording", named).status == 200
        assert open_to_all.ask("/", {**bearer, "Host": "evil.example"}).status == 403
    with stand_in("--host", "0.0.0.0") as again:
        assert token not in again.line, "it is another each time"


def test_for_others_with_a_token_of_ones_own_none_is_printed() -> None:
    with stand_in("--host", "0.0.0.0", "--token", TOKEN) as locked:
        assert urlsplit(locked.line).query == ""
        assert locked.ask("/").status == 401


def test_a_request_that_is_none_is_answered_and_the_next_one_too(server: Running) -> None:
    for junk in (b"\x16\x03\x01\x02\x00", b"GET\r\n\r\n", b"GET / HTTP/1.1\r\n" + b"a" * 200_000):
        with (
            contextlib.closing(
                socket.create_connection(("127.0.0.1", server.port), 10)
            ) as connection,
            contextlib.suppress(OSError),
        ):
            connection.sendall(junk)
            assert connection.recv(100).startswith((b"HTTP/1.1 4", b""))
    assert server.ask("/api/recording").status == 200
