"""capture: a function run as one program on a device, with a handle that runs it again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar, final

from burn_torch.core.checking import checked
from burn_torch.module.module import Module
from burn_torch.tensor.device import Device
from burn_torch.tensor.tensor import Tensor
from burn_torch.transform.compilation import Compiled

__all__ = ["CapturedGraph", "capture"]

R = TypeVar("R")


@final
class CapturedGraph(Generic[R]):
    """A function that `capture` made a program of, with the inputs and the results of its last run.  Burn: Graph."""

    def __init__(self, compiled: Compiled[..., R], inputs: tuple[object, ...], device: Device) -> None:
        self._compiled: Final = compiled
        self._device: Final = device
        self.replay(*inputs)

    def replay(self, *inputs: object) -> R:
        """Runs the program on other inputs, or on those of the last run, and returns its results."""
        if inputs:
            self._inputs = tuple([_on(x, self._device) for x in inputs])
        self._output = self._compiled(*self._inputs)
        return self._output

    _inputs: tuple[object, ...] = ()
    _output: R

    def output(self) -> R:
        """The results of the last run.  They are values: no later replay changes them."""
        return self._output

    def is_hardware(self) -> bool:
        """Returns whether the device replays the program by itself (a CUDA graph); else it is launched anew."""
        return self._compiled.is_recorded(*self._inputs)


@checked
def capture(device: Device, function: Callable[..., R], *inputs: object) -> CapturedGraph[R]:
    """Runs a function once on a device, as one program, and returns what replays it.

        graph = burn_torch.transform.capture(device, lambda model, x: model.forward(x), model, x)
        y = graph.replay(model, next_x)

    inputs: what the function takes; tensors and modules among them are moved to the device.
    A replay draws anew where the function draws.  Raises: TraceError as `compile` does.
    PyTorch: torch.cuda.graph, whose replay writes over its results.
    """
    return CapturedGraph(Compiled(function), inputs, device)


def _on(x: object, device: Device) -> object:
    return x.to_device(device) if isinstance(x, Tensor | Module) else x
