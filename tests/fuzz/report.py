"""Defines what a run of the fuzzer prints: disagreements as they are found, progress, and one table at the end."""

from __future__ import annotations

import argparse
import collections
import hashlib
import json
from pathlib import Path
from typing import Final

from tests.fuzz.worker import Failure

__all__ = ["Report"]

_PRINTED_OF_A_FAMILY: Final = 2
"""Shrunk programs of the same door and rows that are printed."""


class Report:
    """Gathers the counts and failures of all phases."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.failures: dict[tuple[str, str, int], Failure] = {}
        """By phase, door and number of the program."""
        self.counts: dict[str, collections.Counter[str]] = {}
        self.seconds: dict[str, float] = {}
        self._families: collections.Counter[tuple[str, ...]] = collections.Counter()
        self._printed: set[tuple[str, str, int]] = set()

    # -- while it runs -------------------------------------------------------------------------------
    def add(self, phase: str, failure: Failure) -> None:
        """A disagreement, as large as it was drawn; told at once, as a long run may be cut off before it is shrunk."""
        self.failures[phase, failure.door, failure.number] = failure
        print(f"{phase}, door {failure.door}, program {failure.number}: {failure.words[:110]}", flush=True)

    def add_shrunk(self, phase: str, failure: Failure) -> None:
        """The same, small: it is printed unless others of its rows were."""
        self.failures[phase, failure.door, failure.number] = failure
        rows = sorted({str(step[0]) for step in json.loads(failure.program or '{"steps": []}')["steps"]})
        family = (phase, failure.door, *rows)
        self._families[family] += 1
        if self._families[family] <= _PRINTED_OF_A_FAMILY:
            self._print(phase, failure)

    def print_progress(self, phase: str, counts: collections.Counter[str], seconds: float) -> None:
        """One line."""
        programs, failed = counts["programs"], sum(1 for name, *_ in self.failures if name == phase)
        print(f"{phase}, {seconds:.0f} s: {programs:,} programs, {programs / seconds:.1f} a second, "
              f"{failed} disagreements", flush=True)  # fmt: skip

    def _print(self, phase: str, failure: Failure) -> None:
        self._printed.add((phase, failure.door, failure.number))
        print(f"\n{phase}, door {failure.door}, program {failure.number}: {failure.words}")
        print(f"  again: {self._again(phase, failure.number)}")
        if failure.program is not None:
            from tests.fuzz.corpus import as_python, save

            print("\n".join("  " + line for line in as_python(failure).splitlines()))
            if self.options.keep:
                digest = hashlib.blake2b(failure.program.encode(), digest_size=4).hexdigest()
                name = f"{failure.door}-{digest}".replace(" ", "-")
                print(f"  kept: {save(Path(self.options.keep), name, phase, failure)}")
        print(flush=True)

    def _again(self, phase: str, number: int) -> str:
        return f"python -m tests.fuzz --phases {phase} --seed {self.options.seed} --only {number}"

    # -- at the end ----------------------------------------------------------------------------------
    def end_phase(self, phase: str, counts: collections.Counter[str], seconds: float) -> None:
        """Notes a phase's counts, and prints those of its failures that no shrunk program was printed for."""
        self.counts[phase], self.seconds[phase] = counts, seconds
        rest = [key for key in self.failures if key[0] == phase and key not in self._printed]
        for key in rest[:1] if not self._printed else []:
            self._print(phase, self.failures[key])
        for _, door, number in rest[:40]:
            words = self.failures[phase, door, number].words
            print(f"{phase}, door {door}, program {number}: {words[:110] if not door.startswith('steps') else words}")
        if len(rest) > 40:
            print(f"{phase}: {len(rest) - 40} more disagreements")
        print(flush=True, end="")

    def print_summary(self, seconds: float) -> None:
        """The table of phases and doors."""
        for phase, counts in self.counts.items():
            self._print_phase(phase, counts, self.seconds[phase])
        total = sum(counts["programs"] for counts in self.counts.values())
        print(f"{total} programs in {seconds:.0f} s, {len(self.failures)} disagreements; seed {self.options.seed}",
              flush=True)  # fmt: skip

    def _print_phase(self, phase: str, counts: collections.Counter[str], seconds: float) -> None:
        programs = counts["programs"]
        each = max(programs, 1)
        print(
            f"\n{phase}: {programs} programs of {counts['steps'] / each:.1f} steps in {seconds:.0f} s,"
            f" {programs / max(seconds, 0.1):.1f} a second, {counts['cpu_ms'] / each:.0f} ms of a processor each"
        )
        print(f"  {'door':20} {'compared':>9} {'disagree':>9}  not compared")
        for name in dict.fromkeys(key.split("|")[0] for key in sorted(counts) if "|" in key):
            skipped = {key.split("|")[2]: n for key, n in counts.items() if key.startswith(f"{name}|skipped|")}
            words = "; ".join(f"{n} {why}" for why, n in sorted(skipped.items(), key=lambda item: -item[1]))
            print(f"  {name:20} {counts[f'{name}|run']:9} {counts[f'{name}|failed']:9}  {words}")
        if counts["unstable"]:
            print(f"  {counts['unstable']} results not compared: rounding alone moves them")
        if counts["cut off"]:
            print(f"  {counts['cut off']} processes were ended within a program: the time was over")
