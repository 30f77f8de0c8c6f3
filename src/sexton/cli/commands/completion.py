"""Print a completion script for bash, zsh or fish.

Completes commands, options, their values and files. To load it in every new shell:

  sexton completion bash > /usr/share/bash-completion/completions/sexton
  sexton completion zsh > /usr/share/zsh/vendor-completions/_sexton
  sexton completion fish > /usr/share/fish/vendor_completions.d/sexton.fish

In this bash only: source <(sexton completion bash)
"""

from __future__ import annotations

import argparse

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS, help="the shell")


def run(args: argparse.Namespace) -> int:
    import importlib
    import sys

    module = importlib.import_module(f"sexton.cli.completion.{args.shell}")
    sys.stdout.write(module.script())
    return 0
