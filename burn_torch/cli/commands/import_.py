"""`burn-torch import m.onnx --out model/`: an ONNX model as Python source and a record."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from burn_torch.cli import options

HELP: Final = "write an ONNX model as a Python module and a record"
DESCRIPTION: Final = """\
Writes an ONNX model as a Python module with a class Model, and a record with its weights beside it.

First it says what the file holds: operators, inputs, outputs, weights, and every node that cannot be imported.  With
--report it stops there.  Nothing of the file is executed.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.add_argument("input", type=Path, metavar="MODEL.onnx", help="the file to import")
    parser.add_argument("--out", type=Path, default=Path("model"), metavar="DIR", help="where to write (model/)")
    parser.add_argument("--report", action="store_true", help="only say what the file holds; write nothing")
    parser.add_argument(
        "--memory-limit",
        type=options.positive,
        metavar="MIB",
        help="how much memory constants that are worked out from others may take (64, and four times the weights)",
    )


def run(args: argparse.Namespace) -> int:
    """Prints the report, writes the files, prints where they are."""
    from burn_torch.onnx import ModelGen

    limit = None if args.memory_limit is None else args.memory_limit << 20
    job = ModelGen().input(args.input).out_dir(args.out).memory_limit_bytes(limit)
    report = job.report()
    print(report)
    if args.report:
        report.check()
        return 0
    path = job.run()
    print(f"wrote {path} and {path.with_name('model.safetensors')}")
    return 0
