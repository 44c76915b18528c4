"""`burn-torch explain RECIPE` and `explain SCRIPT.py`: what compiler and fusion make of a step, or of any script."""

from __future__ import annotations

import argparse
import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from burn_torch.cli import options, registry
from burn_torch.core.errors import ConfigError, TraceError

if TYPE_CHECKING:
    from burn_torch.cli.script import ScriptExplanation

HELP: Final = "show what the compiler makes of a recipe's step, or of a script"
DESCRIPTION: Final = """\
Compiles the training step of a recipe, forward, backward, clipping and update as one program, and says what came of it:
operations, memory, what each pass did, where the generated program lies.  Nothing is trained.

Of any other FILE.py, a script, says what it computed: it is run with devices fused, and each program of its streams and
each function that it compiles is explained, with kernels, its lines and the reasons between them.
"""
EXAMPLES: Final = """\
examples:
  burn-torch explain digits
  burn-torch explain digits --graph | less
  burn-torch explain text-generation --valid --json
  burn-torch explain model.py --html model.html
  burn-torch explain model.py -- --layers 2
"""

HANDS_ON: Final = True
"""Words after -- are the arguments of a script."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("recipe", metavar="RECIPE", help="a recipe, FILE.py, package.module:Class, or a script FILE.py")
    group = parser.add_argument_group("what is shown")
    group.add_argument("--valid", action="store_true", help="the validation step, not that of training")
    form = group.add_mutually_exclusive_group()
    form.add_argument("--graph", action="store_true", help="also the operations, under the layers they come from")
    form.add_argument("--source", action="store_true", help="also the generated program, or a script's kernels")
    form.add_argument("--json", action="store_true", help="as JSON; what a script prints goes to stderr then")
    group.add_argument("--html", metavar="FILE", help="also write a page with pictures and generated sources")
    options.add_settings(parser, epochs=False)
    options.add_machine(parser)


def run(args: argparse.Namespace) -> int:
    """Prints the explanation."""
    if args.html is not None:
        _require_page(args)
    path = Path(args.recipe)
    if path.suffix == ".py" and path.is_file():
        from burn_torch.cli.script import defines_recipe

        if not defines_recipe(path):
            return _explain_script(path, args)
    if args.after:
        raise _not_for(args, "arguments of a script", " ".join(args.after), "a script: a FILE.py without a RECIPE")
    recipe = registry.recipe(args.recipe)
    settings = options.read_settings(recipe, args)
    from burn_torch.cli.one_step import OneStep, operations
    from burn_torch.train.stepping import reason_of

    one = OneStep.of(recipe, settings, args)
    try:
        explanation = one.explain_valid() if args.valid else one.explain()
    except TraceError as err:
        raise ConfigError(
            f"the step of {recipe.name} cannot be compiled",
            given=reason_of(err),
            expected="a step whose Python reads no value of a tensor",
            mend="`burn-torch train` runs it operation by operation and says so; docs/building-blocks/compile.md"
            " has the rules",
        ) from err
    if args.html is not None:
        explanation.show(args.html)
    if args.json:
        print(explanation.to_json())
        return 0
    print(explanation)
    counts = operations(explanation.graph)
    print("  " + ", ".join(f"{count} {name}" for name, count in counts.most_common()))
    if args.graph:
        print(explanation.graph.text(origins=True))
    if args.source and explanation.source is not None:
        print(explanation.source.read_text(encoding="utf-8"), end="")
    return 0


def _explain_script(path: Path, args: argparse.Namespace) -> int:
    """Runs a script and prints what it computed; raises what ended it, after that."""
    changed = [name for name, value in _settings(args).items() if value != args.parser.get_default(name)]
    if changed:
        options_ = ", ".join(f"--{name.replace('_', '-')}" for name in changed)
        raise _not_for(args, "settings of a recipe", options_, "a recipe; a script takes its own after --")
    from burn_torch.cli.script import explain_script

    with contextlib.redirect_stdout(sys.stderr) if args.json else contextlib.nullcontext():
        explanation = explain_script(path, args.after)
    if args.html is not None:
        explanation.show(args.html)
    if args.json:
        print(explanation.to_json())
    else:
        print(explanation)
        if args.graph or args.source:
            _print_more(explanation, args)
    if explanation.fault is not None:
        raise explanation.fault
    return 0


def _print_more(explanation: ScriptExplanation, args: argparse.Namespace) -> None:
    plans = [program.plan for stream in explanation.streams for program in stream.programs]
    plans += [plan for each, other in zip(explanation.functions, explanation.unfused, strict=True)
              if (plan := each.fusion or other) is not None]  # fmt: skip
    if args.graph:
        for plan in plans:
            print(plan.graph.text(origins=True))
        return
    for source in dict.fromkeys(kernel.c_source or kernel.source for plan in plans for kernel in plan.kernels):
        if source is not None:
            print(source)


def _settings(args: argparse.Namespace) -> dict[str, object]:
    """The options that say how a recipe is set up."""
    shown = {"recipe", "after", "graph", "source", "json", "html", "debug", "command", "parser", "given"}
    return {name: value for name, value in vars(args).items() if name not in shown}


def _require_page(args: argparse.Namespace) -> None:
    """Raises: ArtifactError or ConfigError, before anything runs, where the page cannot be written."""
    from burn_torch.fusion.telling.page import require_writable

    require_writable(args.html)
    if Path(args.html).exists() and Path(args.html).suffix.lower() not in (".html", ".htm"):
        raise _not_for(args, "a page", f"--html {args.html}, a file that is there", "a name that ends in .html")


def _not_for(args: argparse.Namespace, what: str, given: str, expected: str) -> ConfigError:
    return ConfigError(
        f"burn-torch explain: {what} {'does' if what == 'a page' else 'do'} not fit here",
        given=f"{given}, for {args.recipe}",
        expected=expected,
        mend="burn-torch explain --help tells more",
    )
