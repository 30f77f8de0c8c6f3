"""Copy pinned minutes off the node at once: ``sexton record DIR --ship URL``.

Every pin becomes ``URL/<node>/<pin>/``, a complete recording that ``sexton diagnose --from`` reads:
the segments the pin holds, with the event rings and stacks of that time. The open segment is sent
as soon as the alarm is raised, up to its last valid journal entry, and again while the pin lasts;
the sealed segment replaces that copy. ``shipped.json`` lists the files with checksums. It is
written after them, and has ``"whole": true`` when the copy is complete.

The pins are the queue: they are on disk, bounded by retention, and survive a restart, so the next
recorder sends what could not be sent, until the pin expires. The newest pin is sent first. One
thread does the work; the recorder never waits for it. Failures are retried after 1, 2, 4 … 300 s,
and at once (at most every second) when another alarm is raised.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from sexton.errors import StoreError
from sexton.model.row import Row
from sexton.model.rows.recorder import RecorderNote
from sexton.model.text import seconds
from sexton.record.destination import Destination, one_line, open_destination, shown
from sexton.store.annex import LONGEST_RAW_S, Reach, annex_name, own_reach, reach_of
from sexton.store.journal import JOURNAL, whole_lines
from sexton.store.layout import MANIFEST, read_manifest, read_plain, segments_in
from sexton.store.pieces import Piece, is_raw, loose_pieces, pieces_of, pieces_of_open, shipped_in
from sexton.store.pins import Pin, pins_in

SCHEMA = "sexton.shipped/1"
SHIPPED = "shipped.json"
#: How often the open segment is uploaded again while a pin lasts.
AGAIN_S = 15.0
#: After a pin's end: its last segment is sealed by then, and perf's last file closed.
SETTLED_S = LONGEST_RAW_S
#: How long after that to wait for stacks to be decoded. The raw files were sent already.
DECODED_S = 1800.0
_IDLE_S = 60.0
_LEAST_WAIT_S, _MOST_WAIT_S = 1.0, 300.0
_STUCK_S = 60.0
_CLOSE_S = 5.0
_MOST_PINS = 1000
_MOST_LISTING = 16 << 20
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]")


class _Held(NamedTuple):
    """A segment's span, and the span of it and its annexes, as of its last change."""

    own: Reach
    reach: Reach
    changed_ns: int


@dataclass(slots=True)
class _Sent:
    """What is at the destination for one pin; `seen` are local files known to be in `files`."""

    files: dict[str, list[int]] = field(default_factory=dict)
    seen: set[tuple[str, int, int]] = field(default_factory=set)
    listed: object = None


@dataclass(slots=True)
class Counts:
    """For the status. `shipped` and `waiting` are pins, `failed` attempts."""

    shipped: int = 0
    waiting: int = 0
    failed: int = 0
    files: int = 0
    bytes: int = 0
    last_error: str = ""


def safe_name(text: str) -> str:
    """A node's or a pin's name as a part of a path.

    >>> safe_name("ip-10-0-0-1.ec2"), safe_name("../a b"), safe_name("..")
    ('ip-10-0-0-1.ec2', '_._a_b', '_.')
    """
    plain = _UNSAFE.sub("_", text)[:120]
    return f"_{plain[1:]}" if plain.startswith(".") or not plain else plain


