"""A web configuration that changes while the server runs: rotated, broken, repaired, opened."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import ssl
from pathlib import Path

import pytest

from sexton.web import config as module
from sexton.web.config import ConfigProblem, WebConfig
from tests.record.running import wait_until
from tests.web.certificates import Pair, Pki
from tests.web.serving import Server, asked, basic, server, trusting
from tests.web.test_passwords import hashed
from tests.web.test_tls import TURNED_AWAY, is_turned_away, mutual


def replaced(path: Path, content: str | bytes) -> None:
    """As an editor or cert-manager does it: never half there."""
    whole = path.with_suffix(".new")
    whole.write_bytes(content.encode() if isinstance(content, str) else content)
    os.replace(whole, path)


def served_name(running: Server, tls: ssl.SSLContext) -> str:
    with contextlib.closing(running.connection(tls)) as connection:
        connection.connect()
        assert isinstance(connection.sock, ssl.SSLSocket)
        return connection.sock.getpeercert()["subject"][0][0][1]  # type: ignore[index,return-value]


def test_a_new_certificate_applies_to_the_next_connection(tmp_path: Path, pki: Pki) -> None:
    pair = Pair(tmp_path / "now.crt", tmp_path / "now.key")
    renewed = pki.authority.sign("renewed", "DNS:localhost", "IP:127.0.0.1")
    for source, target in zip(pki.node, pair, strict=True):
        shutil.copy(source, target)
    path = mutual(tmp_path, pair, pki.authority)
    tls = trusting(pki.authority, pki.prometheus)
    with server("--web", path) as running, contextlib.closing(running.connection(tls)) as kept:
        assert served_name(running, tls) == "node"
        assert asked(kept, "/metrics").status == 200
        replaced(pair.cert, renewed.cert.read_bytes())
        assert served_name(running, tls) == "node", "the key is still the old one"
        assert asked(kept, "/metrics").status == 200
        replaced(pair.key, renewed.key.read_bytes())
        assert served_name(running, tls) == "renewed"
        with pytest.raises(TURNED_AWAY):
            asked(kept, "/metrics")  # its client connects again
        assert running.ask(tls=tls).status == 200
        wait_until(lambda: len(running.said) == 2)
        assert "the key does not belong to the certificate; the settings" in running.said[0]
        assert "valid again" in running.said[1]


def test_a_client_of_a_ca_that_is_no_longer_trusted_is_turned_away(
    tmp_path: Path, pki: Pki
) -> None:
    """Neither a connection that it kept nor a session that it resumes helps it."""
    authorities = tmp_path / "clients.crt"
    ours, other = (ca.pair.cert.read_bytes() for ca in (pki.authority, pki.foreign))
    authorities.write_bytes(ours + other)
    path = mutual(tmp_path, pki.node, pki.authority)
    path.write_text(path.read_text().replace(str(pki.authority.pair.cert), str(authorities)))
    tls = trusting(pki.authority, pki.stranger)
    tls.maximum_version = ssl.TLSVersion.TLSv1_2  # where the session is known at once
    with server("--web", path) as running, contextlib.closing(running.connection(tls)) as kept:
        assert asked(kept, "/metrics").status == 200
        assert isinstance(kept.sock, ssl.SSLSocket)
        session = kept.sock.session
        replaced(authorities, ours)
        with pytest.raises(TURNED_AWAY):
            asked(kept, "/metrics")
        assert is_turned_away(running, tls)
        with pytest.raises(TURNED_AWAY):
            resumed(running, tls, session)
        assert not is_turned_away(running, trusting(pki.authority, pki.prometheus))


def resumed(running: Server, tls: ssl.SSLContext, session: ssl.SSLSession | None) -> int:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", running.port)) as connection:
        connection.connect()
        connection.sock = tls.wrap_socket(
            connection.sock, server_hostname="127.0.0.1", session=session
        )
        return asked(connection, "/metrics").status


def test_users_come_and_go_without_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "web.yml"
    path.write_text("")
    old, new = basic("old", "one"), basic("new", "two")
    with server("--web", path) as running:
        assert running.ask().status == 200
        replaced(path, f"basic_auth_users: {{old: {hashed('one')}}}")
        assert running.ask().status == 401
        assert running.ask(Authorization=old).status == 200
        replaced(path, f"basic_auth_users: {{old: {hashed('one')}, new: {hashed('two')}}}")
        assert running.ask(Authorization=new).status == 200
        replaced(path, f"basic_auth_users: {{new: {hashed('two')}}}")
        assert running.ask(Authorization=old).status == 401, "also one that was right before"
        replaced(path, f"basic_auth_users: {{new: {hashed('three')}}}")
        assert running.ask(Authorization=new).status == 401
        assert running.said == []


def test_a_broken_file_changes_nothing_for_a_while_and_then_ends_all_answers(
    tmp_path: Path,
) -> None:
    path = tmp_path / "web.yml"
    good = f"basic_auth_users: {{a: {hashed('one')}}}"
    path.write_text(good)
    right = basic("a", "one")
    with server("--web", path, "--grace", "1.5") as running:
        assert running.ask(Authorization=right).status == 200
        for broken in ("basic_auth_users: {", "basic_auth_users: {b: c}", ""):
            replaced(path, broken)
            answer = running.ask(Authorization=right)
            assert answer.status in (200, 500)
            assert running.ask().status in (401, 500)
        wait_until(lambda: running.ask(Authorization=right).status == 500)
        assert running.ask().status == 500
        path.unlink()
        assert running.ask(Authorization=right).status == 500
        replaced(path, good)
        assert running.ask(Authorization=right).status == 200
        wait_until(lambda: "valid again" in running.said[-1])
        assert any("requests fail until it is repaired" in line for line in running.said)
        assert all(line.startswith("sexton: ") for line in running.said)


def test_tls_that_is_broken_for_too_long_ends_handshakes(tmp_path: Path, pki: Pki) -> None:
    path = mutual(tmp_path, pki.node, pki.authority)
    tls = trusting(pki.authority, pki.prometheus)
    good = path.read_text()
    with server("--web", path, "--grace", "0") as running:
        assert running.ask(tls=tls).status == 200
        replaced(path, "")
        assert is_turned_away(running, tls)
        with pytest.raises(TURNED_AWAY):
            running.ask()  # it does not fall back to plain HTTP
        replaced(path, good)
        assert running.ask(tls=tls).status == 200


def test_tls_may_be_added_but_not_removed_without_a_restart(tmp_path: Path, pki: Pki) -> None:
    path = tmp_path / "web.yml"
    path.write_text("")
    tls = trusting(pki.authority, pki.prometheus)
    with server("--web", path) as running, contextlib.closing(running.connection()) as kept:
        assert asked(kept, "/metrics").status == 200
        (tmp_path / "made").mkdir()
        replaced(path, mutual(tmp_path / "made", pki.node, pki.authority).read_text())
        assert running.ask(tls=tls).status == 200
        with pytest.raises(TURNED_AWAY):
            asked(kept, "/metrics")
        replaced(path, "")
        assert running.ask(tls=tls).status == 200
        wait_until(lambda: len(running.said) == 1)
        assert "tls_server_config is gone; to serve without it, restart" in running.said[0]


def test_what_is_said_of_a_broken_file_is_said_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "web.yml"
    path.write_text("")
    config = WebConfig(str(path))
    replaced(path, "{")
    for _ in range(5):
        config.look()
        assert config.failure == ""
    assert len(capsys.readouterr().err.splitlines()) == 1
    monkeypatch.setattr(module, "GRACE_S", 0.0)
    for _ in range(5):
        config.look()
        assert "line 1" in config.failure
    (line,) = capsys.readouterr().err.splitlines()
    assert "requests fail until it is repaired" in line


def test_files_are_read_only_when_they_change(
    tmp_path: Path, pki: Pki, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = WebConfig(str(mutual(tmp_path, pki.node, pki.authority)))
    config.look()  # once more, now that it is known which files there are
    tls = config.tls
    reads: list[str] = []
    real = module.read_settings

    def read(path: str) -> object:
        reads.append(path)
        return real(path)

    monkeypatch.setattr(module, "read_settings", read)
    for _ in range(5):
        config.look()
    assert reads == []
    os.utime(tmp_path / "web.yml")
    config.look()
    assert len(reads) == 1
    assert config.tls is tls, "connections go on"


def test_a_problem_names_the_files_that_a_repair_may_change(tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text("tls_server_config: {cert_file: a.crt, key_file: b.key}")
    with pytest.raises(ConfigProblem) as raised:
        WebConfig(str(tmp_path / "web.yml"))
    assert str(tmp_path / "a.crt") in raised.value.files
