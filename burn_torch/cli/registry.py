"""Commands and recipes: one file each, found by looking into their folders.  Imports no torch."""

from __future__ import annotations

import argparse
import importlib
import pkgutil
from collections.abc import Mapping
from types import ModuleType
from typing import Protocol, cast

import burn_torch.cli.commands
import burn_torch.cli.recipes
from burn_torch.cli.recipe import Recipe

__all__ = ["Command", "commands", "recipe", "recipes"]


class Command(Protocol):
    """What a file in `commands/` defines; its name is the command's."""

    HELP: str
    """One line."""

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Declares arguments."""

    def run(self, args: argparse.Namespace) -> int:
        """Does it; gives the exit code.  Mistakes raise errors of `burn_torch.core.errors`."""


def _files(package: ModuleType) -> list[str]:
    return sorted(info.name for info in pkgutil.iter_modules(package.__path__) if not info.name.startswith("_"))


def commands() -> Mapping[str, Command]:
    """Every command by its name."""
    found = _files(burn_torch.cli.commands)
    return {name: cast(Command, importlib.import_module(f"burn_torch.cli.commands.{name}")) for name in found}


def recipes() -> list[str]:
    """The names of all recipes; imports none of them."""
    return [name.replace("_", "-") for name in _files(burn_torch.cli.recipes)]


def recipe(name: str) -> Recipe:
    """The recipe of this name.  Raises: KeyError if there is none."""
    if name not in recipes():
        raise KeyError(name)
    found: Recipe = importlib.import_module(f"burn_torch.cli.recipes.{name.replace('-', '_')}").RECIPE
    return found
