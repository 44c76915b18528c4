"""The steps of a run: compiled as one program where that can be done, else as the strategy executes them.

A step is a pure function of model, optimizer, batch, learning rate and key, so forward, backward, clipping and update
are one program, and a schedule retraces nothing.  With accumulation the gradients of each batch are one program, and
the update another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final, final

from burn_torch.core.dtype import DType
from burn_torch.core.errors import ConfigError, TraceError
from burn_torch.core.share import Share
from burn_torch.graph.passes import Precision
from burn_torch.module import Tree
from burn_torch.optim import LearningRates
from burn_torch.tensor import Tensor
from burn_torch.train.learner import AnyLearner
from burn_torch.train.loop import GradientWindow, valid_step
from burn_torch.train.step import AnyBatch, AnyItem, AnyModel
from burn_torch.train.strategies.base import (
    LOOKED_AT,
    WHOLE_BATCH,
    ExecutionStrategy,
    StepFunctions,
    Stepper,
    SteppingStrategy,
)
from burn_torch.train.strategies.parts import opened as batch_of
from burn_torch.transform.compilation import Compiled, Opened, compile

__all__ = ["Steps", "reason_of", "steps_of"]

_RETRACES: Final = 8
"""So often what a step reads may be another before its traces are counted against its calls."""

_CALLS_PER_TRACE: Final = 16
"""A trace costs some ten eager steps: with fewer calls for each, eager steps are faster."""


@final
class Steps:
    """Executes the steps of one run.

    `say` gets one line, once, if something cannot be compiled; it runs eagerly from then on.  With `looks` they look at
    the gradients too, before the optimizer has them: what it bounds, nothing after it shows.
    """

    def __init__(
        self, execution: ExecutionStrategy, learner: AnyLearner, accumulation: int, compiled: bool,
        say: Callable[[str], None], precision: Precision = "float32", looks: bool = False, fuse: bool | None = None,
    ) -> None:  # fmt: skip
        self._execution: Final = execution
        self._accumulation: Final = accumulation
        self._say: Final = say
        self._precision: Final = precision
        self._window = GradientWindow()
        self.batches = 0
        """How many batches the next update has already."""
        self._seen: list[Tensor] = []
        self._calls = 0
        self._told_of_prints = False
        functions: StepFunctions | None = getattr(execution, "functions", None)
        self._looks: Final = looks and functions is WHOLE_BATCH
        functions = LOOKED_AT if self._looks else functions
        self._functions: Final = functions
        self._compiled = compiled and functions is not None
        if self._compiled and not isinstance(learner.optim, Tree):
            self._give_up(f"the optimizer is a {type(learner.optim).__name__}, which is no immutable Optimizer")
        self._validates_compiled = compiled
        if functions is not None:
            shared: Any = {"static": "share", "precision": precision, "fuse": fuse}
            self._step = compile(functions.step, donate=("model", "optim"), **shared)
            self._gradients = compile(functions.gradients, donate=("model", "window"), **shared)
            self._update = compile(functions.update, donate=("model", "optim", "window"), fuse=fuse)
        self._valid = compile(valid_step, static="share", precision=precision, fuse=fuse)

    # -- training ----------------------------------------------------------------------------------------
    def train(self, learner: AnyLearner, lr: float, batch: AnyBatch, key: int) -> tuple[AnyLearner, Any, bool]:
        """One batch: the learner, the item, and whether its parameters were updated."""
        if self._accumulation == 1:
            return (*self._whole(learner, lr, batch, key), True)
        learner, item = self._add(learner, batch, key)
        self.batches += 1
        if self.batches < self._accumulation:
            return learner, item, False
        return self.finish(learner, lr), item, True

    def finish(self, learner: AnyLearner, lr: float) -> AnyLearner:
        """The update of the batches so far; the last ones of an epoch may be fewer than the others."""
        window, self._window, self.batches = self._window, GradientWindow(), 0
        if self._functions is not None:
            arguments = (learner.model, learner.optim, window, _rates(lr))
            model, optim, *seen = self._run(self._update, self._functions.update, arguments)
            self._seen += seen[0] if seen else ()
            return learner.stepped(model, optim)
        return self._execution.optimizer_step(learner, lr, window.take())

    # -- looking back ------------------------------------------------------------------------------------
    def take_seen(self) -> list[Tensor]:
        """With `looks`: extremes of the gradients of the updates since this was last asked, one tensor a kind."""
        seen, self._seen = self._seen, []
        kinds: dict[tuple[str, DType], list[Tensor]] = {}
        for extremes in seen:
            kinds.setdefault((extremes.place, extremes.dtype), []).append(extremes)
        return [Tensor.cat(alike, 0) for alike in kinds.values()]

    @property
    def window(self) -> GradientWindow:
        """The gradients of the batches so far."""
        return self._window

    def go_back(self, window: GradientWindow | None = None, batches: int = 0) -> None:
        """Begins a window anew, or goes on with one of before."""
        self._window = GradientWindow() if window is None else window
        self.batches = batches
        self._seen = []

    def opened(self, learner: AnyLearner, lr: float, batch: object, key: int) -> Iterator[Opened]:
        """The programs that compute one batch, and the update if one follows, with what they would be given.

        None of those that are given is run, and the learner stays as it is.
        Raises: TraceError for a step that cannot be compiled.
        """
        parts, share = batch_of(batch)
        if self._accumulation == 1:
            yield self._step.opened(learner.model, learner.optim, parts, _rates(lr), key, share)
            return
        yield self._gradients.opened(learner.model, self._window.copy(), parts, key, share)
        if self.batches + 1 == self._accumulation:
            learner, _ = self._add(learner.fork(), batch, key)
            yield from self.opened_update(learner, lr)

    def opened_update(self, learner: AnyLearner, lr: float) -> Iterator[Opened]:
        """The program of an update."""
        yield self._update.opened(learner.model, learner.optim, self._window.copy(), _rates(lr))

    def _whole(self, learner: AnyLearner, lr: float, batch: object, key: int) -> tuple[AnyLearner, Any]:
        batch, share = batch_of(batch)
        if self._functions is not None:
            arguments = (learner.model, learner.optim, batch, _rates(lr), key, share)
            model, optim, item = self._run(self._step, self._functions.step, arguments)
            if self._looks:
                item, seen = item
                self._seen += seen
            return learner.stepped(model, optim), _seen(item, share)
        learner, grads, item = self._execution.train_step(learner, batch, key)
        return self._execution.optimizer_step(learner, lr, grads), item

    def _add(self, learner: AnyLearner, batch: AnyBatch, key: int) -> tuple[AnyLearner, Any]:
        batch, share = batch_of(batch)
        if self._functions is not None:
            arguments = (learner.model, self._window, batch, key, share)
            model, self._window, item = self._run(self._gradients, self._functions.gradients, arguments)
            return replace(learner, model=model), _seen(item, share)
        learner, grads, item = self._execution.train_step(learner, batch, key)
        self._window = self._window.add(grads, item)
        return learner, item

    def _run(self, compiled: Compiled[..., Any], function: Callable[..., Any], given: tuple[Any, ...]) -> Any:
        """The compiled function, or once that has failed the function itself."""
        if self._compiled:
            before = compiled.traces
            try:
                results = compiled(*given)
            except TraceError as err:
                self._give_up(err)
            else:
                self._calls += 1
                if compiled.traces != before:
                    self._look_at_trace(compiled)
                return results
        return function(*given)

    def _look_at_trace(self, compiled: Compiled[..., object]) -> None:
        """Says what a trace leaves out, and gives up where what the step reads changes too often to compile it."""
        if compiled.prints is not None and not self._told_of_prints:
            self._told_of_prints = True
            self._say(f"a compiled step prints when it is traced, not in each call: {compiled.prints}")
        changed = compiled.changed_readings
        if changed >= _RETRACES and self._calls < changed * _CALLS_PER_TRACE:
            self._give_up(f"what it reads changes in one of {self._calls // changed} steps: {compiled.last_change}")

    # -- validation --------------------------------------------------------------------------------------
    def valid(self, model: AnyModel, batch: AnyBatch, key: int) -> Any:
        """One batch of validation: its item."""
        batch, share = batch_of(batch)
        if self._validates_compiled:
            try:
                return _seen(self._valid(model, batch, key, share), share)
            except TraceError as err:
                self._validates_compiled = False
                self._tell("validation", err)
        return _seen(valid_step(model, batch, key, share), share)

    def _give_up(self, why: TraceError | str) -> None:
        self._compiled = False
        self._tell("training", why)

    def _tell(self, what: str, why: TraceError | str) -> None:
        how = "eagerly" if self._precision == "float32" else f"eagerly and in float32, not {self._precision}"
        self._say(f"{what} runs {how}, it cannot be compiled: {reason_of(why)}")


def reason_of(why: TraceError | str) -> str:
    """Why something cannot be compiled, in one line."""
    lines = str(why).splitlines()
    detail = next((line.split("given:", 1)[1].strip() for line in lines if "given:" in line), "")
    return f"{lines[0]}: {detail}" if detail else lines[0]


def _seen(item: AnyItem, share: Share | None) -> Any:
    """The item of a step; None where the process had none of the batch's items, and computed with a stand-in."""
    return item if share is None or share.count else None


