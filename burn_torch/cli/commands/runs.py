"""`burn-torch runs list|compare|plot`: runs on the disk, beside each other and as curves in plain text."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Final

from burn_torch.cli import options

HELP: Final = "list runs, compare them, plot their metrics"
DESCRIPTION: Final = (
    "Shows runs that are on the disk, finished or going on: a list, a comparison, curves in plain text."
)

_DEFAULT: Final = "artifacts"


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares the three views."""
    views = parser.add_subparsers(dest="view", metavar="VIEW", required=True)
    for name, help in (
        ("list", "one line a run"),
        ("compare", "best values beside each other, and the settings that differ"),
        ("plot", "curves in plain text"),
    ):
        sub = views.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
        sub.set_defaults(parser=sub)
        several = name == "compare"
        what = "the artifact directory of a run" + ("" if several else f", or a folder of them (default: {_DEFAULT})")
        sub.add_argument("directories", metavar="DIR", type=Path, nargs="+" if several else "*", help=what)
        sub.add_argument("--json", action="store_true", help="as JSON, for scripts")
        if name == "plot":
            sub.add_argument("--metric", metavar="NAME", help="only this one")
            sub.add_argument("--epochs", action="store_true", help="one value an epoch, not one a batch")
            sub.add_argument("--log", action="store_true", help="a logarithmic axis")
            sub.add_argument("--ascii", action="store_true", help="draw with ASCII letters alone")
            sub.add_argument("--width", type=options.positive, metavar="N", help="columns (default: the terminal's)")
            sub.add_argument("--height", type=options.positive, metavar="N", default=16, help="rows (default: 16)")


def run(args: argparse.Namespace) -> int:
    """Shows what was asked for."""
    from burn_torch.cli import run_views

    views = {"list": run_views.listing, "compare": run_views.compare, "plot": run_views.plot}
    return views[args.view](args)
