"""The pages of the API reference: which public name stands on which page, under which heading, by which path.

A public name is one in the `__all__` of a package, a public function of a kernel family, or a row of the table.  Each
stands once: an object that several packages export has its entry under the shortest path, and the others name it there.
`write` puts the pages where Sphinx reads them; `make docs` builds them, so none is in git.
"""

from __future__ import annotations

import enum
import importlib
import inspect
import os
import pkgutil
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FunctionType, MemberDescriptorType, ModuleType
from typing import Any

from docstrings import as_text, first_sentence, literal

import burn_kernels
import burn_torch
from burn_torch.cli import main as command_line
from burn_torch.cli import registry
from burn_torch.ops.op import REGISTRY, Op

__all__ = ["PAGES", "Entry", "Page", "entries", "pages", "rows", "write"]

PAGES = {
    "tensor": ("Tensors, devices, options", ("burn_torch.tensor", "burn_torch.core")),
    "errors": ("Errors", ("burn_torch.core.errors",)),
    "module": ("Modules and configurations", ("burn_torch.module", "burn_torch.config")),
    "nn": ("Layers and activations", ("burn_torch.nn",)),
    "losses": ("Losses", ("burn_torch.nn.loss",)),
    "optim": ("Optimizers and schedules", ("burn_torch.optim",)),
    "transform": ("Derivatives and compiled functions", ("burn_torch.transform",)),
    "data": ("Datasets and loaders", ("burn_torch.data",)),
    "record": ("Records and stores", ("burn_torch.record", "burn_torch.module.record")),
    "train": ("Training", ("burn_torch.train",)),
    "metrics": ("Metrics", ("burn_torch.train.metric",)),
    "monitor": ("Watching runs", ("burn_torch.monitor",)),
    "distributed": ("Processes that train together", ("burn_torch.distributed",)),
    "onnx": ("ONNX", ("burn_torch.onnx",)),
    "operators": ("Operators of ONNX", ("burn_torch.onnx.operators",)),
    "backend": ("Backends", ("burn_torch.backend", "burn_torch")),
    "graph": ("Graphs, passes, fusion", ("burn_torch.graph", "burn_torch.fusion", "burn_torch.ops")),
    "kernels": ("Kernels", ("burn_kernels",)),
    "kernels-torch": ("Kernels in PyTorch models", ("burn_kernels.torch",)),
}
"""Title and contents of each page; an object is on the page with the longest prefix of the module that defines it."""


@dataclass(frozen=True)
class Entry:
    """A public object: the path of its entry, where it is defined, and its other public paths."""

    path: str
    home: str
    value: Any = field(compare=False)
    others: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]


@dataclass(frozen=True)
class Page:
    """A file of the reference."""

    stem: str
    text: str


def packages() -> Iterator[ModuleType]:
    """Returns the packages with public names, those of both libraries, and the modules that packages export."""
    for root in (burn_torch, burn_kernels):
        infos = [info for info in pkgutil.walk_packages(root.__path__, f"{root.__name__}.") if info.ispkg]
        names = [root.__name__, *(info.name for info in infos if "._" not in info.name)]
        seen = dict.fromkeys(names)
        for name in names:
            module = importlib.import_module(name)
            yield module
            for value in map(module.__dict__.get, getattr(module, "__all__", ())):
                if isinstance(value, ModuleType) and value.__name__ not in seen:
                    seen[value.__name__] = None
                    yield value


def public_names(module: ModuleType) -> list[str]:
    """Returns the names of `__all__`; without one, the public classes and functions that the module defines."""
    if hasattr(module, "__all__"):
        return [name for name in module.__all__ if not isinstance(getattr(module, name), ModuleType)]
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and callable(value) and getattr(value, "__module__", "") == module.__name__
    ]


def entries() -> list[Entry]:
    """Returns every public object but the rows of the table, in the order of the modules that define them."""
    paths: dict[int, list[str]] = {}
    values: dict[int, Any] = {}
    for module in packages():
        for name in public_names(module):
            value = getattr(module, name)
            key = id(value) if callable(value) else hash((name, type(value)))  # small numbers are one object
            values[key] = value
            paths.setdefault(key, []).append(f"{module.__name__}.{name}")
    unsorted = [_entry(sorted(paths[key], key=lambda path: path.count(".")), value) for key, value in values.items()]
    return sorted(unsorted, key=lambda entry: (entry.home, entry.path.lower()))


def _entry(paths: list[str], value: Any) -> Entry:
    package = max(paths, key=len).rpartition(".")[0]
    home = getattr(value, "__module__", None) or package
    if not home.startswith(("burn_torch", "burn_kernels")) or isinstance(value, Op):
        home = package
    return Entry(paths[0], home, value, tuple(paths[1:]))


def rows() -> dict[str, list[Op]]:
    """Returns the rows of the table by the module that defines them, but those of a namespace (`fusion::kernel`)."""
    families: dict[str, list[Op]] = {}
    for op in REGISTRY.values():
        if op.rule.__module__.startswith("burn_torch.") and "::" not in op.name:
            families.setdefault(op.rule.__module__, []).append(op)
    return dict(sorted(families.items()))


