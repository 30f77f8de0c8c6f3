"""`/sys/class/infiniband/*/ports/*`: state and error counters of InfiniBand, RoCE and EFA ports.

Documented in the kernel's Documentation/ABI/stable/sysfs-class-infiniband. The files of one port::

    mlx5_0/ports/1/state 4: ACTIVE
    mlx5_0/ports/1/counters/link_downed 0
    mlx5_0/ports/1/counters/symbol_error 0
    rdmap0s31/ports/1/hw_counters/rx_drops 12

Quirks: `counters` are the port's own since the link was made, `hw_counters` the driver's since it
was loaded; both have dozens of files, of which only those that count errors are read. A counter
that the hardware lacks reads as "N/A (no PMA)". Some drivers query the card's firmware for each
value and wait up to a minute for it, so on the node itself a child (`grep`) reads them, which can
be left behind; after that they are not read again. At most `MOST` ports.

>>> parse({"mlx5_0/ports/1/counters/link_downed": "2\\n", "mlx5_0/ports/1/state": "4: ACTIVE\\n"})
[FabricPort(device='mlx5_0', port=1, state='ACTIVE'), \
FabricCounter(device='mlx5_0', port=1, name='link_downed', value=2)]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sexton.errors import SourceAbsent, SourceTimeout
from sexton.host.host import Host
from sexton.host.reader import text
from sexton.host.runner import run
from sexton.model.rows.hardware import FabricCounter, FabricPort
from sexton.sources.registry import Reading, source

PATH = "/sys/class/infiniband"
MOST = 64
#: Errors only: traffic has hundreds of counters more.
COUNTERS = frozenset(
    {"symbol_error", "link_error_recovery", "link_downed", "port_rcv_errors", "port_xmit_discards"}
    | {"port_rcv_remote_physical_errors", "local_link_integrity_errors"}
    | {"excessive_buffer_overrun_errors"}
)
HW_COUNTERS = frozenset(
    {"rx_drops", "rdma_read_wr_err", "rdma_write_wr_err", "unresponsive_remote_events"}
    | {"impaired_remote_conn_events", "retrans_timeout_events"}
    | {"local_ack_timeout_err", "packet_seq_err", "out_of_sequence", "rx_icrc_encapsulated"}
    | {"req_transport_retries_exceeded", "rnr_nak_retry_err"}
)
_PORT = re.compile(r"\d{1,3}", re.ASCII)
_DEADLINE_S = 1.0


def parse(files: Mapping[str, str]) -> list[FabricPort | FabricCounter]:
    """Rows from the content of files, by their path below the class."""
    rows: list[FabricPort | FabricCounter] = []
    for path in sorted(files, key=lambda name: (not name.endswith("/state"), name)):
        device, _, port, *_, name = path.split("/")
        content = files[path].strip()
        if name == "state":
            rows.append(FabricPort(device, int(port), content.partition(": ")[2] or content))
        elif content.isascii() and content.isdigit() and len(content) < 20:
            rows.append(FabricCounter(device, int(port), name, int(content)))
    return rows


@source(PATH, rows=(FabricPort, FabricCounter), period_s=10.0, deadline_s=2.5)
class Ports(Reading):
    """A row per port, and one per error counter of it."""

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._hung = False

    def collect(self) -> Iterator[FabricPort | FabricCounter]:
        if self._hung:
            raise SourceTimeout(PATH, "did not answer before; not read again")
        paths = list(self._paths())
        if not paths:
            raise SourceAbsent(PATH, "no InfiniBand or EFA device here")
        return iter(parse(self._contents(paths)))

    def _paths(self) -> Iterator[str]:
        files, ports = self._files, 0
        try:
            devices = sorted(files.names(PATH))
        except SourceAbsent:
            return
        for device in devices:
            for port in sorted(filter(_PORT.fullmatch, _names(self._host, f"{device}/ports"))):
                ports += 1
                if ports > MOST:
                    return
                yield f"{device}/ports/{port}/state"
                for folder, wanted in (("counters", COUNTERS), ("hw_counters", HW_COUNTERS)):
                    place = f"{device}/ports/{port}/{folder}"
                    found = wanted.intersection(_names(self._host, place))
                    yield from (f"{place}/{name}" for name in sorted(found))

    def _contents(self, paths: list[str]) -> dict[str, str]:
        if not self._host.live:
            return {path: _text(self._host, path) for path in paths}
        try:
            ended = run(
                ["grep", "-H", "", "--", *(f"{PATH}/{path}" for path in paths)], _DEADLINE_S
            )
        except SourceTimeout:
            self._hung = True
            raise
        lines = ended.output.decode("utf-8", "surrogateescape").split("\n")
        read = (line.removeprefix(f"{PATH}/").partition(":") for line in lines if line)
        return {path: content for path, _, content in read if path in paths}


def _names(host: Host, place: str) -> list[str]:
    try:
        return host.files.names(f"{PATH}/{place}")
    except SourceAbsent:
        return []


def _text(host: Host, path: str) -> str:
    try:
        return text(host.files, f"{PATH}/{path}")
    except SourceAbsent:
        return ""
