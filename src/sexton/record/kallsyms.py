"""The kernel's symbols, kept beside the stacks so that another boot can still name them.

`/proc/kallsyms` is good for one boot only (the kernel moves itself at each) and all zeros to whom
`kernel.kptr_restrict` does not trust; then there is nothing worth keeping. Modules loaded after
the snapshot are not in it.
"""

from __future__ import annotations

import gzip
import os
import re

from sexton.errors import SourceDenied
from sexton.host.host import Host

PATH = "/proc/kallsyms"
#: Some 200,000 symbols take 11 MB; kernels with everything built in, three times that.
_MOST_BYTES = 128 << 20
_NAMED = re.compile(rb"^0*[1-9a-f][0-9a-f]* ", re.MULTILINE)
_BOOT_ID = re.compile(r"[0-9a-f-]{1,64}", re.ASCII)


def snapshot_kallsyms(host: Host, directory: str, boot_id: str) -> str:
    """Write ``DIR/stacks/kallsyms-<boot id>.gz`` unless it is there; its path.

    Raises `SourceDenied` where the kernel hides its addresses.
    """
    if _BOOT_ID.fullmatch(boot_id) is None:
        raise ValueError(f"no boot id: {boot_id!r}")
    folder = os.path.join(directory, "stacks")
    path = os.path.join(folder, f"kallsyms-{boot_id}.gz")
    if os.path.exists(path):
        return path
    symbols = host.files.read(PATH, _MOST_BYTES)
    if _NAMED.search(symbols) is None:
        raise SourceDenied(PATH, "all addresses are zero: kernel.kptr_restrict", "as root")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    aside = f"{path}.tmp"
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(gzip.compress(symbols, compresslevel=1, mtime=0))
        file.flush()
        os.fsync(descriptor)
    os.rename(aside, path)
    return path
