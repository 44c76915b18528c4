"""`burn-torch resume DIR`: goes on with a run from its newest sound checkpoint; `train RECIPE --resume` in short."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from burn_torch.cli import handover, options, placement, registry, survival
from burn_torch.cli.artifacts import saved_run
from burn_torch.cli.commands import train

HELP: Final = "go on with a run that was stopped, or train a finished one for longer"
DESCRIPTION: Final = """\
Goes on with the run in a directory, from its newest sound checkpoint: mid-epoch where it was stopped there.  The result
has the bits of a run that was never stopped.  The settings are the run's own.
"""
EXAMPLES: Final = """\
examples:
  burn-torch resume artifacts/digits
  burn-torch resume artifacts/digits --epochs 40
  burn-torch resume artifacts/own --recipe my_recipe.py
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("artifact_dir", type=Path, metavar="DIR", help="the artifact directory of the run")
    add_recipe(parser)
    group = parser.add_argument_group("run")
    group.add_argument(
        "--epochs", type=options.whole, metavar="N", help="train up to this epoch, not the run's own last"
    )
    group.add_argument(
        "--workers", type=options.whole, metavar="N", help="threads that make batches; same bits for any"
    )
    options.add_data(group)
    train.add_steps(group)
    survival.add_options(parser)
    placement.add_options(options.add_machine(parser, several=True))
    train.add_view(parser)


def add_recipe(parser: argparse.ArgumentParser) -> None:
    """Declares `--recipe`."""
    parser.add_argument(
        "--recipe",
        metavar="RECIPE",
        help="the recipe of the run, if it is not a built-in one: FILE.py or package.module:Class",
    )


def run(args: argparse.Namespace) -> int:
    """Trains."""
    if handover.wanted(args):
        return handover.lead(args.given)
    named = None if args.recipe is None else registry.recipe(args.recipe)
    recipe, _ = saved_run(args.artifact_dir, named)
    args.recipe = args.recipe or recipe.name
    args.resume, args.download = True, False
    settings = train.resumed_settings(recipe, args.artifact_dir, args)
    return train.launch(recipe, settings, args.artifact_dir, args)
