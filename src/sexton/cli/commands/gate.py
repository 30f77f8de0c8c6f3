"""May this node or image go out? A policy, checked; exit 0 or 1.

For image pipelines: memory cgroups under a limit, nothing that crash-loops, no unit that
nothing needs, no restarts without back-off, the cgroup version that is required, a kubelet
configuration that kubelet understands. An image is read as it lies there (a directory, a
tar, a raw disk image); nothing of it is run. A node is watched for 30 seconds.

  sexton gate                              this node, by the built-in policy
  sexton gate --root /mnt/image            an image that was never booted
  sexton gate --print-policy > gate.toml   the built-in policy, to change and keep in git
  sexton gate --policy gate.toml --out gate.sarif --out gate.xml
                                           the answer here, and both reports for the CI

A rule that could not be checked closes the gate, unless the policy says otherwise.
Exit: 0 the gate is open, 1 it is closed, 2 failed (bad policy, no such image).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.options import seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from sexton.host.host import Host
    from sexton.model.audit import Audit
    from sexton.model.window import Window
    from sexton.prevent.gate import Gate, Place, Policy

FORMATS = ("text", "json", "sarif", "junit")
_BY_SUFFIX = {".sarif": "sarif", ".xml": "junit", ".json": "json", ".txt": "text"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root",
        metavar="IMAGE",
        help="an image instead of this node: a directory, a tar, a raw disk image, a device;"
        " or a host's tree with its /proc, from inside a container",
    )
    parser.add_argument(
        "--policy", metavar="FILE", help="TOML laid over the built-in policy (docs/gate.md)"
    )
    parser.add_argument(
        "--agents",
        metavar="FILE",
        help="the policy of `sexton audit`: units that are meant to be here, whose, until when",
    )
    parser.add_argument(
        "--format", choices=FORMATS, help="how to tell it (default text; --out: by the suffix)"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        action="append",
        help="write it there, and text here; .sarif, .xml, .json or .txt say the format, so that"
        " several may be given",
    )
    parser.add_argument(
        "--seconds", type=seconds, metavar="N", help="how long to watch a node (default: policy)"
    )
    parser.add_argument(
        "--kubelet-out", metavar="FILE", help="write the corrected kubelet configuration there"
    )
    parser.add_argument("--print-policy", action="store_true", help="print the built-in policy")


def run(args: argparse.Namespace) -> int:
    import sys

    from sexton.errors import CommandError
    from sexton.prevent.gate import builtin_text

    if args.print_policy:
        others = (
            args.root,
            args.policy,
            args.agents,
            args.format,
            args.out,
            args.seconds,
            args.kubelet_out,
        )
        if any(each is not None for each in others):
            raise CommandError("--print-policy stands alone")
        sys.stdout.write(builtin_text())
        return 0
    formats = _formats(args)
    policy = _policy(args)
    if args.root is None or args.root == "/":
        from sexton.host.host import open_host

        return _judge(args, open_host("/"), policy, formats)
    from sexton.host.host import Host
    from sexton.prevent.image.opening import open_image

    with open_image(args.root) as image:
        host = Host(image.files, live=False, root=args.root)
        return _judge(args, host, policy, formats, (image.kind, image.notes))


def _formats(args: argparse.Namespace) -> list[tuple[str, str]]:
    """(format, file) of each report that goes to a file; checked before anything is watched."""
    import os

    from sexton.errors import CommandError

    asked = args.out or []
    if args.format is not None and len(asked) > 1:
        raise CommandError("one --format and several --out: let the files' suffixes say it")
    found = []
    for path in asked:
        if path == "-":
            raise CommandError("--out names a file; without it --format prints here")
        form = args.format or _BY_SUFFIX.get(os.path.splitext(path)[1].lower())
        if form is None:
            raise CommandError(
                f"{path}: its suffix is none of {', '.join(_BY_SUFFIX)}; say --format"
            )
        found.append((form, path))
    if len({path for _, path in found}) < len(found):
        raise CommandError("two reports into one file")
    return found


def _policy(args: argparse.Namespace) -> Policy:
    from dataclasses import replace

    from sexton.prevent.gate import builtin, parse

    policy = builtin() if args.policy is None else parse(_read(args.policy), args.policy)
    if args.agents is None:
        return policy
    from sexton.prevent.gate.agents import agents_of

    return replace(policy, agents=agents_of(_read(args.agents), args.agents))


def _read(path: str) -> bytes:
    """A file of the operator's; never a device or a pipe that could hold us up."""
    from sexton.errors import CommandError, SourceError
    from sexton.host.reader import LiveFiles
    from sexton.prevent.gate.policy import MOST_BYTES

    try:
        return LiveFiles().read(path, MOST_BYTES)
    except SourceError as error:
        raise CommandError(f"{path}: {error.detail}") from None
    except ValueError:
        raise CommandError("a path has no NUL in it") from None


