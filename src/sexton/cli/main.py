"""The command line: one module per verb in `sexton.cli.commands`.

A command module has a docstring (its help), ``add_arguments(parser)`` and ``run(args) -> int``. Its
file's stem is the verb, with _ for -. It only checks arguments and connects a reader to a report;
what it needs is imported inside `run`, so that ``sexton --version`` and ``--help`` answer at once.
Subcommands (``sexton fix plan``) are modules of the same shape in their own package.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from sexton import __version__
from sexton.cli import output
from sexton.cli.configuration import configured
from sexton.errors import CommandError, SextonError

if TYPE_CHECKING:
    from threading import Thread
    from types import ModuleType

    from _typeshed import SupportsWrite

    #: The return type of `add_subparsers` has no public name.
    Choices = argparse._SubParsersAction[Any]

#: In the order of the help: first what a new user needs first.
VERBS = (
    "diagnose", "why", "zombies", "fix", "audit-log", "audit", "gate",
    "top", "profile", "record", "recording", "export", "serve", "demo", "sources", "config",
    "node-agent", "npd", "collect", "completion",
)  # fmt: skip
_PACKAGE = "sexton.cli.commands."

_EPILOG = """\
start here:
  sexton diagnose            what is wrong with this node, with evidence
  sudo sexton diagnose       the same with the kernel log, every owner and every event
  sexton why core 5          the cause chain of a core, an interface, a unit or a time
  sexton fix plan            steps to fix it, each with its undo; changes nothing
  sexton sources             what Sexton can read here, and how to enable the rest

exit status of diagnose and why:
  0 healthy, 1 a problem was found, 2 sexton itself failed, 3 cannot tell
"""


_HELP = ("--help", "--version")


def _near(word: str, known: Iterable[str]) -> str:
    """A suggestion for a mistyped word, to append to a message; "" without one."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


