"""A real browser without a screen, driven over a pipe: pages are opened, clicked and read."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.programs import CHROMIUM, NO_CHROMIUM

needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason=NO_CHROMIUM)


class Page:
    """One open page. `requests` are the addresses it asked for, `errors` what its scripts threw."""

    def __init__(self, send: int, receive: int) -> None:
        self._send, self._receive = send, receive
        self._number, self._rest, self._session = 0, b"", ""
        self.requests: list[str] = []
        self.errors: list[str] = []
        self._loaded = False

    def attach(self) -> None:
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        document = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = document["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def open(self, path: Path, dark: bool = False, width: int = 1280, height: int = 900) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.go(path)

    def go(self, path: Path) -> None:
        """Until the page has loaded, with scripts or without."""
        self._loaded = False
        self.call("Page.navigate", url=path.resolve().as_uri())
        while not self._loaded:
            self._note(self._next())

    def run(self, script: str) -> Any:
        """What a script evaluates to; what it throws is an error of the test."""
        document = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in document, document["exceptionDetails"]
        return document["result"].get("value")

    def mouse(self, kind: str, x: float, y: float) -> None:
        button = "none" if kind == "mouseMoved" else "left"
        self.call(
            "Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=1, clickCount=1
        )

    def key(self, name: str, shift: bool = False) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, modifiers=8 if shift else 0)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def picture(self, path: Path) -> None:
        document = self.call("Page.captureScreenshot", format="png")
        path.write_bytes(base64.b64decode(document["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._send, json.dumps(message).encode() + b"\0")
        while True:
            document = self._next()
            if document.get("id") == self._number:
                assert "error" not in document, document
                result: dict[str, Any] = document["result"]
                return result
            self._note(document)

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            piece = os.read(self._receive, 1 << 16)
            assert piece, "the browser is gone"
            self._rest += piece
        message, _, self._rest = self._rest.partition(b"\0")
        document: dict[str, Any] = json.loads(message)
        return document

    def _note(self, document: dict[str, Any]) -> None:
        method, about = document.get("method"), document.get("params", {})
        if method == "Page.loadEventFired":
            self._loaded = True
        elif method == "Network.requestWillBeSent":
            self.requests.append(about["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(about["exceptionDetails"]))
        elif method == "Log.entryAdded" and about["entry"]["level"] == "error":
            self.errors.append(about["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.errors.append(f"dialog: {about['message']}")


@contextlib.contextmanager
def browser() -> Iterator[Page]:
    """A browser of our own, with a profile of its own, ended in any case."""
    assert CHROMIUM is not None
    ours_in, theirs_out = os.pipe()
    theirs_in, ours_out = os.pipe()

    def place() -> None:
        """It reads from 3 and writes to 4; both are moved out of the way of each other first."""
        reading, writing = os.dup(theirs_in), os.dup(theirs_out)
        os.dup2(reading, 3)
        os.dup2(writing, 4)

    with tempfile.TemporaryDirectory() as folder:
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
        options += ["--no-first-run", "--disable-background-networking", "--hide-scrollbars"]
        process = subprocess.Popen(
            [CHROMIUM, *options, f"--user-data-dir={folder}", "about:blank"],
            preexec_fn=place,  # descriptors 3 and 4 can be given in no other way
            close_fds=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(theirs_in)
        os.close(theirs_out)
        try:
            page = Page(ours_out, ours_in)
            page.attach()
            yield page
        finally:
            with contextlib.suppress(OSError, AssertionError):
                page.call("Browser.close")
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(ours_in)
            os.close(ours_out)
