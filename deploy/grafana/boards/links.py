"""Where boards lead, and how their expressions name what was chosen in a variable.

Values of variables stand in PromQL's raw strings (backticks), unformatted or as a regular
expression: Grafana's escaping for quoted strings leaves a double quote as it is, so a name that has
one would end the string.
"""

from __future__ import annotations

from deploy.grafana.boards.parts import Link, Query

NODE_UID, FLEET_UID = "sexton-node", "sexton-fleet"

NODE = "job=`${job:raw}`, instance=`${instance:raw}`"
FLEET = "job=~`${job:regex}`"
#: A node that records nothing has a version, and one in a textfile (`export --once`) a verdict.
JOBS = 'label_values({__name__=~"sexton_build_info|sexton_verdict"}, job)'


def node_expr(text: str) -> str:
    """`text` with ``$of`` as the labels of the chosen node."""
    return text.replace("$of", NODE)


def node_query(expr: str, legend: str = "", shape: str = "range") -> Query:
    return Query(node_expr(expr), legend, shape)


def fleet_query(expr: str, legend: str = "", shape: str = "range") -> Query:
    """With ``$of`` as the labels of the chosen jobs."""
    return Query(expr.replace("$of", FLEET), legend, shape)


#: The explorer takes wall seconds; Grafana's variables are milliseconds unless formatted.
_SPAN = "#v=${__from:date:seconds},${__to:date:seconds}"
_SITE = "${scheme}://${instance}/"
_SITE_OF_ROW = "${scheme}://${__data.fields.instance}/"
_TIMES = "from=${__from}&to=${__to}"

EXPLORER_URL = _SITE + _SPAN
EXPLORER = Link("Explorer at this time", EXPLORER_URL)
#: The cursor is where the graph was clicked.
EXPLORER_AT = Link("Explorer at this point", f"{EXPLORER_URL}&at=${{__value.time:date:seconds}}")
EXPLORER_OF_ROW = Link("Explorer at this time", _SITE_OF_ROW + _SPAN)
FLEET_BOARD = Link(
    "Fleet", f"/d/{FLEET_UID}?${{datasource:queryparam}}&${{job:queryparam}}&{_TIMES}"
)
NODE_BOARD_OF_ROW = Link(
    "Node board",
    f"/d/{NODE_UID}?${{datasource:queryparam}}&${{scheme:queryparam}}"
    "&var-job=${__data.fields.job:percentencode}"
    f"&var-instance=${{__data.fields.instance:percentencode}}&{_TIMES}",
)


def runbook(field: str, site: str = _SITE) -> Link:
    """The page of the detector in a field of the row."""
    return Link("Runbook", f"{site}runbooks/${{__data.fields.{field}:percentencode}}")


def runbook_of_row(field: str) -> Link:
    return runbook(field, _SITE_OF_ROW)


#: For bars, whose names are labels and not columns.
NODE_BOARD_OF_BAR = Link(
    "Node board", NODE_BOARD_OF_ROW.url.replace("__data.fields.", "__field.labels.")
)