def methods() -> dict[str, list[str]]:
    """Returns the public methods and properties of Tensor by the class that defines them."""
    families: dict[str, list[str]] = {}
    for cls in burn_torch.Tensor.__mro__[:-1]:
        for name in sorted(vars(cls)):
            value = inspect.getattr_static(burn_torch.Tensor, name)
            is_method = isinstance(value, (staticmethod, classmethod, property, MemberDescriptorType, FunctionType))
            if is_method and not name.startswith("_") and value is vars(cls)[name]:
                families.setdefault(cls.__name__, []).append(name)
    return families


# -- text ----------------------------------------------------------------------------------------------
def pages() -> list[Page]:
    """Returns all pages."""
    by_page: dict[str, list[Entry]] = {stem: [] for stem in PAGES}
    for entry in entries():
        if entry.value is not burn_torch.Tensor:
            by_page[_page_of(entry.home)].append(entry)
    listed = [Page(stem, _page(PAGES[stem][0], of_page)) for stem, of_page in by_page.items()]
    return [_methods_page(), *listed, _rows_page(), _commands_page()]


def write(folder: Path) -> None:
    """Writes the pages that have another text than before, and takes away files that are no page."""
    written = {f"{page.stem}.rst": page.text for page in pages()}
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.glob("*.rst"):
        if path.name not in written:
            path.unlink()
    for name, text in written.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def _page_of(home: str) -> str:
    prefixes = {prefix: stem for stem, (_, group) in PAGES.items() for prefix in group}
    fitting = [prefix for prefix in prefixes if home == prefix or home.startswith(f"{prefix}.")]
    return prefixes[max(fitting, key=len)]


def _page(title: str, of_page: list[Entry]) -> str:
    lines = _heading(title, "=")
    homes = dict.fromkeys(entry.home for entry in of_page)
    for home in homes:
        lines += _section(home)
        for entry in of_page:
            if entry.home == home:
                lines += _directive(entry)
    return "\n".join(lines)


def _heading(title: str, line: str) -> list[str]:
    return ["", title, line * len(title), ""]


def _section(home: str) -> list[str]:
    """Returns the heading of what a module defines: its name in words, its path, the first sentence about it."""
    words = home.rpartition(".")[2].strip("_").replace("_", " ")
    about = first_sentence(importlib.import_module(home).__doc__ or "")
    return [*_heading(words[0].upper() + words[1:], "-"), f"{literal(home)}: {about}", ""]


def _directive(entry: Entry) -> list[str]:
    value = entry.value
    if inspect.isclass(value):
        kind = "autoexception" if issubclass(value, BaseException) else "autoclass"
        options = ["   :members:", *(["   :undoc-members:"] if issubclass(value, enum.Enum) else [])]
    else:
        kind, options = ("autofunction", []) if callable(value) else ("autodata", ["   :no-value:"])
    if entry.others:
        options += ["", f"   Also: {', '.join(literal(other) for other in entry.others)}."]
    return [f".. {kind}:: {entry.path}", *options, ""]


def _methods_page() -> Page:
    lines = [
        *_heading("Tensor", "="),
        ".. autoclass:: burn_torch.Tensor",
        "",
        "   Also: ``burn_torch.tensor.Tensor``.",
        "",
    ]
    for family, names in methods().items():
        title = "Methods" if family == "Tensor" else re.sub(r"(?<!^)(?=[A-Z])", " ", family).capitalize()
        lines += _heading(title, "-")
        for name in names:
            value = inspect.getattr_static(burn_torch.Tensor, name)
            kinds = {property: "property", MemberDescriptorType: "attribute"}
            lines += [f".. auto{kinds.get(type(value), 'method')}:: burn_torch.Tensor.{name}", ""]
    return Page("tensor-methods", "\n".join(lines))


def _rows_page() -> Page:
    lines = [
        *_heading("The table of operations", "="),
        "Every operation is a row, called as ``burn_torch.ops.NAME``.",
        "",
    ]
    for home, ops in rows().items():
        lines += _section(home)
        for op in ops:
            signature = inspect.signature(op)
            parameters = [each.replace(annotation=inspect.Parameter.empty) for each in signature.parameters.values()]
            shown = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
            lines += [f".. py:function:: burn_torch.ops.{op.name}{shown}", ""]
            lines += [f"   {line}".rstrip() for line in as_text(inspect.getdoc(op) or "")] + [""]
    return Page("operations", "\n".join(lines))


def _commands_page() -> Page:
    lines = _heading("Commands", "=")
    os.environ["COLUMNS"] = "100"  # what argparse takes for the terminal's width
    parser = command_line.make_parser()
    helps = {"burn-torch": parser.format_help()}
    for action in parser._subparsers._group_actions if parser._subparsers else ():
        helps |= {f"burn-torch {name}": sub.format_help() for name, sub in (action.choices or {}).items()}
    assert set(helps) == {"burn-torch", *(f"burn-torch {name}" for name in registry.commands())}
    for command, text in helps.items():
        lines += [*_heading(command, "-"), "::", "", *(f"   {line}".rstrip() for line in text.splitlines()), ""]
    return Page("commands", "\n".join(lines))
