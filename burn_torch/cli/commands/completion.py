"""`burn-torch completion SHELL`: prints a script that completes commands and options in a shell."""

from __future__ import annotations

import argparse
from typing import Final

from burn_torch.cli import registry, shells

HELP: Final = "print a script that completes commands and options in bash, zsh or fish"
DESCRIPTION: Final = """\
Prints a script that completes commands, options, recipes and files in a shell.  Tab itself starts no Python.
"""
EXAMPLES: Final = """\
put one of these into the start-up file of your shell:
  eval "$(burn-torch completion bash)"          ~/.bashrc
  eval "$(burn-torch completion zsh)"           ~/.zshrc, below compinit
  burn-torch completion fish | source           ~/.config/fish/config.fish
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("shell", choices=tuple(shells.SCRIPTS), metavar="SHELL", help="bash, zsh or fish")


def run(args: argparse.Namespace) -> int:
    """Prints the script."""
    from burn_torch.cli.main import make_parser  # it imports this module

    parser = make_parser()
    (inner,) = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    commands = [
        shells.CommandLine.of(name, registry.commands()[name].HELP, command) for name, command in inner.choices.items()
    ]
    top = shells.CommandLine.of("", "", parser)
    print("\n".join(shells.SCRIPTS[args.shell](commands, top.options)))
    return 0
