"""Fuzz target: tars of root file systems."""

from __future__ import annotations

import contextlib
import io
import tarfile

from sexton.errors import SourceError
from sexton.prevent.image.tar import read_tar

FORMS = (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT)


def one(data: bytes) -> None:
    files = read_tar(io.BytesIO(data)).files
    pending = ["/"]
    for _ in range(200):
        if not pending:
            return
        path = pending.pop()
        for look in (files.status, files.read, files.link):
            with contextlib.suppress(SourceError):
                look(path)
        with contextlib.suppress(SourceError):
            pending += [f"{path.rstrip('/')}/{name}" for name in files.names(path)]


def seeds() -> list[bytes]:
    """One of each form, with a link, a hard link, a device and a long name."""
    found = []
    for form in FORMS:
        raw = io.BytesIO()
        with tarfile.open(fileobj=raw, mode="w", format=form) as out:
            for name, kind, target in (
                ("./etc/a.service", tarfile.REGTYPE, ""),
                ("etc/link", tarfile.SYMTYPE, "/etc/a.service"),
                ("etc/hard", tarfile.LNKTYPE, "./etc/a.service"),
                ("etc/device", tarfile.CHRTYPE, ""),
                ("etc/" + "n" * (90 if form == tarfile.USTAR_FORMAT else 200), tarfile.REGTYPE, ""),
            ):
                info = tarfile.TarInfo(name)
                info.type, info.linkname = kind, target
                info.size = 9 if kind == tarfile.REGTYPE else 0
                out.addfile(info, io.BytesIO(b"[Service]"))
        found.append(raw.getvalue())
    return found
