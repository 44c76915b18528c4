"""`burn-torch completion SHELL`: prints a script that completes commands and options in a shell."""

from __future__ import annotations

import argparse
from typing import Final

from burn_torch.cli import shells

HELP: Final = "print a script that completes commands and options in bash, zsh or fish"
DESCRIPTION: Final = """\
Prints a script that completes commands, options, recipes and files in a shell.  Tab itself starts no Python.
It needs the package shtab: pip install 'burn-torch[completion]'.
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
    parser.add_argument("shell", choices=shells.SHELLS, metavar="SHELL", help="bash, zsh or fish")


def run(args: argparse.Namespace) -> int:
    """Prints the script."""
    from burn_torch.cli.main import make_parser  # it imports this module

    print(shells.write_script(make_parser(), args.shell))
    return 0
