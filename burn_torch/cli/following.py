"""Defines what the command line adds to a run: the origins of its settings in a file, its log on stderr, a limit of
steps.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, final

from burn_torch.cli.recipe import AnyLoader
from burn_torch.core.files import write_atomic
from burn_torch.tensor import Device
from burn_torch.train import EventReader
from burn_torch.train.event import Event, RunStarted

__all__ = ["Following", "LimitedLoader"]


@final
class Following:
    """Hands events on to a renderer; when the run has begun it writes what the settings came from.

    Not before: a run that cannot begin leaves nothing behind.
    """

    def __init__(self, renderer: EventReader, path: Path, facts: Mapping[str, Any], *, verbose: bool) -> None:
        self._renderer: Final = renderer
        self._path: Final = path
        self._facts: Final = facts
        self._handler = _to_stderr() if verbose else None

    def handle(self, event: Event, /) -> None:
        """Takes notice of an event."""
        if isinstance(event, RunStarted):
            with suppress(OSError):  # a note for people: no reason to lose the run
                write_atomic(self._path, (json.dumps(self._facts, indent=2) + "\n").encode())
        self._renderer.handle(event)

    def close(self) -> None:
        """The run is over."""
        if self._handler is not None:
            logging.getLogger("burn_torch").removeHandler(self._handler)
        self._renderer.close()


def _to_stderr() -> logging.Handler:
    handler = logging.StreamHandler()
    handler.setLevel(logging.INFO)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger("burn_torch").addHandler(handler)
    return handler


@final
class LimitedLoader:
    """A loader that asks for a stop when it has given so many batches, over all epochs and devices."""

    def __init__(self, loader: AnyLoader, left: list[int], stop: Callable[[str], None]) -> None:
        self._loader = loader
        self._left = left
        """How many are left, in the one place that all copies count in."""
        self._stop = stop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # batch_size, shuffle, num_items and what else describes the data

    def __len__(self) -> int:
        return len(self._loader)

    def __iter__(self) -> Iterator[object]:
        return self._count_steps(iter(self._loader))

    def to_device(self, device: Device) -> LimitedLoader:
        """The same limit for the batches of another device."""
        return LimitedLoader(self._loader.to_device(device), self._left, self._stop)

    def share(self, rank: int, size: int) -> LimitedLoader:
        """The same limit for what one of several processes reads."""
        return LimitedLoader(self._loader.share(rank, size), self._left, self._stop)

    def epoch(self, epoch: int, start_batch: int = 0) -> Iterator[Any]:
        """See `DataLoader.epoch`."""
        return self._count_steps(self._loader.epoch(epoch, start_batch))

    def _count_steps(self, batches: Any) -> Iterator[object]:
        with batches:
            for batch in batches:
                self._left[0] -= 1
                if self._left[0] <= 0:
                    self._stop("--limit-steps")
                yield batch
