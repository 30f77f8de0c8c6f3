"""Check a node or an image against a policy: pass or fail, for image pipelines.

Rules: memory cgroups below a limit, no crash loops, no unneeded units, no restarts without
backoff, the required cgroup version, a valid kubelet configuration. An image (directory,
tar, raw disk image) is only read, nothing in it is executed. A node is watched for 30 s.

  sexton gate                              this node, with the built-in policy
  sexton gate --root /mnt/image            an image that was never booted
  sexton gate --print-policy > gate.toml   the built-in policy, to edit and keep in git
  sexton gate --policy gate.toml --out gate.sarif --out gate.xml
                                           text here, and both reports for CI

A rule that could not be checked fails the gate, unless the policy sets on_unknown.
Exit: 0 gate passed, 1 gate failed, 2 error (bad policy, no such image).
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli import output
from sexton.cli.configuration import add_config
from sexton.cli.options import add_json_format, seconds
from sexton.errors import CommandError, SourceError

if TYPE_CHECKING:
    from sexton.host.host import Host
    from sexton.model.window import Window
    from sexton.prevent.gate import Gate, Policy
    from sexton.prevent.image import Image

FORMATS = ("text", "json", "sarif", "junit")
_BY_SUFFIX = {".sarif": "sarif", ".xml": "junit", ".json": "json", ".txt": "text"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root",
        metavar="IMAGE",
        help="check an image instead of this node: directory, tar, raw disk image or block device;"
        " or, in a container, the host's tree including its /proc",
    )
    parser.add_argument(
        "--policy", metavar="FILE", help="TOML file merged over the built-in policy (docs/gate.md)"
    )
    parser.add_argument(
        "--agents",
        metavar="FILE",
        help="policy of `sexton audit`; its entries with owner and expiry waive unneeded_units",
    )
    parser.add_argument(
        "--format", choices=FORMATS, help="output format (default: text; with --out: by suffix)"
    )
    add_json_format(parser)
    parser.add_argument(
        "--out",
        metavar="FILE",
        action="append",
        help="write a report to FILE and text to stdout; the format follows the suffix (.sarif,"
        " .xml, .json, .txt); repeatable",
    )
    parser.add_argument(
        "--seconds",
        type=seconds,
        metavar="N",
        help="how long to watch a node (default: from the policy)",
    )
    parser.add_argument(
        "--kubelet-out", metavar="FILE", help="write the corrected kubelet configuration"
    )
    parser.add_argument("--print-policy", action="store_true", help="print the built-in policy")
    add_config(parser)


def run(args: argparse.Namespace) -> int:
    import sys

    from sexton.prevent.gate import builtin_text

    if args.print_policy:
        others = ("root", "policy", "agents", "format", "out", "seconds", "kubelet_out")
        if any(getattr(args, name) is not None for name in others):
            raise CommandError("--print-policy cannot be combined with other options")
        sys.stdout.write(builtin_text())
        return 0
    formats = _formats(args)
    policy = _policy(args)
    if args.root is None or args.root == "/":
        from sexton.host.host import open_host

        return _judge(args, open_host("/"), policy, formats)
    from sexton.cli.image import opened, outputs_of
    from sexton.host.host import Host

    with opened(args.root, outputs_of(args)) as image:
        host = Host(image.files, live=False, root=args.root)
        return _judge(args, host, policy, formats, image)


def _formats(args: argparse.Namespace) -> list[tuple[str, str]]:
    """(format, file) of each --out; checked before the node is watched."""
    import os

    paths = args.out or []
    if args.format is not None and len(paths) > 1:
        raise CommandError("--format cannot be used with several --out: use file suffixes instead")
    found = []
    for path in paths:
        if path == "-":
            raise CommandError("--out needs a file name; without --out the report goes to stdout")
        form = args.format or _BY_SUFFIX.get(os.path.splitext(path)[1].lower())
        if form is None:
            raise CommandError(
                f"{path}: unknown suffix, not one of {', '.join(_BY_SUFFIX)}; add --format"
            )
        found.append((form, path))
    if len({path for _, path in found}) < len(found):
        raise CommandError("--out names the same file twice")
    return found


def _policy(args: argparse.Namespace) -> Policy:
    from dataclasses import replace

    from sexton.prevent.gate import agents_of, builtin, parse

    policy = builtin() if args.policy is None else parse(_read(args.policy), args.policy)
    if args.agents is None:
        return policy
    return replace(policy, agents=agents_of(_read(args.agents), args.agents))


def _read(path: str) -> bytes:
    """A file given by the user; never a device or a pipe, which could block."""
    from sexton.host.reader import LiveFiles, read_regular
    from sexton.prevent.gate.policy import MOST_BYTES

    try:
        return read_regular(LiveFiles(), path, MOST_BYTES)
    except SourceError as error:
        raise CommandError(f"{path}: {error.detail}") from None
    except ValueError:
        raise CommandError("a path cannot contain NUL") from None


def _judge(
    args: argparse.Namespace,
    host: Host,
    policy: Policy,
    formats: list[tuple[str, str]],
    image: Image | None = None,
) -> int:
    import datetime
    import os
    import sys
    from functools import partial

    from sexton.cli.image import confine_directory, outputs_of, protected_rules, write_kubelet
    from sexton.cli.profile.capture import deliver_text
    from sexton.cli.progress import working
    from sexton.prevent.audit import audit
    from sexton.prevent.gate import Target, is_booted, judge, os_release, require_system

    name = args.root if args.root not in (None, "/") else os.uname().nodename

    if not host.live:
        require_system(host, name)
    booted, release = is_booted(host), os_release(host)
    if not booted and args.seconds is not None:
        raise CommandError("--seconds cannot be used with an image: nothing runs in it")
    if image is not None:
        confine_directory(args.root, booted, outputs_of(args))
    window = _watch(host, args.seconds or policy.observe_seconds) if booted else None

    kind, notes, unread = ("", (), ()) if image is None else (image.kind, image.notes, image.unread)
    auditing = partial(audit, protected=protected_rules()) if host.live else audit
    target = Target(host, name, kind, booted, window, auditing, release, notes, unread)
    today = datetime.datetime.now(datetime.UTC).date()
    with working("checking"):
        gate = judge(target, policy, today)
    for form, path in formats:
        deliver_text(_report(gate, form), path)
    if args.kubelet_out is not None:
        write_kubelet(host, args.kubelet_out)
    shown = "text" if formats else args.format or "text"
    sys.stdout.write(_report(gate, shown, screen=True))
    return gate.exit


def _watch(host: Host, span: float) -> Window:
    from sexton.cli.progress import countdown
    from sexton.model.rows import cgroup, node, unit
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
    chosen = {source.id: source for source in (*sources_of(*kinds), *wanted_sources())}
    with Sampler(host, tuple(chosen.values())) as sampler, countdown(span) as tick:
        return sampler.run(span, tick)


def _report(gate: Gate, form: str, screen: bool = False) -> str:
    import json

    if form == "json":
        from sexton.reports.text.gate import gate_json

        return json.dumps(gate_json(gate), indent=2) + "\n"
    if form == "sarif":
        from sexton.reports.json.gate_ci import gate_sarif

        return json.dumps(gate_sarif(gate), indent=2) + "\n"
    if form == "junit":
        from sexton.reports.json.gate_ci import gate_junit

        return gate_junit(gate)
    from sexton.reports.text.gate import gate_text

    if not screen:
        return gate_text(gate)
    return gate_text(gate, output.width(), colour=output.colour())
