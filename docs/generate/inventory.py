"""Compares Tensor with the methods of Burn's tensors, and writes docs/building-blocks/tensor-methods.md.

    python docs/generate/inventory.py        prints `name · here`, `missing` or the reason why it is left out

Exits with 1 if a name is missing.  `inventory_names.txt` has the names of Burn, by family.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

from _files import ROOT, refresh

LEFT_OUT = {
    "extract": "takes the value out of a variable in Rust; tensors here are immutable and shared",
    "inplace": "changes a variable in Rust; write `x = f(x)`",
    "can_mut": "asks whether a buffer may be overwritten; no method here overwrites one",
    "is_distributed": "comes with distributed training",
    "set_distributed": "comes with distributed training",
}
"""Names that are left out on purpose, each with its reason."""

ELSEWHERE = {"const_default": "PrintOptions.const_default", "set_print_options": "set_print_options"}
"""Names that are no methods in Python, and what stands for them in `burn_torch.tensor`."""


def families() -> dict[str, list[str]]:
    """Burn's names by family, in the order of its reference."""
    names_by_family: dict[str, list[str]] = {}
    for line in (Path(__file__).parent / "inventory_names.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            names = names_by_family.setdefault(line.strip("[]"), [])
        elif line and not line.startswith("#"):
            names.append(line)
    return names_by_family


def status(name: str) -> str:
    """ "here", "missing", or why the name is left out."""
    if name in LEFT_OUT:
        return f"left out: {LEFT_OUT[name]}"
    return "missing" if find(name) is None else "here"


def find(name: str) -> Any:
    """Returns what has this name: a method or property of Tensor, or the function that stands for it; None if nothing
    has.
    """
    import burn_torch.tensor as package

    member: Any = package if name in ELSEWHERE else package.Tensor
    for part in ELSEWHERE.get(name, name).split("."):
        member = inspect.getattr_static(member, part, None) if hasattr(member, part) else None
    return member


def missing() -> list[str]:
    """The names that are neither here nor left out on purpose."""
    return [name for names in families().values() for name in names if status(name) == "missing"]


def main(check: bool) -> list[str]:
    """Writes the page; raises SystemExit where a name is missing."""
    if absent := missing():
        raise SystemExit(f"Tensor lacks {', '.join(absent)}; mend: write the method, or a reason into LEFT_OUT")
    return refresh({"docs/building-blocks/tensor-methods.md": page()}, check)


def page() -> str:
    """The page of all names."""
    lines = [
        "# The methods of Tensor",
        "",
        "Every method of Burn's tensors, by the families of its reference, with the call in Python and what it does.",
        "",
        "<!-- written by docs/generate/inventory.py -->",
    ]
    for family, names in families().items():
        lines += ["", f"## {family}", "", "| call | what it does |", "|---|---|"]
        lines += [f"| {call(name)} | {purpose(name)} |" for name in names]
    return "\n".join(lines) + "\n"


def call(name: str) -> str:
    """How it is called."""
    if name in LEFT_OUT:
        return f"~~`{name}`~~"
    member = find(name)
    if isinstance(member, property):
        return f"`x.{name}`"
    if name in ELSEWHERE:
        return f"`{ELSEWHERE[name]}({arguments(member)})`"
    owner = "Tensor" if isinstance(member, classmethod | staticmethod) else "x"
    wait = "await " if inspect.iscoroutinefunction(member) else ""
    return f"`{wait}{owner}.{name}({arguments(member)})`"


def arguments(member: Any) -> str:
    """The names of the parameters, with their defaults."""
    function = inspect.unwrap(getattr(member, "__func__", member))
    words = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "cls") or parameter.annotation == "None":  # one that is there to be refused
            continue
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else ""
        default = "" if parameter.default is parameter.empty else f"={plain(parameter.default)}"
        words.append(f"{star}{parameter.name}{default}")
    return ", ".join(words)


def plain(default: Any) -> str:
    """A default as one would write it; of an enum its name as a text."""
    return repr(getattr(default, "value", default))


def purpose(name: str) -> str:
    """The first lines of its docstring, to the end of a sentence, or why it is left out."""
    if name in LEFT_OUT:
        return f"left out: {LEFT_OUT[name]}"
    member = find(name)
    text = inspect.getdoc(getattr(member, "__func__", member)) or ""
    lines = text.partition("\n\n")[0].splitlines()
    count = next((n for n, each in enumerate(lines, 1) if each.endswith(".")), len(lines))
    return " ".join(lines[:count]).replace("|", "\\|")


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]
    for family_names in families().values():
        for each in family_names:
            print(f"{each} · {status(each)}")  # noqa: T201, the report of a command
    absent = missing()
    print(f"missing: {len(absent)}")  # noqa: T201
    sys.exit(1 if absent else 0)
