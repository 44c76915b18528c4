"""Runs generated kernels: `fusion::kernel` on this leaf.

The source of each kernel is a file of its own in the cache folder, named for its content: Triton reads it there, and
so can people.  A kernel is written for the strides of its inputs when it first sees them.
"""

from __future__ import annotations

import importlib.util
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, final

import torch

from burn_torch.backend.libtorch.source_file import cache_folder
from burn_torch.core.dtype import DType
from burn_torch.core.files import make_folder, write_atomic
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.configs import Tiles, tiles_of
from burn_torch.fusion.loops import Argument, Kernel
from burn_torch.fusion.lowering import lower
from burn_torch.fusion.row import body_of
from burn_torch.graph.ir import Graph
from burn_torch.ops.device_numbers import DeviceForm, run_time_numbers
from burn_torch.ops.op import Call
from burn_torch.ops.torch_types import TO_TORCH

__all__ = ["FusedKernel", "fused_kernel", "generates", "held_form", "in_device_form", "launched_with", "module_of"]


def generates(place: str) -> bool:
    """Whether generated kernels run at `place`."""
    from burn_kernels._triton import AVAILABLE, INTERPRETED

    return AVAILABLE and (place.startswith("cuda") or INTERPRETED)


def fused_kernel(call: Call) -> FusedKernel | None:
    """What runs a `fusion::kernel`; None where no kernel runs at its place (a CPU without Triton's interpreter)."""
    place = next(spec.place for spec in call.results)
    if not generates(place):
        return None
    return FusedKernel(body_of(call.attrs["body"]), strict=call.attrs["strict"])


_SLOTS: Final = {"f32": DType.F32, "f64": DType.F64, "i64": DType.I64}


def held_form(call: Call, known: Sequence[Any]) -> DeviceForm | None:
    """How a generated kernel reads its numbers from the device; None where no kernel runs."""
    run = fused_kernel(call)
    if run is None:
        return None
    held = FusedKernel(run.body, strict=run.strict, held=True)
    return in_device_form(known, lower(run.body, strict=run.strict).numbers, held.run)


def in_device_form(
    known: Sequence[Any],
    numbers: Sequence[Argument],
    run: Callable[[Sequence[Any], Sequence[torch.Tensor]], Any],
) -> DeviceForm:
    """A generated kernel with numbers on the device: `run` takes the inputs, and where these arguments of it lie."""
    at = run_time_numbers(known)
    others = [i for i in range(len(known)) if i not in at]

    def all_of(given: Sequence[Any], rest: Sequence[Any]) -> list[Any]:
        found = [None] * len(known)
        for i, value in [*zip(at, given, strict=True), *zip(others, rest, strict=True)]:
            found[i] = value
        return found

    def pack(*given: Any) -> list[Any]:
        values = all_of(given, [known[i] for i in others])
        return [argument.value(values) for argument in numbers]

    def compute(*inputs: Any) -> Any:
        slots, rest = inputs[: len(numbers)], inputs[len(numbers) :]
        return run(all_of([None] * len(at), rest), slots)

    return DeviceForm(tuple(_SLOTS[argument.kind] for argument in numbers), pack, compute)


@final
class FusedKernel:
    """A body as a function of its inputs that launches one kernel.

    held  its numbers lie on the device
    over  outputs that are written over inputs, as `Kernel.over` allows; an input with gaps is left alone
    """

    def __init__(self, body: Graph, *, strict: bool, held: bool = False, over: Mapping[int, int] | None = None) -> None:
        self.body: Final = body
        self.strict: Final = strict
        self.held: Final = held
        self.over: Final = dict(over or {})
        self.variants: Final[dict[Any, _Variant]] = {}

    def __call__(self, *inputs: Any) -> list[torch.Tensor]:
        """The outputs; tensors and numbers in the order of the body's inputs."""
        return self.run(inputs, None)

    def written_over(self, over: Mapping[int, int]) -> FusedKernel:
        """The same, with these outputs written over these inputs."""
        return FusedKernel(self.body, strict=self.strict, held=self.held, over=over)

    def run(self, inputs: Sequence[Any], slots: Sequence[torch.Tensor] | None) -> list[torch.Tensor]:
        """The outputs; with `slots`, numbers are read from there, in the order of the kernel's arguments."""
        layouts = tuple(None if not isinstance(x, torch.Tensor) or x.is_contiguous() else x.stride() for x in inputs)
        variant = self.variants.get(layouts)
        if variant is None:
            over = {j: k for j, k in self.over.items() if layouts[k] is None}
            lowered = lower(self.body, strict=self.strict, layouts=layouts, held=self.held, over=bool(over))
            assert set(over.items()) <= set(lowered.over), "an output over an input that is read elsewhere"
            variant = self.variants[layouts] = _Variant(lowered, over)
        return variant.run(inputs, slots)