def _rates(lr: float) -> object:
    """A learning rate as a program takes it: a number, or one for each group of parameters."""
    return dict(lr.groups) if isinstance(lr, LearningRates) else lr


def steps_of(
    execution: ExecutionStrategy, learner: AnyLearner, accumulation: int, compiled: bool,
    say: Callable[[str], None], precision: Precision = "float32", looks: bool = False, fuse: bool | None = None,
) -> Stepper:  # fmt: skip
    """Returns what executes the steps of a run: the strategy's own way, or `Steps`.

    Raises: ConfigError for a precision or fuse with a strategy whose training steps the run does not compile.
    """
    own = isinstance(execution, SteppingStrategy) or getattr(execution, "functions", None) is None
    if fuse is not None and own:
        raise ConfigError(
            "this strategy fuses as its devices do",
            given=f"fuse({fuse}) with {type(execution).__name__}",
            expected="devices that are fused, or not, or a strategy whose steps are compiled by the run",
            mend="leave fuse() out, and give Device.cuda(0).fused(), or Device.cuda(0, fused=False)",
        )
    if precision != "float32" and own:
        raise ConfigError(
            "this strategy computes in float32",
            given=f"precision({precision!r}) with {type(execution).__name__}",
            expected="float32, or a strategy whose steps are compiled by the run, such as SingleDevice",
            mend="leave precision() out, or train on one device",
        )
    if isinstance(execution, SteppingStrategy):
        return execution.make_steps(learner, accumulation, compiled, say)
    return Steps(execution, learner, accumulation, compiled, say, precision, looks, fuse)
