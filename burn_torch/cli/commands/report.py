"""`burn-torch report DIR`: a run as an HTML page, as CSV, as TensorBoard files."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from pathlib import Path
from typing import Final

from burn_torch.core.errors import ArtifactError, ConfigError
from burn_torch.core.files import write_atomic

HELP: Final = "write a run as an HTML page, CSV or TensorBoard files"
DESCRIPTION: Final = """\
Writes what a run has done so far, finished or going on: one HTML page with everything in it, one CSV file with a row
for each value of each metric, a folder for TensorBoard.  Several at once; - is standard output.
"""

_STDOUT: Final = "-"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.add_argument("directory", metavar="DIR", type=Path, help="the artifact directory of a run")
    parser.add_argument("--html", metavar="FILE", help="one self-contained page with curves")
    parser.add_argument("--csv", metavar="FILE", help="columns time, split, epoch, iteration, items, metric, value")
    parser.add_argument("--tensorboard", metavar="DIR", help="files for `tensorboard --logdir DIR`")


def run(args: argparse.Namespace) -> int:
    """Writes them."""
    if args.html is None and args.csv is None and args.tensorboard is None:
        raise ConfigError(
            "nothing to write is named",
            given=f"burn-torch report {args.directory}",
            expected="--html FILE, --csv FILE or --tensorboard DIR",
            mend=f"burn-torch report {args.directory} --html run.html",
        )
    if args.html == args.csv == _STDOUT:
        raise ConfigError(
            "only one report can go to standard output",
            given="--html - --csv -",
            expected="one of them",
            mend="give the other one the name of a file",
        )
    if args.tensorboard is not None:
        from burn_torch.monitor.tensorboard import require_tensorboard

        require_tensorboard()
    from burn_torch.cli.runs import open_run

    opened = open_run(args.directory, outline=args.html is None)
    if args.html is not None:
        from burn_torch.monitor.html import html_report

        _write(args.html, html_report(opened.view, str(args.directory)))
    if args.csv is not None:
        _write(args.csv, _csv(args.directory))
    if args.tensorboard is not None:
        _tensorboard(args.directory, Path(args.tensorboard))
    written = [name for name in (args.html, args.csv, args.tensorboard) if name not in (None, _STDOUT)]
    for name in written:  # not between the lines of a report
        print(name, file=sys.stderr if _STDOUT in (args.html, args.csv) else sys.stdout)
    return 0


def _csv(directory: Path) -> str:
    from burn_torch.monitor import EVENTS, read_events
    from burn_torch.monitor.csv import write_csv

    text = io.StringIO(newline="")
    write_csv(read_events(directory / EVENTS), text)
    return text.getvalue()


def _tensorboard(directory: Path, folder: Path) -> None:
    from burn_torch.monitor import EVENTS, read_events
    from burn_torch.monitor.tensorboard import TensorBoardWriter

    try:
        writer = TensorBoardWriter(folder)
        for stamped in read_events(directory / EVENTS):
            writer.apply(stamped)
        writer.close()
    except OSError as err:
        raise _unwritable(str(folder), err) from err


def _write(path: str, text: str) -> None:
    if path == _STDOUT:
        sys.stdout.write(text)
        return
    try:
        if Path(path).is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        write_atomic(path, text.encode("utf-8", "replace"))
    except OSError as err:
        raise _unwritable(path, err) from err


def _unwritable(path: str, err: OSError) -> ArtifactError:
    return ArtifactError(
        "the report cannot be written",
        given=f"{path}: {err.strerror or err}",
        expected="a place in a folder that exists and can be written",
        mend="name another place",
    )
