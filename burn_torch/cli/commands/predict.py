"""`burn-torch predict ARTIFACT_DIR INPUT...`: what a trained model says of files."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path
from typing import Any, Final

from burn_torch.cli import devices, registry
from burn_torch.cli.artifacts import saved_run
from burn_torch.cli.recipe import Recipe
from burn_torch.core.errors import ArtifactError, RecordError, explain

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
    model = _load(recipe, config, args)
    for found in recipe.predict(config, model, args.inputs):
        if args.json:
            print(json.dumps({"source": found.source, **found.facts}))
        else:
            print(f"{found.source}: {found.text}")
    return 0


def _load(recipe: Recipe, config: Any, args: argparse.Namespace) -> Any:
    path = args.artifact_dir / "model.safetensors"
    if not path.is_file():
        name = args.recipe or recipe.name
        resume = f"burn-torch train {name} --artifact-dir {shlex.quote(str(args.artifact_dir))} --resume"
        raise ArtifactError(
            explain(
                "the run in this directory has no trained model yet",
                given=f"{args.artifact_dir}, without model.safetensors",
                expected="a run that has come to its end",
                mend=f"finish it: {resume}",
            )
        )
    try:
        return recipe.model(config, devices.device(args.devices)).load_file(path)
    except RecordError as err:
        err.add_note(f"while {args.artifact_dir / 'config.json'} describes the model that is wanted")
        raise
