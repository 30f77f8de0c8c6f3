"""The page's files without a browser: the report puts all modules into one script."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from tests.explorer.server.browser.synthetic import PAGE

MODULES = sorted(PAGE.rglob("*.js"))
IMPORT = re.compile(r'import \{[\w, ]+\} from "(\.{1,2}/[\w/]+\.js)";')


def names(path: Path) -> str:
    return str(path.relative_to(PAGE))


@pytest.mark.parametrize("path", sorted(p for p in PAGE.rglob("*") if p.is_file()), ids=names)
def test_a_file_of_the_page_has_at_most_400_lines(path: Path):
    assert len(path.read_bytes().splitlines()) <= 400


@pytest.mark.parametrize("path", MODULES, ids=names)
def test_a_module_is_typed_and_says_what_it_is(path: Path):
    first, second, *_ = path.read_text().splitlines()
    assert first == "// @ts-check"
    assert second.startswith("// ")


@pytest.mark.parametrize("path", MODULES, ids=names)
def test_imports_are_single_lines_of_files_that_are_there(path: Path):
    for line in path.read_text().splitlines():
        if line.startswith("import"):
            found = IMPORT.fullmatch(line)
            assert found, line
            assert (path.parent / found[1]).is_file()
        assert not line.startswith("export default")
        assert not re.match(r"export \{", line)
    assert "import(" not in re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)


def test_no_two_modules_have_a_name_in_common():
    pattern = r"^(?:export )?(?:async )?(?:function|class|const|let) (\w+)"
    found = [
        name for path in MODULES for name in re.findall(pattern, path.read_text(), re.MULTILINE)
    ]
    assert [name for name, count in Counter(found).items() if count > 1] == []


def test_nothing_is_inserted_as_html_and_nothing_comes_from_elsewhere():
    for path in MODULES:
        text = path.read_text()
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text
        )
        assert not re.search(r"https?://(?!www\.w3\.org/)", text), path
    shell = (PAGE / "index.html").read_text()
    assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|\son\w+=|https?://", shell)


def test_every_element_that_a_module_asks_for_is_in_the_shell():
    shell = (PAGE / "index.html").read_text()
    asked = {
        found
        for path in MODULES
        if path.name not in ("tour.js", "report_boot.js", "embedded.js")
        for found in re.findall(r'byId\("(\w+)"\)', path.read_text())
    }
    assert asked
    assert {found for found in asked if f'id="{found}"' not in shell} == set()


def test_every_button_of_the_shell_does_something():
    actions = (PAGE / "actions.js").read_text()
    wanted = re.findall(r'data-do="(\w+)"', (PAGE / "index.html").read_text())
    assert len(wanted) > 10
    assert [
        attribute for attribute in wanted if not re.search(rf"\b{attribute}: \(", actions)
    ] == []


def test_every_key_of_the_help_does_something():
    keys = (PAGE / "keys.js").read_text()
    listed = re.findall(r'\], "(\w+)", "', keys)
    actions = (PAGE / "actions.js").read_text()
    assert len(listed) > 30
    missing = [match for match in listed if not re.search(rf"\b{match}: \(", actions)]
    assert missing == ["fold"]  # Enter on a button folds by itself
