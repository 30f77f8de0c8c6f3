"""Which minutes an alarm keeps: one pin for what strikes many cores at once.

When a whole machine hangs in the kernel, every core is an alarm of its own and each is told. But
they are the same minutes, and the moment is the worst for writing a hundred files: so the cores
that follow within `_TOGETHER_S` share the first one's pin.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import NamedTuple

from sexton.record.triggers import Raised
from sexton.store.pins import AFTER_S, BEFORE_S, Pin

#: A pin that lasts is written again when its end has moved by so much.
_REPIN_S = 30.0
_TOGETHER_S = 10.0
_OF_CORES = frozenset({"held_core", "softirq_wait", "soft_lockup"})
_MOST_KNOWN = 2000


class Placed(NamedTuple):
    """Where an alarm belongs: `is_news` where it was not told yet, `is_first` where the pin is its
    own, `is_moved` where the pin has to be written."""

    pin: Pin
    is_news: bool
    is_first: bool
    is_moved: bool


class Pinning:
    """The pins of one recorder, by what raised them."""

    def __init__(self, boot_id: str) -> None:
        self._boot_id = boot_id
        self._made = 0
        self._pins: dict[str, Pin] = {}
        self._of: dict[tuple[str, str], str] = {}

    def place(self, raised: Raised) -> Placed:
        """The pin that holds the minutes around it."""
        key = (raised.kind, raised.about)
        known = self._pins.get(self._of.pop(key, ""))
        is_news = not raised.goes_on or known is None
        pin = self._beside(raised) if is_news else known
        is_first = pin is None
        pin = self._new(raised) if pin is None else pin
        late_s = raised.mono_s + AFTER_S - pin.end_s
        if late_s >= _REPIN_S:
            pin = replace(pin, end_s=raised.mono_s + AFTER_S)
        self._remember(key, pin)
        return Placed(pin, is_news, is_first, is_first or late_s >= _REPIN_S)

    def _beside(self, raised: Raised) -> Pin | None:
        if raised.kind not in _OF_CORES:
            return None
        newest = next(
            (pin for pin in reversed(self._pins.values()) if pin.kind == raised.kind), None
        )
        if newest is None or raised.mono_s - (newest.start_s + BEFORE_S) > _TOGETHER_S:
            return None
        return newest

    def _new(self, raised: Raised) -> Pin:
        self._made += 1
        moment = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        return Pin(
            id=f"{moment}-{raised.kind}-{self._made}",
            kind=raised.kind,
            about=raised.about,
            detail=raised.detail,
            boot_id=self._boot_id,
            start_s=raised.mono_s - BEFORE_S,
            end_s=raised.mono_s + AFTER_S,
            wall_s=time.time(),
        )

    def _remember(self, key: tuple[str, str], pin: Pin) -> None:
        """Bounded: a flood of names must not eat our memory."""
        self._of[key] = pin.id
        self._pins[pin.id] = pin
        if len(self._of) > _MOST_KNOWN:
            del self._of[next(iter(self._of))]
        if len(self._pins) > _MOST_KNOWN:
            del self._pins[next(iter(self._pins))]
