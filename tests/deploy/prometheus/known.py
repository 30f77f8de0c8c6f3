"""The metrics that rules may use, and what a PromQL expression uses."""

from __future__ import annotations

import re

from sexton.export.families import FAMILIES

#: The labels of every series that the exporter serves, by name; and what Prometheus adds itself.
LABELS = {"up": set[str]()}
for _family in FAMILIES:
    _parts = ("_bucket", "_count", "_sum") if _family.buckets else ("",)
    for _part in _parts:
        _bound = {"le"} if _part == "_bucket" else set()
        LABELS[_family.name + _part] = {*_family.labels, *_bound}
#: Labels that any target has.
TARGET = {"job", "instance"}

_WORDS = {"and", "or", "unless", "bool", "offset", "by", "without", "on", "ignoring"}
_WORDS |= {"group_left", "group_right"}


def metrics(expression: str) -> set[str]:
    """The names of metrics in an expression.

    >>> sorted(metrics('sum by (a) (rate(x_total{b="y"}[5m])) and on (c) i:z:ratio == bool 1e3'))
    ['i:z:ratio', 'x_total']
    """
    text = re.sub(r'"(?:[^"\\]|\\.)*"', "", expression)
    text = re.sub(r"\{[^}]*\}|\[[^]]*\]|\boffset\s+\w+|#.*", "", text)
    grouping = r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)"
    text = re.sub(grouping, " ", text)
    names = re.findall(r"(?<![\w:.])([a-zA-Z_:][\w:]*)(?!\s*\(|[\w:])", text)
    return {name for name in names if name not in _WORDS}


def selectors(expression: str) -> list[tuple[str, set[str]]]:
    """Every name that has labels in braces, with these labels.

    >>> [(name, sorted(labels)) for name, labels in selectors('x{b="c", a!~"d{}"} / y{}')]
    [('x', ['a', 'b']), ('y', [])]
    """
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    found = re.findall(r"([a-zA-Z_:][\w:]*)\{([^}]*)\}", text)
    return [(name, set(re.findall(r"(\w+)\s*[=!]", labels))) for name, labels in found]


def queries(template: str) -> list[str]:
    """The PromQL in a Prometheus template, with what `printf` fills in left empty.

    >>> queries('{{ with query (printf "up{job=%q}" $labels.job) }}{{ . | first }}{{ end }}')
    ['up{job=""}']
    """
    found = re.findall(r'query \(?(?:printf )?"((?:[^"\\]|\\.)*)"', template)
    return [query.replace("%q", '""').replace('\\"', '"') for query in found]
