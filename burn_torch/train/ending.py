"""How a run ends: what is closed in spite of errors, which wish to stop is forgotten, what its status is called."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from burn_torch.core.errors import ArtifactError, NonFiniteError
from burn_torch.monitor.control import ASKED
from burn_torch.train.event import EventReader
from burn_torch.train.interrupt import Interrupter
from burn_torch.train.logger.metric import MetricLogger

__all__ = ["cause_of", "close_quietly", "closing", "forget_stop", "status_of"]


def closing(logger: MetricLogger) -> Callable[..., None]:
    """Closes a logger at the end of a block; an error that is on its way is the one to tell."""

    def close(kind: object, error: BaseException | None, trace: object) -> None:
        try:
            logger.close()
        except (ArtifactError, OSError):
            if error is None:
                raise

    return close


def close_quietly(renderer: EventReader) -> None:
    """Closes a reader of events: a closed pipe or terminal is no reason to lose the result."""
    with suppress(OSError):
        renderer.close()


def forget_stop(interrupter: Interrupter) -> None:
    """Takes back a wish to stop that was for one run only, also one that came too late to stop it.

    That of a caller of `Interrupter.stop` stays: it may be meant for all runs that have this handle.
    """
    if interrupter.status in ("interrupted", "terminated", "time_limit") or interrupter.get_message() == ASKED:
        interrupter.reset()


def cause_of(err: BaseException, require_held: Callable[[], None]) -> BaseException:
    """Returns what `require_held` raises where something could not be written: the loss of the whole directory; else
    `err`.
    """
    if isinstance(err, OSError):
        try:
            require_held()
        except ArtifactError as lost:
            return lost
    return err


def status_of(err: BaseException) -> str:
    """Returns what a run that ended by this error is called: "diverged", "failed" or "aborted"."""
    if isinstance(err, NonFiniteError):
        return "diverged"
    return "failed" if isinstance(err, Exception) else "aborted"
