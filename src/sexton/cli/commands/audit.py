"""Find services that run here although nothing needs them.

On a node: every service and timer, with its dependants, clients, resource usage and
restarts. In an image: what will start at boot, and which units would restart forever if
they failed. A unit is called unneeded only if what would make it needed was checked and
is not there; otherwise it is unknown.

  sexton audit                              this node, watched for 5 s
  sudo sexton audit                         also socket owners and removed cgroups
  sexton audit --root IMAGE                 a directory, tar, raw disk image or block device
  sexton audit --write-policy agents.toml   write a policy with an owner and expiry per agent
  sexton audit --policy agents.toml         report what has no owner, has expired or is new
  sexton audit --configz -                  also what the kubelet runs with (standard input)
  sexton audit --since LAST.json            only changes since --json or --save LAST.json

Read-only. Nothing in an image is executed, mounted or unpacked.
Exit: 0 no problems found, 1 problems found, 2 error, 3 could not tell.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli import output
from sexton.cli.options import add_json, seconds
from sexton.errors import CommandError, SourceAbsent, SourceError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sexton.model.audit import Audit
    from sexton.prevent.audit.changes import Before
    from sexton.prevent.audit.policy import Entry
    from sexton.prevent.kubelet import KubeletFile

#: An audit of a large node has about one megabyte, a policy far less.
_MOST_BYTES = 64 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root",
        metavar="IMAGE",
        help="audit an image instead of this node: directory, tar, raw disk image or block device",
    )
    parser.add_argument(
        "--seconds", type=seconds, metavar="N", help="how long to watch the node (default 5)"
    )
    add_json(parser)
    parser.add_argument(
        "--since", metavar="LAST.json", help="show only changes since an earlier audit"
    )
    parser.add_argument("--save", metavar="FILE", help="also write JSON to FILE, for --since")
    parser.add_argument(
        "--policy", metavar="FILE", help="check owners and expiries against a policy (TOML)"
    )
    parser.add_argument(
        "--write-policy",
        metavar="FILE",
        help="write a policy for what is here; keeps existing entries of FILE",
    )
    parser.add_argument(
        "--kubelet-out", metavar="FILE", help="write the corrected kubelet configuration"
    )
    parser.add_argument(
        "--configz",
        metavar="FILE",
        help="what the kubelet runs with: kubectl get --raw /api/v1/nodes/NODE/proxy/configz",
    )


def run(args: argparse.Namespace) -> int:
    import json
    import sys
    from datetime import date

    from sexton.prevent.audit import changes, policy
    from sexton.reports.text.audit import audit_json, audit_text, changes_text, status

    if args.root is not None and args.seconds is not None:
        raise CommandError("--seconds cannot be used with --root: nothing runs in an image")
    if args.root is not None and args.configz is not None:
        raise CommandError("--configz cannot be used with --root: no kubelet runs in an image")
    before = _before(args)
    entries = _entries(args.policy) if args.policy is not None else None
    known = _known(args)
    running = None if args.configz is None else _running(args.configz)
    found, kind = _image(args) if args.root is not None else _node(args, running)
    today = date.today()
    if entries is not None:
        found = policy.check_policy(found, entries, today)
    if args.write_policy is not None:
        _write(args.write_policy, policy.policy_text(found, known, today))
    changed = None if before is None else changes.changes(before, found)
    if args.save is not None:
        _write(args.save, json.dumps(audit_json(found), indent=2) + "\n")
    if args.json:
        output.print_json(audit_json(found, changed))
        return status(found, changed)
    width, colour = output.width(), output.colour()
    if before is not None and changed is not None:
        sys.stdout.write(changes_text(found, changed, before, width, colour))
    else:
        sys.stdout.write(audit_text(found, kind, width, colour))
    if args.write_policy is not None:
        print(f"sexton: wrote {args.write_policy}; fill in the owners", file=sys.stderr)
    return status(found, changed)


def _image(args: argparse.Namespace) -> tuple[Audit, str]:
    from dataclasses import replace

    from sexton.cli.image import confine_directory, opened, outputs_of, write_kubelet
    from sexton.cli.progress import working
    from sexton.host.host import Host
    from sexton.prevent.audit import audit

    outputs = outputs_of(args)
    with working("reading the image"), opened(args.root, outputs) as image:
        confine_directory(args.root, booted=False, outputs=outputs)
        host = Host(image.files, live=False, root=args.root)
        found = audit(host)
        if args.kubelet_out is not None:
            write_kubelet(host, args.kubelet_out)
        unread = tuple(dict.fromkeys((*image.unread, *found.unread)))
        return replace(found, notes=(*image.notes, *found.notes), unread=unread), image.kind


def _running(path: str) -> KubeletFile:
    """What the kubelet runs with, from a file or (`-`) standard input."""
    import sys

    from sexton.prevent.kubelet import running_config

    if path == "-":
        return running_config(sys.stdin.buffer.read(_MOST_BYTES).decode("utf-8", "replace"))
    content = _text(path)
    if content is None:
        raise CommandError(f"{path}: No such file or directory")
    return running_config(content)


def _node(args: argparse.Namespace, running: KubeletFile | None) -> tuple[Audit, str]:
    from sexton.cli.image import protected_rules, write_kubelet
    from sexton.cli.progress import countdown
    from sexton.host.host import open_host
    from sexton.prevent import kubelet
    from sexton.prevent.audit import audit, wanted_sources
    from sexton.record.sampler import Sampler

    span = args.seconds or 5.0
    host = open_host()
    beside = bool(kubelet.running(host))
    with Sampler(host, wanted_sources(beside)) as sampler, countdown(span) as tick:
        window = sampler.run(span, tick)
    found = audit(host, window, protected_rules(), running)
    if args.kubelet_out is not None:
        write_kubelet(host, args.kubelet_out, running)
    return found, f"watched for {span:g} s"


def _before(args: argparse.Namespace) -> Before | None:
    from sexton.prevent.audit import changes

    if args.since is None:
        return None
    content = _text(args.since)
    if content is None:
        if args.save == args.since:  # the first of regular runs: everything is new
            return changes.Before(0.0, "", {})
        raise CommandError(f"{args.since}: No such file or directory")
    return changes.parse(content, args.since)


def _known(args: argparse.Namespace) -> Sequence[Entry]:
    """Entries to keep in the policy that is written: its own, else those of --policy."""
    if args.write_policy is None:
        return ()
    return _entries(args.write_policy, required=False) or (
        _entries(args.policy) if args.policy is not None else ()
    )


def _entries(path: str, required: bool = True) -> tuple[Entry, ...]:
    from sexton.prevent.audit import policy

    content = _text(path)
    if content is None:
        if required:
            raise CommandError(f"{path}: No such file or directory")
        return ()
    return policy.parse(content, path)


def _text(path: str) -> str | None:
    """A file given by the user; `None` if it does not exist."""
    from sexton.host.reader import LiveFiles, read_regular

    try:
        return read_regular(LiveFiles(), path, _MOST_BYTES).decode("utf-8", "surrogateescape")
    except SourceAbsent:
        return None
    except SourceError as error:
        raise CommandError(f"{path}: {error.detail}") from None


def _write(path: str, content: str) -> None:
    output.write_whole(path, (content.encode("utf-8", "surrogateescape"),))
