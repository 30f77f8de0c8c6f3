"""Demangle Rust v0 names (``_R…``).

The grammar is Rust RFC 2603; the output is that of binutils and perf, without crate hashes and
types of constants:

>>> demangled_rust("_RNvNtCs1234_7mycrate3foo3bar")
'mycrate::foo::bar'
>>> demangled_rust("_RNCNvC7mycrate4main0")
'mycrate::main::{closure#0}'
>>> demangled_rust("_RINvMs_C5outerNtB5_5Inner3runReE")
'<outer::Inner>::run::<&str>'
>>> demangled_rust("_RNvwhat") is None
True

A name may refer back to its own parts repeatedly: steps, depth and length are limited.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_MOST_STEPS = 5_000
_MOST_DEPTH = 100
_MOST_RESULT = 1 << 14
_SYMBOL = re.compile(r"_R([A-Z][A-Za-z0-9_]*)(?:\.[\w.$]*)?", re.ASCII)
_BASE_62 = re.compile(r"([0-9a-zA-Z]*)_", re.ASCII)
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,8}", re.ASCII)
_HEX = re.compile(r"([0-9a-f]*)_", re.ASCII)
_DIGITS = {
    letter: value
    for value, letter in enumerate("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
}
_BASIC = {
    **{"a": "i8", "s": "i16", "l": "i32", "x": "i64", "n": "i128", "i": "isize"},
    **{"h": "u8", "t": "u16", "m": "u32", "y": "u64", "o": "u128", "j": "usize"},
    **{"b": "bool", "c": "char", "d": "f64", "e": "str", "f": "f32"},
    **{"p": "_", "u": "()", "v": "...", "z": "!"},
}


class _NotRust(Exception):
    """It does not follow the grammar, or exceeds a limit."""


def demangled_rust(name: str) -> str | None:
    """The demangled name; `None` if it is not a v0 name."""
    found = _SYMBOL.fullmatch(name)
    if found is None:
        return None
    reader = _Reader(found[1])
    try:
        written = reader.path(value=True)
        if not reader.ended():
            reader.path(value=False)  # the instantiating crate
    except _NotRust:
        return None
    return written if reader.ended() else None


class _Reader:
    """Parses one name from the left; each method consumes a part and returns its text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._steps = 0
        self._depth = 0
        self._bound = 0

    def ended(self) -> bool:
        return self._at == len(self._text)

    def path(self, *, value: bool) -> str:
        """`value`: generic arguments follow ``::``."""
        return self._down(lambda: self._path(value))

    def _path(self, value: bool) -> str:
        tag = self._next()
        if tag == "C":
            self._disambiguator()
            return self._identifier()
        if tag == "N":
            return self._nested(value)
        if tag in "MXY":
            if tag != "Y":
                self._disambiguator()
                self.path(value=False)
            of = self._type()
            return f"<{of}>" if tag == "M" else f"<{of} as {self.path(value=False)}>"
        if tag == "I":
            base = self.path(value=value)
            arguments = ", ".join(self._until_end(self._argument))
            return self._bounded(f"{base}{'::' if value else ''}<{arguments}>")
        if tag == "B":
            return self._back(lambda: self.path(value=value))
        raise _NotRust

    def _nested(self, value: bool) -> str:
        space = self._next()
        base = self.path(value=value)
        number = self._disambiguator()
        name = self._identifier()
        if space.isupper():
            kind = {"C": "closure", "S": "shim"}.get(space, space)
            return self._bounded(f"{base}::{{{kind}{':' if name else ''}{name}#{number}}}")
        if not space.islower():
            raise _NotRust
        return self._bounded(f"{base}::{name}" if name else base)

    def _argument(self) -> str:
        if self._eat("L"):
            return self._lifetime(self._base_62())
        return self._constant() if self._eat("K") else self._type()

    def _type(self) -> str:
        return self._down(self._any_type)

    def _any_type(self) -> str:
        tag = self._next()
        if tag in _BASIC:
            return _BASIC[tag]
        if tag in "RQ":
            number = self._base_62() if self._eat("L") else 0
            lifetime = f"{self._lifetime(number)} " if number else ""
            return self._bounded(f"&{lifetime}{'mut ' if tag == 'Q' else ''}{self._type()}")
        if tag in "PO":
            return self._bounded(f"*{'const' if tag == 'P' else 'mut'} {self._type()}")
        if tag == "A":
            return self._bounded(f"[{self._type()}; {self._constant()}]")
        if tag == "S":
            return self._bounded(f"[{self._type()}]")
        if tag == "T":
            parts = self._until_end(self._type)
            return self._bounded(f"({', '.join(parts)}{',' if len(parts) == 1 else ''})")
        if tag == "F":
            return self._binder(self._function)
        if tag == "D":
            bounds = self._binder(lambda: " + ".join(self._until_end(self._bound_trait)))
            if not self._eat("L"):
                raise _NotRust
            number = self._base_62()
            return self._bounded(f"dyn {bounds}{' + ' + self._lifetime(number) if number else ''}")
        if tag == "B":
            return self._back(self._type)
        self._at -= 1
        return self.path(value=False)

    def _function(self) -> str:
        unsafe = "unsafe " if self._eat("U") else ""
        extern = ""
        if self._eat("K"):
            abi = "C" if self._eat("C") else self._identifier().replace("_", "-")
            extern = f'extern "{abi}" '
        parameters = ", ".join(self._until_end(self._type))
        result = "" if self._eat("u") else f" -> {self._type()}"
        return self._bounded(f"{unsafe}{extern}fn({parameters}){result}")

    def _bound_trait(self) -> str:
        base, is_open = self._open_path()
        while self._eat("p"):
            base += ", " if is_open else "<"
            is_open = True
            base = self._bounded(f"{base}{self._identifier()} = {self._type()}")
        return f"{base}>" if is_open else base

    def _open_path(self) -> tuple[str, bool]:
        """A path whose generic arguments may continue."""
        if self._eat("B"):
            found: list[bool] = []

            def again() -> str:
                base, is_open = self._open_path()
                found.append(is_open)
                return base

            return self._back(again), found[0]
        if self._eat("I"):
            base = self.path(value=False)
            return self._bounded(f"{base}<{', '.join(self._until_end(self._argument))}"), True
        return self.path(value=False), False

    def _constant(self) -> str:
        return self._down(self._any_constant)

    def _any_constant(self) -> str:
        tag = self._next()
        if tag == "p":
            return "_"
        if tag == "B":
            return self._back(self._constant)
        if tag in "htmyoj":
            return self._number()
        if tag in "aslxni":
            return f"-{self._number()}" if self._eat("n") else self._number()
        if tag == "b":
            return {"0": "false", "1": "true"}.get(self._number(), "?")
        if tag == "c":
            code = self._hexadecimal()
            return repr(chr(code)) if 0x20 <= code < 0xD800 else f"'\\u{{{code:x}}}'"
        raise _NotRust

    def _number(self) -> str:
        value = self._hexadecimal()
        return str(value) if value < 1 << 64 else hex(value)

    def _hexadecimal(self) -> int:
        return int(self._match(_HEX)[1] or "0", 16)

    def _binder(self, inner: Callable[[], str]) -> str:
        count = self._base_62() + 1 if self._eat("G") else 0
        if count > _MOST_DEPTH:
            raise _NotRust
        self._bound += count
        try:
            names = ", ".join(self._lifetime(index) for index in range(count, 0, -1))
            return f"for<{names}> {inner()}" if count else inner()
        finally:
            self._bound -= count

    def _lifetime(self, number: int) -> str:
        if not number:
            return "'_"
        depth = self._bound - number
        if depth < 0:
            raise _NotRust
        return f"'{chr(ord('a') + depth)}" if depth < 26 else f"'_{depth}"

    def _identifier(self) -> str:
        coded = self._eat("u")
        length = int(self._match(_DECIMAL)[0])
        self._eat("_")
        name = self._text[self._at : self._at + length]
        if len(name) != length:
            raise _NotRust
        self._at += length
        if not coded:
            return name
        plain, _, rest = name.rpartition("_")
        try:
            return (f"{plain}-{rest}" if plain else rest).encode().decode("punycode")
        except (UnicodeError, OverflowError, ValueError):
            return f"punycode{{{name}}}"

    def _disambiguator(self) -> int:
        return self._base_62() + 1 if self._eat("s") else 0

    def _base_62(self) -> int:
        digits = self._match(_BASE_62)[1]
        if len(digits) > 16:
            raise _NotRust
        value = 0
        for digit in digits:
            value = value * 62 + _DIGITS[digit]
        return value + 1 if digits else 0

    def _back(self, again: Callable[[], str]) -> str:
        """Parse the part at an earlier position."""
        here = self._at - 1
        place = self._base_62()
        if place >= here:
            raise _NotRust
        kept, self._at = self._at, place
        try:
            return self._down(again)
        finally:
            self._at = kept

    def _down(self, inner: Callable[[], str]) -> str:
        self._steps += 1
        if self._depth > _MOST_DEPTH or self._steps > _MOST_STEPS:
            raise _NotRust
        self._depth += 1
        try:
            return self._bounded(inner())
        finally:
            self._depth -= 1

    def _until_end(self, read_one: Callable[[], str]) -> list[str]:
        found = []
        while not self._eat("E"):
            found.append(read_one())
        return found

    def _bounded(self, text: str) -> str:
        if len(text) > _MOST_RESULT:
            raise _NotRust
        return text

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str]:
        found = pattern.match(self._text, self._at)
        if found is None:
            raise _NotRust
        self._at = found.end()
        return found

    def _eat(self, letter: str) -> bool:
        if self._text[self._at : self._at + 1] != letter:
            return False
        self._at += 1
        return True

    def _next(self) -> str:
        if self.ended():
            raise _NotRust
        self._at += 1
        return self._text[self._at - 1]
