"""JUnit XML: one test case per rule, as CI servers show them.

Broken is a *failure*, could not be checked and counts an *error*, not checked and does not count
*skipped*. There is no one standard; what is written here is the part that Jenkins, GitLab, GitHub's
actions and Azure Pipelines all read.
"""

from __future__ import annotations

import time
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from sexton.prevent.gate.model import Gate, Outcome, Result, Violation

_CLASS = "sexton.gate"


def gate_junit(gate: Gate) -> str:
    """The document, with its declaration."""
    suite = Element("testsuite")
    cases = [_case(result) for result in gate.results]
    spent = sum(result.spent_s for result in gate.results) + gate.watched_s
    suite.attrib = {
        "name": "sexton gate",
        "tests": str(len(cases)),
        "failures": _tagged(cases, "failure"),
        "errors": _tagged(cases, "error"),
        "skipped": _tagged(cases, "skipped"),
        "time": f"{spent:.3f}",
        "timestamp": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(gate.made_unix)),
        "hostname": gate.place,
    }
    properties = SubElement(suite, "properties")
    for name, value in (
        ("place", gate.place),
        ("os", gate.os),
        ("booted", str(gate.booted).lower()),
        ("policy", gate.policy),
    ):
        SubElement(properties, "property", {"name": name, "value": value})
    suite.extend(cases)
    whole = Element("testsuites")
    for name in ("name", "tests", "failures", "errors", "skipped", "time"):
        whole.set(name, suite.get(name, ""))
    whole.append(suite)
    indent(whole)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + tostring(whole, "unicode") + "\n"


def _tagged(cases: list[Element], tag: str) -> str:
    return str(sum(case.find(tag) is not None for case in cases))


def _case(result: Result) -> Element:
    case = Element("testcase")
    case.attrib = {"name": result.rule, "classname": _CLASS, "time": f"{result.spent_s:.3f}"}
    lacking = "; ".join(each.what for each in result.missing)
    if result.closes and result.outcome is Outcome.UNKNOWN:
        told = SubElement(case, "error", {"type": "unknown", "message": f"unknown: {lacking}"})
        told.text = "\n".join(f"{each.what}\n    {each.grant}" for each in result.missing)
    elif result.closes:
        broken = [each for each in result.broken if each.level == "error"]
        first = broken[0].message if broken else result.summary
        more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
        told = SubElement(case, "failure", {"type": "broken", "message": first + more})
        told.text = "\n\n".join(_violation(each) for each in result.broken)
    elif result.outcome in (Outcome.UNKNOWN, Outcome.NOT_APPLICABLE, Outcome.OFF):
        why = f"unknown: {lacking}" if result.outcome is Outcome.UNKNOWN else result.summary
        SubElement(case, "skipped", {"message": why})
    said = [result.summary, *result.notes]
    said += [f"waived: {_violation(each)}" for each in result.waived]
    if not result.closes:
        said += [f"warning: {_violation(each)}" for each in result.broken]
    out = SubElement(case, "system-out")
    out.text = "\n".join(line for line in said if line)
    return case


def _violation(violation: Violation) -> str:
    place = f"{violation.path}:{violation.line}" if violation.line else violation.path
    waiver = violation.waived_by
    lines = [violation.message, *(f"    {fact}" for fact in (place, *violation.facts) if fact)]
    if waiver is not None:
        lines.append(f"    {waiver.owner}, until {waiver.expires}: {waiver.reason}")
    if violation.remedy:
        lines.append(f"    to do: {violation.remedy}")
    return "\n".join(lines)
