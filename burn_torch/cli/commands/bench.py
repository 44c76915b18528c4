"""`burn-torch bench RECIPE`: how long a step takes, eager and compiled, and what memory it wants."""

from __future__ import annotations

import argparse
import json
from typing import Final

from burn_torch.cli import options, registry
from burn_torch.core.wording import counted

HELP: Final = "measure a recipe's step: eager and compiled time, items a second, memory"
DESCRIPTION: Final = """\
Measures the training step of a recipe on one batch that lies on the device: median and spread of many steps, eager and
compiled, items a second, what memory it wants, and how long the loader takes for a batch.  Nothing is kept.
"""
EXAMPLES: Final = """\
examples:
  burn-torch bench digits
  burn-torch bench fashion-mnist --data data/fashion-mnist --batch-size 256 --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("recipe", metavar="RECIPE", help="a recipe, FILE.py or package.module:Class")
    group = parser.add_argument_group("measuring")
    group.add_argument("--steps", type=options.positive, default=50, metavar="N", help="steps to measure (50)")
    group.add_argument("--warmup", type=options.positive, default=5, metavar="N", help="steps before those (5)")
    group.add_argument("--json", action="store_true", help="as JSON, for scripts")
    options.add_settings(parser, epochs=False)
    options.add_machine(parser)


def run(args: argparse.Namespace) -> int:
    """Prints one line a way of running the step."""
    recipe = registry.recipe(args.recipe)
    settings = options.read_settings(recipe, args)
    from burn_torch.cli.measuring import measured
    from burn_torch.cli.one_step import OneStep, size

    timing = measured(OneStep.of(recipe, settings, args), steps=args.steps, warmup=args.warmup)
    if args.json:
        print(json.dumps(timing.facts(), indent=2))
        return 0
    parameters = counted(timing.parameters, "parameter", grouped=True)
    print(f"{timing.recipe} on {timing.device}, {parameters}, batches of {timing.items}")
    for time in timing.times:
        spread = f"{time.low_ms:.3f} to {time.high_ms:.3f}"
        print(f"  {time.name:9} {time.median_ms:9.3f} ms a step {f'({spread})':24}  {time.items_per_s:12,.0f} items/s")
    for note in timing.notes:
        print(f"  {note}")
    print(f"  data      {timing.batch_ms:9.3f} ms a batch, made in the thread that asks")
    for name, count in timing.memory.items():
        print(f"  memory    {size(count):>12}  {name}")
    return 0
