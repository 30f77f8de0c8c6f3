r"""The page's modules joined into one script, and its style sheets into one.

A page opened from a file cannot import modules: browsers give files no origin. So the modules are
written in import order, each in its own function scope. This needs no JavaScript parser as long as
the modules use only what is checked here: ``import {a, b as c} from "./x.js";``, and ``export``
only before a declaration.

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
from collections.abc import Mapping
from functools import partial
from importlib.resources import files

#: The folder with the page's files.
_PACKAGE, _FOLDER = "sexton.explorer.server", "page"
#: Starts the page on embedded data.
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
    """A module uses syntax that cannot be joined."""


def joined(modules: Mapping[str, str]) -> str:
    """One script made of these modules, given in import order."""
    parts = ["(() => {", '"use strict";', "const _m = {};"]
    for name, text in modules.items():
        names = _EXPORT.findall(text)
        code = _IMPORT.sub(partial(_taken, name), _EXPORT.sub("", text))
        if left := _LEFT.search(code):
            raise NotOneScript(f"{name}: {left[0].strip()}")
        parts += [f'_m["{name}"] = (() => {{', code.strip("\n"), f"return {{{', '.join(names)}}};"]
        parts.append("})();")
    script = "\n".join([*parts, "})();"])
    if re.search(r"</script|<!--", script, re.IGNORECASE):
        raise NotOneScript("the script would close its own element")
    return script


def explorer_script(entry: str = ENTRY) -> str:
    """`entry` and everything it imports."""
    found: dict[str, str] = {}
    _gather(entry, found, ())
    return joined(found)


def explorer_style() -> str:
    """The style sheets that index.html links, in its order."""
    return "\n".join(page_file(name) for name in _STYLES.findall(page_file("index.html")))


def explorer_body() -> str:
    """The body of index.html, without scripts."""
    found = _BODY.search(page_file("index.html"))
    if found is None:
        raise NotOneScript("index.html: no body")
    return _SCRIPT.sub("", found[1]).strip()


def _gather(name: str, found: dict[str, str], above: tuple[str, ...]) -> None:
    if name in found:
        return
    if name in above:
        raise NotOneScript(f"{name} imports itself through {', '.join(above)}")
    text = page_file(name)
    for _, target in _IMPORT.findall(text):
        _gather(_resolved(target, name), found, (*above, name))
    found[name] = text


def _resolved(target: str, name: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(name), target))


def _taken(name: str, found: re.Match[str]) -> str:
    """An import as a destructuring of the imported module."""
    names = [part.split(" as ") for part in found[1].split(",") if part.strip()]
    taken = ", ".join(": ".join(part.strip() for part in group) for group in names)
    return f'const {{{taken}}} = _m["{_resolved(found[2], name)}"];'


def page_file(name: str) -> str:
    """One file of the page's folder."""
    try:
        return files(_PACKAGE).joinpath(_FOLDER, *name.split("/")).read_text("utf-8")
    except FileNotFoundError:
        raise NotOneScript(f"{name}: no such file") from None
