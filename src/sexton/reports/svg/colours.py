"""Every colour of the page and of the SVG files.

This is the one definition. The page has it as ``colours.css`` and ``colours.js``, which
``python -m sexton.reports.svg.colours FOLDER`` writes; a test compares them. An SVG file has the
values themselves, since not every viewer knows CSS variables.

Flame graphs: a hue per kind (kernel orange, user teal, task violet, unknown olive) and a shade per
name. In a difference red grew and blue shrank, stronger for a larger change of share; what may be
chance is pale where it is large and grey where it is small. Heatmaps: ramps whose lightness alone
shows the order.
"""

from __future__ import annotations

import colorsys
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

Scheme = Literal["light", "dark"]

#: CSS variables, in a light and in a dark scheme. Okabe and Ito's colours for categories.
THEME = {
    "back": ("#ffffff", "#14161b"),
    "text": ("#16181d", "#eef0f4"),
    "soft": ("#555b66", "#a3a9b5"),
    "line": ("#dfe2e8", "#333845"),
    "tick": ("#8a909c", "#8a909c"),
    "card": ("#f7f8fa", "#1b1e25"),
    "press": ("#e6eaf0", "#2b303a"),
    "mark": ("#0369a1", "#38bdf8"),
    "focus": ("#2563eb", "#7aa5ff"),
    "warm": ("#b91c1c", "#f87171"),
    # Not recorded is hatched, loading is plain, zero is a colour.
    "hatch": ("#b9bfca", "#4a5060"),
    "hatch-on": ("#f1f2f5", "#1d2027"),
    "loading": ("#e9ecf1", "#22262e"),
    "outside": ("#dadde4", "#0c0d11"),
    "zero": ("#f5f7fa", "#1b1e25"),
    "user": ("#5b9bd5", "#3d7fbf"),
    "system": ("#d55e00", "#ff7a2e"),
    "softirq": ("#b5468f", "#d977b8"),
    "waiting": ("#8d8d3f", "#b5b255"),
    "blue": ("#0072b2", "#56b4e9"),
    "green": ("#009e73", "#2bc79a"),
    "sky": ("#3c93c8", "#8ab8ff"),
    "violet": ("#6a4fb3", "#b79cf2"),
    "critical": ("#c2410c", "#ff7a2e"),
    "warning": ("#b07400", "#f0b429"),
    "proven": ("#15803d", "#4ade80"),
    "likely": ("#a16207", "#facc15"),
    "possible": ("#6b7280", "#9aa1ad"),
    "found": ("#a21caf", "#f0abfc"),
    "found-text": ("#4a044e", "#fdf4ff"),
    "found-back": ("#f5d0fe", "#86198f"),
    # A filled word or button, with white on it.
    "filled": ("#ffffff", "#ffffff"),
    "healthy": ("#15803d", "#15803d"),
    "sick": ("#b91c1c", "#b91c1c"),
    "unsure": ("#8a5a06", "#8a5a06"),
    "other": ("#4b5563", "#4b5563"),
    "next": ("#0b5cad", "#0b5cad"),
}
#: By kind: the first and the last hue, and the saturation.
HUES = {"k": (14, 42, 88), "u": (164, 206, 52), "t": (246, 282, 38), "o": (62, 98, 42)}
SHADES = 8
#: Changes of share at which a difference gets a stronger colour.
STRENGTHS = (0.005, 0.02, 0.08, 0.2)
#: A change of share from which it is shown and coloured though it may be chance, and how opaque.
LARGE = 0.01
PALE = 0.45
GREW_HUE, SHRANK_HUE = 2, 215
NEUTRAL = {"light": "#d5d8de", "dark": "#3a3f4a"}
FOUND = "#c026d3"
IDLE = {"light": "e6e9f0", "dark": "2a2d3a"}
RAMPS = {
    "light": ["fff0d2", "fddca4", "f9b668", "f08544", "d95045", "a92a5c", "64176a", "250a47"],
    "dark": ["3b1f63", "6a1f7c", "9c2a74", "cb3e5c", "ee623e", "fa942a", "fbc84b", "fdf3b0"],
}
_VARIABLE = re.compile(r"var\(--([\w-]+)\)")
#: Levels of the heatmap palette: 0 is not sampled, 1 is idle.
LEVELS = 64


def page_style() -> str:
    """The text of ``colours.css``: the system's scheme, or the one that the page sets."""
    light, dark = (
        " ".join(f"--{name}: {pair[at]};" for name, pair in THEME.items()) for at in (0, 1)
    )
    return (
        "/* Written by `python -m sexton.reports.svg.colours`. */\n"
        f":root {{ color-scheme: light dark; {light} }}\n"
        "@media (prefers-color-scheme: dark) {\n"
        f'  :root:not([data-theme="light"]) {{ {dark} }}\n}}\n'
        f':root[data-theme="dark"] {{ color-scheme: dark; {dark} }}\n'
        ':root[data-theme="light"] { color-scheme: light; }\n'
    )


