"""`burn-torch predict ARTIFACT_DIR INPUT...`: what a trained model says of files."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from burn_torch.cli import registry
from burn_torch.cli.recipe import Recipe
from burn_torch.core.errors import ConfigError, explain

HELP = "what a trained model says of image files"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.add_argument("artifact_dir", type=Path, metavar="ARTIFACT_DIR", help="of a finished run")
    parser.add_argument(
        "inputs", type=Path, nargs="+", metavar="INPUT", help="images: .png, .jpg, .pgm, .npy, .csv or IDX"
    )
    parser.add_argument("--devices", default="cpu", metavar="DEVICE", help="cpu, cuda:0, mps or ndarray (default: cpu)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line, for scripts")


def run(args: argparse.Namespace) -> int:
    """Prints one line an image: source, class, confidence."""
    recipe, config = _saved(args.artifact_dir)
    from burn_torch import Device

    device = Device.parse(args.devices)
    model = recipe.model(config, device).load_file(args.artifact_dir / "model.safetensors")
    for found in recipe.predict(config, model, args.inputs):
        if args.json:
            print(json.dumps({"source": found.source, "label": found.label, "confidence": found.confidence}))
        else:
            print(f"{found.source}: {found.label} ({found.confidence:.1%})")
    return 0


def _saved(artifact_dir: Path) -> tuple[Recipe, Any]:
    saved = artifact_dir / "config.json"
    try:
        name = json.loads(saved.read_text(encoding="utf-8"))["recipe"]
        recipe = registry.recipe(name)
    except (OSError, ValueError, KeyError, TypeError) as err:
        raise ConfigError(
            explain(
                "this is no artifact directory of a recipe",
                given=f"{saved}: {type(err).__name__} {err}",
                expected=f"a config.json that names one of {', '.join(registry.recipes())}",
                mend="give the directory that `burn-torch train` printed",
            )
        ) from err
    return recipe, recipe.config.load(saved)
