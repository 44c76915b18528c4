"""Runs the generators: `python docs/generate` writes what is stale, with `--check` it only tells, and fails.

A generator is a file of this folder, named for what it writes, with

    def main(check: bool) -> list[str]: ...

which returns the paths (from the root of the checkout) that were not up to date, and writes nothing if `check`.
`refresh` in `_files.py` does both.  Names that begin with `_` are no generators.  A generator imports the package from
this checkout, and writes the same text on every machine: no dates, no paths, sorted or in the order of the source.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from _files import ROOT


def generators() -> list[str]:
    """Returns the names of all generators, sorted."""
    return sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))


def run(names: list[str], check: bool) -> int:
    """Runs the generators of these names and returns the exit status: 1 if `check` found something stale."""
    stale: list[str] = []
    for name in names:
        stale += importlib.import_module(name).main(check)
    for path in stale:
        print(f"stale:   {path}" if check else f"written: {path}")  # noqa: T201, the report of a command
    if check and stale:
        print("generated files are stale; mend: make generate", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def main() -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="python docs/generate", description="Write the generated files.")
    parser.add_argument("names", nargs="*", metavar="GENERATOR", help=f"default: all ({', '.join(generators())})")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is stale")
    arguments = parser.parse_args()
    unknown = sorted(set(arguments.names) - set(generators()))
    if unknown:
        parser.error(f"no such generator: {', '.join(unknown)}; there are {', '.join(generators())}")
    return run(arguments.names or generators(), arguments.check)


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "kernels")]  # the package as it is here, installed or not
    sys.exit(main())
