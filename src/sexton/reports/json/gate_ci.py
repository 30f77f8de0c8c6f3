"""The gate's result for CI systems: SARIF 2.1.0 (OASIS) for code scanning, and JUnit XML.

SARIF: each violation is a result; waived ones have a suppression. A rule that could not be checked
is also a result if it fails the gate, because tools that read only results must not take its
absence for a pass; other unchecked rules are notifications of the run. Passes are not results:
common viewers show every result as an alert. `partialFingerprints` is made of rule, subject and
path, without measured values, so that the same problem stays the same alert from run to run.

JUnit XML: one test case per rule. A failed rule is a *failure*; a rule that could not be checked is
an *error* if it fails the gate, else *skipped*. The format has no standard; this is the subset that
Jenkins, GitLab, GitHub Actions and Azure Pipelines all read.
"""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import quote
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from sexton import __version__
from sexton.model.text import printable
from sexton.prevent.gate.model import WAIVERS, Gate, Outcome, Result, Violation
from sexton.prevent.gate.rules import all_rules

VERSION = "2.1.0"
SCHEMA = (
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
)
_BASE = "IMAGE"
_PRINT = "sextonGate/v1"
_WAIVERS_PAGE = (
    "No waiver has expired or runs too long.\n\nAn expired waiver fails the gate even if nothing"
    " needs it any more: its owner must renew or delete it. So does one that ends more than"
    " waiver_days ahead."
)


def gate_sarif(gate: Gate) -> dict[str, Any]:
    """Plain dicts and lists, ready for `json.dumps`."""
    index = {result.rule: number for number, result in enumerate(gate.results)}
    results = [other for result in gate.results for other in _results(result, index)]
    notices = [notice for result in gate.results for notice in _notices(result, index)]
    ended = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(gate.made_unix))
    return {
        "$schema": SCHEMA,
        "version": VERSION,
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "sexton",
                        "version": __version__,
                        "rules": [_rule(result) for result in gate.results],
                    }
                },
                "automationDetails": {"id": f"sexton-gate/{_segment(gate.place)}"},
                "originalUriBaseIds": {_BASE: {"uri": "file:///"}},
                "invocations": [
                    {
                        "executionSuccessful": True,
                        "exitCode": gate.exit,
                        "endTimeUtc": ended,
                        "toolExecutionNotifications": notices,
                    }
                ],
                "results": results,
                "properties": {
                    "place": gate.place,
                    "os": gate.os,
                    "booted": gate.booted,
                    "policy": gate.policy,
                    "passed": gate.passed,
                },
            }
        ],
    }


def _rule(result: Result) -> dict[str, Any]:
    pages = {rule.id: rule.page for rule in all_rules()}
    page = pages.get(result.rule, _WAIVERS_PAGE)
    return {
        "id": result.rule,
        "name": result.rule,
        "shortDescription": {"text": f"{result.title}."},
        "fullDescription": {"text": " ".join(page.split())},
        "help": {"text": page},
        "defaultConfiguration": {"level": _level(result.level)},
        "properties": {"tags": ["image", "linux", "reliability"]},
    }


def _results(result: Result, index: dict[str, int]) -> list[dict[str, Any]]:
    results = [_violation(violation, result, index) for violation in result.violations]
    if result.outcome is Outcome.UNKNOWN and result.closes:
        what = "; ".join(need.what for need in result.missing)
        lack = Violation("could not be checked", f"{result.rule} could not be checked: {what}", "")
        results.append(_violation(lack, result, index))
    return results


def _violation(violation: Violation, result: Result, index: dict[str, int]) -> dict[str, Any]:
    serious = violation.level == "error" and result.level == "error"
    parts = [violation.message]
    parts += [f"Evidence: {fact}" for fact in violation.facts]
    if violation.remedy:
        parts.append(f"Fix: {violation.remedy}")
    output: dict[str, Any] = {
        "ruleId": result.rule,
        "ruleIndex": index[result.rule],
        "kind": "fail",
        "level": "error" if serious else "warning",
        "message": {"text": "\n".join(parts)},
        "locations": [_location(violation, result.rule)],
        "partialFingerprints": {_PRINT: violation.fingerprint(result.rule)},
    }
    waiver = violation.waived_by
    if waiver is not None:
        output["suppressions"] = [
            {
                "kind": "external",
                "status": "accepted",
                "justification": printable(
                    f"waived by {waiver.owner} until {waiver.expires}: {waiver.reason}"
                ),
            }
        ]
    return output