def _judge(
    args: argparse.Namespace,
    host: Host,
    policy: Policy,
    formats: list[tuple[str, str]],
    image: tuple[str, tuple[str, ...]] = ("", ()),
) -> int:
    import datetime
    import sys

    from sexton.cli.progress import working
    from sexton.errors import CommandError
    from sexton.prevent.gate import is_booted, judge, os_release, require_system
    from sexton.prevent.gate.model import Place

    kind, notes = image
    name = args.root if args.root not in (None, "/") else _hostname()
    if not host.live:
        require_system(host, name)
    booted = is_booted(host)
    if not booted and args.seconds is not None:
        raise CommandError("--seconds: nothing runs in an image, so there is nothing to watch")
    window = _watch(host, args.seconds or policy.observe_seconds) if booted else None

    place = Place(host, name, kind, booted, window, _auditing(host), os_release(host), notes)
    with working("judging"):
        today = datetime.datetime.now(datetime.UTC).date()
        gate = judge(place, policy, today)
    for form, path in formats:
        _give(gate, form, path)
    if args.kubelet_out is not None:
        _kubelet(place, args.kubelet_out)
    shown = "text" if formats else args.format or "text"
    sys.stdout.write(_told(gate, shown, screen=True))
    return gate.exit


def _auditing(host: Host) -> Callable[[Host, Window | None], Audit]:
    """The audit, with the node's own list of what to leave alone; an image's is not asked."""
    from functools import partial

    from sexton.cure.protected import CONFIG, rules_of
    from sexton.errors import SourceAbsent
    from sexton.host.reader import text
    from sexton.prevent.audit import audit

    if not host.live:
        return audit
    try:
        rules = rules_of(text(host.files, CONFIG))
    except SourceAbsent:
        return audit
    return partial(audit, protected=rules)


def _hostname() -> str:
    import os

    return os.uname().nodename


def _watch(host: Host, span: float) -> Window:
    from sexton.cli.progress import countdown
    from sexton.model import cgroup, node, unit
    from sexton.prevent.audit import wanted_sources
    from sexton.record.sampler import Sampler
    from sexton.sources.registry import sources_of

    kinds = (
        cgroup.CgroupCensus,
        cgroup.CgroupEvent,
        unit.Unit,
        unit.RestartMark,
        unit.ServiceManager,
        node.Node,
    )
    chosen = {each.id: each for each in (*sources_of(*kinds), *wanted_sources())}
    with Sampler(host, tuple(chosen.values())) as sampler, countdown(span) as tick:
        return sampler.run(span, tick)


def _told(gate: Gate, form: str, screen: bool = False) -> str:
    import json
    import shutil
    import sys

    if form == "json":
        from sexton.reports.json.gate import gate_json

        return json.dumps(gate_json(gate), indent=2) + "\n"
    if form == "sarif":
        from sexton.reports.json.gate_sarif import gate_sarif

        return json.dumps(gate_sarif(gate), indent=2) + "\n"
    if form == "junit":
        from sexton.reports.json.gate_junit import gate_junit

        return gate_junit(gate)
    from sexton.reports.text.gate import gate_text

    if not screen:
        return gate_text(gate)
    width = shutil.get_terminal_size((88, 24)).columns
    return gate_text(gate, width, colour=sys.stdout.isatty())


def _give(gate: Gate, form: str, path: str) -> None:
    from sexton.cli.profile.output import give_text, written

    give_text(_told(gate, form), path)
    written(path)


def _kubelet(place: Place, out: str) -> None:
    """The corrected configuration; where a drop-in directory has several, the main one."""
    import sys

    from sexton.cli.profile.output import give_text, written
    from sexton.model.text import printable
    from sexton.prevent.kubelet import corrected, inspect

    for file in inspect(place.host):
        text = corrected(file)
        if text is not None:
            give_text(text, out)
            written(out)
            return
    print(
        f"sexton: {printable(out)} not written: no kubelet configuration that could be read",
        file=sys.stderr,
    )
