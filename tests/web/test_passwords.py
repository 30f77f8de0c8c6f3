"""Users and their passwords, and floods of wrong ones."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import bcrypt
import pytest

from sexton.web import passwords as module
from sexton.web.passwords import MOST_KNOWN, MOST_OF_ONE, MOST_WAITING, Busy, Passwords
from tests.web.serving import METRICS, Server, asked, basic, server

T = TypeVar("T")
#: The least that bcrypt takes, for tests that do not measure it.
CHEAP = 4


def hashed(password: str, cost: int = CHEAP) -> str:
    return bcrypt.hashpw(password.encode()[:72], bcrypt.gensalt(cost)).decode()


def written(folder: Path, cost: int = CHEAP, **users: str) -> Path:
    path = folder / "web.yml"
    lines = [f"  {user}: {hashed(password, cost)}" for user, password in users.items()]
    path.write_text("\n".join(["basic_auth_users:", *lines]) + "\n")
    return path


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """In a thread, since Playwright keeps a loop running in this one after tests with a browser."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def test_only_a_user_with_the_right_password_is_let_in(tmp_path: Path) -> None:
    long = "x" * 100
    with server("--web", written(tmp_path, prometheus="pässword:", long=long)) as running:
        right = basic("prometheus", "pässword:")
        for _ in range(2):  # checked, then known
            answer = running.ask(Authorization=right)
            assert (answer.status, answer.body) == (200, METRICS)
        assert running.ask("/", Authorization=right).status == 200
        assert running.ask(Authorization=basic("long", long)).status == 200
        for wrong in (
            basic("prometheus", "password:"),
            basic("prometheus", ""),
            basic("Prometheus", "pässword:"),
            basic("nobody", "pässword:"),
            basic("", ""),
            basic("prometheus", "pässword:\0"),
            "Basic",
            "Basic ====",
            "Basic " + "cHJvbWV0aGV1cw==",  # no colon
            "Bearer " + right.removeprefix("Basic "),
            "Basic \xff",
        ):
            answer = running.ask(Authorization=wrong)
            assert (answer.status, wrong) == (401, wrong)
            assert answer.headers["www-authenticate"].startswith("Basic realm=")
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert running.ask().status == 401
        assert running.said == []


def test_with_users_no_token_is_printed_and_both_metrics_and_page_need_a_password(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, prometheus="secret")
    with server("--listen", "0.0.0.0:0", "--web", path) as running:
        assert "token" not in running.running.line
        for path_ in ("/metrics", "/"):
            assert running.ask(path_).status == 401
            assert running.ask(path_, Authorization=basic("prometheus", "secret")).status == 200
        (line,) = running.said
        assert "passwords are sent to 0.0.0.0:" in line


def test_without_users_metrics_are_open_with_a_warning_and_the_page_needs_the_token() -> None:
    with server("--listen", "0.0.0.0:0") as running:
        token = running.running.line.partition("?token=")[2]
        assert running.ask("/metrics").status == 200
        assert running.ask("/metrics", Origin="http://evil.example").status == 403
        assert running.ask("/").status == 401
        assert running.ask("/", Authorization=f"Bearer {token}").status == 200
        (line,) = running.said
        assert f"anybody who reaches 0.0.0.0:{running.port} can read this node's metrics" in line


@pytest.mark.parametrize("number", [1_000, pytest.param(10_000, marks=pytest.mark.whole)])
def test_wrong_passwords_neither_delay_a_known_user_nor_take_a_core(
    tmp_path: Path, number: int
) -> None:
    """Each takes 60 ms to check: 10,000 would keep a core busy for ten minutes."""
    with server("--web", written(tmp_path, cost=10, prometheus="secret")) as running:
        right = basic("prometheus", "secret")
        assert running.ask(Authorization=right).status == 200
        with Flood(running, number) as flood:
            while flood.is_running():  # each in time for Prometheus
                assert running.ask(Authorization=right).status == 200
                time.sleep(0.05)
        assert sum(flood.statuses.values()) == number
        assert set(flood.statuses) == {401, 503}
        assert flood.statuses[401] * 0.06 < 0.5 * flood.seconds


