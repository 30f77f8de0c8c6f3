"""YAML and JSON from files nobody vouches for."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sexton.prevent.kubelet.tree import MOST_DEPTH, LibraryMissing, TreeError, read_tree


def test_a_mapping_knows_its_lines() -> None:
    tree, form = read_tree("# head\na: 1\nb:\n  c: yes\n  d: [x, y]\n\n# of e\ne: '2'\n")
    assert form == "yaml"
    assert tree.plain == {"a": 1, "b": {"c": True, "d": ["x", "y"]}, "e": "2"}
    assert {name: entry.line for name, entry in tree.entries.items()} == {"a": 2, "b": 3, "e": 8}
    assert tree.entries["b"].node.entries["c"].line == 4


def test_json_knows_its_lines_too_and_may_be_indented_with_tabs() -> None:
    tree, form = read_tree('{\n\t"a": {"b": 1},\n\t"c": "a",\n\t"b": [1, 2.5, null]\n}\n')
    assert form == "json"
    assert tree.plain == {"a": {"b": 1}, "c": "a", "b": [1, 2.5, None]}
    assert [(name, entry.line) for name, entry in tree.entries.items()] == [
        ("a", 2),
        ("c", 3),
        ("b", 4),
    ]


def test_a_flow_mapping_that_is_no_json_is_yaml() -> None:
    assert read_tree("{a: 1}")[0].plain == {"a": 1}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", "line 3: 'a' is a duplicate key"),
        ('{"a": 1, "a": 2}', "'a' is a duplicate key"),
        ("a: &x 1\nb: *x\n", "line 1: anchors and aliases are not supported"),
        ("a: 1\n---\nb: 2\n", "line 2: more than one document"),
        ("a: [1, 2", "invalid YAML"),
        ("a: !!python/object/apply:os.system ['true']", "tag"),
        ("a: !!binary aGk=", "tag"),
        ("? [a]\n: 1\n", "must be a string"),
        ("'': 1\n", "empty key"),
        ("", "empty document"),
        ("# only a comment\n", "empty document"),
        ('{"a": ', "invalid JSON"),
        ('{"a": NaN}', "NaN"),
        ('{"a": ' + "1" * 6000 + "}", "6,000 digits"),
        ("a: " + "1" * 6000, "6,000 digits"),
        ("a:\n" + "".join(" " * n + "a:\n" for n in range(1, 60)), "levels deep"),
        ("[" * 5000, "levels deep"),
        ('{"a":' * 5000 + "1" + "}" * 5000, "levels deep"),
        ("[" + "1," * 30_000 + "1]", "values"),
        ("a: \x07\n", "invalid YAML"),
        ("a:\tb\n\tc: d\n", "invalid YAML"),
    ],
)
def test_what_is_no_tree_is_told_in_a_line(text: str, message: str) -> None:
    with pytest.raises(TreeError) as error:
        read_tree(text)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_without_the_library_yaml_is_said_to_need_it_and_json_is_read(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(LibraryMissing, match="sexton\\[gate\\]"):
        read_tree("a: 1\n")
    assert read_tree('{"a": 1}')[0].plain == {"a": 1}


@given(st.text(alphabet="abc:-[]{}#&*!|>'\"\\\n\t 019.~?,\u2028\x00", max_size=200))
def test_junk_is_a_tree_or_a_tree_error(text: str) -> None:
    try:
        tree, _ = read_tree(text)
    except TreeError:
        return
    assert tree.line >= 1


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(10**9), 10**9) | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.text(min_size=1, max_size=5), inner, max_size=3)
        ),
        max_leaves=10,
    )
)
def test_what_json_says_is_what_is_read(value: object) -> None:
    import json

    text = json.dumps({"top": value})
    assert read_tree(text)[0].plain == {"top": value}


def test_depth_is_bounded_where_it_says() -> None:
    fits = '{"a":' * (MOST_DEPTH - 1) + "1" + "}" * (MOST_DEPTH - 1)
    assert read_tree(fits)[1] == "json"
