"""How a unit can be there and be enabled, as lines for a shell in the yard."""

from __future__ import annotations

import shlex

UNIT = "[Unit]\\nDefaultDependencies=no\\nStartLimitIntervalSec=0\\n"
SLEEP = f"{UNIT}[Service]\\nExecStart=/bin/sleep 1000\\n[Install]\\nWantedBy=multi-user.target\\n"
CRASH = (
    f"{UNIT}[Service]\\nExecStart=/bin/false\\nRestart=always\\nRestartSec=50ms\\n"
    "[Install]\\nWantedBy=multi-user.target\\n"
)
ETC, RUN, VENDOR = "/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system"


def write(path: str, text: str) -> str:
    return f"mkdir -p {shlex.quote(path.rpartition('/')[0])}; printf '{text}' >{shlex.quote(path)}"


def link(path: str, target: str) -> str:
    directory = shlex.quote(path.rpartition("/")[0])
    return f"mkdir -p {directory}; ln -s {shlex.quote(target)} {shlex.quote(path)}"


def age(path: str, owner: str = "0:0") -> str:
    """An owner and a time that nobody would give it by chance."""
    place = shlex.quote(path)
    return f"chown -h {owner} {place}; touch -h -d '2001-02-03 04:05:06.789' {place}"


WANTS = f"{ETC}/multi-user.target.wants"
#: How a unit can be there and be enabled: what to lay out, its state, and what disable removes.
CASES: dict[str, tuple[str, list[str], str, list[str]]] = {
    "in etc, wanted": (
        "etc.service",
        [
            write(f"{ETC}/etc.service", SLEEP),
            age(f"{ETC}/etc.service", "12:34"),
            link(f"{WANTS}/etc.service", "/etc/systemd/system/etc.service"),
            age(f"{WANTS}/etc.service", "56:78"),
        ],
        "enabled",
        [f"{WANTS}/etc.service"],
    ),
    "the vendor's, wanted, required and upheld": (
        "vendor.service",
        [
            write(f"{VENDOR}/vendor.service", SLEEP),
            *(
                link(f"{ETC}/{holder}/vendor.service", f"{VENDOR}/vendor.service")
                for holder in ("multi-user.target.wants", "a.target.requires", "b.target.upholds")
            ),
            age(f"{ETC}/a.target.requires/vendor.service", "9:9"),
        ],
        "enabled",
        [
            f"{ETC}/a.target.requires/vendor.service",
            f"{ETC}/b.target.upholds/vendor.service",
            f"{WANTS}/vendor.service",
        ],
    ),
    "by an alias": (
        "aliased.service",
        [
            write(
                f"{VENDOR}/aliased.service",
                SLEEP.replace("WantedBy=multi-user.target", "Alias=other.service"),
            ),
            link(f"{ETC}/other.service", f"{VENDOR}/aliased.service"),
            age(f"{ETC}/other.service", "3:4"),
        ],
        "enabled",
        [f"{ETC}/other.service"],
    ),
    "static": (
        "static.service",
        [write(f"{VENDOR}/static.service", SLEEP.partition("[Install]")[0])],
        "static",
        [],
    ),
    "masked in run": (
        "hushed.service",
        [
            write(f"{VENDOR}/hushed.service", SLEEP),
            link(f"{RUN}/hushed.service", "/dev/null"),
            age(f"{RUN}/hushed.service"),
        ],
        "masked-runtime",
        [],
    ),
    "with drop-ins of its own": (
        "dropped.service",
        [
            write(f"{VENDOR}/dropped.service", SLEEP),
            write(f"{ETC}/dropped.service.d/10-a.conf", "[Service]\\nNice=5\\n"),
            f"chmod 600 {ETC}/dropped.service.d/10-a.conf; chmod 750 {ETC}/dropped.service.d",
            age(f"{ETC}/dropped.service.d/10-a.conf", "7:8"),
            write(f"{ETC}/dropped.service.d/<b> \x1b.conf", "[Service]\\nNice=6\\n"),
            write(f"{RUN}/dropped.service.d/20-c.conf", "[Service]\\nNice=7\\n"),
            link(f"{WANTS}/dropped.service", f"{VENDOR}/dropped.service"),
        ],
        "enabled",
        [f"{WANTS}/dropped.service"],
    ),
    "an instance of a template": (
        "many@a-b\\x2dc.service",
        [
            write(f"{VENDOR}/many@.service", SLEEP),
            link(f"{WANTS}/many@a-b\\x2dc.service", f"{VENDOR}/many@.service"),
            link(f"{WANTS}/many@other.service", f"{VENDOR}/many@.service"),
        ],
        "enabled",
        [f"{WANTS}/many@a-b\\x2dc.service"],
    ),
    "linked from elsewhere": (
        "linked.service",
        [
            write("/run/elsewhere/linked.service", SLEEP),
            link(f"{ETC}/linked.service", "/run/elsewhere/linked.service"),
            link(f"{WANTS}/linked.service", "/run/elsewhere/linked.service"),
            age(f"{ETC}/linked.service", "1:2"),
        ],
        "enabled",
        [f"{WANTS}/linked.service"],
    ),
    "in run, until the next boot": (
        "brief.service",
        [
            write(f"{RUN}/brief.service", SLEEP),
            link(f"{RUN}/multi-user.target.wants/brief.service", f"{RUN}/brief.service"),
        ],
        "enabled-runtime",
        [f"{RUN}/multi-user.target.wants/brief.service"],
    ),
}
