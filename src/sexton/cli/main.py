"""The command line: one module per verb in `sexton.cli.commands`.

A command module has a docstring (its help), ``add_arguments(parser)`` and ``run(args) -> int``. Its
file's stem is the verb. It only checks arguments and joins a reading to a report; what it needs is
imported inside `run`, so that ``sexton --version`` and ``--help`` answer at once.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from sexton import __version__
from sexton.cli import streams
from sexton.cli.nested import add_module

if TYPE_CHECKING:
    from types import ModuleType

    from _typeshed import SupportsWrite

#: In the order a new user meets them.
VERBS = (
    "diagnose", "why", "zombies", "fix", "audit", "gate",
    "top", "profile", "record", "recording", "serve", "demo", "sources", "collect",
)  # fmt: skip
_PACKAGE = "sexton.cli.commands."

_EPILOG = """\
start here:
  sexton diagnose            what is wrong with this node, and how do you know?
  sudo sexton diagnose       the same with the kernel log, every owner and every event
  sexton why core 5          the chain through a core, an interface, a unit or a time
  sexton fix plan            what to do about it, step by step, with the undo; changes nothing
  sexton sources             what can be seen from here, and how to grant the rest

exit status of diagnose and why: 0 healthy, 1 a problem was found, 2 failed, 3 could not tell
"""


class _Parser(argparse.ArgumentParser):
    """Bad usage is one line and exit 2."""

    def error(self, message: str) -> None:  # type: ignore[override]
        from sexton.model.text import printable

        self.exit(2, f"{self.prog}: {printable(message)} (see {self.prog} --help)\n")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """As the inherited one, but help that could not be written is a failure like any other."""
        if message:
            (file or sys.stderr).write(message)


def command() -> NoReturn:
    """The program: `main`, then out at once.

    Python would take its modules apart first, which costs more than printing the verdict did, and a
    source that hangs in the kernel must not keep us from leaving. Everything is flushed and closed
    by then.
    """
    # numpy's algebra would start a thread per core as it is loaded, and each of them spins for a
    # while: on a large node that is more than all we do. We multiply nothing that would need them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    status = main()
    sys.stderr.flush()
    os._exit(status)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; every expected failure becomes one line on standard error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not streams.prepare():
        print("sexton: standard output is closed: nowhere to write to", file=sys.stderr)
        return 2
    try:
        status = _answer(arguments)
        sys.stdout.flush()  # here, where a full disk is a failure, and not when the process ends
    except BrokenPipeError:
        streams.abandon()
        return 128 + 13  # as if by SIGPIPE: whoever read us has seen enough, and no verdict is lost
    except KeyboardInterrupt:
        return 130
    except OSError as error:  # sources turn theirs into `SourceError`: this one is our output's
        streams.abandon()
        print(f"sexton: cannot write: {error.strerror or error}", file=sys.stderr)
        return 2
    except Exception as error:  # noqa: BLE001 - left to Python it would exit 1: "a problem was found"
        return _bug(error)
    return status


def _bug(error: Exception) -> int:
    import traceback

    from sexton.model.text import printable

    if sys.flags.dev_mode:
        raise error
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{place.filename.rpartition('/')[2]} line {place.lineno}"
    what = printable(f"{type(error).__name__}: {error}")
    print(
        f"sexton: a bug of its own: {what} ({where}); python -X dev -m sexton shows all of it",
        file=sys.stderr,
    )
    return 2


def _answer(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print(f"sexton {__version__}")
        return 0
    try:
        return _run(arguments)
    except SystemExit as ended:  # argparse has said its piece; a signal wants us gone
        return ended.code if isinstance(ended.code, int) else 2


def _run(arguments: list[str]) -> int:
    from sexton.errors import CommandError, SextonError
    from sexton.model.text import printable

    parser, chosen = _parser(arguments)
    args = parser.parse_args(_spelled_out(arguments, chosen))
    if chosen is None:
        parser.print_help()
        return 2
    try:
        with _ending_in_order():
            status: int = chosen.run(args)
        return status
    except CommandError as error:
        print(f"sexton: {printable(str(error))}", file=sys.stderr)
        return error.exit_code
    except SextonError as error:
        print(f"sexton: {printable(str(error))}", file=sys.stderr)
        return 2


def _spelled_out(arguments: list[str], chosen: ModuleType | None) -> list[str]:
    """A command may let its users leave a word out: its `words` puts it in."""
    words = getattr(chosen, "words", None)
    if words is None:
        return arguments
    after = next(at for at, word in enumerate(arguments) if not word.startswith("-")) + 1
    return [*arguments[:after], *words(arguments[after:])]


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """Asked to end, or hung up on, unwind: a trace instance must not stay armed behind us."""
    import signal
    from types import FrameType

    def end(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # the way out is short: let it be gone
        raise SystemExit(128 + number)

    both = (signal.SIGTERM, signal.SIGHUP)
    ours = [each for each in both if signal.getsignal(each) is signal.SIG_DFL]  # not under nohup
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


def _parser(arguments: list[str]) -> tuple[argparse.ArgumentParser, ModuleType | None]:
    parser = _Parser(
        prog="sexton",
        description="A verdict on the Linux node you are on, with its evidence.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sexton {__version__}")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    verb = next((word for word in arguments if not word.startswith("-")), None)
    chosen = None
    # Only the asked-for command is imported; the list of them all is for help and for mistakes.
    for name in (verb,) if verb in VERBS else VERBS:
        module = add_module(verbs, _PACKAGE, name)
        if name == verb:
            chosen = module
    return parser, chosen
