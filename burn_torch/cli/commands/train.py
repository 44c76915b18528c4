"""`burn-torch train RECIPE`: trains a recipe and keeps everything in an artifact directory."""

from __future__ import annotations

import argparse
import itertools
import json
import shlex
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Final

from burn_torch.cli import handover, options, placement, registry, survival
from burn_torch.cli.artifacts import bounded_by, largest_checkpoint, saved_run
from burn_torch.cli.failure import EXIT_INTERRUPTED, EXIT_TERMINATED
from burn_torch.cli.options import Settings
from burn_torch.cli.placement import Placement
from burn_torch.cli.recipe import AnyConfig, Recipe
from burn_torch.core.errors import ConfigError
from burn_torch.core.reading import MAX_CONFIG_BYTES, read_bounded

HELP: Final = f"train a recipe: {', '.join(registry.recipes())}, or one of your own"
DESCRIPTION: Final = """\
Trains a recipe and keeps settings, metrics, checkpoints and the trained model in an artifact directory.

Ctrl-C finishes the step and writes a checkpoint; `burn-torch resume DIR` goes on from it.  A second Ctrl-C stops at
once.
"""
EXAMPLES: Final = """\
examples:
  burn-torch train digits                                  seconds; needs no network and no GPU
  burn-torch train digits --set optimizer.lr=0.005 --seed 1
  burn-torch train fashion-mnist --data data/fashion-mnist --epochs 3
  burn-torch train csv-table --data flowers.csv --set target=species
  burn-torch train digits --config run.toml --show-config  every setting, and where it came from
  burn-torch train my_recipe.py --dry-run                  one batch through everything, shapes and memory
  burn-torch train digits --devices cuda:0,cuda:1          two GPUs in one process
  torchrun --nproc-per-node 2 -m burn_torch train digits --devices cuda
"""

_EXIT: Final = {"interrupted": EXIT_INTERRUPTED, "terminated": EXIT_TERMINATED}


def configure(parser: argparse.ArgumentParser) -> None:
    """Declares arguments."""
    parser.epilog = EXAMPLES
    parser.add_argument(
        "recipe",
        metavar="RECIPE",
        help=f"what to train: {', '.join(registry.recipes())}, FILE.py that defines RECIPE, or package.module:Class",
    )
    options.add_settings(parser)
    _add_run(parser)
    survival.add_options(parser)
    placement.add_options(options.add_machine(parser, several=True))
    add_view(parser)
    look = parser.add_argument_group("looking, without training")
    look.add_argument("--show-config", action="store_true", help="print all settings as TOML, with their origins")
    look.add_argument("--json", action="store_true", help="with --show-config: as JSON")
    look.add_argument(
        "--dry-run",
        action="store_true",
        help="one batch through training, validation and a checkpoint to nowhere; prints shapes and memory",
    )


