"""Defines what an artifact directory says of the run that made it: which recipe, with which settings."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from burn_torch.cli import registry
from burn_torch.cli.recipe import AnyConfig, Recipe
from burn_torch.core import strict_json
from burn_torch.core.errors import ArtifactError, ConfigError, RecordError
from burn_torch.core.reading import MAX_CONFIG_BYTES, read_bounded
from burn_torch.core.wording import visible

if TYPE_CHECKING:
    from burn_torch.module import Module
    from burn_torch.tensor import Device

__all__ = ["add_checkpoint", "bounded_by", "largest_checkpoint", "saved_run", "trained_model"]

_ROOM: Final = 1 << 20
"""Elements that a model may have beyond twice what its record has: some names are two parameters in the model."""


def saved_run(artifact_dir: Path, recipe: Recipe | None = None) -> tuple[Recipe, Any]:
    """The recipe and settings of the run in a directory; `recipe` is the one that it must be, if that is known.

    Code that a directory names is never executed: a recipe that is not built in has to be given.

    Raises: ArtifactError if there is no run, RecordError if it is of another recipe, ConfigError if its settings are
        damaged or of a recipe that is not here.
    """
    path = artifact_dir / "config.json"
    try:
        content = read_bounded(path, MAX_CONFIG_BYTES)
    except OSError as err:
        problem = f"{path}: {err.strerror or err}"
        raise ArtifactError(
            "this is not the artifact directory of a recipe",
            given=problem if artifact_dir.is_dir() else f"{artifact_dir}, which is no directory",
            expected="a directory with the config.json that `burn-torch train` writes",
            mend="give the directory that `burn-torch train` named; by default it is below artifacts/",
        ) from err
    name = _recipe_name(content)
    if recipe is None:
        if name is None or name not in registry.recipes():
            raise ConfigError(
                "the settings of this run name no built-in recipe",
                given=f"{path}: " + (_lack_of_recipe(content) if name is None else f"recipe {name!r}"),
                expected=f"a recipe of {', '.join(registry.recipes())}",
                mend="name its recipe: --recipe FILE.py, or --recipe package.module:Class"
                if name
                else "restore config.json from a copy",
            )
        recipe = registry.recipe(name)
    elif name is not None and name != recipe.name:
        raise RecordError(
            "the run in this directory is of another recipe",
            given=f"recipe {recipe.name}, while {path} is of {name}",
            expected=f"the directory of a run of {recipe.name}",
            mend="name that recipe, or another directory",
        )
    return recipe, recipe.config.load(path)


def _lack_of_recipe(content: bytes) -> str:
    try:
        strict_json.parse(content)
    except (ValueError, RecursionError) as err:
        return f"it is damaged: {str(err).partition(chr(10))[0] or 'nested too deeply'}"
    return "nothing under recipe"


def add_checkpoint(parser: argparse._ActionsContainer) -> None:
    """Declares `--checkpoint`."""
    parser.add_argument(
        "--checkpoint",
        type=_epoch,
        metavar="EPOCH",
        help="the model of a checkpoint, after an epoch or the newest one (newest), not that of the run's end",
    )


def _epoch(text: str) -> int | Literal["newest"]:
    if text == "newest":
        return "newest"
    if text.isascii() and text.isdigit() and int(text):
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is neither an epoch (3) nor newest")


def trained_model(recipe: Recipe, config: AnyConfig, device: Device, args: Any, artifact_dir: Path) -> Module:
    """The model that a run ended with, or that of args.checkpoint, on a device without gradients.

    Raises: ArtifactError if the run has not come to its end, RecordError if its model is damaged or another one.
    """
    if args.checkpoint is not None:
        return _checkpoint_model(recipe, config, device, args.checkpoint, artifact_dir)
    path = artifact_dir / "model.safetensors"
    if not path.is_file():
        own = "" if args.recipe is None else f" --recipe {shlex.quote(args.recipe)}"
        raise ArtifactError(
            "the run in this directory has no trained model yet",
            given=f"{artifact_dir}, without model.safetensors",
            expected="a run that has come to its end",
            mend=f"finish it: burn-torch resume {shlex.quote(str(artifact_dir))}{own}; or take what there is:"
            " --checkpoint newest",
        )
    return _loaded_model(recipe, config, device, path, artifact_dir, lambda model: model.load_file(path))


def _loaded_model(
    recipe: Recipe, config: AnyConfig, device: Device, path: Path, artifact_dir: Path, load: Callable[[Module], Module]
) -> Module:
    try:
        with bounded_by(path, artifact_dir):
            model = recipe.model(config, device)
        return load(model)
    except RecordError as err:
        err.add_note(f"while {artifact_dir / 'config.json'} describes the model that is wanted")
        raise


def bounded_by(record: Path, artifact_dir: Path, elements: int | None = None) -> AbstractContextManager[None]:
    """Within, a model is built for a record, with no more elements than the record can have.

    elements  how many it has, where that is known; else as many as the file has bytes

    Raises: ConfigError at the first parameter that is too many, before it is made.
    """
    from burn_torch.module.budget import bounded_elements

    if elements is None:
        elements = record.stat().st_size if record.is_file() else 0
    return bounded_elements(2 * elements + _ROOM, str(artifact_dir / "config.json"), f"the model of {record}")


def _checkpoint_model(
    recipe: Recipe, config: AnyConfig, device: Device, epoch: int | Literal["newest"], artifact_dir: Path
) -> Module:
    from burn_torch.train import FileCheckpointer

    there = FileCheckpointer(artifact_dir / "checkpoint")
    checkpoint_file = there.newest(_say) if epoch == "newest" else there.restore(epoch)
    if checkpoint_file is None:
        raise ArtifactError(
            "the run in this directory has no checkpoint yet",
            given=f"{artifact_dir}, without a file in checkpoint/",
            expected="a run that has ended an epoch, or was stopped within one",
            mend="wait for it, or press Ctrl-C once: then it saves and stops",
        )
    path, checkpoint = checkpoint_file
    _say(f"the model of {path}")
    return _loaded_model(recipe, config, device, path, artifact_dir, lambda model: model.load_record(checkpoint.model))


def largest_checkpoint(artifact_dir: Path) -> Path | None:
    """The largest file that a resume may take; None where there is none."""
    from burn_torch.train import FileCheckpointer

    files = [file.path for file in FileCheckpointer(artifact_dir / "checkpoint").files()]
    return max(files, key=lambda path: path.stat().st_size, default=None)


def _say(text: str) -> None:
    print(visible(text), file=sys.stderr)  # what scripts read stays as it is


def _recipe_name(content: bytes) -> str | None:
    """The recipe that settings name; None where they name none or are no JSON, which the recipe's config words."""
    try:
        values = json.loads(content)
    except (ValueError, RecursionError):
        return None
    name = values.get("recipe") if isinstance(values, dict) else None
    return name if isinstance(name, str) else None
