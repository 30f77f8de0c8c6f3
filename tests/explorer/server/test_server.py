"""A real server in a process of its own: huge, slow, leaving, ending."""

from __future__ import annotations

import contextlib
import http.client
import json
import signal
import socket
import threading
from collections.abc import Iterator

import pytest

from sexton.explorer.server.documents import MOST_BYTES
from tests.explorer.server.asking import Running, stand_in
from tests.explorer.server.stand_in import END, HOSTILE, START
from tests.record.running import wait_until

SPAN = f"from={START}&to={END}"
TILE = int(START) // 256
EVERY = (
    "/api/recording",
    f"/api/strip/cores?level=0&first={TILE}&count=8",
    f"/api/strip/memcgs?level=12&first={TILE >> 12}&count=8",
    f"/api/strip/stacks?level=-1&first={int(START / 5.12)}&count=8",
    f"/api/marks?{SPAN}",
    f"/api/table/cores?{SPAN}",
    f"/api/flame?{SPAN}",
    f"/api/functions?{SPAN}",
    f"/api/explain?{SPAN}",
    "/api/next?kind=spike&after=1",
    "/openapi.json",
)


@pytest.fixture(scope="module")
def huge() -> Iterator[Running]:
    with stand_in("--cores", "192") as running:
        yield running


@pytest.fixture(scope="module")
def live() -> Iterator[Running]:
    with stand_in("--live") as running:
        yield running


@pytest.mark.parametrize("path", EVERY)
def test_no_answer_is_larger_than_a_megabyte_even_of_192_cores(huge: Running, path: str) -> None:
    plain, small = huge.get(path), huge.ask(path, {"Accept-Encoding": "gzip"})
    assert plain.status == 200
    assert 0 < len(small.sent) <= len(plain.sent) <= MOST_BYTES
    assert plain.json == small.json


@pytest.mark.parametrize("path", [*EVERY[:1], *EVERY[4:7]])
def test_a_cgroup_called_script_is_text_and_control_characters_are_escaped(
    huge: Running, path: str
) -> None:
    answer = huge.get(path)
    assert "<script>alert(1)</script>" in answer.body.decode()
    assert b"\x1b" not in answer.body
    assert HOSTILE not in answer.body.decode("utf-8")
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    "path",
    [
        "/api/strip/cores",
        "/api/strip/cores?level=0",
        "/api/strip/cores?level=13&first=1",
        "/api/strip/cores?level=-1&first=1",
        "/api/strip/cores?level=-2&first=1",
        "/api/strip/cores?level=0&first=-1",
        "/api/strip/cores?level=0&first=1e400",
        "/api/strip/cores?level=0&first=1&count=0",
        "/api/strip/cores?level=0&first=1&count=9",
        "/api/strip/cores?level=0&first=99999999999999999999",
        "/api/strip/cores?level=nan&first=1",
        "/api/strip/events?level=0&first=1",
        "/api/strip/cores?level=0&first=1&of=%00",
        "/api/marks?from=1",
        "/api/marks?from=2&to=1",
        "/api/marks?from=nan&to=1",
        "/api/marks?from=-inf&to=inf",
        "/api/marks?from=0&to=1e308",
        "/api/marks?from=0&to=99999999999",
        "/api/flame?from=1&to=2&cpu=-1",
        "/api/flame?from=1&to=2&cpu=1e9",
        "/api/flame?from=1&to=2&task=",
        "/api/flame?from=1&to=2&baseline_from=1",
        "/api/flame?from=1&to=2&baseline_from=2&baseline_to=1",
        "/api/why?from=1&to=2",
        "/api/why?what=x&from=1",
        "/api/next?kind=spike&after=1&back=2",
        "/api/next?kind=%3Cscript%3E&after=1",
        "/api/next?kind=spike&after=",
        "/api/recording?x=1",
        "/openapi.json?x",
        "/api/live?x=1",
    ],
)
def test_what_is_out_of_bounds_is_one_line_and_never_a_bug(huge: Running, path: str) -> None:
    answer = huge.get(path)
    assert answer.status == 422
    (line,) = answer.json.values()
    assert 0 < len(line) < 300
    assert "\n" not in line


