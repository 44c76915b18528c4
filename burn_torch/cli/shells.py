"""Completes the command line in shells: marks what each argument takes, and lets shtab write the script.

A script is static: pressing Tab starts no Python.  The line that a shell's start-up file has writes it anew each time,
so it is never older than the program.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from burn_torch.cli import registry
from burn_torch.core.errors import ConfigError
from burn_torch.core.imports import load_extra

__all__ = ["SHELLS", "write_script"]

SHELLS: Final = ("bash", "zsh", "fish")
_FILES: Final = ("FILE", "FILE.py", "RUN", "INPUT", "IN", "OUT")
_DEVICES: Final = ("cpu", "cuda:0", "mps", "ndarray")


def write_script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script that completes a parser's commands in a shell.  Raises: ConfigError without shtab."""
    shtab = load_extra("shtab", "completion", "a completion script", error=ConfigError)
    for action in _actions(parser):
        values = _values(shtab, action)
        if values is not None:
            action.complete = values  # type: ignore[attr-defined]  # shtab looks for it
    return str(shtab.complete(parser, shell))


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of its commands."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from _actions(inner)


def _values(shtab: Any, action: argparse.Action) -> Any:
    """Returns what can stand for an argument, as shtab takes it; None for a choice, a number or a text."""
    if action.choices is not None or action.nargs == 0:
        return None
    if action.metavar == "RECIPE":
        return _words(registry.recipes(), files=shtab.FILE)
    if action.metavar in ("DEVICE", "cuda:N"):
        return _words(_DEVICES)
    if action.metavar == "DIR" and "--data" not in action.option_strings:  # a folder of data may be one file too
        return shtab.DIRECTORY
    return shtab.FILE if action.type is Path or action.metavar in (*_FILES, "DIR") else None


def _words(words: Iterable[str], files: Mapping[str, str] | None = None) -> dict[str, object]:
    """These words, and files if shtab's way to list them is given."""
    name = f"_burn_torch_{'file_or_recipe' if files else 'device'}"
    joined = " ".join(words)
    bash = f'compgen -W "{joined}" -- "$1"' + ('; compgen -f -- "$1"' if files else "")
    zsh = f'_alternative "words:word:({joined.replace(":", chr(92) + ":")})"' + (" files:file:_files" if files else "")
    return {
        "bash": name,
        "zsh": name,
        "fish": f"{joined} {files['fish']}" if files else joined,
        "preamble": {"bash": f"{name}() {{ {bash}; }}", "zsh": f"{name}() {{ {zsh} }}"},
    }
