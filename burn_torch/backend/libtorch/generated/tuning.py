"""Choosing the tiles of generated kernels: each is a tunable of `burn_kernels.autotune`, under the same levels.

Without timings a kernel runs with the tiles that `fusion/triton/configs.py` gives; at level `on` its second use
measures the others, never inside of a capture.  Before one is timed it must compute, in fenced and poisoned memory,
what the operations of the body compute one by one in double precision, on inputs of its own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from burn_torch.backend.libtorch.programs.program import write_program
from burn_torch.core.dtype import DType
from burn_torch.core.spec import Spec, TensorSpec
from burn_torch.fusion.body.loops import Kernel
from burn_torch.fusion.triton.configs import Tiles, candidates_of, tiles_of
from burn_torch.graph.ir import Graph
from burn_torch.graph.trace import Trace
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive

__all__ = ["Layouts", "in_double", "last_tiles", "tunable_of"]

Layouts = Sequence[tuple[int, ...] | None]
"""Strides of the inputs of a body, None for those without gaps and for numbers."""

Launch = Callable[..., list[torch.Tensor]]

_UNITS: Final = 64.0
"""The units of the largest result by which a kernel may be off; its functions are up to 4 units off themselves."""


def tunable_of(
    body: Graph, kernel: Kernel, module: str, layouts: Layouts, over: Mapping[int, int], launch: Launch
) -> Any:
    """The tunable of a kernel.

    module   that of its source
    over     outputs that it writes over inputs
    launch   (inputs, tiles) -> outputs

    A kernel of symbolic sizes is one for all of them: its calls tell how far its loops run, in powers of two.
    """
    from burn_kernels.autotune.cost import Work
    from burn_kernels.autotune.key import Facts, alignment
    from burn_kernels.autotune.tunable import Tunable

    domain, specs = kernel.domain, dict(enumerate(spec for _, spec in body.inputs))
    tensors = [spec for spec in (*(specs[i] for i in kernel.inputs), *kernel.outputs) if isinstance(spec, TensorSpec)]
    moved = sum(spec.numel * spec.dtype.itemsize for spec in tensors)
    largest = max(tensors, key=lambda spec: spec.numel * spec.dtype.itemsize)
    layout = "packed" if all(layout is None for layout in layouts) else "strided"

    def facts(address: int, *loops: int) -> Facts:
        exact = () if kernel.sizes else (domain.rows, domain.length)
        return Facts(loops, exact, TO_TORCH[largest.dtype], alignment(address), layout)

    def work(tiles: Tiles, facts: Facts, machine: object) -> Work:
        programs, size = tiles.programs(kernel), largest.dtype.itemsize
        lanes = programs * tiles.x * tiles.r * (math.ceil(domain.length / tiles.r) if not kernel.whole_rows else 1)
        useful = min(1.0, domain.rows * domain.length / max(lanes, 1))
        flops = 4 * len(body.nodes) * domain.rows * domain.length
        live = 1.0 + len(tensors) / 2
        return Work(programs, tiles.warps, tiles.x * tiles.r, size, moved, flops, useful, live)

    return Tunable(
        name=kernel.name,
        config=Tiles,
        facts=facts,
        exact=() if kernel.sizes else ("rows", "length"),
        free=("rows", "length") if kernel.sizes else (),
        candidates=lambda facts, machine: candidates_of(kernel),
        supports=lambda tiles, facts: not kernel.whole_rows or tiles.r >= domain.length,
        work=work,
        trial=lambda facts, inputs: _trial(body, kernel, layouts, over, launch, inputs),
        kernels=(module,),
        problems=lambda rows, cols, dtype: [facts(0, *((domain.rows, domain.length) if kernel.sizes else ()))],
    )


def last_tiles(name: str) -> tuple[Tiles, str] | None:
    """Returns for `explain` the tiles of a kernel's last decision, and who chose them."""
    from burn_kernels.autotune.selection import current

    decisions = list(current().decisions.values())
    chosen = [decision for decision in decisions if decision.tunable.name == name]
    return (chosen[-1].config, chosen[-1].source) if chosen else None