def test_what_is_not_there_is_not_found(huge: Running) -> None:
    for path in (
        "/api/strip/nolane?level=0&first=1",
        f"/api/table/nolane?{SPAN}",
        f"/api/flame?from={END + 5}&to={END + 6}",
        "/api/tour",
        "/api/live",
        "/api/nothing",
    ):
        assert (huge.get(path).status, path) == (404, path)


def test_a_bug_is_reported_on_stderr_and_the_server_continues() -> None:
    with stand_in() as running:
        answer = running.get("/api/next?kind=bug&after=1")
        assert (answer.status, list(answer.json)) == (500, ["error"])
        assert "Traceback" not in answer.body.decode()
        assert running.get("/api/recording").status == 200
        running.process.terminate()
        _, complaint = running.process.communicate(timeout=120)
    (line,) = complaint.decode().splitlines()
    assert line.startswith("sexton: internal error: ZeroDivisionError: a bug\\nin two lines")


def test_finished_tiles_are_kept_for_ever_by_those_who_name_the_recording(huge: Running) -> None:
    of = huge.get("/api/recording").json["id"]
    path = f"/api/strip/cores?level=0&first={TILE}"
    assert "immutable" in huge.get(f"{path}&of={of}").headers["cache-control"]
    assert "immutable" not in huge.get(path).headers["cache-control"]
    assert huge.get(f"{path}&of=abc").status == 409
    with stand_in() as other:
        assert other.get(f"{path}&of={of}").status == 409


