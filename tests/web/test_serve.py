"""`sexton serve --web.config.file`: the real command with TLS and users."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sexton.explorer.server.tour import INCIDENT
from tests.explorer.server.asking import serving
from tests.support.cli import one_line, sexton
from tests.web.certificates import Pair, Pki
from tests.web.serving import Server, basic, trusting
from tests.web.test_passwords import hashed
from tests.web.test_reload import replaced, served_name
from tests.web.test_tls import mutual, written

RECORDING = str(INCIDENT / "recording")


def test_it_serves_over_tls_and_reads_new_certificates_though_it_is_confined(
    tmp_path: Path, pki: Pki
) -> None:
    pair = Pair(tmp_path / "now.crt", tmp_path / "now.key")
    for source, target in zip(pki.node, pair, strict=True):
        target.write_bytes(source.read_bytes())
    path = written(tmp_path, pair)
    with path.open("a") as stream:
        stream.write(f"basic_auth_users:\n  me: {hashed('secret')}\n")
    with serving(RECORDING, "--host", "0.0.0.0", "--web.config.file", str(path)) as started:
        assert re.fullmatch(r"https://[^/]+:[0-9]+/", started.line), "no token"
        running, tls = Server(started), trusting(pki.authority)
        assert running.ask("/", tls).status == 401
        answer = running.ask("/api/recording", tls, Authorization=basic("me", "secret"))
        assert answer.status == 200
        renewed = pki.authority.sign("renewed-serve", "DNS:localhost", "IP:127.0.0.1")
        replaced(pair.key, renewed.key.read_bytes())
        replaced(pair.cert, renewed.cert.read_bytes())
        assert served_name(running, tls) == "renewed-serve"
        assert running.ask("/", tls, Authorization=basic("me", "secret")).status == 200


def test_tls_alone_does_not_replace_the_token(tmp_path: Path, pki: Pki) -> None:
    path = str(written(tmp_path, pki.node))
    with serving(RECORDING, "--host", "0.0.0.0", "--web.config.file", path) as started:
        assert "?token=" in started.line
        assert Server(started).ask("/", trusting(pki.authority)).status == 401


def test_a_demanded_certificate_does(tmp_path: Path, pki: Pki) -> None:
    path = str(mutual(tmp_path, pki.node, pki.authority))
    with serving(RECORDING, "--host", "0.0.0.0", "--web.config.file", path) as started:
        assert "?token=" not in started.line
        tls = trusting(pki.authority, pki.prometheus)
        assert Server(started).ask("/", tls).status == 200


@pytest.mark.parametrize(
    ("text", "words"),
    [("a: 1", "a: no such key"), ("{", "line 1"), (None, "No such file or directory")],
)
def test_a_file_that_cannot_be_used_is_one_line_and_exit_2(
    tmp_path: Path, text: str | None, words: str
) -> None:
    path = tmp_path / "web.yml"
    if text is not None:
        path.write_text(text)
    done = sexton("serve", RECORDING, "--port", "0", "--web.config.file", str(path))
    assert (done.returncode, done.stdout) == (2, b"")
    line = one_line(done.stderr)
    assert str(path) in line
    assert words in line


def test_a_token_beside_users_is_refused(tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(f"basic_auth_users: {{me: {hashed('secret')}}}")
    (tmp_path / "token").write_text("x" * 20)
    options = (
        "--web.config.file",
        str(tmp_path / "web.yml"),
        "--token-file",
        str(tmp_path / "token"),
    )
    done = sexton("serve", RECORDING, "--port", "0", *options)
    assert done.returncode == 2
    assert "--token-file" in one_line(done.stderr)
