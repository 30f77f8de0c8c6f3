"""Small programs, compiled for a test: whole, stripped, with a debug file beside them."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from sexton.host.large_files import BytesImage
from sexton.profile.perf.raw import MappedFile
from sexton.profile.symbols.elf import Elf
from sexton.profile.symbols.table import Table

SOURCE = """
#include <stdlib.h>
#include <unistd.h>
__attribute__((noinline)) int inner(int n) { return n * 3 + atoi("1"); }
__attribute__((noinline)) static int hidden(int n) { return n * 5 + inner(n); }
int outer(int n) __attribute__((alias("inner")));
int main(int count, char **words) { if (count > 1) sleep(60); return hidden(count); }
"""


def need_compiler():
    for program in ("gcc", "objcopy", "strip"):
        if shutil.which(program) is None:
            pytest.skip(f"{program} is not installed: apt-get install gcc binutils")


def build(path, *, source=SOURCE, flags=("-O1", "-Wl,--build-id")):
    need_compiler()
    code = path.with_suffix(".c")
    code.write_text(source)
    subprocess.run(["gcc", *flags, "-o", path, code], check=True, timeout=120)
    return path


def run(*command):
    subprocess.run([str(item) for item in command], check=True, timeout=60)


def elf_of(path) -> Elf:
    return Elf(BytesImage(path.read_bytes(), str(path)))


def mapped(path) -> MappedFile:
    return MappedFile(str(path), elf_of(path).build_id())


def offset_of(path, address: int) -> int:
    """Where an address lies in the file."""
    return next(
        address - segment.address + segment.offset
        for segment in elf_of(path).segments
        if segment.address <= address < segment.address + segment.memory
    )


def name_at(table: Table, path, symbol: str) -> str | None:
    """The name in a table two bytes into a function, whose address nm gives from another copy."""
    for line in subprocess.run(
        ["nm", path], check=True, capture_output=True, text=True
    ).stdout.splitlines():
        address, _, name = line.rpartition(" ")
        if name == symbol:
            place = offset_of(path, int(address.split()[0], 16) + 2)
            return name_of(table, place)
    raise AssertionError(f"nm knows no {symbol}")


def name_of(table: Table, place: int) -> str | None:
    import numpy as np

    found = table.find(np.array([place], np.uint64))
    return table.names(found)[0] if found[0] >= 0 else None
