"""Service-manager units."""

from __future__ import annotations

from sexton.model.row import Row, row


@row
class Unit(Row):
    """One systemd service. Timestamps are CLOCK_MONOTONIC microseconds, 0 where never.

    `cgroup` is empty while a unit waits to restart: then it is the last known one or slice +
    name, and `cgroup_origin` says which ("systemd", "last known", "slice + name").
    """

    entity = ("name",)

    name: str
    load_state: str
    active_state: str
    sub_state: str
    file_state: str | None
    restarts: int | None
    restart_policy: str | None
    restart_delay_us: int | None
    main_start_us: int | None
    main_exit_us: int | None
    active_enter_us: int | None
    result: str | None
    exit_status: int | None
    cgroup: str | None
    cgroup_origin: str


@row
class Timer(Row):
    """One timer and what it last did."""

    entity = ("name",)

    name: str
    unit: str
    last_trigger_us: int | None
    interval_us: int | None


@row
class ServiceManager(Row):
    """Which service manager answered, and through which interface."""

    name: str
    version: str | None
    via: str


@row
class RestartMark(Row):
    """A restart read from the journal: the unit, its restart counter and when."""

    unit: str
    counter: int
    wall_s: float