def svg_style(style: str) -> str:
    """A style sheet with values for variables; its rules with colours follow again for dark.

    >>> print(svg_style("a { fill: var(--soft); }\\nb { color: red; }\\n"), end="")
    a { fill: #555b66; }
    b { color: red; }
    @media (prefers-color-scheme: dark) {
    a { fill: #a3a9b5; }
    }
    """
    coloured = "".join(line for line in style.splitlines(True) if "var(" in line)
    light = _VARIABLE.sub(lambda found: THEME[found[1]][0], style)
    dark = _VARIABLE.sub(lambda found: THEME[found[1]][1], coloured)
    return f"{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"


def page_module() -> str:
    """The text of ``colours.js``: what a canvas needs and CSS does not."""
    shared: dict[str, Any] = {
        "hues": HUES,
        "shades": SHADES,
        "strengths": STRENGTHS,
        "large": LARGE,
        "pale": PALE,
        "grew": GREW_HUE,
        "shrank": SHRANK_HUE,
        "neutral": NEUTRAL,
        "found": FOUND,
        "ramps": RAMPS,
    }
    lines = ",\n".join(f"  {name}: {json.dumps(value)}" for name, value in shared.items())
    return (
        "// @ts-check\n"
        "// Colours shared with SVG files; written by `python -m sexton.reports.svg.colours`.\n\n"
        f"export const COLOURS = {{\n{lines},\n}};\n"
    )


def name_shade(name: str) -> int:
    """The shade of a function's name: the same in every flame graph, and in the page.

    >>> name_shade("do_syscall_64"), name_shade("")
    (6, 0)
    """
    units = name.encode("utf-16-le", "surrogatepass")
    total = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        total = (total * 31 + low + 256 * high) & 0xFFFFFFFF
    return total % SHADES


def flame_rules() -> str:
    """CSS for the classes that `flame_picture` assigns."""
    light, dark = "\n".join(_rules("light")), "\n".join(_rules("dark"))
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def legend(difference: bool) -> list[tuple[str, str]]:
    """Class and text of each entry."""
    if difference:
        return [
            ("g5", "grew a lot"),
            ("g2", "grew"),
            ("g5 m", "pale: may be chance"),
            ("n", "small change"),
            ("s2", "shrank"),
            ("s5", "shrank a lot"),
        ]
    return [("k3", "kernel"), ("u3", "user"), ("t3", "task")]


def palette(scheme: Scheme) -> list[tuple[int, int, int]]:
    """Heatmap colours by level; level 0 is not drawn."""
    ramp = [tuple(bytes.fromhex(colour)) for colour in RAMPS[scheme]]
    idle = bytes.fromhex(IDLE[scheme])
    colours = [(0, 0, 0), (idle[0], idle[1], idle[2])]
    for step in range(LEVELS - 2):
        place = step / (LEVELS - 3) * (len(ramp) - 1)
        low = min(int(place), len(ramp) - 2)
        pair = zip(ramp[low], ramp[low + 1], strict=True)
        red, green, blue = (round(a + (b - a) * (place - low)) for a, b in pair)
        colours.append((red, green, blue))
    return colours


def _rules(scheme: Scheme) -> Iterator[str]:
    dark = scheme == "dark"
    for letter, (first, last, saturation) in HUES.items():
        for step in range(SHADES):
            hue = first + (last - first) * step / (SHADES - 1)
            light = (33 + step * 7 % 9) if dark else (66 + step * 7 % 9)
            strong = saturation * (0.62 if dark else 1)
            yield f".{letter}{step} rect {{ fill: {_hex(hue, strong, light)}; }}"
    yield f".r rect, .n rect {{ fill: {NEUTRAL[scheme]}; }}"
    yield f".m rect {{ fill-opacity: {PALE}; }}"
    most = len(STRENGTHS) + 1
    for letter, hue in (("g", GREW_HUE), ("s", SHRANK_HUE)):
        for step in range(1, most + 1):
            part = step / most
            tone = 26 + 14 * part if dark else 92 - 30 * part
            strong = 22 + 48 * part if dark else 45 + 45 * part
            yield f".{letter}{step} rect {{ fill: {_hex(hue, strong, tone)}; }}"


def _hex(hue: float, saturation: float, light: float) -> str:
    """In the notation that every SVG viewer reads.

    >>> _hex(0, 100, 50), _hex(120, 100, 25), _hex(0, 0, 100)
    ('#ff0000', '#008000', '#ffffff')
    """
    red, green, blue = colorsys.hls_to_rgb(hue / 360, light / 100, saturation / 100)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"


if __name__ == "__main__":
    for name, content in (("colours.css", page_style()), ("colours.js", page_module())):
        Path(sys.argv[1], name).write_text(content, "utf-8")
