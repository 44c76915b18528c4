"""Commands and recipes: one file each, found by looking into their folders.  Imports no torch."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

import burn_torch.cli.commands
import burn_torch.cli.recipes
from burn_torch.cli.recipe import Recipe
from burn_torch.core.errors import ConfigError, explain
from burn_torch.core.faults import nearest

__all__ = ["Command", "commands", "recipe", "recipes"]


class Command(Protocol):
    """What a file in `commands/` defines; its name is the command's."""

    HELP: str
    """One line, in the list of commands."""
    DESCRIPTION: str
    """What `--help` of the command says above the options."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declares arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Does it; gives the exit code.  Mistakes raise errors of `burn_torch.core.errors`."""


def _files(package: ModuleType) -> list[str]:
    return sorted(info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_"))


def commands() -> Mapping[str, Command]:
    """Every command by its name: that of its file, without the underscore that keeps it from being a word of Python."""
    found = _files(burn_torch.cli.commands)
    modules = {name: importlib.import_module(f"burn_torch.cli.commands.{name}") for name in found}
    return {name.rstrip("_"): cast(Command, module) for name, module in modules.items()}


def recipes() -> list[str]:
    """The names of the built-in recipes; imports none of them."""
    return [name.replace("_", "-") for name in _files(burn_torch.cli.recipes)]


def recipe(name: str) -> Recipe:
    """The built-in recipe of this name, or the one that a Python file defines.

    Raises: ConfigError if there is none; and whatever a file raises while it is imported.
    """
    if name.endswith(".py"):
        return _recipe_of_file(Path(name))
    if name not in recipes():
        near = nearest(name, recipes())
        raise ConfigError(
            explain(
                f"there is no recipe {name!r}",
                given=name,
                expected=f"{', '.join(recipes())}, or a Python file that defines RECIPE",
                mend="name one of those" if near is None else f"did you mean {near}?",
            )
        )
    found: Recipe = importlib.import_module(f"burn_torch.cli.recipes.{name.replace('-', '_')}").RECIPE
    return found


def _recipe_of_file(path: Path) -> Recipe:
    if not path.is_file():
        raise ConfigError(
            explain(
                "there is no such file of a recipe",
                given=f"{path.absolute()}",
                expected=f"a Python file that defines RECIPE, or one of {', '.join(recipes())}",
                mend="check the path",
            )
        )
    name = f"recipe_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.absolute().parent))  # its neighbours can be imported, as from a script
    spec.loader.exec_module(module)
    found = getattr(module, "RECIPE", None)
    if not isinstance(found, Recipe):
        raise ConfigError(
            explain(
                "this file defines no recipe",
                given=f"{path} with " + ("no RECIPE" if found is None else f"RECIPE = {found!r}"[:80]),
                expected="RECIPE, an instance of a class derived from burn_torch.cli.recipe.Recipe",
                mend="see docs/building-blocks/cli.md, or burn_torch/cli/recipes/ for some that work",
            )
        )
    return found
