"""Runs generated kernels: `fusion::kernel` on this leaf.

The source of each kernel is a file of its own in the cache folder, named for its content: Triton reads it there, and
so can people.  A kernel is written for the strides of its inputs when it first sees them; one of symbolic sizes takes them as
arguments, with the strides that are neither 0 nor 1.
"""

from __future__ import annotations

import functools
import importlib.util
import struct
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
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
from burn_torch.fusion.sharing import Layout, Shared, layout_of, shared
from burn_torch.graph.ir import Graph
from burn_torch.ops.device_numbers import DeviceForm, run_time_numbers
from burn_torch.ops.op import Call
from burn_torch.ops.torch_types import TO_TORCH

__all__ = ["FusedKernel", "fused_kernel", "generates", "held_form"]

_Strides = tuple[tuple[int, ...] | None, ...]


def generates(place: str) -> bool:
    """Whether generated kernels run at `place`."""
    from burn_kernels._triton import AVAILABLE, INTERPRETED

    return AVAILABLE and (place.startswith("cuda") or INTERPRETED)


def fused_kernel(call: Call) -> Callable[..., Any] | None:
    """What runs a `fusion::kernel`; None where no kernel runs at its place (a CPU without Triton's interpreter)."""
    place = next(spec.place for spec in call.results)
    if not generates(place):
        return None
    return _kernel_of(call, held=False)


def _kernel_of(call: Call, *, held: bool) -> FusedKernel:
    attrs = call.attrs
    symbols = _Symbols(attrs["body"], attrs["dynamic"], attrs["sizes"]) if attrs["dynamic"] else None
    body = body_of(attrs["body"]) if symbols is None else symbols
    return FusedKernel(body, strict=attrs["strict"], held=held)


_SLOTS: Final = {"f32": DType.F32, "f64": DType.F64, "i64": DType.I64}


def held_form(call: Call, known: Sequence[Any]) -> DeviceForm | None:
    """How a generated kernel reads its numbers from the device; None where no kernel runs."""
    run = fused_kernel(call)
    if not isinstance(run, FusedKernel):
        return None
    held = _kernel_of(call, held=True)
    numbers = run.variant((None,) * len(known)).kernel.numbers
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
        return held.run(all_of([None] * len(at), rest), slots)

    return DeviceForm(tuple(_SLOTS[argument.kind] for argument in numbers), pack, compute)


@final
class FusedKernel:
    """A body as a function of its inputs that launches one kernel.

    body  what it computes, or that and which of its sizes are symbols of a kernel that other sizes share
    held  its numbers lie on the device
    """

    def __init__(self, body: Graph | _Symbols, *, strict: bool, held: bool = False) -> None:
        self.body: Final = body
        self.strict: Final = strict
        self.held: Final = held
        self.variants: Final[dict[Any, _Variant]] = {}

    def __call__(self, *inputs: Any) -> list[torch.Tensor]:
        """The outputs; tensors and numbers in the order of the body's inputs."""
        return self.run(inputs, None)

    def run(self, inputs: Sequence[Any], slots: Sequence[torch.Tensor] | None) -> list[torch.Tensor]:
        """The outputs; with `slots`, numbers are read from there, in the order of the kernel's arguments."""
        layouts = tuple(None if not isinstance(x, torch.Tensor) or x.is_contiguous() else x.stride() for x in inputs)
        return (self.variants.get(layouts) or self.variant(layouts)).run(inputs, slots)

    def variant(self, layouts: _Strides) -> _Variant:
        """The kernel for inputs with these strides, None for row-major ones."""
        body = self.body
        if isinstance(body, _Symbols):
            found = body.variant(layouts, self.strict, self.held)
            if found is not None:
                self.variants[layouts] = found
                return found
            body = body_of(body.body, body.sizes)
        found = self.variants[layouts] = _Variant(lower(body, strict=self.strict, layouts=layouts, held=self.held))
        return found


