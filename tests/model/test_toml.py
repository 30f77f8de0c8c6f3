"""Long names in TOML, which its parser takes quadratic time for."""

from __future__ import annotations

import pytest

from sexton.model.toml import parse_toml


@pytest.mark.parametrize("part", ["a", '"a"', "'a.b'", '"\\""', '""', "a-1", " a "])
@pytest.mark.parametrize("form", ["{} = 1", "[{}]", "[[{}]]", "x = {{ {} = 1 }}"])
def test_a_name_of_thousands_of_parts_is_refused_before_it_is_parsed(part: str, form: str):
    """Of 50,000 parts, 100 kB, each took more than a minute."""
    with pytest.raises(ValueError, match="more than 50 parts"):
        parse_toml(form.format(".".join([part] * 50_000)))


@pytest.mark.parametrize("part", ["a", '"a"', "'a.b'", '"\\""'])
def test_a_name_of_fifty_parts_is_read(part: str):
    assert parse_toml(".".join([part] * 50) + " = 1")


def test_what_is_long_and_no_name_is_read():
    text = "# " + "." * 5000 + "\na = '" + "1.5, " * 5000 + "'\nb = [" + "1.5, " * 5000 + "]\n"
    assert sorted(parse_toml(text)) == ["a", "b"]
