"""The colours of flame graphs, as style rules: a hue per kind, a shade per name, light and dark.

Kernel is orange, user teal, a task violet, what a format does not tell apart olive. In a
difference red grew and blue shrank, the stronger the more of the time it is about; what chance may
have done has no hue at all.
"""

from __future__ import annotations

from collections.abc import Iterator

#: Kind: the first and the last hue, the saturation.
_HUES = {"k": (14, 42, 88), "u": (164, 206, 52), "t": (246, 282, 38), "o": (62, 98, 42)}
_STEPS = 8
_STRENGTHS = 5


def colour_rules() -> str:
    """For every class that `flame_picture` gives."""
    light, dark = "\n".join(_rules(False)), "\n".join(_rules(True))
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def legend(difference: bool) -> list[tuple[str, str]]:
    """Class and words."""
    if difference:
        return [
            ("g5", "grew much"),
            ("g2", "grew"),
            ("n", "no significant change"),
            ("s2", "shrank"),
            ("s5", "shrank much"),
        ]
    return [("k3", "kernel"), ("u3", "user"), ("t3", "task")]


def _rules(dark: bool) -> Iterator[str]:
    for letter, (first, last, saturation) in _HUES.items():
        for step in range(_STEPS):
            hue = first + (last - first) * step / (_STEPS - 1)
            light = (33 + step * 7 % 9) if dark else (66 + step * 7 % 9)
            strong = saturation * (0.62 if dark else 1)
            yield f".{letter}{step} rect {{ fill: {_hex(hue, strong, light)}; }}"
    plain = "#3a3f4a" if dark else "#d5d8de"
    yield f".r rect, .n rect {{ fill: {plain}; }}"
    for letter, hue in (("g", 2), ("s", 215)):
        for step in range(1, _STRENGTHS + 1):
            part = step / _STRENGTHS
            tone = 26 + 14 * part if dark else 92 - 30 * part
            strong = 22 + 48 * part if dark else 45 + 45 * part
            yield f".{letter}{step} rect {{ fill: {_hex(hue, strong, tone)}; }}"


def _hex(hue: float, saturation: float, light: float) -> str:
    """As every viewer of SVG reads it.

    >>> _hex(0, 100, 50), _hex(120, 100, 25), _hex(0, 0, 100)
    ('#ff0000', '#008000', '#ffffff')
    """
    import colorsys

    red, green, blue = colorsys.hls_to_rgb(hue / 360, light / 100, saturation / 100)
    return f"#{round(red * 255):02x}{round(green * 255):02x}{round(blue * 255):02x}"