# -- trials ------------------------------------------------------------------------------------------
def _trial(body: Graph, kernel: Kernel, layouts: Layouts, over: Mapping[int, int], launch: Launch, draw: object) -> Any:
    from burn_kernels.autotune.trial import Trial

    drawn = tuple(_draw_input(spec, layout, draw) for (_, spec), layout in zip(body.inputs, layouts, strict=True))
    known: dict[str, list[torch.Tensor]] = {}

    def exact() -> list[torch.Tensor]:
        if "exact" not in known:
            known["exact"] = _run_operations(in_double(body), _as_doubles(drawn))
        return known["exact"]

    def reference(inputs: Sequence[object]) -> tuple[torch.Tensor, ...]:
        """Returns exact results of doubles; else those by which errors are measured: the default's, if right."""
        if any(isinstance(x, torch.Tensor) and x.dtype == torch.float64 for x in inputs):
            return tuple(exact())
        if "usual" not in known:
            usual = launched(drawn, tiles_of(kernel))
            right = all(map(_near, usual, exact()))
            known["usual"] = usual if right else _run_operations(body, drawn)
        return tuple(known["usual"])

    def launched(inputs: Sequence[Primitive], tiles: Tiles) -> list[torch.Tensor]:
        kept = set(over.values())  # what it writes over is no input of the trial, but a copy of one
        return launch([x.clone() if i in kept else x for i, x in enumerate(inputs)], tiles)

    def run(inputs: Sequence[object], tiles: Tiles) -> tuple[torch.Tensor, ...]:
        return tuple(launched(inputs, tiles))

    return Trial(drawn, run, reference, launch if over else None)


def _draw_input(spec: Spec, layout: tuple[int, ...] | None, draw: Any) -> object:
    """An input: what any program has, fractions around 0 and small numbers."""
    if not isinstance(spec, TensorSpec):
        return {"float": 0.375, "int": 3, "bool": True}[spec.kind]
    size = spec.numel if layout is None else 1 + sum((n - 1) * s for n, s in zip(spec.shape, layout, strict=True))
    if spec.dtype.is_float:
        x = draw.normal(size, dtype=TO_TORCH[spec.dtype])
    else:
        x = draw.integers(0, 2 if spec.dtype.is_bool else 4, size).to(TO_TORCH[spec.dtype])
    return x.view(spec.shape) if layout is None else x.as_strided(spec.shape, layout)


def in_double(body: Graph) -> Graph:
    """The same operations on double precision wherever there is another fraction."""
    trace = Trace()
    wide = [
        (i, spec.with_dtype(_wide(spec.dtype)) if isinstance(spec, TensorSpec) else spec) for i, spec in body.inputs
    ]
    values: dict[int, Primitive] = {i: trace.input(spec) for i, spec in wide}
    some = type(next(iter(values.values()))) if values else None
    for node in body.nodes:
        attrs = {n: _wide(v) if isinstance(v, DType) else v for n, v in node.call.attrs.items()}
        operands = [values[i] if isinstance(i, int) else None if i is None else i.value for i in node.inputs]
        if some is None or any(hasattr(x, "spec") for x in operands):
            output = node.call.op(*operands, **attrs)
        else:
            output = node.call.op.run(trace, some, operands, attrs)
        for i, value in zip(node.outputs, output if node.call.multiple else (output,), strict=True):
            if i is not None:
                values[i] = value
    return trace.graph([values[i] for i in body.outputs if i is not None])


def _wide(dtype: DType) -> DType:
    return DType.F64 if dtype.is_float else dtype


def _as_doubles(inputs: Sequence[object]) -> list[object]:
    return [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in inputs]


def _run_operations(body: Graph, inputs: Sequence[Primitive]) -> list[torch.Tensor]:
    return list(write_program(body, title="The operations of a generated kernel, one by one").run(*inputs))


def _near(actual: torch.Tensor, exact: torch.Tensor) -> bool:
    """Asks whether a result is as near to the exact one as its element type and the functions of kernels let it be."""
    if not actual.is_floating_point():
        return torch.equal(actual, exact.to(actual.dtype))
    odd = ~exact.isfinite()
    if not torch.equal(actual[odd].double().nan_to_num(nan=0.5), exact[odd].nan_to_num(nan=0.5)):
        return False
    apart = torch.where(odd, 0.0, actual.double() - exact).abs().max()
    size = torch.where(odd, 0.0, exact).abs().max()
    return bool(apart <= _UNITS * torch.finfo(actual.dtype).eps * size)
