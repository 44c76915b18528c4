"""Options that several commands share, and what they do.  Imports no torch by itself.

add_settings(parser)    --config FILE, --set KEY=VALUE, --seed, --data, ...: what a run is
add_machine(parser)     --devices, --precision, --deterministic: where and how it is computed
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from burn_torch.cli import devices
from burn_torch.cli.data_files import VARIABLE
from burn_torch.cli.recipe import AnyConfig, Recipe
from burn_torch.config.overrides import Edit, edit_of_text
from burn_torch.config.sources import environment_edits, file_edits, from_sources, leaves, to_toml
from burn_torch.core.errors import ConfigError
from burn_torch.core.faults import Fault, Place, raise_faults

if TYPE_CHECKING:
    from burn_torch.config import Config

__all__ = ["PREFIX", "Settings", "add_machine", "add_settings", "prepared", "read_settings", "set_up_machine", "whole"]

PREFIX: Final = "BURN_TORCH_SET__"
"""Variables that begin so are settings: BURN_TORCH_SET__OPTIMIZER__LR=0.01 is --set optimizer.lr=0.01."""

_OPTIONS: Final = {
    "epochs": "num_epochs",
    "seed": "seed",
    "workers": "num_workers",
    "batch_size": "batch_size",
    "fuse": "fuse",
}
"""Options that are settings under a shorter name."""


@dataclass(frozen=True)
class Settings:
    """The settings of a run, and where each of them came from."""

    config: AnyConfig
    origins: dict[str, str]

    def to_toml(self) -> str:
        """As a file that --config reads."""
        return to_toml(self.config, self.origins)

    def facts(self, argv: Sequence[str]) -> dict[str, Any]:
        """Returns what `config.origins.json` keeps."""
        own = [word for before, word in zip(["", *argv], argv, strict=False) if "--hand-over" not in (before, word)]
        return {"command": shlex.join(["burn-torch", *own]), "origins": self.origins}


def whole(text: str) -> int:
    """A whole number of the command line."""
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None


def positive(text: str) -> int:
    """A whole number above 0."""
    number = whole(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is below 1")
    return number


# -- settings ---------------------------------------------------------------------------------------------


def add_settings(parser: argparse.ArgumentParser, *, epochs: bool = True) -> None:
    """Declares the options that decide what a run is."""
    group = parser.add_argument_group(
        "settings", f"defaults < --config < {PREFIX}... in the environment < --set < the options below"
    )
    group.add_argument(
        "--config",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="read settings from TOML or .json; of several files the later one wins",
    )
    add_overrides(group, "change a setting, such as optimizer.lr=0.01; may be given often")
    if epochs:
        group.add_argument("--epochs", type=whole, metavar="N", help="how often to go through the training data")
    group.add_argument("--seed", type=whole, metavar="N", help="decides parameters, dropout and the order of data")
    group.add_argument("--batch-size", type=whole, metavar="N", help="how many items a step sees")
    group.add_argument("--workers", type=whole, metavar="N", help="threads that make batches ahead; same bits for any")
    group.add_argument(
        "--fuse",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="run steps in generated kernels, which round otherwise: on a CPU they are C (default: on fused devices)",
    )
    add_data(group)


def add_overrides(parser: argparse._ActionsContainer, text: str) -> None:
    """Declares `--set`, with what its help says."""
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides", help=text)


def add_data(parser: argparse._ActionsContainer) -> None:
    """Declares `--data`."""
    parser.add_argument(
        "--data",
        type=Path,
        metavar="DIR",
        dest="data_dir",
        help=f"where the data is: the only place searched then (else ${VARIABLE}/NAME, ${VARIABLE}, the cache)",
    )
    parser.add_argument("--data-dir", type=Path, metavar="DIR", dest="data_dir", help=argparse.SUPPRESS)  # as settings


def read_settings(recipe: Recipe, args: argparse.Namespace, base: Config | None = None) -> Settings:
    """The settings from all sources.  `base` stands for the defaults and the sources below the command line.

    Raises: ConfigError for all faults at once.
    """
    place = Place()
    edits: list[Edit] = []
    if base is None:
        for path in getattr(args, "config", []):
            try:
                edits += file_edits(path, recipe.config)
            except ConfigError as error:
                place.refused(error)
        edits += environment_edits(PREFIX, os.environ)
    for text in getattr(args, "overrides", []):
        edit = edit_of_text(text, place, "--set")
        edits += [edit] if edit is not None else []
    for option, name in _OPTIONS.items():
        value = getattr(args, option, None)
        if value is not None:
            written = f"--{'no-' if value is False else ''}{option.replace('_', '-')}"
            edits.append(Edit([name], str(value).lower(), origin=written))
    if getattr(args, "data_dir", None) is not None:  # absolute: a resume may be started from elsewhere
        edits.append(Edit(["data_dir"], str(args.data_dir.absolute()), origin="--data"))
    config, origins = from_sources(recipe.config() if base is None else base, edits, place)
    return Settings(config, origins)


def prepared(recipe: Recipe, settings: Settings) -> Settings:
    """The settings with what only the data can say."""
    config = recipe.prepare(settings.config)
    if config is settings.config:
        return settings
    before = {leaf.path: leaf.value for leaf in leaves(settings.config)}
    origins = {
        leaf.path: settings.origins.get(leaf.path, "data") if before.get(leaf.path) == leaf.value else "data"
        for leaf in leaves(config)
    }
    if settings.config.data_dir is not None:
        origins["data_dir"] = settings.origins["data_dir"]
    return Settings(config, origins)


# -- the machine ------------------------------------------------------------------------------------------


def add_machine(parser: argparse.ArgumentParser, *, several: bool = False) -> argparse._ArgumentGroup:
    """Declares the options that decide where and how a run is computed."""
    group = parser.add_argument_group("machine")
    devices.add_option(group, several=several)
    group.add_argument(
        "--precision",
        choices=("float32", "tf32", "bfloat16"),
        default="float32",
        help="of matrix products, convolutions and attention; parameters stay float32 (default: float32)",
    )
    group.add_argument(
        "--deterministic",
        action="store_true",
        help="the same bits every time on a GPU too, or an error that names what cannot give them",
    )
    return group


def set_up_machine(args: argparse.Namespace) -> None:
    """Does what `--deterministic` and `--precision tf32` ask of torch.  Before anything is computed."""
    if args.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what torch asks for; read when CUDA starts
    import torch

    if args.deterministic:
        torch.use_deterministic_algorithms(True)  # the choice of kernels follows it
    if args.precision == "tf32":
        torch.set_float32_matmul_precision("high")


def refuse(subject: str, faults: Sequence[tuple[str, str, str, str]]) -> None:
    """Raises one ConfigError for all faults, if there are any."""
    if faults:
        raise_faults(subject, [Fault(*fault) for fault in faults])