class _Parser(argparse.ArgumentParser):
    """Bad usage is one line and exit 2; the line names what was probably meant."""

    def error(self, message: str) -> NoReturn:
        from sexton.model.text import printable

        see = "" if message.endswith("?") else f" (see {self.prog} --help)"
        self.exit(2, f"{self.prog}: {printable(message)}{see}\n")

    def chosen(self, words: Iterable[str]) -> _Parser:
        """The parser of the command that these words begin with."""
        parser = self
        for word in words:
            parser = parser._children().get(word, parser)
        return parser

    def refuse(self, extra: Sequence[str]) -> NoReturn:
        """Exit because of arguments that this command does not take."""
        option = next((word.partition("=")[0] for word in extra if word.startswith("-")), None)
        if option is None:
            self.error(f"unexpected argument {extra[0]!r}")
        self.error(f"no option {option!r}{_near(option, self._option_string_actions)}")

    def _children(self) -> dict[str, _Parser]:
        found: dict[str, _Parser] = {}
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                found |= action.choices
        return found

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Like the inherited one, but suggest a command or a value for a mistyped one."""
        if action.choices is None or value in action.choices:
            return
        known = [str(choice) for choice in action.choices]
        if isinstance(action, argparse._SubParsersAction):
            self.error(f"no command {value!r}{_near(str(value), (*known, *_HELP))}")
        near = _near(str(value), known)
        raise argparse.ArgumentError(action, f"{value!r} is not one of {', '.join(known)}{near}")

    def _print_message(self, message: str, file: SupportsWrite[str] | None = None) -> None:
        """Like the inherited one, but a failed write of the help text raises."""
        if message:
            (file or sys.stderr).write(message)


def command() -> NoReturn:
    """The program: `main`, then exit at once.

    Python's own finalisation costs more than printing the verdict, and a source that hangs in the
    kernel must not keep us from exiting. Everything is flushed and closed by then.
    """
    # OpenBLAS would start a thread per core when numpy is loaded, and each of them spins for a
    # while: on a large node that costs more than everything else. We do no linear algebra.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from sexton.cli import parent

    if parent.needs_child(sys.argv[1:]):
        os._exit(parent.run_in_child(_run_main, _close_left))
    os._exit(_run_main())


_SOURCE = "sexton-source "
#: Sources of a recorder keep their files open; 1,024 is a limit for shells.
_MOST_FILES = 4096


def _make_room_for_files() -> None:
    """Let the kernel grow the table of open files now, while there is one thread.

    With several it waits for an RCU grace period whenever it grows the table (`expand_files` in
    fs/file.c, at 64, 128, 256 … files). While a task holds a core that never ends, and until then
    every `open` of the process waits as well.
    """
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _MOST_FILES if hard == resource.RLIM_INFINITY else min(_MOST_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
    null = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    os.close(os.dup2(null, most - 1, inheritable=False))
    os.close(null)


def _run_main() -> int:
    """Run `main`, then report threads that are stuck in the kernel."""
    _make_room_for_files()
    from sexton.host.stuck import wchan

    status = main()
    left = [
        f"{thread.name.removeprefix(_SOURCE)} (in {wchan(os.getpid(), thread.native_id or 0)})"
        for thread in _left()
    ]
    if left:
        names = ", ".join(sorted(left)).replace(" (in )", "")
        print(
            f"sexton: left behind, stuck in the kernel: {names};"
            f" process {os.getpid()} ends when they do",
            file=sys.stderr,
        )
    sys.stderr.flush()
    return status


def _left() -> list[Thread]:
    """Threads that still read or close a source, a program or a companion."""
    threading = sys.modules.get("threading")
    every = [] if threading is None else threading.enumerate()
    return [thread for thread in every if thread.name.startswith(_SOURCE)]


def _close_left() -> Callable[[], None] | None:
    """What remains to be done after the command has ended, by a process that was left behind."""
    left = _left()
    if not left:
        return None

    def close() -> None:
        from sexton.record.sampler import close_abandoned

        close_abandoned()
        for thread in left:
            thread.join()

    return close


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; every expected failure becomes one line on standard error."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if not output.prepare():
        print("sexton: standard output is closed", file=sys.stderr)
        return 2
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()  # here, so that a full disk is reported as a failure
    except BrokenPipeError:
        output.abandon()
        return 128 + 13  # like death by SIGPIPE; never 0 or 1, which are verdicts
    except KeyboardInterrupt:
        return 130
    except OSError as error:  # sources raise `SourceError`, so this is our output
        output.abandon()
        print(f"sexton: cannot write: {error.strerror or error}", file=sys.stderr)
        return 2
    except MemoryError:
        return _too_large()
    except Exception as error:  # noqa: BLE001 - Python would exit 1: "problem found"
        return _bug(error)
    return status


def _too_large() -> int:
    from sexton.model.text import printable
    from sexton.sandbox import in_force

    limits = in_force()
    if limits is None:
        print("sexton: not enough memory", file=sys.stderr)
    else:
        most = f"reading it may take {limits.memory_bytes >> 20} MB"
        print(f"sexton: {printable(limits.what)}: not enough memory: {most}", file=sys.stderr)
    return 2


def _bug(error: Exception) -> int:
    import traceback

    from sexton.model.text import printable
    from sexton.sandbox import in_force

    if sys.flags.dev_mode:
        raise error
    place = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{place.filename.rpartition('/')[2]} line {place.lineno}"
    limits = in_force()
    # A value that no check foresaw: what others made is more often wrong than we are.
    named = None if limits is None else f"{limits.what}: cannot be understood"
    what = printable(f"{named or 'internal error'}: {type(error).__name__}: {error}")
    print(f"sexton: {what} ({where}); for a traceback: python -X dev -m sexton", file=sys.stderr)
    return 2


def _dispatch(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print(f"sexton {__version__}")
        return 0
    try:
        return _run(arguments)
    except SystemExit as ended:  # from argparse, or from a signal
        return ended.code if isinstance(ended.code, int) else 2


def _run(arguments: list[str]) -> int:
    from sexton.model.text import printable

    parser, chosen = _parser(arguments)
    words = _spelled_out(arguments, chosen)
    args, extra = parser.parse_known_args(words)
    if extra:
        parser.chosen(words).refuse(extra)
    if chosen is None:
        parser.print_help()
        return 2
    try:
        with _unwinding_on_signals(), configured(args):
            status: int = chosen.run(args)
        return status
    except CommandError as error:
        print(f"sexton: {printable(str(error))}", file=sys.stderr)
        return error.exit_code
    except SextonError as error:
        print(f"sexton: {printable(str(error))}", file=sys.stderr)
        return 2


def _spelled_out(arguments: list[str], chosen: ModuleType | None) -> list[str]:
    """A command whose users may omit a word has a `words` function, which inserts it."""
    words = getattr(chosen, "words", None)
    if words is None:
        return arguments
    after = next(at for at, word in enumerate(arguments) if not word.startswith("-")) + 1
    return [*arguments[:after], *words(arguments[after:])]


@contextmanager
def _unwinding_on_signals() -> Iterator[None]:
    """Unwind on SIGTERM and SIGHUP, so that no trace instance stays armed."""
    import signal
    from types import FrameType

    def end(number: int, _frame: FrameType | None) -> None:
        signal.signal(number, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
        raise SystemExit(128 + number)

    wanted = (signal.SIGTERM, signal.SIGHUP)
    handled = [one for one in wanted if signal.getsignal(one) is signal.SIG_DFL]  # not under nohup
    for number in handled:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)


def whole_parser() -> argparse.ArgumentParser:
    """The parser with every command, as for `sexton --help`."""
    return _parser([])[0]


def _parser(arguments: list[str]) -> tuple[_Parser, ModuleType | None]:
    parser = _Parser(
        prog="sexton",
        description="Diagnose this Linux node, with evidence.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"sexton {__version__}")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=_Parser)
    verb = next((word for word in arguments if not word.startswith("-")), None)
    chosen = None
    # Only the given command is imported; all of them are needed for help and for bad usage.
    for name in (verb,) if verb in VERBS else VERBS:
        module = add_module(verbs, _PACKAGE, name)
        if name == verb:
            chosen = module
    return parser, chosen


def add_module(choices: Choices, package: str, name: str) -> ModuleType:
    """Add one command module, with its help and its arguments."""
    module = importlib.import_module(package + name.replace("-", "_"))
    doc = (module.__doc__ or name).strip()  # python -OO has no docstrings
    child = choices.add_parser(
        name,
        help=doc.splitlines()[0].rstrip("."),
        description=doc,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add_arguments(child)
    return module


def add_subcommands(parser: argparse.ArgumentParser, package: str, names: Iterable[str]) -> None:
    """Add the subcommands of a command: `sexton fix plan`."""
    choices = parser.add_subparsers(title="commands", metavar="COMMAND", dest="what", required=True)
    for name in names:
        add_module(choices, package, name)


def run_subcommand(package: str, args: argparse.Namespace) -> int:
    """Run the chosen subcommand."""
    status: int = importlib.import_module(package + args.what).run(args)
    return status
