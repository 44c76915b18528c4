"""Looks every public name of Burn up in the package, and writes docs/parity.md.

    python docs/generate/parity.py [SECTION]      prints what is missing, in part or other than in Burn

SECTION is the beginning of a section's number, such as 1 or 2.11.  `parity_names.txt` has the names, and says what
stands for those that have another name here.  A name is looked up as an attribute, then as a parameter of the
constructor; parameters and defaults that Burn has must be those of the package too.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import inspect
import pkgutil
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from _files import ROOT, refresh

HERE, PART, MISSING, LEFT_OUT = "here", "in part", "missing", "left out"
CLOSED: tuple[str, ...] = ()
"""Beginnings of sections in which nothing may be missing any more."""
CONSTRUCTORS = frozenset({"new", "init", "build", "default"})
_MARKED = re.compile(r"(?P<name>.+?) (?P<mark>[=~?!]|~\?) (?P<target>[^;]+)(?:; (?P<remark>.*))?")
_MEMBER = re.compile(r"(?P<name>[\w.]+)(?:\((?P<parameters>[^)]*)\))?(?::(?P<default>.+))?")


class Name(NamedTuple):
    """A name of Burn: `mark` says how `target` stands for it, "" that the name is the same."""

    section: str
    name: str
    mark: str = ""
    target: str = ""
    remark: str = ""
    parameters: str | None = None
    default: str | None = None


class Verdict(NamedTuple):
    """Says whether a name is here, what stands for it, and a remark."""

    word: str
    target: str = ""
    remark: str = ""


# -- the names -------------------------------------------------------------------------------------------
def sections() -> dict[str, list[Name]]:
    """Returns Burn's names by section, in the order of the file."""
    text = (Path(__file__).parent / "parity_names.txt").read_text(encoding="utf-8")
    names_by_section: dict[str, list[Name]] = {}
    names: list[Name] = []
    known = set(re.findall(r"^([\w.]+) (?:[=~?!]|~\?) ", text, re.MULTILINE))  # types that have a line of their own
    for line in re.sub(r"\n   +", " ", text).splitlines():
        if line.startswith("["):
            section = line.strip("[]")
            names = names_by_section.setdefault(section, [])
        elif line and not line.startswith("#"):
            names.extend(_read(section, line, known))
    return names_by_section


def _read(section: str, line: str, known: set[str]) -> Iterator[Name]:
    if line.startswith("- "):
        reason, _, listed = line[2:].rpartition(": ")
        yield from (Name(section, name, "-", remark=reason) for name in _split(section, listed))
    elif marked := _MARKED.fullmatch(line):
        yield Name(section, **{key: value or "" for key, value in marked.groupdict().items()})
    else:
        owner, colon, members = line.partition(": ")
        if colon and owner not in known and "." not in owner and owner[0].isupper():
            known.add(owner)
            yield Name(section, owner)
        for word in (members if colon else line).split(" "):
            member = _MEMBER.fullmatch(word)
            if member is None:
                raise SystemExit(f"parity_names.txt: {section}: {word!r} is no member; mend: name(parameters):default")
            name, parameters, default = member.group("name", "parameters", "default")
            yield Name(section, f"{owner}.{name}" if colon else name, parameters=parameters, default=default)


def _split(section: str, listed: str) -> list[str]:
    return listed.split(" ") if "/" not in listed else [listed]


# -- the package -----------------------------------------------------------------------------------------
@cache
def _public() -> dict[str, list[Any]]:
    """Returns what each public name of the two packages stands for."""
    values_by_name: dict[str, dict[int, Any]] = defaultdict(dict)
    for root in ("burn_torch", "burn_kernels"):
        package = importlib.import_module(root)
        modules = [info.name for info in pkgutil.walk_packages(package.__path__, f"{root}.")]
        for path in [root, *(path for path in modules if not re.search(r"\._|\.interpreted", path))]:
            module = importlib.import_module(path)
            for name in getattr(module, "__all__", ()):
                value = getattr(module, name)
                values_by_name[name][id(value)] = value
    return {name: list(values.values()) for name, values in values_by_name.items()}


