"""`burn-torch`: parses the command line, runs a command, words failures.  Imports no torch by itself."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from burn_torch.cli import registry
from burn_torch.cli.failure import EXIT_USAGE, report
from burn_torch.core.errors import explain
from burn_torch.version import __version__

__all__ = ["main"]


class _Parser(argparse.ArgumentParser):
    """argparse with our three parts, and the nearest name for a word that it does not know."""

    def error(self, message: str) -> NoReturn:
        hint = f"{self.prog} --help lists what there is"
        unknown = re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message)
        if unknown:
            choices = re.findall(r"[\w:.-]+", unknown[2])
            close = difflib.get_close_matches(unknown[1], choices, 1)
            hint = f"is it {close[0]}?  {hint}" if close else hint
        stray = re.search(r"unrecognized arguments: (-\S+)", message)
        if stray:
            options = [option for action in self._every_action() for option in action.option_strings]
            close = difflib.get_close_matches(stray[1].split("=")[0], options, 1)
            hint = f"is it {close[0]}?  {hint}" if close else hint
        text = explain(
            f"{self.prog}: {message}", given=" ".join(sys.argv[1:]) or "nothing", expected=self._shape(), mend=hint
        )
        print(f"error: {text}", file=sys.stderr)
        sys.exit(EXIT_USAGE)

    def _shape(self) -> str:
        return " ".join(self.format_usage().removeprefix("usage: ").split())

    def _every_action(self) -> list[argparse.Action]:
        actions = list(self._actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                for parser in set(action.choices.values()):
                    actions += parser._actions
        return actions


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="burn-torch", description="Burn, the deep-learning framework, on PyTorch tensors.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"burn-torch {__version__}")
    parser.add_argument("--debug", action="store_true", help="show burn_torch's own traceback on errors")
    inner = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for name, command in registry.commands().items():
        sub = inner.add_parser(name, help=command.HELP, description=command.HELP, allow_abbrev=False)
        sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        command.configure(sub)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives the exit code (see `cli/failure.py`)."""
    args = _parser().parse_args(argv)
    try:
        return registry.commands()[args.command].run(args)
    except SystemExit:
        raise
    except BaseException as error:  # the one place where every failure is worded
        return report(error, debug=args.debug)