@final
@dataclass(frozen=True)
class _Symbols:
    """A body of symbolic sizes at some of them, as the attributes of a `fusion::kernel` have it."""

    body: str
    dynamic: tuple[int, ...]
    sizes: tuple[int, ...]

    def variant(self, layouts: _Strides, strict: bool, held: bool) -> _Variant | None:
        """The kernel that all sizes share, at these; None where they are outside of what it is for."""
        classes = tuple([None if layout is None else layout_of(layout) for layout in layouts])
        found, kernel, values = _lowered(self.body, self.dynamic, classes, strict, held)
        steps = [step for layout in layouts if layout is not None for step in layout if step not in (0, 1)]
        symbols = found.symbols(self.sizes, steps)
        if symbols is None:
            return None
        rows, length, *sizes = values(symbols)
        return _Variant(kernel, found.specs(symbols), (rows, length), sizes)


@functools.lru_cache(maxsize=1024)
def _lowered(
    body: str, dynamic: tuple[int, ...], layouts: tuple[Layout, ...], strict: bool, held: bool
) -> tuple[Shared, Kernel, Callable[[Sequence[int]], tuple[int, ...]]]:
    """The kernel of a symbolic body, and a function from its symbols to how far its loops run and its arguments."""
    found = shared(body, dynamic, layouts if any(layouts) else ())
    kernel = lower(found.symbolic.graph, strict=strict, layouts=found.strides or None, held=held)
    loops = kernel.domain.rows, kernel.domain.length
    return found, kernel, found.symbolic.at([*loops, *kernel.sizes])


@final
class _Variant:
    """One kernel, for inputs with certain strides.  results, loops, sizes: what they are, where they are symbolic."""

    def __init__(
        self,
        kernel: Kernel,
        results: Sequence[TensorSpec] | None = None,
        loops: tuple[int, int] | None = None,
        sizes: Sequence[int] = (),
    ) -> None:
        self.kernel: Final = kernel
        self.results: Final = kernel.outputs if results is None else tuple(results)
        self.rows: Final = kernel.domain.rows if loops is None else loops[0]
        self.sizes: Final = tuple(sizes)
        self.tiles: Final[Tiles] = tiles_of(kernel, loops)
        self.function: Final = getattr(_module(kernel.name, kernel.source), kernel.name)

    def run(self, inputs: Sequence[Any], slots: Sequence[torch.Tensor] | None) -> list[torch.Tensor]:
        """The outputs."""
        from burn_kernels.launch import launch

        kernel, tiles = self.kernel, self.tiles
        device = next(x.device for x in inputs if isinstance(x, torch.Tensor)) if kernel.inputs else _device(kernel)
        outputs = [_empty(spec, device) for spec in self.results]
        if self.rows and outputs[0].numel():
            arguments = [inputs[position] for position in kernel.inputs]
            numbers = [_passed(argument, inputs) for argument in kernel.numbers] if slots is None else slots
            arguments += [*outputs, *numbers, *self.sizes]
            blocks = {"XB": tiles.x} if kernel.domain.reduced is None else {"XB": tiles.x, "RB": tiles.r}
            grid = (tiles.programs(kernel, self.rows),)
            launch(self.function, grid, outputs[0], *arguments, warps=tiles.warps, **blocks)
        return outputs


def _device(kernel: Kernel) -> torch.device:
    return torch.device(kernel.outputs[0].place)


def _empty(spec: TensorSpec, device: torch.device) -> torch.Tensor:
    return torch.empty(spec.shape, dtype=TO_TORCH[spec.dtype], device=device)


def _passed(argument: Argument, inputs: Sequence[Any]) -> Any:
    value = argument.value(inputs)
    if argument.kind == "f64":
        return struct.unpack("q", struct.pack("d", float(value)))[0]
    return float(value) if argument.kind == "f32" else int(value)


# -- files -------------------------------------------------------------------------------------------
_modules: Final[dict[str, ModuleType]] = {}
_lock: Final = threading.Lock()


def _module(name: str, source: str) -> ModuleType:
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