def test_a_user_who_is_not_known_yet_gets_in_beside_a_flood_from_elsewhere(tmp_path: Path) -> None:
    with server("--web", written(tmp_path, cost=8, prometheus="secret")) as running:
        flood = Flood(running, 1_000_000, source="127.0.0.9")
        with flood:
            assert running.ask(Authorization=basic("prometheus", "secret")).status == 200
            assert flood.is_running()


class Flood:
    """Wrong passwords, each another, over a few connections from one address."""

    def __init__(self, running: Server, number: int, source: str = "127.0.0.1") -> None:
        self.statuses: dict[int, int] = {}
        self.seconds = 0.0
        self._running, self._source = running, source
        self._numbers = iter(range(number))
        self._lock = threading.Lock()
        self._ending = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(4)]

    def is_running(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    def __enter__(self) -> Flood:
        self._begin = time.monotonic()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()
        self.seconds = time.monotonic() - self._begin

    def _ask(self) -> None:
        with contextlib.closing(self._running.connection(source=self._source)) as connection:
            while not self._ending.is_set():
                with self._lock:
                    number = next(self._numbers, None)
                if number is None:
                    return
                self._count(connection, basic("prometheus", f"wrong {number}"))

    def _count(self, connection: http.client.HTTPConnection, wrong: str) -> None:
        status = asked(connection, "/metrics", Authorization=wrong).status
        with self._lock:
            self.statuses[status] = self.statuses.get(status, 0) + 1


def test_an_unknown_user_costs_as_much_as_a_known_one(monkeypatch: pytest.MonkeyPatch) -> None:
    users = {"a": hashed("x", 5), "b": hashed("y", 4)}
    compared: list[bytes] = []
    real = bcrypt.checkpw

    def compare(password: bytes, against: bytes) -> bool:
        compared.append(against)
        return real(password, against)

    monkeypatch.setattr(bcrypt, "checkpw", compare)

    async def check() -> None:
        assert not await Passwords().check(users, "nobody", b"x", "here")

    run(check())
    (against,) = compared
    assert against.startswith(b"$2b$05$")
    assert len(against) == 60


def test_a_known_password_is_known_by_a_keyed_hash_and_of_this_hash_only() -> None:
    users = {"a": hashed("secret")}

    async def check() -> Passwords:
        known = Passwords()
        assert await known.check(users, "a", b"secret", "here")
        assert known.knows(users["a"], "a", b"secret")
        assert not known.knows(users["a"], "b", b"secret")
        assert not known.knows(hashed("secret"), "a", b"secret")
        assert not known.knows(None, "a", b"secret")
        assert not Passwords().knows(users["a"], "a", b"secret")
        return known

    kept = repr(vars(run(check())))
    assert "secret'" not in kept.replace("_secret'", "")


def test_what_is_known_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bcrypt, "checkpw", lambda *_: True)

    async def check() -> None:
        known = Passwords()
        for number in range(MOST_KNOWN + 10):
            assert await known.check({"a": "h"}, "a", str(number).encode(), "here")
        assert len(known._known) == MOST_KNOWN
        assert not known.knows("h", "a", b"0")

    run(check())


def test_the_queue_is_short_and_one_address_has_few_places_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = threading.Event()
    monkeypatch.setattr(bcrypt, "checkpw", lambda *_: not gate.wait())
    monkeypatch.setattr(module, "MOST_REST_S", 0.0)
    users = {"a": hashed("x")}

    async def check() -> None:
        checks = Passwords()
        addresses = [f"10.0.0.{number}" for number in range(MOST_WAITING)]
        waiting = [
            asyncio.ensure_future(checks.check(users, "a", bytes([number]), address))
            for number, address in enumerate(addresses[:-1])
        ]
        waiting.append(asyncio.ensure_future(checks.check(users, "a", b"z", addresses[0])))
        await asyncio.sleep(0)
        assert MOST_OF_ONE == 2
        with pytest.raises(Busy):
            await checks.check(users, "a", b"more", addresses[0])
        with pytest.raises(Busy):
            await checks.check(users, "a", b"more", "10.9.9.9")
        gate.set()
        assert await asyncio.gather(*waiting) == [False] * MOST_WAITING
        assert not checks._waiting

    run(check())
