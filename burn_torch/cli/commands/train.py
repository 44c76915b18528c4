"""`burn-torch train RECIPE`: trains a recipe and keeps everything in an artifact directory."""

from __future__ import annotations

import argparse
import itertools
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from burn_torch.cli import devices, handover, registry, survival
from burn_torch.cli.artifacts import saved_run
from burn_torch.cli.failure import EXIT_INTERRUPTED, EXIT_TERMINATED
from burn_torch.cli.recipe import Recipe
from burn_torch.config import Config, apply_overrides, replace
from burn_torch.core.errors import ConfigError, explain

HELP: Final = f"train a recipe: {', '.join(registry.recipes())}, or one of your own"
DESCRIPTION: Final = """\
Trains a recipe and keeps settings, metrics, checkpoints and the trained model in an artifact directory.

Ctrl-C finishes the step and writes a checkpoint; --resume goes on from it.  A second Ctrl-C stops at once.
"""

_EXIT: Final = {"interrupted": EXIT_INTERRUPTED, "terminated": EXIT_TERMINATED}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.add_argument(
        "recipe",
        metavar="RECIPE",
        help=f"what to train: {', '.join(registry.recipes())}, or a Python file that defines RECIPE",
    )
    parser.add_argument("--epochs", type=_whole, metavar="N", help="how often to go through the training data")
    parser.add_argument("--seed", type=_whole, metavar="N", help="decides parameters, dropout and the order of data")
    devices.add_option(parser)
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="where the data's files are (default: the cache, else a download)"
    )
    parser.add_argument(
        "--artifact-dir",
        type=Path,
        metavar="DIR",
        help="where to keep the run (default: artifacts/RECIPE; if there is one, RECIPE-2, ...)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        dest="overrides",
        help="change a setting, such as optimizer.lr=0.01; may be given often",
    )
    parser.add_argument(
        "--no-compile",
        action="store_false",
        dest="compiled",
        help="run each step operation by operation, to debug it; same bits on a CPU, slower",
    )
    parser.add_argument(
        "--tensorboard",
        action="store_true",
        help="also write TensorBoard files, into tensorboard in the artifact directory",
    )
    handover.add_options(parser)
    parser.add_argument("--show-config", action="store_true", help="print all settings as JSON, and train nothing")
    parser.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run in --artifact-dir, or with the newest of the default ones",
    )
    survival.add_options(parser)


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number") from None


def run(args: argparse.Namespace) -> int:
    """Trains."""
    if handover.wanted(args):
        return handover.lead(args.given)
    recipe = registry.recipe(args.recipe)
    artifact_dir = _artifact_dir(recipe, args)
    config = _resumed_config(recipe, artifact_dir, args) if args.resume else _config(recipe, args)
    if args.show_config:
        print(config.to_json())
        return 0
    return _train(recipe, config, artifact_dir, args)


def _config(recipe: Recipe, args: argparse.Namespace) -> Config:
    overrides = list(args.overrides)
    overrides += [f"num_epochs={args.epochs}"] if args.epochs is not None else []
    overrides += [f"seed={args.seed}"] if args.seed is not None else []
    return _with_data_dir(apply_overrides(recipe.config(), overrides), args)


def _resumed_config(recipe: Recipe, artifact_dir: Path, args: argparse.Namespace) -> Config:
    given = [f"--set {text}" for text in args.overrides] + ([] if args.seed is None else [f"--seed {args.seed}"])
    if given:
        raise ConfigError(
            explain(
                "a resumed run keeps its settings",
                given=f"--resume with {' '.join(given)}",
                expected="--resume with --epochs, --devices, --data-dir and --no-compile at most",
                mend="leave the others out, or start a run of its own",
            )
        )
    _, config = saved_run(artifact_dir, recipe)
    return _with_data_dir(config if args.epochs is None else replace(config, num_epochs=args.epochs), args)


def _with_data_dir(config: Config, args: argparse.Namespace) -> Config:
    """Kept as an absolute path: a resume may be started from elsewhere."""
    return config if args.data_dir is None else replace(config, data_dir=str(args.data_dir.absolute()))


def _artifact_dir(recipe: Recipe, args: argparse.Namespace) -> Path:
    """The directory that was named, or the next free one; to resume, the newest."""
    if args.artifact_dir is not None:
        return Path(args.artifact_dir)
    base = Path("artifacts") / recipe.name
    names = itertools.chain([base], (base.with_name(f"{base.name}-{i}") for i in itertools.count(2)))
    taken: list[Path] = list(itertools.takewhile(lambda path: path.exists(), names))
    if args.resume and taken:
        return taken[-1]
    return base.with_name(f"{base.name}-{len(taken) + 1}") if taken else base


def _train(recipe: Recipe, config: Any, artifact_dir: Path, args: argparse.Namespace) -> int:
    from burn_torch import seed
    from burn_torch.train import AccuracyMetric, Learner, LossMetric, SupervisedTraining

    device = devices.device(args.devices).autodiff()
    with _reserved(artifact_dir, resume=args.resume):
        seed(config.seed)
        train, valid = recipe.loaders(config, device)
        learner = Learner(recipe.model(config, device), config.optimizer.algorithm.init(), config.optimizer.lr)
    handover.hand_over(args, artifact_dir)  # before a renderer looks at stdout
    training = (
        SupervisedTraining(artifact_dir, train, valid)
        .metrics(AccuracyMetric(), LossMetric())
        .num_epochs(config.num_epochs)
        .seed(config.seed)
        .with_config(config)
        .compile(args.compiled)
        .summary()
    )
    if args.tensorboard:
        training = training.tensorboard()
    print(
        f"{'resumes' if args.resume else 'trains'} {recipe.name} on {args.devices}, kept in {artifact_dir}", flush=True
    )
    result = survival.applied(training, args).resume(args.resume).launch(learner)
    folder = shlex.quote(str(artifact_dir))
    resume = f"burn-torch train {shlex.quote(args.recipe)} --artifact-dir {folder} --resume"
    if result.status == "completed":
        own = "" if recipe.name in registry.recipes() else f" --recipe {shlex.quote(args.recipe)}"
        print(f"model    {artifact_dir / 'model.safetensors'}")
        print(f"predict  burn-torch predict {folder} IMAGE...{own}")
        print(f"go on    {resume} --epochs {2 * config.num_epochs}")
    else:
        status = "stopped" if result.status == "time_limit" else result.status
        print(f"{status} by {result.message}; the checkpoint is {result.checkpoint}")
        print(f"go on    {resume}")
    return _EXIT.get(result.status, 0)


@contextmanager
def _reserved(path: Path, *, resume: bool) -> Iterator[None]:
    """Takes the artifact directory before data is read or downloaded; leaves no trace if there is no run after all."""
    from burn_torch.train.artifact import ArtifactDir

    artifact = ArtifactDir(path)
    artifact.claim(resume=resume)
    try:
        yield
    except BaseException:
        artifact.discard()
        raise
    artifact.release()