def find(path: str) -> list[Any]:
    """Returns what stands at a path such as `Tensor.exp`, `tensor.Device.cuda`, `LinearConfig.bias`; [] if nothing."""
    first, *rest = path.split(".")
    if first == "onnx" and len(rest) == 1 and (entries := _operators().get(rest[0])):
        return entries
    return _modules(path) or [value for owner in _public().get(first, []) for value in _below(owner, rest)]


@cache
def _operators() -> dict[str, list[Any]]:
    from burn_torch.onnx.operators.registry import known

    return {"Constant": ["the reader folds it"], **known()}


def _modules(path: str) -> list[Any]:
    """Returns what stands at a path that begins with a module below burn_torch."""
    module = importlib.import_module("burn_torch")
    parts = path.split(".")
    if len(parts) == 1:
        return [getattr(module, path)] if path in dir(module) else []
    while len(parts) > 1:
        try:
            module = importlib.import_module(f"{module.__name__}.{parts[0]}")
        except ModuleNotFoundError:
            break
        parts = parts[1:]
    return _below(module, parts) if module.__name__ != "burn_torch" else []


def _below(owner: Any, parts: list[str]) -> list[Any]:
    for part in parts:
        if part in CONSTRUCTORS and inspect.isclass(owner) and not hasattr(owner, part):
            continue
        member = getattr(owner, part, None)  # hints of missing names are descriptors that raise
        if member is None:
            member = parameters_of(owner).get(part) or parameters_of(owner).get(f"{part}_")
        if member is None:
            return []
        owner = getattr(member, "__func__", member)
    return [owner]


@cache
def parameters_of(function: Any) -> dict[str, inspect.Parameter]:
    """The parameters of a function, or of a class's constructor with the fields of a dataclass; {} if none is known."""
    try:
        parameters = dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        parameters = {}
    for field in dataclasses.fields(function) if dataclasses.is_dataclass(function) else ():
        default = field.default if field.default is not dataclasses.MISSING else inspect.Parameter.empty
        parameters.setdefault(
            field.name, inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=default)
        )
    return parameters


# -- verdicts --------------------------------------------------------------------------------------------
def judge(name: Name, others: dict[str, str]) -> Verdict:
    """Looks a name up; `others` has the names of types that have another name here."""
    if name.mark == "-":
        return Verdict(LEFT_OUT, remark=name.remark)
    if name.mark == "!":
        return Verdict(MISSING, remark=name.target)
    if name.mark.endswith("?"):
        there = _is_shown(name.target)
    else:
        there = all(find(path) for path in _path(name, others).split(" + "))
    if not there:
        return Verdict(MISSING, name.target, f"{name.target} is not there" if name.target else "")
    if name.mark.startswith("~"):
        return Verdict(PART, name.target, name.remark)
    return Verdict(HERE, name.target, name.remark)


def _path(name: Name, others: dict[str, str]) -> str:
    owner, dot, member = name.name.rpartition(".")
    return name.target or (f"{others[owner]}.{member}" if dot and owner in others else name.name)


def _is_shown(evidence: str) -> bool:
    """Returns whether the test, the page or the program is there."""
    file, _, test = evidence.partition("::")
    path = ROOT / file
    return path.exists() and (not test or f"def {test}(" in path.read_text(encoding="utf-8"))


def differences(name: Name, others: dict[str, str]) -> str:
    """Names what Burn says of parameters or of a default, and the package does not; "" if they agree."""
    path = _path(name, others)
    if name.parameters is not None:
        wanted = [parameter for parameter in name.parameters.split(",") if parameter]
        for function in find(path):
            parameters = [each for each in parameters_of(function).values() if each.name not in ("self", "cls")]
            if len(parameters) >= len(wanted) or any(each.kind is each.VAR_POSITIONAL for each in parameters):
                return ""
            return f"Burn: {', '.join(wanted)}; here: {', '.join(each.name for each in parameters)}"
    if name.default is not None:
        owner, _, field = path.rpartition(".")
        shown = [_describe_default(each[field]) for each in map(parameters_of, find(owner)) if field in each]
        if shown and name.default not in shown:
            return f"Burn: {name.default}; here: {' or '.join(shown)}"
    return ""


def _describe_default(parameter: inspect.Parameter) -> str:
    """A default as the file of names has it."""
    if parameter.default is parameter.empty:
        return "required"
    if isinstance(parameter.default, enum.Enum):
        return parameter.default.name
    return repr(parameter.default).replace(" ", "")


