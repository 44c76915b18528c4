"""`burn-torch`: parses the command line, runs a command, words failures.  Imports neither torch nor numpy by itself."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any, Final, NoReturn

from burn_torch.cli import registry
from burn_torch.cli.failure import EXIT_BROKEN_PIPE, EXIT_USAGE, report
from burn_torch.core.errors import ConfigError
from burn_torch.core.faults import nearest
from burn_torch.core.wording import VisibleText
from burn_torch.version import __version__

__all__ = ["main", "make_parser"]

MAX_WIDTH: Final = 110
"""Columns of help and usage, where the terminal has more."""
_BEHIND: Final = " " * len("  expected: ")

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

    def __init__(self, parser: _Parser, what: str, mend: str | None = None, expected: str | None = None) -> None:
        super().__init__(what)
        self.parser, self.what, self.mend = parser, what, mend
        self.expected = _wrap((expected or "").split()) or parser.shape()


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Wraps paragraphs to the terminal; those with an indented line, such as examples, stay as they are."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=min(shutil.get_terminal_size().columns, MAX_WIDTH) - 2)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.strip("\n").split("\n\n")
        return "\n\n".join(
            paragraph if "\n " in f"\n{paragraph}" else "\n".join(self._split_lines(paragraph, width))
            for paragraph in paragraphs
        )

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)  # names have hyphens

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if getattr(action, "_get_subactions", None) is not None:  # argparse forgets that those stand two further right
            self._action_max_length += self._indent_increment


def _describe(action: argparse.Action) -> str:
    """An option with what it takes, as its help has it."""
    taken = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    named = " ".join((", ".join(action.option_strings), *(() if action.nargs == 0 else (taken,))))
    return f"{named}: {action.help}" if action.help else named


class _Parser(argparse.ArgumentParser):
    """argparse with our three parts, and the nearest name for a word that it does not know."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings, allow_abbrev=False, formatter_class=_Formatter)

    def error(self, message: str) -> NoReturn:
        option = None if "not allowed with" in message else re.match(r"argument (--?[\w-]+)", message)
        action = None if option is None else self._option_string_actions.get(option[1])
        raise _UsageError(self, message, expected=None if action is None else _describe(action))

    def _check_value(self, action: argparse.Action, value: object) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(name) for name in action.choices]
            what = f"there is no {str(action.metavar or action.dest).lower()} {value!r}"
            mend = _did_you_mean(str(value), names) or "name one of those;"
            raise _UsageError(self, what, mend, f"one of {', '.join(names)}")

    def shape(self) -> str:
        """The usage, in lines that fit behind "expected: "."""
        words = self.format_usage().removeprefix("usage: ").split()
        parts: list[str] = []
        for word in words:  # an option and its value stay together
            if parts and parts[-1].count("[") > parts[-1].count("]"):
                parts[-1] += f"\0{word}"
            else:
                parts.append(word)
        return _wrap(parts)


def _wrap(parts: Sequence[str]) -> str:
    """Parts, within which \\0 is a blank, in lines that fit behind "expected: "."""
    width = min(shutil.get_terminal_size().columns, MAX_WIDTH) - len(_BEHIND)
    lines = textwrap.wrap(" ".join(parts), max(width, 40), break_long_words=False, break_on_hyphens=False)
    return f"\n{_BEHIND}".join(lines).replace("\0", " ")


def _refuse_unknown_option(words: Sequence[str], *parsers: _Parser) -> None:
    """Raises: _UsageError, in the name of the last parser, if a word is an option of none."""
    actions = [action for parser in parsers for action in parser._actions]
    known = {option for action in actions for option in action.option_strings}
    meant = [
        [name for name in one.option_strings if name.startswith("--")]
        for one in actions
        if one.help != argparse.SUPPRESS
    ]
    for word in words:
        name = word.partition("=")[0]
        if name.startswith("--") and name not in known:
            raise _UsageError(parsers[-1], f"there is no option {name}", _option_meant(name, list(filter(None, meant))))


def _option_meant(word: str, options: Sequence[Sequence[str]]) -> str | None:
    """The option, of all names of each, that has the words of this one, or is spelt like it."""
    parts = set(word.strip("-").replace("_", "-").split("-"))
    for first, *_ in options:
        if parts <= set(first.strip("-").split("-")):
            return f"did you mean {first}?"
    return _did_you_mean(word, [name for names in options for name in names])


def _did_you_mean(word: str, names: Iterable[str]) -> str | None:
    near = nearest(word, names)
    return None if near is None else f"did you mean {near}?"


def make_parser() -> _Parser:
    """The parser of the whole command line."""
    parser = _Parser(
        prog="burn-torch", description="Burn, the deep-learning framework, on PyTorch tensors.", epilog=EXAMPLES
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


def _before_dashes(given: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words before a "--", and those after it where the command hands them on to somebody else."""
    commands = registry.commands()
    name = next((word for word in given if word in commands), None)
    if name is None or "--" not in given or not getattr(commands[name], "HANDS_ON", False):
        return list(given), []
    at = list(given).index("--")
    return list(given[:at]), list(given[at + 1 :])


def _parse(given: Sequence[str]) -> argparse.Namespace:
    """Raises: ConfigError for a command line that is wrong."""
    parser = make_parser()
    words, after = _before_dashes(given)
    try:
        try:
            args, rest = parser.parse_known_args(words)
        except _UsageError as fault:
            if "required" in fault.what:  # argparse misses an argument before it minds a mistyped option
                _refuse_unknown_option(given, parser, fault.parser)
            raise
        if rest:
            _refuse_unknown_option(rest, parser, args.parser)
            raise _UsageError(args.parser, f"too many arguments: {' '.join(rest)}")
    except _UsageError as fault:
        prog = fault.parser.prog
        raise ConfigError(
            f"{prog}: {fault.what}",
            given=" ".join(["burn-torch", *given]),
            expected=fault.expected,
            mend=" ".join(filter(None, [fault.mend, f"{prog} --help tells more"])),
        ) from None
    args.after = after
    args.given = list(given)  # for a command that starts itself again in another process
    return args


@contextmanager
def _plain_output(command: str) -> Iterator[None]:
    """Prints to the terminal without control characters, those in the texts of files included."""
    if command in _AS_IT_IS:
        yield
        return
    with redirect_stdout(VisibleText(sys.stdout)), redirect_stderr(VisibleText(sys.stderr)):
        yield


_AS_IT_IS: Final = frozenset(["attach", "explain", "resume", "train"])
"""Commands that draw on the screen, and clean what they show; `explain` runs a script, whose colours are its own."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; gives the exit code (see `cli/failure.py`)."""
    words = sys.argv[1:] if argv is None else list(argv)
    if not words:
        make_parser().print_help(sys.stderr)
        return EXIT_USAGE
    try:
        args = _parse(words)
        with _plain_output(args.command):
            code = registry.commands()[args.command].run(args)
        sys.stdout.flush()
        return code
    except SystemExit:
        raise
    except BrokenPipeError:  # who read our output has enough: `burn-torch info | head -1`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the flush at exit would fail again
        return EXIT_BROKEN_PIPE
    except BaseException as error:  # the one place where every failure is worded
        return report(error, debug="--debug" in words)
