"""`burn-torch predict ARTIFACT_DIR INPUT...`: what a trained model says of files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from burn_torch.cli import devices, registry
from burn_torch.cli.artifacts import saved_run, trained_model

HELP: Final = "say what a trained model sees in images"
DESCRIPTION: Final = """\
Says what a trained model sees in images: one line for each, with the class and how sure the model is.

Pictures (.png, .jpg with Pillow; .pgm) are read in grey.  Arrays (.npy, .csv with one image a line, IDX) hold pixel
values as the data set has them: 0 to 16 for digits, 0 to 255 for mnist and fashion-mnist.  In all of them the strokes
are bright and the ground is dark, as in the training data.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.add_argument("artifact_dir", type=Path, metavar="ARTIFACT_DIR", help="where `burn-torch train` kept its run")
    parser.add_argument("inputs", type=Path, nargs="+", metavar="INPUT", help="images, as many as you like")
    devices.add_option(parser)
    parser.add_argument("--recipe", metavar="FILE.py", help="the recipe that was trained, if it is not a built-in one")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for scripts")


def run(args: argparse.Namespace) -> int:
    """Prints one line an image: source, class, confidence."""
    recipe, config = saved_run(args.artifact_dir, None if args.recipe is None else registry.recipe(args.recipe))
    model = trained_model(args.artifact_dir, recipe, config, devices.device(args.devices), args.recipe)
    for found in recipe.predict(config, model, args.inputs):
        if args.json:
            print(json.dumps({"source": found.source, "label": found.label, "confidence": found.confidence}))
        else:
            print(f"{found.source}: {found.label} ({found.confidence:.1%})")
    return 0
