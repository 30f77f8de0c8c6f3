r"""The explorer's modules as one script and its styles as one, for a page that lies in a file.

A page opened from a file may import no module: browsers give files no origin. So the modules are
written one after the other, those that are imported before those that import them, each in a
scope of its own. That needs nothing of JavaScript's grammar, as long as the modules keep to what
is checked here: ``import {a, b as c} from "./x.js";``, and ``export`` only before a declaration.

>>> print(joined({"a.js": "export const A = 1;\n", "b.js": 'import {A} from "./a.js";\nA;\n'}))
(() => {
"use strict";
const _m = {};
_m["a.js"] = (() => {
const A = 1;
return {A};
})();
_m["b.js"] = (() => {
const {A} = _m["a.js"];
A;
return {};
})();
})();
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from functools import partial
from importlib.resources import files

#: The explorer's folder, from which the server sends the same files.
_PACKAGE, _FOLDER = "sexton.explorer.server", "page"
#: Begins the page on what is embedded in it.
ENTRY = "report_boot.js"

_IMPORT = re.compile(r'^import\s*\{([^}]*)\}\s*from\s*"([^"]+)"\s*;?[ \t]*$', re.MULTILINE)
_EXPORT = re.compile(
    r"^export (?=(?:async function|function\*?|const|class)\s*\*?\s*([\w$]+))", re.MULTILINE
)
_LEFT = re.compile(r"^\s*(?:import|export)\b.*$", re.MULTILINE)
_STYLES = re.compile(r'<link rel="stylesheet" href="([\w./-]+)">')
_BODY = re.compile(r"<body[^>]*>(.*)</body>", re.DOTALL)
_SCRIPT = re.compile(r"<script\b.*?</script>", re.DOTALL)


class NotOneScript(ValueError):
    """A module says something that cannot be joined; it is ours to mend."""


def joined(modules: Mapping[str, str]) -> str:
    """One script of these modules, which stand in the order of their imports."""
    parts = ["(() => {", '"use strict";', "const _m = {};"]
    for name, text in modules.items():
        names = _EXPORT.findall(text)
        told = _IMPORT.sub(partial(_taken, name), _EXPORT.sub("", text))
        if left := _LEFT.search(told):
            raise NotOneScript(f"{name}: {left[0].strip()}")
        parts += [f'_m["{name}"] = (() => {{', told.strip("\n"), f"return {{{', '.join(names)}}};"]
        parts.append("})();")
    script = "\n".join([*parts, "})();"])
    if re.search(r"</script|<!--", script, re.IGNORECASE):
        raise NotOneScript("a script must not end the element it stands in")
    return script


def explorer_script(entry: str = ENTRY) -> str:
    """All that `entry` needs, and itself, last."""
    found: dict[str, str] = {}
    _gather(entry, found, ())
    return joined(found)


def explorer_style() -> str:
    """The style sheets that the explorer's page names, in its order."""
    return "\n".join(_read(name) for name in _STYLES.findall(_read("index.html")))


def explorer_body() -> str:
    """The inside of the explorer's page, without scripts."""
    found = _BODY.search(_read("index.html"))
    if found is None:
        raise NotOneScript("index.html: no body")
    return _SCRIPT.sub("", found[1]).strip()


def _gather(name: str, found: dict[str, str], above: tuple[str, ...]) -> None:
    if name in found:
        return
    if name in above:
        raise NotOneScript(f"{name} imports itself, by way of {', '.join(above)}")
    text = _read(name)
    for needed in _imports(text, name):
        _gather(needed, found, (*above, name))
    found[name] = text


def _imports(text: str, name: str) -> Iterator[str]:
    for _, target in _IMPORT.findall(text):
        yield _resolved(target, name)


def _resolved(target: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target))


def _taken(name: str, found: re.Match[str]) -> str:
    """What is imported, as constants of the module's own scope."""
    names = [each.split(" as ") for each in found[1].split(",") if each.strip()]
    taken = ", ".join(": ".join(part.strip() for part in each) for each in names)
    return f'const {{{taken}}} = _m["{_resolved(found[2], name)}"];'


def _read(name: str) -> str:
    place = files(_PACKAGE) / _FOLDER
    for part in name.split("/"):
        place = place / part
    try:
        return place.read_text("utf-8")
    except FileNotFoundError:
        raise NotOneScript(f"{name}: there is no such file in the page") from None
