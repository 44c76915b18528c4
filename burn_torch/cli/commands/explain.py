"""`burn-torch explain RECIPE`: what the compiler makes of a recipe's training step."""

from __future__ import annotations

import argparse
from typing import Final

from burn_torch.cli import options, registry
from burn_torch.core.errors import ConfigError, TraceError, explain

HELP: Final = "show what the compiler makes of a recipe's step"
DESCRIPTION: Final = """\
Compiles the training step of a recipe, forward, backward, clipping and update as one program, and says what came of it:
operations, memory, what each pass did, where the generated program lies.  Nothing is trained.
"""
EXAMPLES: Final = """\
examples:
  burn-torch explain digits
  burn-torch explain digits --graph | less
  burn-torch explain text-generation --valid --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("recipe", metavar="RECIPE", help="a recipe, FILE.py or package.module:Class")
    group = parser.add_argument_group("what is shown")
    group.add_argument("--valid", action="store_true", help="the validation step, not that of training")
    form = group.add_mutually_exclusive_group()
    form.add_argument("--graph", action="store_true", help="also the operations, under the layers they come from")
    form.add_argument("--source", action="store_true", help="also the generated program")
    form.add_argument("--json", action="store_true", help="as JSON, for scripts")
    options.add_settings(parser, epochs=False)
    options.add_machine(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the explanation."""
    recipe = registry.recipe(args.recipe)
    settings = options.read_settings(recipe, args)
    from burn_torch.cli.one_step import OneStep, operations, reason_of

    one = OneStep.of(recipe, settings, args)
    try:
        found = one.explain_valid() if args.valid else one.explain()
    except TraceError as err:
        raise ConfigError(
            explain(
                f"the step of {recipe.name} cannot be compiled",
                given=reason_of(err),
                expected="a step whose Python reads no value of a tensor",
                mend="`burn-torch train` runs it operation by operation and says so; docs/building-blocks/compile.md"
                " has the rules",
            )
        ) from err
    if args.json:
        print(found.to_json())
        return 0
    print(found)
    counts = operations(found.graph)
    print("  " + ", ".join(f"{count} {name}" for name, count in counts.most_common()))
    if args.graph:
        print(found.graph.text(origins=True))
    if args.source and found.source is not None:
        print(found.source.read_text(encoding="utf-8"), end="")
    return 0
