"""`burn-torch predict ARTIFACT_DIR INPUT...`: what a trained model says of files or texts."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from burn_torch.cli import devices, options, registry
from burn_torch.cli.artifacts import add_checkpoint, saved_run, trained_model
from burn_torch.cli.commands.resume import add_recipe
from burn_torch.config import apply_overrides
from burn_torch.core.errors import ConfigError

HELP: Final = "say what a trained model makes of images, texts, rows or prompts"
DESCRIPTION: Final = """\
Says what a trained model makes of its inputs, one line for each.

  images       a class for each: digits, mnist, fashion-mnist, image-folder
  texts        a class for each: text-classification
  prompts      how they go on: text-generation
  rows         a number or a class for each row of FILE.csv: regression, csv-table

Pictures (.png, .jpg with Pillow; .pgm) are read in grey.  Arrays (.npy, .csv with one image a line, IDX) hold pixel
values as the data set has them: 0 to 16 for digits, 0 to 255 for the others.  In all of them the strokes are bright and
the ground is dark, as in the training data.
"""
EXAMPLES: Final = """\
examples:
  burn-torch predict artifacts/digits three.png four.npy
  burn-torch predict artifacts/text-classification "Stocks fall as oil rises" --json
  echo "To be, or" | burn-torch predict artifacts/text-generation - --set temperature=0.7 --set length=200
  burn-torch predict artifacts/regression houses.csv
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("artifact_dir", type=Path, metavar="ARTIFACT_DIR", help="where `burn-torch train` kept its run")
    parser.add_argument("inputs", nargs="+", metavar="INPUT", help="files or texts, as many as you like; - reads lines")
    add_recipe(parser)
    add_checkpoint(parser)
    options.add_overrides(parser, "change a setting of predicting, such as temperature=0.5")
    devices.add_option(parser)
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for scripts")


_OF_TRAINING: Final = frozenset(("num_epochs", "optimizer", "num_workers", "split"))
"""Settings that only a training reads."""


def run(args: argparse.Namespace) -> int:
    """Prints one line an input."""
    recipe, config = saved_run(args.artifact_dir, None if args.recipe is None else registry.recipe(args.recipe))
    trains = [text for text in args.overrides if text.partition("=")[0].partition(".")[0].strip() in _OF_TRAINING]
    if trains:
        raise ConfigError(
            "predict takes no settings of training",
            given=", ".join(f"--set {text}" for text in trains),
            expected="settings that predictions follow, such as --set temperature=0.7 of text-generation",
            mend=f"leave it out, or train a run with it: burn-torch train ... --set {trains[0]}",
        )
    config = apply_overrides(config, args.overrides)
    inputs: list[str] = []
    for word in args.inputs:
        inputs += [line.rstrip("\n") for line in sys.stdin] if word == "-" else [word]
    model = trained_model(recipe, config, devices.device(args.devices), args, args.artifact_dir)
    for prediction in recipe.predict(config, model, inputs):
        if args.json:
            print(json.dumps({"source": prediction.source, **prediction.facts}))
        else:
            print(prediction.shown)
    return 0
