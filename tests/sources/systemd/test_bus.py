"""The D-Bus client, against a server that may be silent, rude or mad."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sexton.errors import SourceAbsent, SourceDenied, SourceError, SourceMalformed, SourceTimeout
from sexton.host.host import open_host
from sexton.host.reader import RootedFiles
from sexton.sources.systemd.bus import BUS, IN_FLIGHT, Call, Refusal, get, open_bus
from tests.sources.systemd.conftest import Fake
from tests.support.examples import examples

UNIT = "/org/freedesktop/systemd1/unit/a_2eservice"
SERVICE = "org.freedesktop.systemd1.Service"


def soon(seconds: float = 20.0) -> float:
    return time.monotonic() + seconds


def test_answers_come_in_the_order_of_the_calls_however_many(fake: Fake):
    server, host = fake({"a.service": {"Even": ("u", 0), "Odd": ("u", 1)}})
    bus = open_bus(host, soon())
    wanted = [get(UNIT, SERVICE, "Odd" if i % 2 else "Even") for i in range(3 * IN_FLIGHT + 7)]
    assert bus.properties(wanted, soon()) == [i % 2 for i in range(len(wanted))]
    assert bus.properties(wanted, soon()) == [i % 2 for i in range(len(wanted))]
    assert server.called.count("Get") == 2 * len(wanted)
    bus.close()


def test_a_property_it_does_not_have_is_none_and_the_others_are_read(fake: Fake):
    _, host = fake({"a.service": {"NRestarts": ("u", 7)}})
    bus = open_bus(host, soon())
    wanted = [get(UNIT, SERVICE, name) for name in ("Nope", "NRestarts")]
    assert bus.properties(wanted, soon()) == [None, 7]
    assert isinstance(bus.calls(wanted[:1], soon())[0], Refusal)
    bus.close()


def test_silence_ends_at_the_deadline(fake: Fake):
    server, host = fake({})
    bus = open_bus(host, soon())
    server.silent.add("ListUnits")
    with pytest.raises(SourceTimeout, match="no reply to 1 of 1 calls"):
        bus.call(Call("/", "x.y", "ListUnits"), soon(0.1))
    bus.close()


def test_a_reply_that_comes_too_late_is_not_taken_for_the_next(fake: Fake):
    _server, host = fake({"a.service": {"NRestarts": ("u", 7)}})
    bus = open_bus(host, soon())
    with pytest.raises(SourceTimeout):
        bus.call(Call("/", "x.y", "ListUnits"), time.monotonic() - 1)
    assert bus.properties([get(UNIT, SERVICE, "NRestarts")], soon()) == [7]
    bus.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ("org.freedesktop.DBus.Error.AccessDenied", SourceDenied),
        ("org.freedesktop.DBus.Error.ServiceUnknown", SourceAbsent),
        ("org.freedesktop.DBus.Error.Failed", SourceMalformed),
    ],
)
def test_an_error_reply_says_which_kind_of_trouble_it_is(fake: Fake, error, kind):
    server, host = fake({})
    server.refused["ListUnits"] = error
    bus = open_bus(host, soon())
    with pytest.raises(kind, match="ListUnits"):
        bus.call(Call("/", "x.y", "ListUnits"), soon())
    bus.close()


def test_a_rejected_user_is_denied(fake: Fake):
    server, host = fake({})
    server.greeting = b"REJECTED EXTERNAL\r\n"
    with pytest.raises(SourceDenied, match="rejected our user id"):
        open_bus(host, soon())


def test_something_else_that_listens_there_is_no_bus(fake: Fake):
    server, host = fake({})
    server.greeting = b"x" * 10_000
    with pytest.raises(SourceDenied, match="not a D-Bus server"):
        open_bus(host, soon())


def test_no_socket_is_absent(tmp_path: Path):
    with pytest.raises(SourceAbsent):
        open_bus(open_host(str(tmp_path)), soon())


def test_without_a_bus_systemds_own_socket_is_for_root_alone(tmp_path: Path, monkeypatch):
    (tmp_path / "run/systemd").mkdir(parents=True)
    (tmp_path / "run/systemd/private").touch()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(SourceDenied, match="only for root"):
        open_bus(open_host(str(tmp_path)), soon())


def test_a_dead_socket_is_denied(fake: Fake):
    server, host = fake({})
    server.close()
    with pytest.raises(SourceDenied, match="refused"):
        open_bus(host, soon())


def test_a_link_in_a_root_never_leads_to_this_machines_bus(fake: Fake, short_path: Path):
    server, _host = fake({})
    (short_path / "elsewhere").mkdir()
    (short_path / "elsewhere/run").symlink_to(short_path / "run")
    other = open_host(str(short_path / "elsewhere"))
    assert isinstance(other.files, RootedFiles)
    with pytest.raises(SourceError):
        open_bus(other, soon())
    (short_path / "elsewhere/run").unlink()
    (short_path / "elsewhere/run/dbus").mkdir(parents=True)
    (short_path / ("elsewhere" + BUS)).symlink_to(short_path / BUS.lstrip("/"))
    with pytest.raises(SourceDenied, match="is a link"):
        open_bus(other, soon())
    assert server.called == []


@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(junk=st.binary(min_size=1, max_size=200))
def test_junk_is_malformed_or_ignored_and_never_a_crash(junk: bytes):
    from jeepney import Parser

    from sexton.sources.systemd.bus import Bus

    class Replay:
        def __init__(self) -> None:
            self.left = junk

        def settimeout(self, _: float) -> None: ...
        def sendall(self, _: bytes) -> None: ...

        def recv(self, most: int) -> bytes:
            piece, self.left = self.left[:most], self.left[most:]
            return piece

    bus = Bus(Replay(), BUS, addressed=True)  # type: ignore[arg-type]
    assert isinstance(bus._parser, Parser)
    with pytest.raises(SourceMalformed):
        bus.call(Call("/", "x.y", "ListUnits"), soon())
