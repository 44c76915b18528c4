"""Shell completion: scripts that know every command, option and choice, written from the parsers.  Imports no torch.

A script is static: pressing Tab starts no Python.  The line that a shell's start-up file has writes it anew each time,
so it is never older than the program.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from burn_torch.cli import registry

__all__ = ["SCRIPTS", "CommandLine", "Option"]

Kind = Literal["flag", "text", "file", "folder"]


@dataclass(frozen=True)
class Option:
    """One option of a command: its names, whether a value follows, and what may stand there."""

    names: tuple[str, ...]
    help: str
    kind: Kind
    metavar: str
    choices: tuple[str, ...]


@dataclass(frozen=True)
class CommandLine:
    """A command with its options; `words` is what its first argument may be, `files` whether files may follow."""

    name: str
    help: str
    options: tuple[Option, ...]
    words: tuple[str, ...]
    files: bool

    @staticmethod
    def of(name: str, help: str, parser: argparse.ArgumentParser) -> CommandLine:
        """What a parser takes."""
        options: list[Option] = []
        words: tuple[str, ...] = ()
        files = False
        for action in parser._actions:
            if action.option_strings:
                if action.help != argparse.SUPPRESS:
                    options.append(_option(action))
                continue
            if action.choices is not None:
                words = tuple(map(str, action.choices))
            elif action.metavar == "RECIPE":
                words, files = tuple(registry.recipes()), True
            else:
                files = True
        return CommandLine(name, help, tuple(options), words, files)


def _option(action: argparse.Action) -> Option:
    metavar = str(action.metavar or action.dest.upper())
    help = " ".join((action.help or "").split())
    names = tuple(action.option_strings)
    if action.nargs == 0:
        return Option(names, help, "flag", "", ())
    if action.choices is not None:
        return Option(names, help, "text", metavar, tuple(map(str, action.choices)))
    if metavar == "RECIPE":
        return Option(names, help, "file", metavar, tuple(registry.recipes()))
    if metavar in ("DEVICE", "cuda:N"):
        return Option(names, help, "text", metavar, ("cpu", "cuda:0", "mps", "ndarray"))
    kind: Kind = "text"
    if action.type is Path:
        kind = "folder" if metavar == "DIR" else "file"
    return Option(names, help, kind, metavar, ())


# -- bash -------------------------------------------------------------------------------------------------


def _bash(commands: Sequence[CommandLine], common: Sequence[Option]) -> Iterator[str]:
    names = " ".join(command.name for command in commands)
    yield "# completion of burn-torch for bash, written by `burn-torch completion bash`"
    yield "_burn_torch() {"
    yield '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" command="" position=0 i'
    yield "    COMPREPLY=()"
    yield "    for ((i = 1; i < COMP_CWORD; i++)); do"
    yield '        if [[ -z "$command" && "${COMP_WORDS[i]}" != -* ]]; then command="${COMP_WORDS[i]}"'
    yield '        elif [[ "${COMP_WORDS[i]}" != -* && "${COMP_WORDS[i-1]}" != -* ]]; then position=$((position + 1))'
    yield "        fi"
    yield "    done"
    yield '    case "$command" in'
    top = " ".join([names, *(name for option in common for name in option.names)])
    yield f'        "") COMPREPLY=($(compgen -W {shlex.quote(top)} -- "$word")) ;;'
    for command in commands:
        yield f"        {command.name})"
        yield '            case "$before" in'
        for option in command.options:
            if option.kind != "flag":
                yield f"                {'|'.join(option.names)}) {_bash_values(option)}; return ;;"
        yield "            esac"
        every = " ".join(name for option in command.options for name in option.names)
        yield f'            if [[ "$word" == -* ]]; then COMPREPLY=($(compgen -W {shlex.quote(every)} -- "$word"))'
        words = shlex.quote(" ".join(command.words))
        yield "            else"
        if command.words:
            yield f'                if ((position == 0)); then COMPREPLY=($(compgen -W {words} -- "$word")); fi'
        if command.files:
            yield '                compopt -o filenames 2>/dev/null; COMPREPLY+=($(compgen -f -- "$word"))'
        if not command.words and not command.files:
            yield f'                COMPREPLY=($(compgen -W {shlex.quote(every)} -- "$word"))'
        yield "            fi ;;"
    yield "    esac"
    yield "}"
    yield "complete -F _burn_torch burn-torch"


def _bash_values(option: Option) -> str:
    if option.choices:
        words = f'COMPREPLY=($(compgen -W {shlex.quote(" ".join(option.choices))} -- "$word"))'
        return f'{words}; COMPREPLY+=($(compgen -f -- "$word"))' if option.kind == "file" else words
    if option.kind == "text":
        return ":"
    flag = "-d" if option.kind == "folder" and option.metavar == "DIR" and "--data" not in option.names else "-f"
    return f'compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen {flag} -- "$word"))'


# -- zsh --------------------------------------------------------------------------------------------------


def _zsh(commands: Sequence[CommandLine], common: Sequence[Option]) -> Iterator[str]:
    yield "#compdef burn-torch"
    yield "# completion of burn-torch for zsh, written by `burn-torch completion zsh`"
    yield "_burn_torch() {"
    yield "    local state line"
    yield "    local -a commands"
    yield "    commands=("
    for command in commands:
        yield f"        {shlex.quote(f'{command.name}:{_zsh_text(command.help)}')}"
    yield "    )"
    options = [text for option in common for text in _zsh_option(option)]
    states = ["'1:command:->command'", "'*::argument:->argument'"]
    yield "    " + _zsh_lines(["_arguments -C", *options, *states])
    yield "    case $state in"
    yield "        command) _describe command commands ;;"
    yield "        argument)"
    yield "            case $words[1] in"
    for command in commands:
        yield f"                {command.name})"
        options = [text for option in command.options for text in _zsh_option(option)]
        yield f"                    {_zsh_lines(['_arguments', *options, *_zsh_rest(command)])} ;;"
    yield "            esac ;;"
    yield "    esac"
    yield "}"
    yield 'if [ "$funcstack[1]" = "_burn_torch" ]; then _burn_torch "$@"; else compdef _burn_torch burn-torch; fi'


def _zsh_rest(command: CommandLine) -> list[str]:
    """What may stand where no option is."""
    words = f"({' '.join(command.words)})"
    if command.words and command.files:
        both = shlex.quote(f'1: :{{_alternative "words:word:{words}" "files:file:_files"}}')
        return [both, "'*:file:_files'"]
    if command.words:
        return [shlex.quote(f"1:word:{words}")]
    return ["'*:file:_files'"] if command.files else []


def _zsh_lines(words: Sequence[str]) -> str:
    return " \\\n        ".join(words)


def _zsh_option(option: Option) -> Iterator[str]:
    for name in option.names:
        value = ""
        if option.kind != "flag":
            action = f"({' '.join(option.choices)})" if option.choices else ""
            action = action or {"file": "_files", "folder": "_files -/"}.get(option.kind, "")
            value = f":{option.metavar.replace(':', '-')}:{action}"
        yield shlex.quote(f"{name}[{_zsh_text(option.help)}]{value}")


def _zsh_text(text: str) -> str:
    return "".join(f"\\{char}" if char in "[]:\\" else char for char in text)


# -- fish -------------------------------------------------------------------------------------------------


def _fish(commands: Sequence[CommandLine], common: Sequence[Option]) -> Iterator[str]:
    yield "# completion of burn-torch for fish, written by `burn-torch completion fish`"
    yield "complete -c burn-torch -f"
    for option in common:
        yield f"complete -c burn-torch {_fish_option(option)}"
    for command in commands:
        help = _fish_text(command.help)
        yield f"complete -c burn-torch -n __fish_use_subcommand -a {command.name} -d {help}"
    for command in commands:
        when = f"-n '__fish_seen_subcommand_from {command.name}'"
        if command.words:
            yield f"complete -c burn-torch {when} -a {_fish_text(' '.join(command.words))}"
        if command.files:
            yield f"complete -c burn-torch {when} -F"
        for option in command.options:
            yield f"complete -c burn-torch {when} {_fish_option(option)}"


def _fish_option(option: Option) -> str:
    names = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
    value = ""
    if option.choices:
        value = f" -x -a {_fish_text(' '.join(option.choices))}" if option.kind == "text" else " -r -F"
    elif option.kind != "flag":
        value = " -x" if option.kind == "text" else " -r -F"
    return f"{' '.join(names)}{value} -d {_fish_text(option.help)}"


def _fish_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


Writer = Callable[[Sequence[CommandLine], Sequence[Option]], Iterator[str]]
SCRIPTS: Final[Mapping[str, Writer]] = {"bash": _bash, "zsh": _zsh, "fish": _fish}
"""The lines of a shell's script."""
