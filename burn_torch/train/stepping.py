"""The steps of a run: compiled as one program where that can be done, else as the strategy executes them.

A step is a pure function of model, optimizer, batch, learning rate and key, so forward, backward, clipping and update
are one program, and a schedule retraces nothing.  With accumulation the gradients of each batch are one program, and
the update another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, final

from burn_torch.core.errors import TraceError
from burn_torch.optim import Optimizer
from burn_torch.train.execution import ExecutionStrategy, SingleDevice
from burn_torch.train.learner import Learner
from burn_torch.train.loop import GradientWindow, train_step, valid_step
from burn_torch.transform.compilation import Opened, compile

__all__ = ["Steps"]


@final
class Steps:
    """Executes the steps of one run.

    `say` gets one line, once, if something cannot be compiled; it runs eagerly from then on.
    """

    def __init__(
        self, execution: ExecutionStrategy, learner: Learner[Any], accumulation: int, compiled: bool,
        say: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._execution: Final = execution
        self._accumulation: Final = accumulation
        self._say: Final = say
        self._window = GradientWindow()
        self.batches = 0
        """How many batches the next update has already."""
        self._compiled = compiled and isinstance(execution, SingleDevice)
        if self._compiled and not isinstance(learner.optim, Optimizer):
            self._give_up(f"the optimizer is a {type(learner.optim).__name__}, which is no immutable Optimizer")
        self._validates_compiled = compiled
        self._step = compile(_step, donate=("model", "optim"))
        self._gradients = compile(_gradients, donate=("model", "window"))
        self._update = compile(_update, donate=("model", "optim", "window"))
        self._valid = compile(valid_step)

    # -- training ----------------------------------------------------------------------------------------
    def train(self, learner: Learner[Any], lr: float, batch: Any, key: int) -> tuple[Learner[Any], Any, bool]:
        """One batch: the learner, the item, and whether its parameters were updated."""
        if self._accumulation == 1:
            return (*self._whole(learner, lr, batch, key), True)
        learner, item = self._add(learner, batch, key)
        self.batches += 1
        if self.batches < self._accumulation:
            return learner, item, False
        return self.finish(learner, lr), item, True

    def finish(self, learner: Learner[Any], lr: float) -> Learner[Any]:
        """The update of the batches so far; the last ones of an epoch may be fewer than the others."""
        window, self._window, self.batches = self._window, GradientWindow(), 0
        if self._compiled:
            try:
                model, optim = self._update(learner.model, learner.optim, window, lr)
                return learner.stepped(model, optim)
            except TraceError as err:
                self._give_up(err)
        return self._execution.optimizer_step(learner, lr, window.take())

    # -- looking back ------------------------------------------------------------------------------------
    @property
    def window(self) -> GradientWindow:
        """The gradients of the batches so far."""
        return self._window

    def go_back(self, window: GradientWindow | None = None, batches: int = 0) -> None:
        """Begins a window anew, or goes on with one of before."""
        self._window = GradientWindow() if window is None else window
        self.batches = batches

    def opened(self, learner: Learner[Any], lr: float, batch: Any, key: int) -> Iterator[Opened]:
        """The programs that compute one batch, and the update if one follows, with what they would be given.

        None of those that are given is run, and the learner stays as it is.
        Raises: TraceError for a step that cannot be compiled.
        """
        if self._accumulation == 1:
            yield self._step.opened(learner.model, learner.optim, batch, lr, key)
            return
        yield self._gradients.opened(learner.model, self._window.copy(), batch, key)
        if self.batches + 1 == self._accumulation:
            learner, _ = self._add(learner.fork(), batch, key)
            yield from self.opened_update(learner, lr)

    def opened_update(self, learner: Learner[Any], lr: float) -> Iterator[Opened]:
        """The program of an update."""
        yield self._update.opened(learner.model, learner.optim, self._window.copy(), lr)

    def _whole(self, learner: Learner[Any], lr: float, batch: Any, key: int) -> tuple[Learner[Any], Any]:
        if self._compiled:
            try:
                model, optim, item = self._step(learner.model, learner.optim, batch, lr, key)
                return learner.stepped(model, optim), item
            except TraceError as err:
                self._give_up(err)
        learner, grads, item = self._execution.train_step(learner, batch, key)
        return self._execution.optimizer_step(learner, lr, grads), item

    def _add(self, learner: Learner[Any], batch: Any, key: int) -> tuple[Learner[Any], Any]:
        if self._compiled:
            try:
                model, self._window, item = self._gradients(learner.model, self._window, batch, key)
                return replace(learner, model=model), item
            except TraceError as err:
                self._give_up(err)
        learner, grads, item = self._execution.train_step(learner, batch, key)
        self._window = self._window.add(grads, item)
        return learner, item

    # -- validation --------------------------------------------------------------------------------------
    def valid(self, model: Any, batch: Any, key: int) -> Any:
        """One batch of validation: its item."""
        if self._validates_compiled:
            try:
                return self._valid(model, batch, key)
            except TraceError as err:
                self._validates_compiled = False
                self._tell("validation", err)
        return valid_step(model, batch, key)

    def _give_up(self, why: TraceError | str) -> None:
        self._compiled = False
        self._tell("training", why)

    def _tell(self, what: str, why: TraceError | str) -> None:
        lines = str(why).splitlines()
        given = next((line.split("given:", 1)[1].strip() for line in lines if "given:" in line), "")
        reason = f"{lines[0]}: {given}" if given else lines[0]
        self._say(f"{what} runs eagerly, it cannot be compiled: {reason}")


def _step(model: Any, optim: Any, batch: Any, lr: float, key: int) -> tuple[Any, Any, Any]:
    model, grads, item = train_step(model, batch, key)
    model, optim = optim.step(lr, model, grads)
    return model, optim, item


def _gradients(model: Any, window: GradientWindow, batch: Any, key: int) -> tuple[Any, GradientWindow, Any]:
    model, grads, item = train_step(model, batch, key)
    return model, window.add(grads, item), item


def _update(model: Any, optim: Any, window: GradientWindow, lr: float) -> tuple[Any, Any]:
    return optim.step(lr, model, window.take())  # type: ignore[no-any-return]