def _add_run(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("run")
    group.add_argument(
        "--artifact-dir",
        type=Path,
        metavar="DIR",
        help="where to keep the run (default: artifacts/RECIPE; if there is one, RECIPE-2, ...)",
    )
    group.add_argument(
        "--resume",
        action="store_true",
        help="go on with the run in --artifact-dir, or with the newest of the default ones",
    )
    group.add_argument(
        "--download", action="store_true", help="first fetch the data into the cache, where that is known"
    )
    add_steps(group)


def add_steps(group: argparse._ActionsContainer) -> None:
    """Declares how steps are run; `resume` has it too."""
    group.add_argument(
        "--limit-steps",
        type=options.positive,
        metavar="N",
        help="stop after N training steps, with a checkpoint to go on from",
    )
    group.add_argument(
        "--no-compile",
        action="store_false",
        dest="compiled",
        help="run each step operation by operation, to debug it; same bits on a CPU, slower",
    )


def add_view(parser: argparse.ArgumentParser) -> None:
    """Declares what is shown."""
    output = parser.add_argument_group("output")
    group = output.add_mutually_exclusive_group()
    group.add_argument("-q", "--quiet", action="store_true", help="print nothing but errors")
    group.add_argument("-v", "--verbose", action="store_true", help="also print the log of the run, to stderr")
    output.add_argument(
        "--tensorboard",
        action="store_true",
        help="also write TensorBoard files, into tensorboard in the artifact directory",
    )
    handover.add_options(output)


def run(args: argparse.Namespace) -> int:
    """Trains."""
    if handover.wanted(args):
        return handover.lead(args.given)
    recipe = registry.recipe(args.recipe)
    artifact_dir = _artifact_dir(recipe, args)
    settings = resumed_settings(recipe, artifact_dir, args) if args.resume else options.read_settings(recipe, args)
    if args.show_config:
        facts = {"config": settings.config.to_dict(), "origins": settings.origins}
        print(json.dumps(facts, indent=2) if args.json else settings.to_toml(), end="\n" if args.json else "")
        return 0
    if args.json:
        raise ConfigError(
            "--json is for --show-config", given="--json alone", expected="--show-config --json", mend="add it"
        )
    if args.dry_run:
        from burn_torch.cli.dry_run import dry_run

        return dry_run(recipe, settings, args)
    return launch(recipe, settings, artifact_dir, args)


def resumed_settings(recipe: Recipe, artifact_dir: Path, args: argparse.Namespace) -> Settings:
    """The settings of the run in a directory, which only a few options may change."""
    words = [f"--set {text}" for text in getattr(args, "overrides", [])]
    words += [f"--config {path}" for path in getattr(args, "config", [])]
    for name in ("seed", "batch_size"):
        value = getattr(args, name, None)
        words += [] if value is None else [f"--{name.replace('_', '-')} {value}"]
    fuse = getattr(args, "fuse", None)
    words += [] if fuse is None else ["--fuse" if fuse else "--no-fuse"]
    if words:
        raise ConfigError(
            "a resumed run keeps its settings",
            given=f"--resume with {' '.join(words)}",
            expected="--resume with --epochs, --workers, --data and what says where to compute, at most",
            mend="leave the others out, or start a run of its own",
        )
    _, config = saved_run(artifact_dir, recipe)
    settings = options.read_settings(recipe, args, base=config)
    chosen = {path: f"{origin} of a resume" for path, origin in settings.origins.items() if origin != "default"}
    return Settings(settings.config, _origins_before(artifact_dir) | chosen)


def _origins_before(artifact_dir: Path) -> dict[str, str]:
    """Returns what the run that is resumed said of its settings; nothing if that is lost, since only people read it."""
    try:
        origins = json.loads(read_bounded(artifact_dir / "config.origins.json", MAX_CONFIG_BYTES))["origins"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}
    return {str(path): str(origin) for path, origin in origins.items()} if isinstance(origins, dict) else {}


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


def launch(recipe: Recipe, settings: Settings, artifact_dir: Path, args: argparse.Namespace) -> int:
    """Trains, or goes on; gives the exit code."""
    if args.precision == "bfloat16" and not args.compiled:
        raise ConfigError(
            "only compiled steps compute in bfloat16",
            given="--precision bfloat16 --no-compile",
            expected="one of them",
            mend="leave one of them out",
        )
    if settings.config.fuse and not args.compiled:
        raise ConfigError(
            "only compiled steps have generated kernels",
            given=f"fuse = true, from {settings.origins.get('fuse', 'config.json')}, with --no-compile",
            expected="one of them",
            mend="leave one of them out",
        )
    options.set_up_machine(args)
    place = Placement.of(args, fuse=settings.config.fuse)
    with place.together():
        return _launch_at(recipe, settings, Path(place.from_main(str(artifact_dir))), args, place)


def _launch_at(
    recipe: Recipe, settings: Settings, artifact_dir: Path, args: argparse.Namespace, place: Placement
) -> int:
    from burn_torch import seed
    from burn_torch.cli.following import Following, LimitedLoader
    from burn_torch.module import ParamId
    from burn_torch.train import SilentRenderer, SupervisedTraining, default_renderer

    device, quiet = place.device, args.quiet or not place.is_main
    with _reserve(artifact_dir, resume=args.resume) if place.is_main else nullcontext():
        if not args.resume:
            if args.download and place.is_main:
                recipe.download(settings.config)
            place.from_main("the data is here")
            settings = options.prepared(recipe, settings)
        config = settings.config
        seed(config.seed)
        train, valid = recipe.loaders(config, device)
        record = largest_checkpoint(artifact_dir) if args.resume else None
        bounded = nullcontext() if record is None else bounded_by(record, artifact_dir)
        with ParamId.seeded(config.seed), bounded:
            learner = recipe.learner(config, device)
    handover.hand_over(args, artifact_dir)  # before a renderer looks at stdout
    origins = artifact_dir / "config.origins.json"
    training = (
        SupervisedTraining(artifact_dir, train, valid)
        .metrics(*recipe.metrics(config))
        .num_epochs(config.num_epochs)
        .seed(config.seed)
        .with_config(config)
        .compile(args.compiled)
        .precision("bfloat16" if args.precision == "bfloat16" else "float32")
        .fuse(place.fuse(config.fuse))
        .summary()
        .renderer(
            Following(
                SilentRenderer() if quiet else default_renderer(),
                origins,
                settings.facts(args.given),
                verbose=args.verbose and place.is_main,
            )
        )
    )
    if args.limit_steps is not None:
        stop = training.interrupter().stop
        training = training.with_loaders(LimitedLoader(train, [args.limit_steps], stop), valid)
    if args.tensorboard:
        training = training.tensorboard()
    say = _silent if quiet else _say
    how = ", fused" if config.fuse else ""
    say(f"{'resumes' if args.resume else 'trains'} {recipe.name} on {place}{how}, kept in {artifact_dir}")
    result = place.applied(survival.applied(training, args)).resume(args.resume).launch(learner)
    _tell_end(say, recipe, result, artifact_dir, args, config)
    return _EXIT.get(result.status, 0)


def _tell_end(
    say: Any, recipe: Recipe, result: Any, artifact_dir: Path, args: argparse.Namespace, config: AnyConfig
) -> None:
    folder = shlex.quote(str(artifact_dir))
    own = "" if recipe.name in registry.recipes() else f" --recipe {shlex.quote(args.recipe)}"
    resume = f"burn-torch resume {folder}{own}"
    if result.status in ("completed", "early_stopped"):
        say(f"model    {artifact_dir / 'model.safetensors'}")
        say(f"predict  burn-torch predict {folder} {recipe.inputs}...{own}")
        say(f"evaluate burn-torch evaluate {folder}{own}")
        say(f"go on    {resume} --epochs {2 * config.num_epochs}")
    else:
        status = "stopped" if result.status == "time_limit" else result.status
        say(f"{status} by {result.message}; the checkpoint is {result.checkpoint}")
        say(f"go on    {resume}")


def _say(text: str) -> None:
    print(text, flush=True)


def _silent(text: str) -> None:
    """For --quiet."""


@contextmanager
def _reserve(path: Path, *, resume: bool) -> Iterator[None]:
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
