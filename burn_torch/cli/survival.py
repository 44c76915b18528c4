"""The options of training that decide what survives: checkpoints, a limit of time, the search for anomalies."""

from __future__ import annotations

import argparse
from typing import Any

from burn_torch.cli.durations import seconds_of, steps_or_seconds

__all__ = ["add_options", "applied"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declares them."""
    group = parser.add_argument_group("checkpoints and faults")
    group.add_argument(
        "--checkpoint-every",
        type=_every,
        metavar="N",
        help="also write a checkpoint every N steps (500) or every so often (10m, '2 hours'), inside of epochs too",
    )
    group.add_argument(
        "--time-limit",
        type=_duration,
        metavar="TIME",
        help="stop after the step in which this time is over (90m, 1h30m, 1:30:00), save, and exit with 0",
    )
    group.add_argument(
        "--detect-anomaly",
        action="store_true",
        help="at the first NaN or infinity name the operation, module and line it came from, and keep a file that"
        " replays it",
    )


def applied(training: Any, args: argparse.Namespace) -> Any:
    """A SupervisedTraining with what these options say."""
    if args.checkpoint_every is not None:
        steps, seconds = args.checkpoint_every
        training = training.checkpoint_every(steps=steps, minutes=None if seconds is None else seconds / 60)
    if args.time_limit is not None:
        training = training.time_limit(args.time_limit)
    return training.detect_anomaly() if args.detect_anomaly else training


def _every(text: str) -> tuple[int | None, float | None]:
    limits = steps_or_seconds(text)
    if limits is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of steps (500) and no time (10m, '2 hours')")
    return limits


def _duration(text: str) -> float:
    seconds = seconds_of(text)
    if seconds is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no time, such as 90m, 1h30m or 1:30:00")
    return seconds
