"""Commands and recipes: one file each, found by looking into their folders.  Imports no torch."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import pkgutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Protocol, cast

import burn_torch.cli.commands
import burn_torch.cli.recipes
from burn_torch.cli.recipe import Recipe
from burn_torch.core.errors import ConfigError
from burn_torch.core.faults import nearest

__all__ = ["Command", "commands", "recipe", "recipes"]


class Command(Protocol):
    """Holds what a file in `commands/` defines; its name is the command's."""

    HELP: str
    """One line, in the list of commands."""
    DESCRIPTION: str
    """Holds what `--help` of the command says above the options."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declares arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Does it; gives the exit code.  Mistakes raise errors of `burn_torch.core.errors`."""


def _files(package: ModuleType) -> list[str]:
    return sorted(info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_"))


def commands() -> Mapping[str, Command]:
    """Every command by its name: that of its file, without the underscore that keeps it from being a word of Python."""
    names = _files(burn_torch.cli.commands)
    modules = {name: importlib.import_module(f"burn_torch.cli.commands.{name}") for name in names}
    return {name.rstrip("_"): cast(Command, module) for name, module in modules.items()}


def recipes() -> list[str]:
    """The names of the built-in recipes; imports none of them."""
    return [name.replace("_", "-") for name in _files(burn_torch.cli.recipes)]


def recipe(name: str) -> Recipe:
    """The recipe of a word: a built-in one, FILE.py, FILE.py:Name or package.module:Name.

    A name stands for a Recipe or a class of one; a file without a name defines RECIPE.
    Raises: ConfigError if there is none; and whatever a file or module raises while it is imported.
    """
    module, colon, attribute = name.partition(":")
    if module.endswith(".py"):
        return _recipe_in(_module_of_file(Path(module)), attribute or "RECIPE", module)
    if colon:
        return _recipe_in(_module(module, name), attribute, module)
    if name not in recipes():
        near = nearest(name, recipes())
        raise ConfigError(
            f"there is no recipe {name!r}",
            given=name,
            expected=f"{', '.join(recipes())}, FILE.py that defines RECIPE, or package.module:Class",
            mend="name one of those" if near is None else f"did you mean {near}?",
        )
    built_in: Recipe = importlib.import_module(f"burn_torch.cli.recipes.{name.replace('-', '_')}").RECIPE
    return built_in


def _module(name: str, given: str) -> ModuleType:
    """A module that can be imported from here: the current folder counts, as with `python -m`."""
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as err:
        if err.name is None or not (name == err.name or name.startswith(f"{err.name}.")):
            raise  # it is there, and imports something that is not
        raise ConfigError(
            f"there is no module {name!r}",
            given=given,
            expected="package.module:Class, where `import package.module` works from this folder",
            mend="check the name, or give the file: path/to/file.py:Class",
        ) from err
    except ValueError as err:  # an empty name, "..", and what else is no name
        raise ConfigError(
            "this names no module", given=given, expected="package.module:Class", mend="write its name with dots"
        ) from err


def _module_of_file(path: Path) -> ModuleType:
    if not path.is_file():
        raise ConfigError(
            "this recipe file does not exist",
            given=f"{path.absolute()}",
            expected=f"a Python file that defines RECIPE, or one of {', '.join(recipes())}",
            mend="check the path",
        )
    name = f"recipe_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.absolute())
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(path.absolute().parent))  # its neighbours can be imported, as from a script
    spec.loader.exec_module(module)
    return module


def _recipe_in(module: ModuleType, name: str, where: str) -> Recipe:
    attribute = getattr(module, name, None)
    if isinstance(attribute, type) and issubclass(attribute, Recipe) and not inspect.isabstract(attribute):
        attribute = attribute()
    if isinstance(attribute, Recipe):
        return attribute
    names = [key for key, value in vars(module).items() if _is_recipe(value)]
    near = nearest(name, names) or (names[0] if len(names) == 1 else None)
    raise ConfigError(
        "this file defines no recipe" if where.endswith(".py") else "this module has no such recipe",
        given=f"{where} with " + (f"no {name}" if attribute is None else f"{name} = {attribute!r}"[:80]),
        expected=f"{name}, an instance or a class derived from burn_torch.cli.recipe.Recipe, with all its methods",
        mend=f"did you mean {where}:{near}?"
        if near
        else "see docs/building-blocks/cli.md, or burn_torch/cli/recipes/ for some that work",
    )


def _is_recipe(value: object) -> bool:
    if isinstance(value, type):
        return issubclass(value, Recipe) and not inspect.isabstract(value)
    return isinstance(value, Recipe)
