"""`burn-torch train RECIPE`: trains a built-in recipe and keeps everything in an artifact directory."""

from __future__ import annotations

import argparse
import itertools
from pathlib import Path
from typing import Any

from burn_torch.cli import registry
from burn_torch.cli.failure import EXIT_INTERRUPTED, EXIT_TERMINATED
from burn_torch.cli.recipe import Recipe
from burn_torch.config import Config, apply_overrides, replace
from burn_torch.core.errors import ConfigError, explain

HELP = "train a built-in recipe: " + ", ".join(registry.recipes())

_EXIT = {"interrupted": EXIT_INTERRUPTED, "terminated": EXIT_TERMINATED}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.add_argument("recipe", choices=registry.recipes(), help="what to train")
    parser.add_argument(
        "--data-dir", type=Path, metavar="DIR", help="where the data set's files are (default: cache, then download)"
    )
    parser.add_argument(
        "--artifact-dir",
        type=Path,
        metavar="DIR",
        help="where the run is kept (default: artifacts/RECIPE, or -2, -3, ...)",
    )
    parser.add_argument("--epochs", type=int, metavar="N", help="how often the data is gone through")
    parser.add_argument("--devices", default="cpu", metavar="DEVICE", help="cpu, cuda:0, mps or ndarray (default: cpu)")
    parser.add_argument("--seed", type=int, metavar="N", help="of parameters, dropout and the order of the data")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                        help="another setting, such as optimizer.lr=0.01; --show-config lists them")  # fmt: skip
    parser.add_argument(
        "--resume", action="store_true", help="go on from the newest complete epoch, with the same bits"
    )
    parser.add_argument("--show-config", action="store_true", help="print the settings and stop")


def run(args: argparse.Namespace) -> int:
    """Trains."""
    recipe = registry.recipe(args.recipe)
    artifact_dir = _artifact_dir(args)
    config = _resumed_config(recipe, artifact_dir, args) if args.resume else _config(recipe, args)
    if args.show_config:
        print(config.to_json())
        return 0
    return _train(recipe, config, artifact_dir, args)


def _config(recipe: Recipe, args: argparse.Namespace) -> Config:
    overrides = list(args.overrides)
    overrides += [f"num_epochs={args.epochs}"] if args.epochs is not None else []
    overrides += [f"seed={args.seed}"] if args.seed is not None else []
    config = apply_overrides(recipe.config(), overrides)
    return config if args.data_dir is None else replace(config, data_dir=str(args.data_dir))


def _resumed_config(recipe: Recipe, artifact_dir: Path, args: argparse.Namespace) -> Config:
    saved = artifact_dir / "config.json"
    if not saved.exists():
        raise ConfigError(
            explain(
                "there is no run to resume",
                given=f"{artifact_dir}, which has no config.json",
                expected="the artifact directory of a run that was started before",
                mend="name it with --artifact-dir, or leave --resume out to start a run",
            )
        )
    if args.overrides or args.seed is not None:
        raise ConfigError(
            explain(
                "a resumed run keeps its settings",
                given=" ".join([*(f"--set {text}" for text in args.overrides), "--seed" * (args.seed is not None)]),
                expected="--resume with --epochs, --devices and --data-dir at most",
                mend="leave the others out, or start a run of its own",
            )
        )
    config = recipe.config.load(saved)
    if args.epochs is not None:
        config = replace(config, num_epochs=args.epochs)
    return config if args.data_dir is None else replace(config, data_dir=str(args.data_dir))


def _artifact_dir(args: argparse.Namespace) -> Path:
    """The directory that was named, or the next free one; to resume, the newest."""
    if args.artifact_dir is not None:
        return Path(args.artifact_dir)
    base = Path("artifacts") / str(args.recipe)
    names = itertools.chain([base], (base.with_name(f"{base.name}-{i}") for i in itertools.count(2)))
    taken: list[Path] = list(itertools.takewhile(lambda path: path.exists(), names))
    if args.resume and taken:
        return taken[-1]
    return base.with_name(f"{base.name}-{len(taken) + 1}") if taken else base


def _train(recipe: Recipe, config: Any, artifact_dir: Path, args: argparse.Namespace) -> int:
    from burn_torch import Device, seed
    from burn_torch.train import AccuracyMetric, Learner, LossMetric, SupervisedTraining
    from burn_torch.train.artifact import ArtifactDir

    device = Device.parse(args.devices).autodiff()
    claim = ArtifactDir(artifact_dir)  # before data is read or downloaded: it may not be ours to write
    claim.claim(resume=args.resume)
    claim.release()
    seed(config.seed)
    train, valid = recipe.loaders(config, device)
    learner = Learner(recipe.model(config, device), config.optimizer.algorithm.init(), config.optimizer.lr)
    training = (
        SupervisedTraining(artifact_dir, train, valid)
        .metrics(AccuracyMetric(), LossMetric())
        .num_epochs(config.num_epochs)
        .seed(config.seed)
        .with_config(config)
        .summary()
    )
    result = training.resume(args.resume).launch(learner)
    if result.status == "completed":
        print(f"model     {artifact_dir / 'model.safetensors'}")
        print(f"predict   burn-torch predict {artifact_dir} IMAGE...")
    else:
        print(f"{result.status}: {result.message}")
    print(f"resume    burn-torch train {recipe.name} --artifact-dir {artifact_dir} --resume --epochs N")
    return _EXIT.get(result.status, 0)