def judged() -> dict[str, list[tuple[Name, Verdict]]]:
    """The verdict on each name, by section; a difference makes a name be here in part."""
    result = {}
    for section, names in sections().items():
        others = {name.name: name.target.split(" + ")[0] for name in names if name.mark in ("=", "~")}
        rows = []
        for name in names:
            verdict = judge(name, others)
            if verdict.word == HERE and (difference := differences(name, others)):
                verdict = Verdict(PART, verdict.target, difference)
            rows.append((name, verdict))
        result[section] = rows
    return result


# -- the page --------------------------------------------------------------------------------------------
def main(check: bool) -> list[str]:
    """Writes the page; raises SystemExit where a name of a closed section is not here."""
    verdicts = judged()
    absent = [
        f"{name.name} ({section})"
        for section, rows in verdicts.items()
        if section.split(" ")[0].startswith(CLOSED)
        for name, verdict in rows
        if verdict.word in (PART, MISSING)
    ]
    if CLOSED and absent:
        raise SystemExit(f"Burn has {', '.join(absent)}; mend: write it, or what stands for it into parity_names.txt")
    return refresh({"docs/parity.md": page(verdicts)}, check)


def page(verdicts: dict[str, list[tuple[Name, Verdict]]]) -> str:
    """The table of counts, then by section what has another name, is here in part, is missing or is left out."""
    lines = [
        "# Burn's names",
        "",
        "Each public name of Burn, looked up in this package: here, in part, or missing. Names that mean nothing in",
        "Python are left out, each with its reason. A row without a look-up is shown by a test, a page or a program.",
        "",
        "<!-- written by docs/generate/parity.py -->",
        "",
        "| section | names | here | in part | missing | left out |",
        "|---|---|---|---|---|---|",
    ]
    total: Counter[str] = Counter()
    for section, rows in verdicts.items():
        count = Counter(verdict.word for _, verdict in rows)
        total += count
        lines.append(_count(section, count))
    lines.append(_count("all", total))
    for section, rows in verdicts.items():
        lines += _section(section, rows)
    return "\n".join(lines) + "\n"


def _count(section: str, count: Counter[str]) -> str:
    names = count[HERE] + count[PART] + count[MISSING]
    return f"| {section} | {names} | {count[HERE]} | {count[PART]} | {count[MISSING]} | {count[LEFT_OUT]} |"


def _section(section: str, rows: list[tuple[Name, Verdict]]) -> Iterator[str]:
    shown = [(name, verdict) for name, verdict in rows if verdict.target and verdict.word in (HERE, PART)]
    missing = [f"`{name.name}`" + (f" ({v.remark})" if v.remark else "") for name, v in rows if v.word == MISSING]
    missing += [f"`{name.name}` in part ({v.remark})" for name, v in rows if v.word == PART and not v.target]
    left_out: dict[str, list[str]] = defaultdict(list)
    for name, verdict in rows:
        if verdict.word == LEFT_OUT:
            left_out[verdict.remark].append(f"`{name.name}`")
    if shown or missing or left_out:
        yield from ("", f"## {section}")
    if shown:
        yield from ("", "| Burn | here | |", "|---|---|---|")
        for name, verdict in shown:
            remark = f"in part: {verdict.remark}" if verdict.word == PART else verdict.remark
            yield f"| `{name.name}` | `{verdict.target}` | {remark} |"
    if missing:
        yield from ("", f"Missing: {', '.join(missing)}.")
    for reason, names in left_out.items():
        yield from ("", f"Left out, {reason}: {', '.join(names)}.")


def print_gaps(beginning: str) -> None:
    """Prints what is missing or in part in the sections whose number begins so."""
    for section, rows in judged().items():
        if section.startswith(beginning):
            print(_count(section, Counter(verdict.word for _, verdict in rows)))  # noqa: T201, the report of a command
            for name, verdict in rows:
                if verdict.word in (PART, MISSING):
                    print(f"  {verdict.word:8} {name.name}  {verdict.remark}")  # noqa: T201


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]
    print_gaps(sys.argv[1] if len(sys.argv) > 1 else "")
