"""`/sys/class/net`: network interfaces and their drivers.

Documented in the kernel's Documentation/ABI/testing/sysfs-class-net. An excerpt::

    /sys/class/net/eth0 -> ../../devices/pci0000:00/0000:00:03.0/virtio2/net/eth0
    /sys/class/net/eth0/device -> ../../../virtio2
    /sys/class/net/eth0/device/driver -> ../../../../bus/virtio/drivers/virtio_net
    /sys/class/net/eth0/device/subsystem -> ../../../../bus/virtio
    /sys/class/net/eth0/operstate: up

Quirks: lo, veth, bridges, bonds, tun and ifb have no `device`. A `device` on a hardware bus makes
an interface physical, even if a hypervisor emulates it: virtio, ENA, Hyper-V. `bus_address` is the
device's name, which the kernel log prints after the driver's (``virtio_net virtio2 eth0: …``,
``ena 0000:20:03.0: …``), so the two can be joined. The driver's version comes from ETHTOOL_GDRVINFO
on the node itself, else from the archive's ``ethtool -i`` or `/sys/module/DRIVER/version`; drivers
without a version report the kernel's. An archive made with a plain copy has no links: then
`device/uevent` has the same information.

A node without a physical interface gives rows, none of them physical.

>>> uevent("DRIVER=ena\\nPCI_SLOT_NAME=0000:20:03.0\\nMODALIAS=pci:v00001D0Fd0000EC20\\n")
{'DRIVER': 'ena', 'PCI_SLOT_NAME': '0000:20:03.0', 'MODALIAS': 'pci:v00001D0Fd0000EC20'}
"""

from __future__ import annotations

from sexton.errors import SourceError
from sexton.host.host import Host
from sexton.host.reader import Files, text
from sexton.model.rows.net import Nic
from sexton.sources.nic.ioctl import Ethtool
from sexton.sources.registry import Reading, source

PATH = "/sys/class/net"
#: Hardware buses, real or emulated. Not `netdevsim`, which is neither.
_HARDWARE = frozenset(
    {"pci", "virtio", "vmbus", "xen", "platform", "usb", "auxiliary", "ccwgroup", "vio", "fsl-mc"}
)
#: A hostile tree may list anything; a node with more interfaces than this has many pods, all veth.
_MOST_NICS = 16_384


@source(PATH, rows=(Nic,), period_s=0.0)
class Devices(Reading):
    """Every interface of the node."""

    def collect(self) -> list[Nic]:
        ethtool = Ethtool() if self._host.live else None
        try:
            return [self._nic(name, ethtool) for name in interfaces(self._files)]
        finally:
            if ethtool is not None:
                ethtool.close()

    def _nic(self, name: str, ethtool: Ethtool | None) -> Nic:
        files = self._files
        state = _line(files, f"{PATH}/{name}/operstate")
        device = f"{PATH}/{name}/device"
        if not _is_there(files, device):
            return Nic(name, False, None, None, None, state)
        properties = uevent(_line(files, f"{device}/uevent", whole=True) or "")
        driver = _target(files, f"{device}/driver") or properties.get("DRIVER")
        bus = bus_of(files, device)
        address = _target(files, device) or properties.get("PCI_SLOT_NAME")
        version = self._version(name, driver, ethtool)
        return Nic(name, bus in _HARDWARE, driver, version, address, state)

    def _version(self, name: str, driver: str | None, ethtool: Ethtool | None) -> str | None:
        if ethtool is not None:
            try:
                return ethtool.info(name).version or None
            except SourceError:
                pass  # in another network namespace, or gone
        kept = _line(self._files, f"/commands/ethtool_i_{name}", whole=True) or ""
        for line in kept.split("\n"):
            if line.startswith("version: "):
                return line.removeprefix("version: ").strip() or None
        return _line(self._files, f"/sys/module/{driver}/version") if driver else None


def interfaces(files: Files) -> list[str]:
    """The interfaces' names, sorted; `bonding_masters` is a file among them."""
    names = sorted(name for name in files.names(PATH) if name != "bonding_masters")
    return names[:_MOST_NICS]


def physical(host: Host) -> list[str]:
    """The names of the physical interfaces, without querying their drivers."""
    files = host.files
    return [
        name for name in interfaces(files) if bus_of(files, f"{PATH}/{name}/device") in _HARDWARE
    ]


def bus_of(files: Files, device: str) -> str | None:
    """The bus that a device is on."""
    properties = uevent(_line(files, f"{device}/uevent", whole=True) or "")
    named = properties.get("MODALIAS", "").partition(":")[0]
    return _target(files, f"{device}/subsystem") or named or None


def uevent(content: str) -> dict[str, str]:
    """The `KEY=value` lines of a device's `uevent`."""
    pairs = (line.partition("=") for line in content.split("\n"))
    return {key: value for key, equals, value in pairs if equals}


def _is_there(files: Files, path: str) -> bool:
    try:
        files.status(path)
    except SourceError:
        return False
    return True


def _target(files: Files, path: str) -> str | None:
    """The last component of a link's target."""
    try:
        return files.link(path).rstrip("/").rpartition("/")[2] or None
    except SourceError:
        return None


def _line(files: Files, path: str, whole: bool = False) -> str | None:
    try:
        content = text(files, path, 1 << 16)
    except SourceError:
        return None
    return content if whole else content.strip() or None
