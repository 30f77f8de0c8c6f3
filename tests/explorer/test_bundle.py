"""The explorer's modules as one script."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from sexton.explorer import bundle
from sexton.explorer.bundle import (
    NotOneScript,
    explorer_body,
    explorer_script,
    explorer_style,
    joined,
)
from sexton.reports.svg import colours
from sexton.reports.svg.colours import THEME, page_module, page_style

PAGE = Path(bundle.__file__).parent / "server" / "page"
node = pytest.mark.skipif(shutil.which("node") is None, reason="needs node: apt-get install nodejs")


@pytest.mark.parametrize(
    "text",
    [
        'import * as all from "./a.js";',
        'import thing from "./a.js";',
        "export default 1;",
        "export {a};",
        "export let a = 1;",
        'const a = await import("./a.js");\nimport "./b.js";',
    ],
)
def test_what_cannot_be_joined_is_refused_by_name(text: str):
    with pytest.raises(NotOneScript, match=r"^x\.js: "):
        joined({"a.js": "", "x.js": text})


def test_a_script_that_would_end_its_element_is_refused():
    with pytest.raises(NotOneScript, match="close its own element"):
        joined({"a.js": 'const a = "</SCRIPT>";'})


def test_a_module_that_is_not_there_is_named():
    with pytest.raises(NotOneScript, match=r"gone\.js"):
        explorer_script("gone.js")


@node
def test_modules_keep_their_own_names_and_take_what_they_import(tmp_path: Path):
    script = joined(
        {
            "lanes/a.js": "const own = 1;\nexport const A = own + 1;\nexport function twice(n) {\n"
            "  return n * 2;\n}\nexport class Kept {}\nexport async function later() {}\n",
            "b.js": 'import {A, twice as doubled} from "./lanes/a.js";\nconst own = 20;\n'
            "console.log(doubled(A) + own);\n",
        }
    )
    (tmp_path / "all.js").write_text(script)
    ran = subprocess.run(
        ["node", str(tmp_path / "all.js")], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.stdout, ran.stderr) == ("24\n", "")


@node
def test_the_whole_explorer_is_one_script(tmp_path: Path):
    (tmp_path / "all.js").write_text(explorer_script())
    checked = subprocess.run(
        ["node", "--check", str(tmp_path / "all.js")],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert checked.returncode == 0, checked.stderr


def test_it_begins_on_what_is_embedded_and_not_on_a_server():
    script = explorer_script()
    assert "new EmbeddedSource(" in script
    assert "start(new FetchSource())" not in script


def test_the_body_has_no_script_and_no_style_of_its_own():
    body = explorer_body()
    assert 'id="lanes"' in body
    assert "<script" not in body
    assert not re.search(r'\s(?:style|on\w+)="', body)


def test_every_style_of_the_page_is_taken_along():
    style = explorer_style()
    names = re.findall(r'rel="stylesheet" href="([^"]+)"', (PAGE / "index.html").read_text())
    assert names
    for name in names:
        assert (PAGE / name).read_text() in style
    assert "@import" not in style
    assert "url(" not in style


def test_every_colour_is_written_in_one_place():
    """Elsewhere only its variable stands, in style sheets and in what a canvas reads."""
    made = {"colours.css": page_style(), "colours.js": page_module()}
    assert {name: (PAGE / name).read_text() for name in made} == made
    texts = {
        path.name: path.read_text()
        for folder in (PAGE, Path(colours.__file__).parent)
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".css", ".js", ".html") and path.name not in made
    }
    written = {name: re.findall(r"#[0-9a-fA-F]{3,8}\b(?=[;\"' )])", texts[name]) for name in texts}
    assert not {name: found for name, found in written.items() if found}
    every = "\n".join(texts.values())
    used = {*re.findall(r"var\(--([\w-]+)", every)} - {*re.findall(r"--([\w-]+)[:\"]", every)}
    assert used <= {*THEME}
    read = {*re.findall(r'"([\w-]+)"', texts["theme.js"])}
    assert {*THEME} <= used | read
