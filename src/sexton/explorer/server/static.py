"""The page's files, read once at the start.

A request is looked up by its full path among the files found then: no path traversal, no symlinks,
no directory listing.

The page has some forty small modules, which take a browser a third of a second to load one by
one. So ``/`` loads them joined into one script; ``/index.html`` loads the modules separately, for
development.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from sexton.explorer.bundle import explorer_script, explorer_style
from sexton.explorer.server.documents import AGAIN, Body, body_of

#: Served file types.
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
}
INDEX = "/index.html"
#: All modules and all style sheets joined.
SCRIPT, STYLE = "/all.js", "/all.css"
_ONE_BY_ONE = re.compile(
    r'<link rel="(?:modulepreload|stylesheet)"[^>]*>\n|<script[^>]*></script>\n'
)
_TOGETHER = f"""<link rel="stylesheet" href="{STYLE[1:]}">
<script type="module" src="{SCRIPT[1:]}"></script>
</head>"""


class StaticFiles:
    """Every file by its path, plain and compressed."""

    def __init__(self, folder: Path | None = None) -> None:
        place = Path(str(files("sexton.explorer.server") / "page")) if folder is None else folder
        self._files: dict[str, tuple[Body, Body]] = {}
        for path in sorted(place.rglob("*")):
            if path.suffix in TYPES and path.is_file() and not path.is_symlink():
                name = "/" + path.relative_to(place).as_posix()
                self._keep(name, path.read_bytes(), path.suffix)
        if folder is None:
            index = (place / INDEX[1:]).read_text("utf-8")
            together = _ONE_BY_ONE.sub("", index).replace("</head>", _TOGETHER, 1)
            self._keep("/", together.encode(), ".html")
            self._keep(SCRIPT, explorer_script("boot.js").encode(), ".js")
            self._keep(STYLE, explorer_style().encode(), ".css")
        elif INDEX in self._files:
            self._files["/"] = self._files[INDEX]

    def _keep(self, name: str, content: bytes, suffix: str) -> None:
        plain, gzipped = (
            body_of(content, TYPES[suffix], AGAIN, gzipped=gzipped) for gzipped in (False, True)
        )
        self._files[name] = plain, gzipped

    @property
    def names(self) -> list[str]:
        return sorted(self._files)

    def get(self, path: str, gzipped: bool) -> Body | None:
        """The file, or None."""
        found = self._files.get(path)
        return None if found is None else found[gzipped]
