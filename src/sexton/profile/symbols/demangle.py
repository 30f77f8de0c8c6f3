"""Demangle C++ and Rust names with ``__cxa_demangle`` of the C++ library.

Names are written as in perf: ``app::Box<long>::turn``, without parameters, return type and clone
suffixes. Without the library names stay mangled; Go names are not mangled. Rust's v0 names are
handled by `rust`.

Only displayed names are demangled, and they are hostile text. A name can refer to its own parts,
and a hundred bytes can expand to gigabytes: a name with more than `MOST_REFERENCES` is left
mangled, and those of one capture together have `MOST_SECONDS`. libstdc++ 12 never returns from some
malformed names with a scope resolution (``_Z1fAsrCs``): such names are demangled in a child
process.

>>> Demangler().plain("malloc")
'malloc'
>>> bare("void app::f<int>(int, char const*) const [clone .cold]")
'app::f<int>'
>>> bare("main::{lambda(int)#1}::operator()(int) const")
'main::{lambda(int)#1}::operator()'
>>> bare("app::Status (*app::find<int>(long))(app::Context*, int)")
'app::find<int>'
>>> unhashed("_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$X$GT$::f::h0123456789abcdef")
'<alloc::vec::Vec<T> as X>::f'
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
from collections.abc import Callable
from functools import cache
from time import perf_counter

from sexton.profile.symbols.rust import demangled_rust

#: Longer names are not tried. Real template names reach some thousands.
MOST_NAME = 4096
#: Longer results are not used.
MOST_RESULT = 1 << 14
MOST_REFERENCES = 32
MOST_EXPANSIONS = 2
MOST_SECONDS = 3.0
#: In a name this may be the operator that hangs the library, or part of a word; only parsing the
#: name would show. Limits on the CPU time of a child, and on the children per capture.
_MAY_HANG = "sr"
_CHILD_CPU_S = 0.2
MOST_CHILDREN = 400
_MANGLED = re.compile(r"(_Z[\w$.]+)(?:@@?(?!plt$)[\w.]+)?(@plt)?", re.ASCII)
_REFERENCE = re.compile(r"[ST][0-9A-Z]*_")
_HASHED = re.compile(r"(.+)::h[0-9a-f]{16}", re.DOTALL)
_ESCAPE = re.compile(r"\$(SP|BP|RF|LT|GT|LP|RP|C|u[0-9a-f]{1,6})\$|\.\.|(?<![^:])_(?=\$)")
_LETTERS = {"SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ","}
_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++.so.1")
_CLONE = re.compile(r"( \[clone [^\]]*\])+$")
_QUALIFIERS = (" const", " volatile", " noexcept", " &&", " &")
_MARK = re.compile(r"\boperator(?:\(\)|\[\]|->\*?|<=>|<<=?|>>=?|[<>]=?)?|->|[()<>\[\]{} ]")
_MOST_POINTERS = 8
_PARENTHESIS = re.compile(r"[()]")
_OPEN, _CLOSE = "(<[{", ")>]}"


class Demangler:
    """Demangles names. `known` has earlier results, and new ones are added."""

    def __init__(self, known: dict[str, str] | None = None) -> None:
        self._known = {} if known is None else known
        self._left_s = MOST_SECONDS
        self._left_children = MOST_CHILDREN

    def plain(self, name: str) -> str:
        """The demangled name; the name itself if not mangled or not demangled."""
        if not name.startswith(("_Z", "_R")):
            return name
        found = self._known.get(name)
        if found is None:
            if self._left_s <= 0:
                return name
            if _may_hang(name):
                if not self._left_children:
                    return name
                self._left_children -= 1
            began = perf_counter()
            found = self._known[name] = _plain(name)
            self._left_s -= perf_counter() - began
        return found


def _plain(name: str) -> str:
    if name.startswith("_R"):
        base, call, _ = name.partition("@plt")
        return (demangled_rust(base) or base) + call
    found = _MANGLED.fullmatch(name) if len(name) <= MOST_NAME else None
    if found is None or _unfolds(found[1]):
        return name
    demangle = _library()
    written = _in_child(demangle, found[1]) if _may_hang(found[1]) else demangle(found[1])
    if written is None or len(written) > MOST_RESULT:
        return name
    # Thunks, tables and guards are words followed by a whole name.
    special = found[1].startswith(("_ZT", "_ZG"))
    written = _unmarked(written)
    return (written if special else unhashed(bare(written))) + (found[2] or "")


def _may_hang(name: str) -> bool:
    return name.startswith("_Z") and _MAY_HANG in name


def _unfolds(name: str) -> bool:
    """Does it refer to its own parts so often that it could expand without limit?"""
    if name.count("Dp") > MOST_EXPANSIONS:
        return True
    return len(_REFERENCE.findall(name)) > MOST_REFERENCES


def bare(written: str) -> str:
    """The name of a function without parameters and return type."""
    name = _without_parameters(written)
    for _ in range(_MOST_POINTERS):
        at = _last_parentheses(name)
        if at is None or name[at + 1 : at + 2] != "*":
            break
        # It returns a pointer to a function, whose type is written around it.
        name = _without_parameters(name[at + 2 : -1])
    if not name.endswith(">") or " " not in name:  # only templates include their return type
        return name
    depth = begin = 0
    for found in _MARK.finditer(name):
        mark = found[0]
        if mark in _OPEN:
            depth += 1
        elif mark in _CLOSE:
            depth -= 1
        elif depth == 0 and mark == " ":
            begin = found.end()
        elif depth == 0 and mark != "->":
            break  # the rest is the name of the operator
    return name[begin:]


def _without_parameters(written: str) -> str:
    name = _unmarked(written)
    while last := next((each for each in _QUALIFIERS if name.endswith(each)), ""):
        name = name.removesuffix(last)
    at = _last_parentheses(name)
    cut = name[:at].rstrip() if at is not None else ""
    return name if not cut or cut.endswith("operator") else cut


def _last_parentheses(name: str) -> int | None:
    """The position of the parenthesis that the last one closes."""
    if not name.endswith(")"):
        return None
    depth = 0
    for found in reversed(list(_PARENTHESIS.finditer(name))):
        depth += 1 if found[0] == ")" else -1
        if depth == 0:
            return found.start()
    return None


def _unmarked(written: str) -> str:
    """Without clone suffixes."""
    return _CLONE.sub("", written) if written.endswith("]") else written


def unhashed(name: str) -> str:
    """A legacy Rust name without hash and escapes."""
    found = _HASHED.fullmatch(name)
    return _ESCAPE.sub(_letter, found[1]) if found is not None else name


def _letter(found: re.Match[str]) -> str:
    escape = found[1]
    if escape is None:
        return "::" if found[0] == ".." else ""
    if escape in _LETTERS:
        return _LETTERS[escape]
    code = int(escape[1:], 16)
    return chr(code) if 0x20 <= code < 0xD800 else found[0]


@cache
def _library() -> Callable[[str], str | None]:
    for library in _LIBRARIES:
        try:
            demangle = ctypes.CDLL(library).__cxa_demangle
        except (OSError, AttributeError):
            continue
        free = ctypes.CDLL(None).free
        free.argtypes, free.restype = [ctypes.c_void_p], None
        demangle.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        demangle.restype = ctypes.c_void_p
        return lambda name: _demangled(demangle, free, name)
    return lambda _: None


def _in_child(demangle: Callable[[str], str | None], name: str) -> str | None:
    """Demangle in a child with a CPU time limit; `None` if it is exceeded or fork fails."""
    reading, writing = os.pipe()
    try:
        child = os.fork()
    except OSError:  # no more processes allowed
        os.close(reading)
        os.close(writing)
        return None
    if child == 0:
        with contextlib.suppress(BaseException):
            signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_VIRTUAL, _CHILD_CPU_S)
            os.write(writing, (demangle(name) or "").encode()[: MOST_RESULT + 1])
        os._exit(0)
    os.close(writing)
    with open(reading, "rb") as output:
        written = output.read()
    os.waitpid(child, 0)
    return written.decode("utf-8", "replace") or None


def _demangled(
    demangle: Callable[..., int | None], free: Callable[[int], None], name: str
) -> str | None:
    found = demangle(name.encode("ascii"), None, None, ctypes.byref(ctypes.c_int()))
    if not found:
        return None
    try:
        return ctypes.string_at(found).decode("utf-8", "replace")
    finally:
        free(found)
