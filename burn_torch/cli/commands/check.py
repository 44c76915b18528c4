"""`burn-torch check [RECIPE]`: is this machine fit, and is this recipe right?"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from burn_torch.cli import devices, options, registry

if TYPE_CHECKING:
    from burn_torch.cli.examination import Outcome

HELP: Final = "check this machine, a recipe's gradients and common faults, or the kernels"
DESCRIPTION: Final = """\
Checks this machine: versions, folders that must be writable, and that the device computes what it should.

With a RECIPE also one step of it: its data, its first loss, gradients against finite differences in float64, compiled
against eager, the same bits twice, whether it learns one batch, and whether a saved model loads again.
With --kernels also the fused kernels beside float64: outputs, gradients, memory never written, offsets past 32 bits.
"""
EXAMPLES: Final = """\
examples:
  burn-torch check
  burn-torch check digits --set dropout=0
  burn-torch check my_recipe.py
  burn-torch check --kernels softmax,rms_norm --devices cuda:0

exit codes: 0 all is well, 1 there is a fault
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("recipe", nargs="?", metavar="RECIPE", help="a recipe, FILE.py or package.module:Class")
    parser.add_argument(
        "--kernels", metavar="NAME,...", help="also check these fused kernels, or all of them with the word all"
    )
    parser.add_argument("--json", action="store_true", help="as JSON, for scripts")
    options.add_settings(parser, epochs=False)
    options.add_machine(parser)


def run(args: argparse.Namespace) -> int:
    """Prints one line a look; 1 if one of them found a fault."""
    outcomes = []
    for outcome in _looks(args):
        outcomes.append(outcome)
        if not args.json:
            print(f"{outcome.status:5}  {outcome.name}: {outcome.text}", flush=True)
    faults = sum(outcome.status == "fault" for outcome in outcomes)
    if args.json:
        looks = [{"name": one.name, "status": one.status, "text": one.text} for one in outcomes]
        print(json.dumps({"faults": faults, "looks": looks}, indent=2))
    else:
        print(f"{len(outcomes)} looks, {faults} fault{'' if faults == 1 else 's'}")
    return 1 if faults else 0


def _looks(args: argparse.Namespace) -> Iterator[Outcome]:
    recipe = None if args.recipe is None else registry.recipe(args.recipe)
    settings = None if recipe is None else options.read_settings(recipe, args)
    device = devices.device(args.devices)
    yield from _machine(device)
    if args.kernels is not None:
        yield from _kernels(args.kernels, device)
    if recipe is not None and settings is not None:
        from burn_torch.cli.examination import examine
        from burn_torch.cli.one_step import OneStep

        yield from examine(OneStep.of(recipe, settings, args))


def _machine(device: object) -> Iterator[Outcome]:
    import tempfile
    from pathlib import Path

    import numpy as np
    import torch

    from burn_torch import Tensor
    from burn_torch.cli.examination import Outcome
    from burn_torch.data import cache_dir

    version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
    fits = version >= (2, 11) and sys.version_info >= (3, 11)
    versions = f"python {sys.version.split()[0]}, torch {torch.__version__}, numpy {np.__version__}"
    yield Outcome(
        "versions", "ok" if fits else "fault", versions if fits else f"{versions}; python 3.11, torch 2.11 at least"
    )
    for name, folder in (("cache", cache_dir("x").parent), ("temporary files", Path(tempfile.gettempdir()))):
        place = next(path for path in (folder, *folder.parents) if path.exists())
        try:
            with tempfile.TemporaryFile(dir=place):
                yield Outcome(name, "ok", f"{folder} can be written")
        except OSError as err:
            yield Outcome(name, "fault", f"{folder} cannot be written: {err.strerror or err}")
    random = np.random.Generator(np.random.Philox(1))
    x, y = (random.standard_normal((256, 256)) for _ in range(2))
    x32, y32 = (Tensor.from_data(v.astype(np.float32), device) for v in (x, y))
    product = (x32 @ y32).into_data().values.astype(np.float64)
    exact = x.astype(np.float32).astype(np.float64) @ y.astype(np.float32).astype(np.float64)
    error = float(np.linalg.norm(product - exact) / np.linalg.norm(exact))
    # the relative error of a sum of 256 products in float32 is about sqrt(256) * 2^-24 at most; tf32 has 2^-11
    good = error < 16 * 2**-24
    text = f"{device!r} multiplies matrices to {error:.1e}"
    yield Outcome("device", "ok" if good else "note", text if good else f"{text}: coarser than float32")


def _kernels(names: str, device: Any) -> Iterator[Outcome]:
    from burn_torch.backend.libtorch.kernel_library import check_kernels
    from burn_torch.cli.examination import Outcome

    wanted = None if names == "all" else [name.strip() for name in names.split(",")]
    faults, count, reference = check_kernels(wanted, device.place)
    where = "the references, no kernel runs on these tensors" if reference else "the kernels"
    for fault in faults:
        yield Outcome("kernels", "fault", fault)
    if not faults:
        yield Outcome("kernels", "ok", f"{count} calls of {where}, beside float64")
