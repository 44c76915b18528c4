"""One generated kernel for inputs with certain strides: its tiles, its launch, and the quick way to it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, final

import torch

from burn_torch.backend.libtorch.generated.kernel_files import PREFIX, module_of
from burn_torch.backend.libtorch.generated.quick_launch import Run, launched_with, quick_launch
from burn_torch.backend.libtorch.generated.tuning import Layouts, tunable_of
from burn_torch.core.dtype import DType
from burn_torch.core.spec import NumberSpec, TensorSpec
from burn_torch.fusion.body.loops import Argument, Kernel
from burn_torch.fusion.triton.configs import Tiles, tiles_of
from burn_torch.graph.ir import Graph
from burn_torch.ops.torch_types import TO_TORCH

__all__ = ["SLOTS", "Variant", "device_of"]

SLOTS: Final = {"f32": DType.F32, "f64": DType.F64, "i64": DType.I64}
"""Element types of numbers that lie on the device, by the kinds of arguments."""


@final
class Variant:
    """One kernel, for inputs with certain strides."""

    def __init__(
        self, body: Graph, kernel: Kernel, layouts: Layouts, over: Mapping[int, int], lines: Sequence[str] = ()
    ) -> None:
        self.body: Final = body
        self.kernel: Final = kernel
        self.over: Final = over
        self.function: Final = getattr(module_of(kernel.name, kernel.source, lines), kernel.name)
        self.tunable: Final = tunable_of(body, kernel, f"{PREFIX}{kernel.name}", layouts, over, self._tried)
        domain = kernel.domain
        self.loops: Final = tuple(1 << (n - 1).bit_length() for n in (domain.rows, domain.length) if kernel.sizes)
        """How far its loops run at most, where its sizes are symbols: for all in between the tiles are the same."""
        self.last: tuple[Tiles, Any] | None = None
        """The tiles of the last launch, and what Triton compiled for it."""
        self.lows: tuple[int, ...] = ()
        """The lowest four bits of the addresses of the last launch: Triton asks whether 16 divides them."""
        self.settled: Callable[[], bool] = bool
        """Asks whether there is a quick way that holds; at first there is none."""

    def run(self, inputs: Sequence[Any], slots: Sequence[torch.Tensor] | None) -> list[torch.Tensor]:
        """The outputs, with the tiles that are chosen."""
        kernel = self.kernel
        device = next(x.device for x in inputs if isinstance(x, torch.Tensor)) if kernel.inputs else device_of(kernel)
        outputs = self._outputs(inputs, device)
        if not kernel.domain.rows or not outputs[0].numel():
            return outputs
        arguments = [inputs[position] for position in kernel.inputs]
        numbers = [launched_with(argument, inputs) for argument in kernel.numbers] if slots is None else slots
        self.lows = tuple([x.data_ptr() & 15 for x in arguments])

        def launched(tiles: Tiles) -> None:
            self.last = (tiles, self._launch_with(tiles, arguments, outputs, numbers))

        self.tunable.run(outputs[0], None, self._call(self.lows), launched)
        return outputs

    def quick(self, inputs: Sequence[object], otherwise: Run) -> Run | None:
        """A quicker way for inputs like the last ones; None while Triton's own is the only one."""
        from burn_kernels.launch import seen, undisturbed
        from burn_kernels.prepared import prepared

        if self.last is None or any(self.lows) or seen():
            return None
        tiles, compiled = self.last
        index = device_of(self.kernel).index
        ready = None if index is None else prepared(compiled, index)
        settled = None if ready is None else self.tunable.settled(index, self._call(self.lows), tiles)
        if ready is None or settled is None:
            return None
        self.settled = settled
        holds = undisturbed(settled, ready.watchers)
        numbers = [isinstance(spec, NumberSpec) for _, spec in self.body.inputs]
        return quick_launch(self.kernel, self.over, tiles, ready, holds, otherwise, numbers)

    def prepare(self, lows: tuple[int, ...], place: str) -> None:
        """Compiles and loads it for addresses with these lowest bits; launches nothing."""

        def loaded(tiles: Tiles) -> None:
            compiled = self.without_launch(lows, tiles)
            _ = compiled.run  # the first look at it loads it

        block, like = _loading_on(place)
        with block:
            self.tunable.run(like, None, self._call(lows), loaded)

    def without_launch(self, lows: tuple[int, ...], tiles: Tiles) -> Any:
        """Compiles with Triton on the current device for addresses with these lowest bits."""
        kernel = self.kernel
        body = [spec for _, spec in self.body.inputs]
        read = [_Absent(body[position], low) for position, low in zip(kernel.inputs, lows, strict=True)]
        at = dict(zip(kernel.inputs, lows, strict=True))
        written = [_Absent(spec, at.get(self.over.get(j, -1), 0)) for j, spec in enumerate(kernel.outputs)]
        examples: dict[str, object] = {"f32": 0.5, "f64": 3, "i64": 3}
        numbers: list[Any] = [examples[argument.kind] for argument in kernel.numbers]
        if kernel.held:
            numbers = [_Absent(TensorSpec.of((), SLOTS[argument.kind], "cpu"), 0) for argument in kernel.numbers]
        arguments = (*read, *written, *numbers, *kernel.sizes)
        return self.function.run(
            *arguments,
            grid=(1,),
            warmup=True,
            num_warps=tiles.warps,
            num_stages=1,
            enable_fp_fusion=False,
            **tiles.blocks(kernel),
        )

    def tiles_at(self, lows: tuple[int, ...], index: int) -> Tiles:
        """The tiles that are chosen on a device for addresses with these lowest bits."""
        from burn_kernels.autotune import levels, selection

        facts = self.tunable.facts(*self._call(lows))
        tiles: Tiles = selection.current().decide(self.tunable, index, facts, levels.is_deterministic()).config
        return tiles if self.tunable.supports(tiles, facts) else tiles_of(self.kernel)

    def _call(self, lows: Sequence[int]) -> tuple[int, ...]:
        address = 0
        for low in lows:
            address |= low
        return (address, *self.loops)

    def _outputs(self, inputs: Sequence[Any], device: torch.device) -> list[torch.Tensor]:
        return [
            inputs[self.over[j]] if j in self.over else _empty(spec, device)
            for j, spec in enumerate(self.kernel.outputs)
        ]

    def _launch_with(self, tiles: Tiles, arguments: Sequence[Any], outputs: Any, numbers: Sequence[Any]) -> object:
        from burn_kernels.launch import launch

        values = (*arguments, *outputs, *numbers, *self.kernel.sizes)
        grid = (tiles.programs(self.kernel),)
        blocks = tiles.blocks(self.kernel)
        return launch(self.function, grid, outputs[0], *values, warps=tiles.warps, contracts=False, **blocks)

    def _tried(self, inputs: Sequence[object], tiles: Tiles) -> list[torch.Tensor]:
        """The outputs with tiles that are on trial; numbers lie on the device where the kernel reads them there."""
        kernel = self.kernel
        device = next((x.device for x in inputs if isinstance(x, torch.Tensor)), device_of(kernel))
        outputs = self._outputs(inputs, device)
        values = [launched_with(argument, inputs) for argument in kernel.numbers]
        if kernel.held:
            values = [_slot(argument, inputs, device) for argument in kernel.numbers]
        self._launch_with(tiles, [inputs[position] for position in kernel.inputs], outputs, values)
        return outputs


def _loading_on(place: str) -> tuple[contextlib.AbstractContextManager[Any], torch.Tensor]:
    """A block in which kernels are loaded on a device, and a tensor there."""
    device = torch.device(place)
    return torch.cuda.device(device), torch.empty(0, device=device)


@final
class _Absent:
    """A tensor as Triton's compiler looks at one: its type and the lowest bits of its address."""

    def __init__(self, spec: Any, low: int) -> None:
        self.dtype: Final = TO_TORCH[spec.dtype]
        self._low: Final = low

    def data_ptr(self) -> int:
        return self._low


def device_of(kernel: Kernel) -> torch.device:
    """The device that a kernel writes on."""
    return torch.device(kernel.outputs[0].place)


def _empty(spec: TensorSpec, device: torch.device) -> torch.Tensor:
    return torch.empty(spec.shape, dtype=TO_TORCH[spec.dtype], device=device)


def _slot(argument: Argument, inputs: Sequence[object], device: torch.device) -> torch.Tensor:
    return torch.tensor(argument.value(inputs), dtype=TO_TORCH[SLOTS[argument.kind]], device=device)
