"""`burn-torch attach DIR`: shows a run, live or afterwards, from any terminal; closing it never touches the run."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Final

from burn_torch.cli.failure import EXIT_HANGUP, EXIT_INTERRUPTED, EXIT_TERMINATED
from burn_torch.core.errors import ArtifactError
from burn_torch.core.wording import VisibleText, visible

HELP: Final = "watch a run, live or afterwards, from any terminal"
DESCRIPTION: Final = """\
Opens the dashboard on the run in an artifact directory, also on one that is over, as often as you like and from as many
terminals.  To close it, or to lose it, never touches the run; q asks before it stops anything.

If the output is not a terminal, it prints lines and follows the run to its end.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.add_argument("directory", metavar="DIR", type=Path, help="the artifact directory of a run")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--once", action="store_true", help="print the present state as text, and end")
    how.add_argument("--plain", action="store_true", help="print lines and follow the run, also on a terminal")


def run(args: argparse.Namespace) -> int:
    """Shows it."""
    from burn_torch.monitor import EVENTS, is_alive
    from burn_torch.monitor.dashboard import Source, follow_lines, obstacle, page, show

    directory: Path = args.directory
    if not (directory / EVENTS).exists() and not is_alive(directory):
        raise ArtifactError(
            "there is no run to show",
            given=f"{directory}" + ("" if directory.is_dir() else ", which is no directory"),
            expected=f"the artifact directory of a run, with its {EVENTS}",
            mend="give the directory that `burn-torch train` named; `burn-torch runs list` finds them",
        )
    source = Source(directory)
    if args.once:
        source.poll(None)
        sys.stdout.write(visible(page(source)))
        return 0
    hindrance = None if args.plain else obstacle()
    if args.plain or hindrance is not None:
        if hindrance is not None and sys.stdout.isatty():
            print(f"plain lines, as {hindrance}", file=sys.stderr)
        try:
            follow_lines(source, VisibleText(sys.stdout))  # type: ignore[arg-type]  # it writes as a TextIO does
        except KeyboardInterrupt:  # of this view; the run has heard nothing of it
            return EXIT_INTERRUPTED
        return 0
    outcome = show(source)
    if outcome == "detached":
        print(f"the run goes on; burn-torch attach {shlex.quote(str(directory))} shows it again")
    return {"hangup": EXIT_HANGUP, "terminated": EXIT_TERMINATED}.get(outcome, 0)