class Shipper:
    """A companion of the recorder. Raises `StoreError` if `url` is not writable."""

    name = "ship"
    outlasts = True  # the last segment is sent, too
    may_hang = False

    def __init__(self, url: str, node_name: str, directory: Path, boot_id: str = "") -> None:
        self.counts = Counts()
        self.url = shown(url)
        self._to: Destination = open_destination(url, directory)
        self._node = safe_name(node_name)
        self._directory = directory
        self._held: dict[str, _Held] = {}
        self._open: list[tuple[str, Path]] = []
        self._sent: dict[str, _Sent] = {}
        self._whole: set[tuple[str, float]] = set()
        #: The current boot, once known: its pins may still grow.
        self._boot_id = boot_id
        self._wake = threading.Event()
        self._closing = threading.Event()
        self._busy_since: float | None = None
        self._notes: list[str] = []
        self._stuck_noted = False
        self._thread = threading.Thread(target=self._run, name="sexton-ship", daemon=True)
        self._thread.start()

    # Called by the recorder; none of these may block.

    def beat(self, now_s: float, alarm: bool) -> Sequence[Row]:  # noqa: ARG002 - a companion's
        """Notes since the last beat."""
        since = self._busy_since
        if since is not None and now_s - since > _STUCK_S and not self._stuck_noted:
            self._stuck_noted = True
            self._notes.append(f"{self.url} has not responded for {seconds(now_s - since)}")
        elif since is None:
            self._stuck_noted = False
        notes, self._notes = self._notes, []
        return [RecorderNote("ship", words) for words in notes]

    def alarmed(self, pin: Pin) -> None:
        """Wake the thread: there is a pin to send."""
        self._boot_id = pin.boot_id
        self._wake.set()

    def cost(self) -> tuple[float, int]:
        """None: its thread is accounted to the recorder."""
        return 0.0, 0

    def rest(self) -> None:
        """No effect: it only works during alarms, when it is needed."""

    def wake(self) -> None:
        """No effect, see `rest`."""

    def close(self) -> None:
        """Try for a few seconds to send the rest; the next recorder continues."""
        self._closing.set()
        self._wake.set()
        self._thread.join(_CLOSE_S)

    def status(self) -> dict[str, Any]:
        """For status.json."""
        since = self._busy_since
        busy_s = 0.0 if since is None else time.monotonic() - since
        return {"url": self.url, **asdict(self.counts), "busy_s": round(busy_s, 1)}

    # Run in the thread.

    def _run(self) -> None:
        wait_s = 0.0
        while True:
            last = self._closing.is_set()
            self._wake.clear()
            self._busy_since = time.monotonic()
            try:
                again_s = self._round()
                if wait_s:
                    self._notes.append(f"{self.url} accepts uploads again")
                wait_s = 0.0
                self.counts.last_error = ""
            except Exception as error:  # noqa: BLE001 - the thread must survive: report and retry
                self.counts.failed += 1
                self.counts.last_error = one_line(error)
                if not wait_s:
                    self._notes.append(f"{self.url}: {self.counts.last_error}; will retry")
                wait_s = again_s = min(max(wait_s * 2, _LEAST_WAIT_S), _MOST_WAIT_S)
            self._busy_since = None
            if last:
                return
            if not self._closing.wait(_LEAST_WAIT_S):
                self._wake.wait(max(again_s - _LEAST_WAIT_S, 0.0))

    def _round(self) -> float:
        """Send what is missing; returns when to run again."""
        pins, _ = pins_in(self._directory)
        pins = pins[-_MOST_PINS:]
        ids = {pin.id for pin in pins}
        self._sent = {key: sent for key, sent in self._sent.items() if key in ids}
        self._whole = {key for key in self._whole if key[0] in ids}
        waiting = [pin for pin in reversed(pins) if (pin.id, pin.end_s) not in self._whole]
        self.counts.waiting = len(waiting)
        self.counts.shipped = len(pins) - len(waiting)
        if not waiting:
            return _IDLE_S
        self._look()
        for pin in waiting:
            if self._ship(pin):
                self._whole.add((pin.id, pin.end_s))
                self._sent.pop(pin.id, None)
                self.counts.waiting -= 1
                self.counts.shipped += 1
        return AGAIN_S if self.counts.waiting else _IDLE_S

    def _look(self) -> None:
        """Update the time spans of sealed segments that changed."""
        place = self._directory / "segments"
        before, self._held = self._held, {}
        for name in segments_in(place):
            known = before.get(name.text)
            try:
                changed_ns = (place / name.text).stat().st_mtime_ns
                if known is None or known.changed_ns != changed_ns:
                    own = own_reach(read_manifest(place / name.text))
                    known = _Held(own, reach_of(place / name.text, own), changed_ns)
            except (StoreError, OSError, TypeError):  # damaged or deleted: see `recording verify`
                continue
            self._held[name.text] = known
        self._open = self._open_now()

    def _ship(self, pin: Pin) -> bool:
        """Send one pin's files; true when the copy is complete."""
        root = f"{self._node}/{safe_name(pin.id)}"
        sent = self._sent.get(pin.id)
        if sent is None:
            sent = self._sent[pin.id] = _listing(self._to.get(f"{root}/{SHIPPED}", _MOST_LISTING))
        settled, pieces = self._wanted(pin)
        if not pieces:
            return settled  # already deleted by retention, or nothing flushed yet
        for piece in pieces:
            self._send(root, piece, sent)
        self._forget_open(root, sent)
        self._forget_raw(root, sent)
        listing = {"schema": SCHEMA, "node": self._node, "pin": pin.id, "whole": settled}
        if sent.listed != (settled, sorted(sent.files.items())):
            content = json.dumps({**listing, "files": sent.files}).encode()
            self._to.put(f"{root}/{SHIPPED}", [content])
            sent.listed = (settled, sorted(sent.files.items()))
        return settled

    def _wanted(self, pin: Pin) -> tuple[bool, list[Piece]]:
        """Is the pin's time over and sealed, and which files does it hold now?"""
        held = {text: value.reach for text, value in self._held.items() if pin.holds(value.reach)}
        sealed = [held.own for held in self._held.values() if held.own.boot_id == pin.boot_id]
        opened: list[Path] = []
        if pin.end_s >= max((own.end[0] for own in sealed), default=pin.end_s):
            opened = [path for boot, path in self._open if boot == pin.boot_id]
        spans: list[Reach] = list(held.values())
        if opened:
            now = (time.monotonic(), time.time())
            start = (pin.start_s, now[1] - max(now[0] - pin.start_s, 0.0))
            spans.append(Reach(pin.boot_id, start, now))
        pieces: list[Piece] = []
        for path in opened:
            pieces += _still_there(path, None)
        for text in sorted(held, reverse=True):
            pieces += _still_there(self._directory / "segments" / text, text)
        if not pieces:
            return not opened, []
        loose = loose_pieces(self._directory, spans)
        pieces += loose
        file = self._directory / "pins" / f"{pin.id}.json"
        try:
            pieces.append(Piece(f"pins/{file.name}", file, file.stat().st_size))
        except OSError:
            return True, []  # just deleted by retention
        earlier = self._boot_id not in ("", pin.boot_id)
        since_s = time.monotonic() - pin.end_s
        over = earlier or since_s > SETTLED_S
        raw = any(is_raw(piece.name) for piece in loose)
        decoded = not raw or earlier or since_s > SETTLED_S + DECODED_S
        return over and decoded and not opened, pieces

    def _open_now(self) -> list[tuple[str, Path]]:
        """Open segments and their boots; the last one is being written."""
        found = []
        for name in segments_in(self._directory / "open"):
            path = self._directory / "open" / name.text
            boot = _boot_of(path)
            if boot and name.text not in self._held:
                found.append((boot, path))
                self._boot_id = boot
        return found

    def _send(self, root: str, piece: Piece, sent: _Sent) -> None:
        try:
            status = piece.path.stat()
            key = (piece.name, piece.length, status.st_mtime_ns)
            if key in sent.seen:
                return
            described = [piece.length, _checksum(piece)]
        except (OSError, StoreError):
            return  # sealed or deleted meanwhile: handled in the next round
        if sent.files.get(piece.name) != described:
            self._to.put(f"{root}/{piece.name}", piece.read())
            self.counts.files += 1
            self.counts.bytes += piece.length
            sent.files[piece.name] = described
            self._busy_since = time.monotonic()
        sent.seen.add(key)

    def _forget_open(self, root: str, sent: _Sent) -> None:
        """Delete the copy of an open segment once the sealed one was sent."""
        copies = {name.split("/")[1] for name in sent.files if name.startswith("open/")}
        for segment in sorted(copies):
            if f"segments/{segment}/{MANIFEST}" in sent.files:
                with contextlib.suppress(OSError):  # readers prefer the sealed one
                    self._to.delete_all(f"{root}/open/{segment}")
                for name in [file for file in sent.files if file.startswith(f"open/{segment}/")]:
                    del sent.files[name]

    def _forget_raw(self, root: str, sent: _Sent) -> None:
        """Delete raw perf files once the annex made from them was sent."""
        annexes = {
            name.split("/")[2]
            for name in sent.files
            if name.startswith("segments/") and name.count("/") == 3 and name.endswith(MANIFEST)
        }
        for name in [file for file in sent.files if is_raw(file)]:
            gone = not (self._directory / name).exists()
            if gone and annex_name(name.removeprefix("stacks/")) in annexes:
                with contextlib.suppress(OSError):  # readers can tell them apart
                    self._to.delete(f"{root}/{name}")
                del sent.files[name]


def _still_there(path: Path, sealed: str | None) -> Iterator[Piece]:
    """A segment's files; none if it was sealed or deleted in the meantime."""
    try:
        yield from pieces_of_open(path) if sealed is None else pieces_of(path)
    except StoreError:
        return


def _boot_of(path: Path) -> str:
    try:
        first = read_plain(path / JOURNAL, 1 << 20).partition(b"\n")[0]
    except OSError:
        return ""
    lines, _ = whole_lines(first)
    return str(lines[0].get("boot_id", "")) if lines else ""


def _checksum(piece: Piece) -> int:
    checksum = 0
    for chunk in piece.read():
        checksum = zlib.crc32(chunk, checksum)
    return checksum


def _listing(content: bytes | None) -> _Sent:
    """What an earlier recorder sent; empty if the list is unreadable."""
    sent = _Sent()
    if content is None:
        return sent
    try:
        whole, sent.files = shipped_in(json.loads(content))
        sent.listed = (whole, sorted(sent.files.items()))
    except (ValueError, RecursionError):
        return _Sent()
    return sent
