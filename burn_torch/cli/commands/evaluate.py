"""`burn-torch evaluate DIR`: measures the trained model of a run on its validation data, or on other data."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Final

from burn_torch.cli import devices, options, registry
from burn_torch.cli.artifacts import add_checkpoint, saved_run, trained_model
from burn_torch.cli.commands.resume import add_recipe
from burn_torch.config import replace
from burn_torch.core.wording import counted

HELP: Final = "measure a trained model on its validation data, or on other data"
DESCRIPTION: Final = """\
Measures the trained model of a run: every metric of its recipe over all items of the validation data, or of the data
that --data names.  Values of each batch and of the whole are kept in DIR/test/NAME, messages in DIR/evaluation.log.
"""
EXAMPLES: Final = """\
examples:
  burn-torch evaluate artifacts/digits
  burn-torch evaluate artifacts/mnist --data other/mnist --name other --json
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument("artifact_dir", type=Path, metavar="DIR", help="the artifact directory of the run")
    add_recipe(parser)
    add_checkpoint(parser)
    group = parser.add_argument_group("evaluation")
    options.add_data(group)
    group.add_argument("--name", metavar="NAME", help="what to keep the values under (default: as the recipe calls it)")
    group.add_argument("--batch-size", type=options.positive, metavar="N", help="how many items at once")
    group.add_argument("--workers", type=options.whole, metavar="N", help="threads that make batches")
    group.add_argument("--json", action="store_true", help="one JSON object a data set, for scripts")
    options.add_machine(parser)


def run(args: argparse.Namespace) -> int:
    """Prints one line a metric."""
    from burn_torch.train import EvaluatorBuilder

    recipe, config = saved_run(args.artifact_dir, None if args.recipe is None else registry.recipe(args.recipe))
    options.set_up_machine(args)
    changes = {"batch_size": args.batch_size, "num_workers": args.workers}
    changes["data_dir"] = None if args.data_dir is None else str(args.data_dir.absolute())
    config = replace(config, **{name: value for name, value in changes.items() if value is not None})
    device = devices.device(args.devices, fused=config.fuse)
    model = trained_model(recipe, config, device, args, args.artifact_dir)
    loaders = dict(recipe.evaluation(config, device, given=args.data_dir is not None))
    if args.name is not None:
        several = len(loaders) > 1
        loaders = {f"{args.name}-{name}" if several else args.name: loader for name, loader in loaders.items()}
    builder = EvaluatorBuilder(args.artifact_dir).metrics(*recipe.metrics(config)).seed(config.seed)
    builder = builder.fuse(config.fuse)
    units = {metric.name: metric.unit for metric in recipe.metrics(config)}
    for evaluation in builder.build(model).eval_all(loaders):
        if args.json:
            print(json.dumps(evaluation.facts()))
            continue
        print(f"{evaluation.name}: {counted(evaluation.items, 'item')} in {evaluation.seconds:.1f} s")
        for value in evaluation.values:
            unit = units.get(value.name)
            print(f"  {value.name}  {value.value:.4g}{f' {unit}' if unit else ''}")
    return 0
