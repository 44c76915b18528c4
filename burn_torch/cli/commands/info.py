"""`burn-torch info`: versions, devices, what is available and why not."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
from importlib import metadata

from burn_torch.version import __version__

HELP = "show versions, devices, what is available and why not"

OPTIONAL = ("triton", "onnx", "tensorboard", "safetensors")


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.add_argument("--json", action="store_true", help="as JSON, for scripts")


def run(args: argparse.Namespace) -> int:
    """Prints the report."""
    facts = _facts()
    if args.json:
        print(json.dumps(facts, indent=2))
        return 0
    for title, lines in facts.items():
        print(title)
        width = max(map(len, lines))
        for name, value in lines.items():
            print(f"  {name:{width}}  {value}")
    return 0


def _facts() -> dict[str, dict[str, str]]:
    versions = {"burn_torch": __version__, "python": f"{platform.python_version()} on {platform.platform()}"}
    for name in ("torch", "numpy", *OPTIONAL):
        versions[name] = _version(name)
    return {
        "versions": versions,
        "devices": _devices(),
        "kernels": {"triton": _triton()},
        "environment": _environment(),
    }


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _devices() -> dict[str, str]:
    import torch

    devices = {"cpu": f"torch, {torch.get_num_threads()} threads of {os.cpu_count()} cores", "ndarray": "numpy"}
    if torch.cuda.is_available():
        for i in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(i)
            devices[f"cuda:{i}"] = f"{properties.name}, {properties.total_memory / 2**30:.0f} GiB"
    elif torch.version.cuda is None and getattr(torch.version, "hip", None) is None:
        devices["cuda"] = "no: this torch is built for the CPU alone"
    else:
        devices["cuda"] = "no: torch finds no GPU or no driver for it"
    devices["mps"] = "yes" if torch.backends.mps.is_available() else "no: not an Apple GPU"
    return devices


def _triton() -> str:
    if platform.system() != "Linux":
        return f"no: Triton runs on Linux, this is {platform.system()}; every operation works through torch"
    try:
        importlib.import_module("triton")
    except ImportError as err:
        return f"no: {err}; every operation works through torch (pip install triton)"
    import torch

    return "yes" if torch.cuda.is_available() else "installed, but there is no GPU to run kernels on"


def _environment() -> dict[str, str]:
    names = ("BURN_TORCH_CACHE", "NO_COLOR", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
    return {name: os.environ.get(name, "not set") for name in names}