def _location(violation: Violation, rule: str) -> dict[str, Any]:
    """Viewers want a file and a line even if the whole node is meant."""
    path = violation.path if violation.path.startswith("/") else ""
    if rule == WAIVERS:  # the policy file is not part of the image
        artifact: dict[str, Any] = {"uri": quote(violation.path) or "sexton-policy.toml"}
    else:
        artifact = {"uri": quote(path.lstrip("/")) or "etc/os-release", "uriBaseId": _BASE}
    return {
        "physicalLocation": {
            "artifactLocation": artifact,
            "region": {"startLine": max(violation.line, 1)},
        },
        "logicalLocations": [{"name": violation.subject, "kind": "resource"}],
    }


def _notices(result: Result, index: dict[str, int]) -> list[dict[str, Any]]:
    notices: list[dict[str, Any]] = []

    def notice(level: str, text: str) -> None:
        rule = {"id": result.rule, "index": index[result.rule]}
        notices.append({"level": level, "message": {"text": text}, "associatedRule": rule})

    if result.outcome in (Outcome.NOT_APPLICABLE, Outcome.OFF):
        notice("note", f"{result.rule} was not checked: {result.summary}")
    for lack in result.missing:
        grant = f" ({lack.grant})" if lack.grant else ""
        notice("warning", f"{result.rule} could not be checked: {lack.what}{grant}")
    for note in result.notes:
        notice("note", f"{result.rule}: {note}")
    return notices


def _level(level: str) -> str:
    return level if level in ("error", "warning") else "note"


def _segment(place: str) -> str:
    """Part of the run's category; GitHub splits the id at its last slash."""
    return quote(place.strip("/").replace("/", "_")) or "node"


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
    case.attrib = {"name": result.rule, "classname": "sexton.gate", "time": f"{result.spent_s:.3f}"}
    missing = "; ".join(need.what for need in result.missing)
    if result.closes and result.outcome is Outcome.UNKNOWN:
        node = SubElement(case, "error", {"type": "unknown", "message": f"unknown: {missing}"})
        node.text = "\n".join(f"{need.what}\n    {need.grant}".rstrip() for need in result.missing)
    elif result.closes:
        errors = [violation for violation in result.active if violation.level == "error"]
        first = errors[0].message if errors else result.summary
        more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
        node = SubElement(case, "failure", {"type": "broken", "message": first + more})
        node.text = "\n\n".join(_violation_text(violation) for violation in result.active)
    elif result.outcome in (Outcome.UNKNOWN, Outcome.NOT_APPLICABLE, Outcome.OFF):
        why = f"unknown: {missing}" if result.outcome is Outcome.UNKNOWN else result.summary
        SubElement(case, "skipped", {"message": why})
    output = [result.summary, *result.notes]
    output += [f"waived: {_violation_text(violation)}" for violation in result.waived]
    if not result.closes:
        output += [f"warning: {_violation_text(violation)}" for violation in result.active]
    out = SubElement(case, "system-out")
    out.text = "\n".join(line for line in output if line)
    return case


def _violation_text(violation: Violation) -> str:
    place = f"{violation.path}:{violation.line}" if violation.line else violation.path
    waiver = violation.waived_by
    lines = [violation.message, *(f"    {fact}" for fact in (place, *violation.facts) if fact)]
    if waiver is not None:
        lines.append(f"    {waiver.owner}, until {waiver.expires}: {waiver.reason}")
    if violation.remedy:
        lines.append(f"    fix: {violation.remedy}")
    return "\n".join(lines)
