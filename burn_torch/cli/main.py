"""`burn-torch`: parses the command line, runs a command, words failures.  Imports neither torch nor numpy by itself."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, NoReturn

from burn_torch.cli import registry
from burn_torch.cli.failure import EXIT_BROKEN_PIPE, report
from burn_torch.core.errors import ConfigError, explain
from burn_torch.core.faults import nearest
from burn_torch.version import __version__

__all__ = ["main", "make_parser"]

EXAMPLES: Final = """\
a first run:
  burn-torch train digits                        train a network on handwritten digits: seconds, no network, no GPU
  burn-torch evaluate artifacts/digits           measure it
  burn-torch predict artifacts/digits IMAGE...   what it says of images
  burn-torch COMMAND --help                      the options of a command

exit codes: 0 done, 1 an error in the code that was run, 2 usage or settings, 3 data, 4 the loss is NaN or infinite,
5 a checkpoint that does not fit, 130 Ctrl-C, 143 SIGTERM
"""


class _UsageError(Exception):
    """A command line that cannot be parsed, before it is worded."""

    def __init__(self, parser: _Parser, what: str, mend: str | None = None) -> None:
        super().__init__(what)
        self.parser, self.what, self.mend = parser, what, mend


class _Parser(argparse.ArgumentParser):
    """argparse with our three parts, and the nearest name for a word that it does not know."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> NoReturn:
        raise _UsageError(self, message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(name) for name in action.choices]
            what = f"there is no {str(action.metavar or action.dest).lower()} {value!r}"
            raise _UsageError(self, what, _did_you_mean(str(value), names) or f"name one of {', '.join(names)};")

    def shape(self) -> str:
        """The usage in one line."""
        return " ".join(self.format_usage().removeprefix("usage: ").split())


def _refuse_unknown_option(words: Sequence[str], *parsers: _Parser) -> None:
    """Raises: _UsageError, in the name of the last parser, if a word is an option of none."""
    options = [option for parser in parsers for action in parser._actions for option in action.option_strings]
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("--") and name not in options:
            raise _UsageError(parsers[-1], f"there is no option {name}", _did_you_mean(name, options))


def _did_you_mean(word: str, names: Iterable[str]) -> str | None:
    near = nearest(word, names)
    return None if near is None else f"did you mean {near}?"


def make_parser() -> _Parser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog="burn-torch",
        description="Burn, the deep-learning framework, on PyTorch tensors.",
        epilog=EXAMPLES,
    )
    parser.add_argument("--version", action="version", version=f"burn-torch {__version__}")
    parser.add_argument("--debug", action="store_true", help="show burn_torch's own traceback on errors")
    inner = parser.add_subparsers(dest="command", metavar="COMMAND", required=True, parser_class=_Parser)
    for name, command in registry.commands().items():
        sub = inner.add_parser(name, help=command.HELP, description=command.DESCRIPTION)
        sub.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
        sub.set_defaults(parser=sub)
        command.configure(sub)
    return parser


def _parse(given: Sequence[str]) -> argparse.Namespace:
    """Raises: ConfigError for a command line that is wrong."""
    parser = make_parser()
    try:
        try:
            args, rest = parser.parse_known_args(given)
        except _UsageError as fault:
            if "required" in fault.what:  # argparse misses an argument before it minds a mistyped option
                _refuse_unknown_option(given, parser, fault.parser)
            raise
        if rest:
            _refuse_unknown_option(rest, args.parser)
            raise _UsageError(args.parser, f"too many arguments: {' '.join(rest)}")
    except _UsageError as fault:
        prog = fault.parser.prog
        raise ConfigError(
            explain(
                f"{prog}: {fault.what}",
                given=" ".join(["burn-torch", *given]),
                expected=fault.parser.shape(),
                mend=" ".join(filter(None, [fault.mend, f"{prog} --help tells more"])),
            )
        ) from None
    args.given = list(given)  # for a command that starts itself again in another process
    return args


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives the exit code (see `cli/failure.py`)."""
    given = sys.argv[1:] if argv is None else list(argv)
    try:
        args = _parse(given)
        code = registry.commands()[args.command].run(args)
        sys.stdout.flush()
        return code
    except SystemExit:
        raise
    except BrokenPipeError:  # who read our output has enough: `burn-torch info | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit would fail again
        return EXIT_BROKEN_PIPE
    except BaseException as error:  # the one place where every failure is worded
        return report(error, debug="--debug" in given)
