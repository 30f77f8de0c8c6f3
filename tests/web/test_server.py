"""Where a server listens: addresses, ports, names, warnings."""

from __future__ import annotations

import contextlib
import errno
import http.client
import signal
import socket
import time
from email.utils import parsedate_to_datetime
from pathlib import Path

import pytest

from sexton.errors import CommandError
from sexton.web import address as module
from sexton.web.address import bind, door_of, names_of, parse_listen, url_of, warn_if_open
from tests.record.running import wait_until
from tests.web.serving import METRICS, server


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9643", ("127.0.0.1", 9643)),
        (":9643", ("", 9643)),
        ("[::1]:9643", ("::1", 9643)),
        ("[::]:0", ("::", 0)),
        ("[fe80::1%eth0]:1", ("fe80::1%eth0", 1)),
        ("localhost:65535", ("localhost", 65535)),
        ("node-7.example:9643", ("node-7.example", 9643)),
    ],
)
def test_addresses_are_read_as_exporters_write_them(text: str, expected: tuple[str, int]) -> None:
    assert parse_listen(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "9643", "127.0.0.1", "127.0.0.1:", "::1:9643", "[::1]", "a:b:1", "a:65536", "a:-1",
     "http://a:1", "a:1/", "a :1", "a:١", "[a]:1", "a:1\n", "x" * 300],
)  # fmt: skip
def test_other_addresses_are_one_line(text: str) -> None:
    with pytest.raises(CommandError) as raised:
        parse_listen(text)
    assert "must be HOST:PORT, :PORT or [IPv6]:PORT" in str(raised.value)
    assert "\n" not in str(raised.value)
    assert len(str(raised.value)) < 250


def test_no_host_is_every_address_of_both_families() -> None:
    with server("--listen", ":0") as running:
        for address in ("127.0.0.1", "::1"):
            connection = http.client.HTTPConnection(address, running.port, timeout=20)
            with contextlib.closing(connection):
                connection.request("GET", "/metrics")
                assert connection.getresponse().read() == METRICS


def test_without_ipv6_no_host_is_every_ipv4_address(monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket

    def made(family: int, *rest: int) -> socket.socket:
        if family == socket.AF_INET6:
            raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
        return real(family, *rest)

    monkeypatch.setattr(module.socket, "socket", made)
    listening, name = bind("", 0)
    listening.close()
    assert name == "0.0.0.0"


def test_a_port_in_use_is_one_line() -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(CommandError, match=f"127.0.0.1:{port}: Address already in use"):
            bind("127.0.0.1", port)


def test_small_answers_do_not_wait_for_acknowledgements() -> None:
    listening, _ = bind("127.0.0.1", 0)
    with contextlib.closing(listening):
        assert listening.proto == socket.IPPROTO_TCP, "asyncio sets TCP_NODELAY only then"


def test_loopback_is_served_without_token_and_warning(capsys: pytest.CaptureFixture[str]) -> None:
    for host in ("127.0.0.1", "::1", "localhost"):
        bound = bind(host, 0)
        with contextlib.closing(bound[0]):
            warn_if_open("x", bound, None)
            door, url = door_of(host, bound, None)
            assert door.token is None
            assert door.names == names_of(host, bound[1]) == frozenset()
            assert url == url_of(host, bound)
    assert capsys.readouterr().err == ""


def test_a_scraper_reaches_metrics_by_any_name_that_is_no_rebinding(tmp_path: Path) -> None:
    with server() as running:  # on loopback
        for host, status in (
            ("10.1.2.3:9643", 200),  # through a proxy
            ("[2001:db8::1]", 200),
            ("evil.example", 403),
            ("not a host", 403),
        ):
            assert (running.ask(Host=host).status, host) == (status, host)
        assert running.ask("/", Host="10.1.2.3:9643").status == 403
        assert running.ask(Host="10.1.2.3", Sec_Fetch_Site="cross-site").status == 403


def test_a_server_without_clients_sleeps() -> None:
    """An exporter is on every node: what wakes up ten times a second costs 0.2 % of a core."""
    with server() as running:
        assert running.ask().status == 200
        pid = running.running.process.pid
        wait_until(lambda: not _woken(pid, 0.2), 20)  # done with that client
        assert _woken(pid, 1.0) <= 1


def _woken(pid: int, seconds: float) -> int:
    """How often a process waited for something within this time."""
    before = _waits(pid)
    time.sleep(seconds)
    return _waits(pid) - before


def _waits(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def test_answers_have_the_time_at_which_they_were_made() -> None:
    with server() as running, contextlib.closing(running.connection()) as kept:
        for _ in range(2):
            time.sleep(1.1)
            before = int(time.time())
            kept.request("GET", "/metrics")
            answer = kept.getresponse()
            answer.read()
            (sent,) = answer.headers.get_all("date")
            assert before <= parsedate_to_datetime(sent).timestamp() <= time.time()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_at_once_with_connections_open(number: signal.Signals) -> None:
    with server() as running, contextlib.closing(running.connection()) as kept:
        kept.request("GET", "/metrics")
        assert kept.getresponse().read() == METRICS
        running.running.process.send_signal(number)
        assert running.running.process.wait(20) == 0