def test_tiles_that_still_change_are_requested_again(live: Running) -> None:
    about = live.get("/api/recording").json
    for first, kept in ((TILE, True), (int(END) // 256, False)):
        path = f"/api/strip/cores?level=0&first={first}&of={about['id']}"
        answer = live.get(path)
        assert ("immutable" in answer.headers["cache-control"]) is kept
        again = live.ask(path, {"If-None-Match": answer.headers["etag"]})
        assert (again.status, again.sent) == (304, b"")


#: Queues with the explanations, and is refused when it is its turn.
UNKNOWN = "/api/why?what=x"


def waits(running: Running) -> bool:
    """Is there room to wait for an answer that does not come?"""
    with contextlib.closing(running.connection(2)) as connection:
        connection.request("GET", UNKNOWN)
        try:
            return connection.getresponse().status != 503
        except TimeoutError:
            return True


@contextlib.contextmanager
def six_explanations(running: Running) -> Iterator[list[http.client.HTTPConnection]]:
    """Two that are worked on and four that wait: then there is no room for another."""
    with contextlib.ExitStack() as open_ones:
        asking = [
            open_ones.enter_context(contextlib.closing(running.connection())) for _ in range(6)
        ]
        for connection in asking:
            connection.request("GET", f"/api/explain?{SPAN}")
        wait_until(lambda: not waits(running))
        yield asking


def test_tiles_come_while_explanations_wait_and_a_seventh_gets_503() -> None:
    with stand_in("--gated") as running, six_explanations(running) as asking:
        refused = running.get(UNKNOWN)
        assert (refused.status, refused.headers["retry-after"]) == (503, "1")
        assert running.get(f"/api/strip/cores?level=0&first={TILE}").status == 200
        assert running.get(f"/api/flame?{SPAN}&quick=1").json["settled"] is False
        wait_until(lambda: running.get("/api/recording").json["explained"] == 2)
        running.get("/api/next?kind=go&after=1")
        assert [connection.getresponse().status for connection in asking] == [200] * 6
        assert running.get(UNKNOWN).status == 422


def test_a_question_whose_asker_left_before_its_turn_is_dropped() -> None:
    with stand_in("--gated") as running:
        with six_explanations(running):
            pass
        wait_until(lambda: waits(running))
        running.get("/api/next?kind=go&after=1")
        assert running.get(UNKNOWN).status == 422
        assert running.get("/api/recording").json["explained"] == 2
        running.process.terminate()
        assert running.process.communicate(timeout=120)[1] == b""


def test_a_client_that_reads_slowly_holds_up_nobody(huge: Running) -> None:
    with contextlib.ExitStack() as open_ones:
        for _ in range(20):
            slow = open_ones.enter_context(
                contextlib.closing(socket.create_connection(("127.0.0.1", huge.port), 10))
            )
            slow.sendall(f"GET {EVERY[1]} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        for _ in range(5):  # those who never finish their request
            half = open_ones.enter_context(
                contextlib.closing(socket.create_connection(("127.0.0.1", huge.port), 10))
            )
            half.sendall(b"GET / HTTP/1.1\r\nHo")
        assert huge.get(EVERY[1]).status == 200


def events(running: Running, number: int) -> list[dict[str, object]]:
    with contextlib.closing(running.connection()) as connection:
        connection.request("GET", "/api/live")
        answer = connection.getresponse()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert "content-encoding" not in answer.headers
        lines = (answer.readline().decode() for _ in range(2 * number))
        return [json.loads(line.removeprefix("data: ")) for line in lines if line.strip()]


def test_followers_get_an_event_as_it_grows(live: Running) -> None:
    ends = [event["end"] for event in events(live, 3)]
    assert ends == sorted(set(ends))
    assert len(ends) == 3


def test_followers_that_leave_make_room(live: Running) -> None:
    for _ in range(40):  # more than are let in at once
        with contextlib.closing(live.connection()) as connection:
            connection.request("GET", "/api/live")
            connection.getresponse()
    wait_until(lambda: len(events(live, 1)) == 1)


def test_too_many_followers_are_refused(live: Running) -> None:
    with contextlib.ExitStack() as open_ones:
        statuses = []
        for _ in range(36):
            connection = open_ones.enter_context(contextlib.closing(live.connection()))
            connection.request("GET", "/api/live")
            statuses.append(connection.getresponse().status)
        assert statuses[:20] == [200] * 20
        assert statuses[-1] == 503
        assert live.get("/api/recording").status == 200


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGTERM,
        *(pytest.param(one, marks=pytest.mark.whole) for one in (signal.SIGINT, signal.SIGHUP)),
    ],
)
def test_a_signal_ends_it_at_once_with_open_streams(number: signal.Signals) -> None:
    with stand_in("--live", "--gated") as running, contextlib.ExitStack() as open_ones:
        following = open_ones.enter_context(contextlib.closing(running.connection()))
        following.request("GET", "/api/live")
        assert following.getresponse().status == 200
        waiting = open_ones.enter_context(contextlib.closing(running.connection()))
        waiting.request("GET", f"/api/explain?{SPAN}")
        idle = open_ones.enter_context(contextlib.closing(running.connection()))
        idle.request("GET", "/api/recording")
        idle.getresponse().read()
        running.process.send_signal(number)
        shown, complaint = running.process.communicate(timeout=120)
    assert (running.process.returncode, shown, complaint) == (0, b"", b"")


def test_a_signal_right_after_the_line_ends_it_too() -> None:
    for _ in range(3):
        with stand_in() as running:
            running.process.send_signal(signal.SIGTERM)
            assert running.process.communicate(timeout=120) == (b"", b"")
            assert running.process.returncode == 0


@pytest.mark.whole
def test_many_at_once_are_all_answered(huge: Running) -> None:
    statuses: list[int] = []

    def ask() -> None:
        for path in (*EVERY[:5], EVERY[9]):
            statuses.append(huge.get(path).status)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert statuses == [200] * 48