@final
class _Variant:
    """One kernel, for inputs with certain strides."""

    def __init__(self, kernel: Kernel, over: Mapping[int, int]) -> None:
        self.kernel: Final = kernel
        self.over: Final = over
        self.tiles: Final[Tiles] = tiles_of(kernel)
        self.function: Final = getattr(module_of(kernel.name, kernel.source), kernel.name)

    def run(self, inputs: Sequence[Any], slots: Sequence[torch.Tensor] | None) -> list[torch.Tensor]:
        """The outputs."""
        from burn_kernels.launch import launch

        kernel, tiles = self.kernel, self.tiles
        device = next(x.device for x in inputs if isinstance(x, torch.Tensor)) if kernel.inputs else _device(kernel)
        outputs = [
            inputs[self.over[j]] if j in self.over else _empty(spec, device) for j, spec in enumerate(kernel.outputs)
        ]
        if kernel.domain.rows and outputs[0].numel():
            arguments = [inputs[position] for position in kernel.inputs]
            numbers = [launched_with(argument, inputs) for argument in kernel.numbers] if slots is None else slots
            blocks = {"XB": tiles.x} if kernel.domain.reduced is None else {"XB": tiles.x, "RB": tiles.r}
            grid = (tiles.programs(kernel),)
            launch(self.function, grid, outputs[0], *arguments, *outputs, *numbers, warps=tiles.warps, **blocks)
        return outputs


def _device(kernel: Kernel) -> torch.device:
    return torch.device(kernel.outputs[0].place)


def _empty(spec: TensorSpec, device: torch.device) -> torch.Tensor:
    return torch.empty(spec.shape, dtype=TO_TORCH[spec.dtype], device=device)


def launched_with(argument: Argument, inputs: Sequence[Any]) -> Any:
    """The number that a launch passes for an argument."""
    value = argument.value(inputs)
    if argument.kind == "f64":
        return struct.unpack("q", struct.pack("d", float(value)))[0]
    return float(value) if argument.kind == "f32" else int(value)


# -- files -------------------------------------------------------------------------------------------
_modules: Final[dict[str, ModuleType]] = {}
_lock: Final = threading.Lock()


def module_of(name: str, source: str) -> ModuleType:
    """The source as a module from a file: Triton reads a kernel's source from where it was defined."""
    with _lock:
        found = _modules.get(name)
        if found is None:
            spec = importlib.util.spec_from_file_location(f"burn_torch_{name}", _written(name, source))
            assert spec is not None
            assert spec.loader is not None
            found = importlib.util.module_from_spec(spec)
            sys.modules[spec.name] = found
            spec.loader.exec_module(found)
            _modules[name] = found
        return found


def _written(name: str, source: str) -> Path:
    for folder in (cache_folder().parent / "kernels", Path(tempfile.gettempdir()) / "burn_torch_kernels"):
        path = folder / f"{name}.py"
        try:
            if not (path.exists() and path.read_text(encoding="utf-8") == source):
                make_folder(folder)
                write_atomic(path, source.encode(), durable=False)
        except (OSError, UnicodeError):
            continue
        return path
    raise OSError(f"neither {cache_folder().parent} nor {tempfile.gettempdir()} can be written")
