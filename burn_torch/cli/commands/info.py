"""`burn-torch info`: versions, devices, what is available and why not."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
from typing import Final

from burn_torch.cli import devices, registry
from burn_torch.cli.data_files import VARIABLE
from burn_torch.cli.options import PREFIX
from burn_torch.core.errors import DataError
from burn_torch.version import __version__

HELP: Final = "show versions, devices, what is available and why not"
DESCRIPTION: Final = "Shows versions, devices, data, what is available here, and why something is not."

REQUIRED: Final = ("torch", "numpy", "safetensors", "jinja2")
OPTIONAL: Final = {
    "triton": "GPU kernels",
    "PIL": "predictions of .png and .jpg",
    "onnx": "ONNX models",
    "onnxruntime": "comparing exported ONNX models",
    "tensorboard": "TensorBoard logs",
    "textual": "the dashboard",
    "shtab": "completion in shells",
}
"""Packages that may be absent, and what they are for."""
DISTRIBUTIONS: Final = {"PIL": "pillow"}
"""Under which name a package is installed, where it is not its own."""
ENVIRONMENT: Final = (
    "BURN_TORCH_CACHE",
    VARIABLE,
    "BURN_TORCH_VERIFY",
    "BURN_KERNELS_CACHE",
    "CUDA_VISIBLE_DEVICES",
    "NO_COLOR",
    "OMP_NUM_THREADS",
    "TRITON_INTERPRET",
)

Facts = dict[str, dict[str, str]]


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.add_argument("--json", action="store_true", help="as JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Prints the report."""
    facts = _facts()
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    width = max(len(name) for lines in facts.values() for name in lines)
    for title, lines in facts.items():
        print(title)
        for name, value in lines.items():
            print(f"  {name:{width}}  {value}")
    return 0


def _facts() -> Facts:
    return {
        "versions": _versions(),
        "devices": _devices(),
        "kernels": {"triton": _triton()},
        "data": _data(),
        "environment": _environment(),
    }


def _environment() -> dict[str, str]:
    """Returns what the environment says, settings of runs included."""
    settings = sorted(name for name in os.environ if name.startswith(PREFIX))
    return {name: os.environ.get(name, "not set") for name in (*ENVIRONMENT, *settings)}


def _versions() -> dict[str, str]:
    versions = {"burn_torch": __version__, "python": f"{platform.python_version()} on {platform.platform()}"}
    for name in REQUIRED:
        versions[name] = _version(name) or "not installed, and burn_torch needs it"
    for name, use in OPTIONAL.items():
        versions[DISTRIBUTIONS.get(name, name)] = _version(name) or f"not installed; only for {use}"
    return versions


def _version(name: str) -> str | None:
    """The version of a package; None if it cannot be imported, whatever pip says of it."""
    if importlib.util.find_spec(name) is None:
        return None
    from importlib import metadata  # 15 ms, which the help of all commands does not need

    try:
        return metadata.version(DISTRIBUTIONS.get(name, name))
    except metadata.PackageNotFoundError:
        return "version unknown"


def _devices() -> dict[str, str]:
    try:
        return devices.places()
    except ImportError as err:
        return {"cpu": f"no: {err}"}


def _triton() -> str:
    if platform.system() != "Linux":
        return f"no: Triton runs on Linux, this is {platform.system()}; every operation works through torch"
    try:
        importlib.import_module("triton")
        import torch
    except ImportError as err:
        return f"no: {err}; every operation works through torch"
    return "yes" if torch.cuda.is_available() else "installed, but there is no GPU to run kernels on"


def _data() -> dict[str, str]:
    """Returns which data sets of the recipes are here."""
    places = {"digits": "in the package"}
    try:
        recipes = [registry.recipe(name) for name in registry.recipes()]
    except ImportError as err:
        return {"digits": f"no: {err}"}
    for files in filter(None, (recipe.data_files() for recipe in recipes)):
        try:
            places[files.name] = f"in {files.folder(None)}"
        except DataError:
            fetch = f", or burn-torch train {files.name} --download" if files.cache is not None else ""
            places[files.name] = f"not here: --data DIR, or {VARIABLE}=DIR with a folder {files.name}{fetch}"
    return places
