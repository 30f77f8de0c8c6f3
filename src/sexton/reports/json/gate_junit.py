"""The gate's result as JUnit XML: one test case per rule.

A failed rule is a *failure*; a rule that could not be checked is an *error* if it fails the gate,
else *skipped*. JUnit XML has no standard; this is the subset that Jenkins, GitLab, GitHub Actions
and Azure Pipelines all read.
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
    missing = "; ".join(need.what for need in result.missing)
    if result.closes and result.outcome is Outcome.UNKNOWN:
        node = SubElement(case, "error", {"type": "unknown", "message": f"unknown: {missing}"})
        node.text = "\n".join(f"{need.what}\n    {need.grant}" for need in result.missing)
    elif result.closes:
        errors = [violation for violation in result.active if violation.level == "error"]
        first = errors[0].message if errors else result.summary
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        node = SubElement(case, "failure", {"type": "broken", "message": first + more})
        node.text = "\n\n".join(_violation(violation) for violation in result.active)
    elif result.outcome in (Outcome.UNKNOWN, Outcome.NOT_APPLICABLE, Outcome.OFF):
        why = f"unknown: {missing}" if result.outcome is Outcome.UNKNOWN else result.summary
        SubElement(case, "skipped", {"message": why})
    output = [result.summary, *result.notes]
    output += [f"waived: {_violation(violation)}" for violation in result.waived]
    if not result.closes:
        output += [f"warning: {_violation(violation)}" for violation in result.active]
    out = SubElement(case, "system-out")
    out.text = "\n".join(line for line in output if line)
    return case


def _violation(violation: Violation) -> str:
    place = f"{violation.path}:{violation.line}" if violation.line else violation.path
    waiver = violation.waived_by
    lines = [violation.message, *(f"    {fact}" for fact in (place, *violation.facts) if fact)]
    if waiver is not None:
        lines.append(f"    {waiver.owner}, until {waiver.expires}: {waiver.reason}")
    if violation.remedy:
        lines.append(f"    fix: {violation.remedy}")
    return "\n".join(lines)
