"""What runs or will run here that nothing needs?

On a node: every service and timer, with who depends on it, who is connected to it, what
it used, how often it restarted. In an image: what will start at its boot, and which units
would restart for ever once they fail. Unknown is an answer; a unit is called unneeded
only where what would make it needed was looked for and is not there.

  sexton audit                              this node, five seconds
  sudo sexton audit                         with every socket's owner and cgroup deaths
  sexton audit --root IMAGE                 a directory, a tar, a raw disk image or a disk
  sexton audit --write-policy agents.toml   an owner and an expiry for each, to keep in git
  sexton audit --policy agents.toml         what has no owner, has expired, or is new
  sexton audit --since LAST.json            only what changed since --json or --save LAST.json

Nothing is changed, and nothing of an image is run, mounted or unpacked.
Exit: 0 nothing was found, 1 something was, 2 failed, 3 could not tell.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sexton.cli.options import add_json, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sexton.cure.protected import Rule
    from sexton.host.host import Host
    from sexton.model.audit import Audit
    from sexton.prevent.audit.changes import Before
    from sexton.prevent.audit.policy import Entry

#: An audit of a large node is about one megabyte; a policy far less.
_MOST_BYTES = 64 << 20


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root",
        metavar="IMAGE",
        help="a directory, a tar, a raw disk image or a block device, instead of this node",
    )
    parser.add_argument(
        "--seconds", type=seconds, metavar="N", help="how long to watch the node (default 5)"
    )
    add_json(parser)
    parser.add_argument("--since", metavar="LAST.json", help="show only what changed since then")
    parser.add_argument(
        "--save", metavar="FILE", help="also write the JSON to FILE, for a later --since"
    )
    parser.add_argument("--policy", metavar="FILE", help="check owners and expiries (TOML)")
    parser.add_argument(
        "--write-policy",
        metavar="FILE",
        help="write a policy of what is here; keeps what FILE already says",
    )
    parser.add_argument(
        "--kubelet-out", metavar="FILE", help="write kubelet's configuration, corrected"
    )


def run(args: argparse.Namespace) -> int:
    import json
    import shutil
    import sys
    from datetime import date

    from sexton.errors import CommandError
    from sexton.prevent.audit import changes, policy
    from sexton.reports.json.audit import audit_json
    from sexton.reports.text.audit import audit_text, changes_text, status

    if args.root is not None and args.seconds is not None:
        raise CommandError("an image does not move: --seconds says nothing with --root")
    before = _before(args)
    entries = _entries(args.policy) if args.policy is not None else None
    known = _known(args)
    found, kind = _image(args) if args.root is not None else _node(args)
    today = date.today()
    if entries is not None:
        found = policy.checked(found, entries, today)
    if args.write_policy is not None:
        _write(args.write_policy, policy.written(found, known, today))
    changed = None if before is None else changes.changes(before, found)
    if args.save is not None:
        _write(args.save, json.dumps(audit_json(found), indent=2) + "\n")
    if args.json:
        json.dump(audit_json(found, changed), sys.stdout, indent=2)
        sys.stdout.write("\n")
        return status(found, changed)
    width = shutil.get_terminal_size((88, 24)).columns
    colour = sys.stdout.isatty()
    if before is not None and changed is not None:
        sys.stdout.write(changes_text(found, changed, before, width, colour))
    else:
        sys.stdout.write(audit_text(found, kind, width, colour))
    if args.write_policy is not None:
        print(f"sexton: wrote {args.write_policy}: fill in the owners", file=sys.stderr)
    return status(found, changed)


def _image(args: argparse.Namespace) -> tuple[Audit, str]:
    """An image's audit; its files are held only as long as that takes."""
    from dataclasses import replace

    from sexton.cli.progress import working
    from sexton.host.host import Host
    from sexton.prevent.audit import audit
    from sexton.prevent.image.opening import open_image

    with working("reading the image"), open_image(args.root) as image:
        host = Host(image.files, live=False, root=args.root)
        found = audit(host, None, _protected(None))
        _mend_kubelet(host, args.kubelet_out)
        return replace(found, notes=(*image.notes, *found.notes)), image.kind


def _node(args: argparse.Namespace) -> tuple[Audit, str]:
    from sexton.cli.progress import countdown
    from sexton.host.host import open_host
    from sexton.prevent.audit import audit, wanted_sources
    from sexton.record.sampler import Sampler

    span = args.seconds or 5.0
    host = open_host()
    with Sampler(host, wanted_sources()) as sampler, countdown(span, "watching") as tick:
        window = sampler.run(span, tick)
    found = audit(host, window, _protected("/"))
    _mend_kubelet(host, args.kubelet_out)
    return found, f"{span:g} s watched"


def _mend_kubelet(host: Host, path: str | None) -> None:
    """The corrected configuration; of several the first that could be read."""
    import sys

    from sexton.model.text import printable
    from sexton.prevent.kubelet import corrected, inspect

    if path is None:
        return
    for file in inspect(host):
        mended = corrected(file)
        if mended is not None:
            _write(path, mended)
            print(f"sexton: wrote {printable(path)}: {file.path}, corrected", file=sys.stderr)
            return
    print("sexton: no kubelet configuration that could be read: not written", file=sys.stderr)


def _protected(root: str | None) -> tuple[Rule, ...]:
    """The node's own list; an image is somebody else's word."""
    from sexton.cure.protected import CONFIG, rules_of

    content = _text(CONFIG) if root is not None else None
    return () if content is None else rules_of(content)


def _before(args: argparse.Namespace) -> Before | None:
    from sexton.errors import CommandError
    from sexton.prevent.audit import changes

    if args.since is None:
        return None
    content = _text(args.since)
    if content is None:
        if args.save == args.since:  # the first of many runs: everything is new
            return changes.Before(0.0, "", {})
        raise CommandError(f"{args.since}: No such file or directory")
    return changes.parse(content, args.since)


def _known(args: argparse.Namespace) -> Sequence[Entry]:
    """What the policy that is to be written says already, or the one that is checked."""
    if args.write_policy is None:
        return ()
    return _entries(args.write_policy, there=False) or (
        _entries(args.policy) if args.policy is not None else ()
    )


def _entries(path: str, there: bool = True) -> tuple[Entry, ...]:
    from sexton.errors import CommandError
    from sexton.prevent.audit import policy

    content = _text(path)
    if content is None:
        if there:
            raise CommandError(f"{path}: No such file or directory")
        return ()
    return policy.parse(content, path)


def _text(path: str) -> str | None:
    """A file of the user's own; `None` where there is none."""
    from sexton.errors import CommandError, SourceAbsent, SourceError
    from sexton.host.reader import LiveFiles, text

    try:
        return text(LiveFiles(), path, _MOST_BYTES)
    except SourceAbsent:
        return None
    except SourceError as error:
        raise CommandError(f"{path}: {error.detail}") from None


def _write(path: str, content: str) -> None:
    from sexton.cli.output import write_whole

    write_whole(path, (content.encode("utf-8", "surrogateescape"),), mode=None)
