"""The page's files: those of the package, and nothing else on this machine."""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest

from sexton.explorer.server.static import TYPES, StaticFiles
from tests.explorer.server.asking import Running, stand_in

PAGE = Path(str(files("sexton.explorer.server") / "page"))


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with stand_in() as running:
        yield running


def raw(server: Running, target: bytes) -> bytes:
    """A request line exactly as written: clients tidy paths up."""
    with contextlib.closing(socket.create_connection(("127.0.0.1", server.port), 10)) as connection:
        connection.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: localhost\r\n")
        connection.sendall(b"Connection: close\r\n\r\n")
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_every_file_of_the_page_is_served_as_it_is_with_its_type(server: Running) -> None:
    served = [path for path in sorted(PAGE.rglob("*")) if path.suffix in TYPES]
    assert {".html", ".css", ".js"} <= {path.suffix for path in served}
    for path in served:
        answer = server.get(f"/{path.relative_to(PAGE).as_posix()}")
        assert (answer.status, answer.body) == (200, path.read_bytes())
        assert answer.headers["content-type"] == TYPES[path.suffix]


def test_the_root_is_the_page_with_all_its_modules_and_styles_in_one(server: Running) -> None:
    text = server.get("/").body.decode()
    index = (PAGE / "index.html").read_text()
    assert text.partition("<body>")[2] == index.partition("<body>")[2]
    assert re.findall(r'(?:href|src)="([^"]+)"', text.partition("<body>")[0]) == [
        "icon.svg",
        "api/recording",
        "all.css",
        "all.js",
    ]
    script, style = server.get("/all.js").body.decode(), server.get("/all.css").body.decode()
    modules = [path for path in PAGE.rglob("*.js") if f'"{path.name}"' in index.replace("/", '"')]
    assert len(modules) > 20
    for path in modules:
        assert f'_m["{path.relative_to(PAGE).as_posix()}"] = ' in script
    for path in PAGE.glob("*.css"):
        assert (path.read_text() in style) is (path.name != "report.css")  # that of HTML files


def test_a_folder_of_somebody_else_is_served_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("<p>mine")
    still = StaticFiles(tmp_path)
    assert still.names == ["/", "/index.html"]
    found = still.get("/", False)
    assert found is not None
    assert found.content == b"<p>mine"


def test_a_file_is_compressed_for_those_who_ask_and_recognised_by_its_tag(server: Running) -> None:
    plain = server.get("/")
    small = server.ask("/", {"Accept-Encoding": "gzip"})
    assert "content-encoding" not in plain.headers
    assert small.headers["content-encoding"] == "gzip"
    assert small.headers["vary"] == "accept-encoding"
    assert (small.body, small.headers["etag"]) == (plain.body, plain.headers["etag"])
    again = server.ask("/", {"If-None-Match": plain.headers["etag"]})
    assert (again.status, again.sent) == (304, b"")
    assert server.ask("/", {"If-None-Match": '"other"'}).status == 200


@pytest.mark.parametrize(
    "target",
    [
        b"/../server.py",
        b"/..%2fserver.py",
        b"/%2e%2e/server.py",
        b"/%2e%2e%2fserver.py",
        b"/..\\server.py",
        b"//etc/passwd",
        b"/lanes/../../server.py",
        b"/./index.html",
        b"/index.html/",
        b"/index.html%00",
        b"/index.html%20",
        b"/INDEX.HTML",
        b"/lanes",
        b"/lanes/",
        b"/page/index.html",
        b"/__init__.py",
        b"/%",
        b"/\xff",
        b"/%ff",
        b"http://localhost/index.html",
        b"/etc/passwd",
        b"/api",
        b"/api/",
        b"/api/recording/",
        b"/api//recording",
        b"/api/strip/",
        b"/api/strip/a/b?level=0&first=1",
        b"/api/strip/..%2f..%2fcores?level=0&first=1",
        b"/" + b"a" * 5000,
    ],
)
def test_there_is_no_path_to_climb(server: Running, target: bytes) -> None:
    answer = raw(server, target)
    assert answer.split(b" ", 2)[1] in (b"400", b"404"), answer[:100]
    assert b"def " not in answer
    assert b"root:" not in answer


def test_links_and_files_of_other_kinds_in_the_folder_are_not_served(tmp_path: Path) -> None:
    (tmp_path / "index.html").write_text("page")
    (tmp_path / "secret.py").write_text("code")
    (tmp_path / "notes").write_text("no suffix")
    (tmp_path / "out.js").symlink_to("/etc/hostname")
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "a.js").write_text("code")
    assert StaticFiles(tmp_path).names == ["/", "/below/a.js", "/index.html"]
