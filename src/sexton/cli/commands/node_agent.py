"""On a Kubernetes node: record, and report the verdict to the API server.

The recorder of `sexton record` with a reporter beside it. The reporter has the last five
minutes judged every five minutes, every two while there is a problem, and at once after an
alarm. It keeps on its Node

  the condition SextonHealthy     True healthy, False a problem, Unknown cannot tell;
                                  reason: the root cause; message: its chain
  an event for each cause chain   created once, counted up while the chain goes on

and writes nothing else. It patches on a change, and every five minutes as a heartbeat.

  sexton node-agent /var/lib/sexton               in a pod, with its service account
  sexton node-agent DIR --kubeconfig FILE         outside of one
  sexton node-agent DIR --npd /run/sexton/npd     also for node-problem-detector
  sexton node-agent DIR --npd FILE --no-api       only for it

The rights it needs, and a policy that narrows them to its own node, are in
deploy/kubernetes.
"""

from __future__ import annotations

import argparse

from sexton.cli.cluster import access_of, add_kubeconfig, add_node, node_name
from sexton.cli.commands.record import add_directory, add_recorder
from sexton.cli.configuration import VARIABLE, add_config
from sexton.cli.options import need_recorder
from sexton.errors import CommandError

#: Of the process that judges: Python, Arrow and five minutes take 115 MB.
_JUDGE_BYTES, _JUDGE_CPU_S = 600 << 20, 60


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_directory(parser)
    add_node(parser)
    add_kubeconfig(parser)
    parser.add_argument(
        "--npd", metavar="FILE", help="write the verdict for sexton npd, like /run/sexton/npd"
    )
    parser.add_argument("--no-api", action="store_true", help="report to no API server")
    add_recorder(parser)
    add_config(parser)
    parser.add_argument("--agent-part", choices=("report", "judge"), help=argparse.SUPPRESS)
    parser.add_argument("--agent-server", metavar="HOST:PORT", help=argparse.SUPPRESS)


def run(args: argparse.Namespace) -> int:
    if args.agent_part == "judge":
        return _judge(args)
    if args.agent_part == "report":
        return _report(args)
    from sexton.agent.companion import reporter
    from sexton.cli.commands.record import record, recorder_of

    need_recorder()
    arguments = _handed_on(args)
    options, made = recorder_of(args)
    made.append(lambda place: reporter(place, arguments))
    return record(options, made)


def _handed_on(args: argparse.Namespace) -> list[str]:
    """The reporter's options. Its environment is empty, so what is there is read here."""
    import os

    config = os.environ.get(VARIABLE) if args.config is None else args.config
    handed = {"--config": config, "--npd": args.npd}
    if args.no_api:
        if args.npd is None:
            raise CommandError("--no-api leaves nothing to do without --npd FILE")
    else:
        handed["--node"] = node_name(args.node)
        handed["--kubeconfig"] = args.kubeconfig
        access = access_of(args.kubeconfig, os.environ)
        if access is None:
            raise CommandError("not in a pod: use --kubeconfig FILE (or --no-api with --npd FILE)")
        if args.kubeconfig is None:
            handed["--agent-server"] = f"{access.place.host} {access.place.port}"
    return [word for name, value in handed.items() if value is not None for word in (name, value)]


def _judge(args: argparse.Namespace) -> int:
    """Print the verdict on the last minutes as JSON."""
    from pathlib import Path

    from sexton.sandbox import Limits, confine, expendable

    expendable()
    confine(Limits(_JUDGE_BYTES, _JUDGE_CPU_S, what=args.directory), quiet=True)
    from sexton.agent.judging import judge  # imports Arrow

    print(judge(Path(args.directory)).to_json())
    return 0


def _report(args: argparse.Namespace) -> int:
    """Watch the recording, and report, until the recorder ends."""
    import time
    from pathlib import Path

    from sexton.agent.companion import JUDGE, part_command
    from sexton.agent.reporter import Reporter
    from sexton.agent.watch import Parts, Recorder, judged_by, run, status_reader
    from sexton.cluster.access import HOST, PORT
    from sexton.cluster.client import ApiServer

    reporter = None
    if args.node is not None:
        host, _, port = (args.agent_server or "").partition(" ")
        access = access_of(args.kubeconfig, {HOST: host, PORT: port})
        assert access is not None
        reporter = Reporter(args.node, lambda: ApiServer(access))
    config = [] if args.config is None else ["--config", args.config]
    directory = Path(args.directory)
    run(
        Parts(
            Recorder(status_reader(directory), time.monotonic()),
            judged_by(part_command(args.directory, JUDGE, config)),
            reporter,
            args.npd or "",
            Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip(),
        )
    )
    return 0
