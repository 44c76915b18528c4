"""`burn-torch train RECIPE --dry-run`: one batch through everything, and what it takes; nothing is kept."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from burn_torch.cli.one_step import OneStep, described, peak_process_bytes, size, step
from burn_torch.cli.options import Settings
from burn_torch.cli.recipe import Recipe
from burn_torch.core.errors import TraceError
from burn_torch.core.wording import counted
from burn_torch.train import SilentRenderer, SupervisedTraining
from burn_torch.train.stepping import reason_of

__all__ = ["dry_run"]


def dry_run(recipe: Recipe, settings: Settings, args: argparse.Namespace) -> int:
    """Trains on one batch, validates on one, writes and reads a checkpoint in a folder that is removed again."""
    one = OneStep.of(recipe, settings, args)
    config = one.settings.config
    train, valid = one.train_loader, one.valid_loader
    print(f"data      {counted(train.num_items(), 'item')} to train, {valid.num_items()} to validate")
    print(f"          {counted(len(train), 'batch')} an epoch, the first one made in {one.batch_s * 1e3:.1f} ms")
    for line in described(one.batch):
        print(f"          {line}")
    _print_layers(one)
    with tempfile.TemporaryDirectory(prefix="burn-torch-dry-run-") as folder:
        checkpoint_bytes, values = _everything(one, Path(folder), compiled=args.compiled)
    print(
        f"step      {_step_time(one, compiled=args.compiled, batches=len(one.train_loader), epochs=config.num_epochs)}"
    )
    print("values    " + "  ".join(f"{split} {name} {value:.4g}" for split, name, value in values))
    _print_memory(one, checkpoint_bytes)
    print("nothing was kept")
    return 0


def _print_layers(one: OneStep) -> None:
    model = one.learner.model
    print(f"model     {type(model).__name__}, {counted(model.num_params(), 'parameter', grouped=True)}")
    try:
        layers = one.layers()
    except TraceError as err:
        print(f"          the shapes of layers are not known, it cannot be compiled: {reason_of(err)}")
        return
    rows = [(layer.path, layer.kind, str(layer.shape), f"{layer.params:,}" if layer.params else "") for layer in layers]
    widths = [max((len(row[column]) for row in rows), default=0) for column in range(4)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row[:3], widths, strict=False)]
        print(f"          {'  '.join(cells)}  {row[3].rjust(widths[3])}".rstrip())


def _everything(one: OneStep, folder: Path, *, compiled: bool) -> tuple[int, list[tuple[str, str, float]]]:
    """A run of one batch each, twice: the second one goes on from the checkpoint of the first."""
    training = (
        SupervisedTraining(folder, [one.batch], [one.valid_batch])
        .metrics(*one.recipe.metrics(one.settings.config))
        .seed(one.settings.config.seed)
        .with_config(one.settings.config)
        .compile(compiled)
        .precision(one.precision)
        .fuse(one.settings.config.fuse)
        .renderer(SilentRenderer())
    )
    result = training.num_epochs(1).launch(one.learner)
    assert result.checkpoint is not None
    written = result.checkpoint.stat().st_size
    training.num_epochs(2).resume().launch(one.learner)
    history = result.history
    values = [
        (split, name, value) for split in ("train", "valid") for name in history.names(split)
        for _, value in history.series(name, split)
    ]  # fmt: skip
    return written, values


def _step_time(one: OneStep, *, compiled: bool, batches: int, epochs: int) -> str:
    seconds = one.timed(one.compiled() if compiled else step, 4)
    each = min(seconds[1:])
    total = each * batches * epochs
    return (
        f"{seconds[0] * 1e3:.1f} ms the first time, then {each * 1e3:.2f} ms:"
        f" about {total:.0f} s of steps in {counted(epochs, 'epoch')}"
    )


def _print_memory(one: OneStep, checkpoint_bytes: int) -> None:
    print(f"memory    parameters {size(one.parameter_bytes)}, a checkpoint {size(checkpoint_bytes)}")
    try:
        print(f"          a step {size(one.explain().peak_bytes)} as planned, parameters and optimizer included")
    except TraceError as err:
        print(f"          a step cannot be planned: {reason_of(err)}")
    peak = peak_process_bytes()
    if peak is not None:
        print(f"          this process {size(peak)} at most")
