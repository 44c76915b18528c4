"""`burn-torch replay FILE`: runs again what led to the first NaN or infinity of a run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

HELP: Final = "run again what led to the first NaN of a run"
DESCRIPTION: Final = """\
Runs the operations that led to the first NaN or infinity, and shows what each of them gave.  The file is one that
`burn-torch train --detect-anomaly` wrote.

The exit code is 0 if the same operation gives the same fault again, and 1 if it does not.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.add_argument("file", type=Path, metavar="FILE", help="ARTIFACT_DIR/anomaly/step-N.safetensors")


def run(args: argparse.Namespace) -> int:
    """Prints each operation with its result, then whether the fault is the same."""
    from burn_torch.train.anomaly import Replay

    replay = Replay.load(args.file)
    where = ", ".join(f"{name} {number}" for name, number in replay.position.items())
    print(f"{where}: {replay.fault}")
    if replay.fault.where:
        print(f"line {replay.fault.where}")
    replayed = replay.run()
    print(replayed)
    return 0 if replayed.reproduced else 1
