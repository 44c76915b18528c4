"""The quick way to a generated kernel that was compiled before: the least that Python must do for a launch.

Written as source for the kernel at hand, since it runs once a launch: it asks whether the inputs lie as they did, takes
their addresses, makes the outputs and calls the driver.  Inputs that it does not expect go the way that Triton offers.

    def launch(inputs):
        nonlocal known
        x0, x1, = inputs
        if not (x0.is_contiguous() and holds()):
            return otherwise(inputs)
        ...
        k1, n0, n1 = known
        if x1 is not k1:
            n0 = number0(inputs)
            n1 = number1(inputs)
            known = (x1, n0, n1)

What a kernel takes of the numbers of a program is kept with those numbers: a program's own are the same objects in each
call.  They are compared by identity, since 0.0 equals -0.0.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import torch

from burn_torch.core.source import Source
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.loops import Argument, Kernel, packed_strides
from burn_torch.fusion.triton.configs import Tiles
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive

__all__ = ["Run", "current_device", "current_stream", "launched_with", "maker", "quick_launch"]

Run = Callable[[Sequence[Primitive]], list[torch.Tensor]]
Holds = Callable[[], bool]

_ALIGNED: Final = 15
"""Addresses have none of these bits, where Triton compiles for accesses of 16 bytes."""


def quick_launch(
    kernel: Kernel, over: Mapping[int, int], tiles: Tiles, ready: Any, holds: Holds, otherwise: Run, numbers: list[bool]
) -> Run:
    """A function of all inputs of a body that launches its kernel.

    over       outputs that are written over inputs, by their positions
    ready      the compiled kernel, as `burn_kernels.prepared` gives it, for inputs without gaps at aligned addresses
    holds      whether the tiles are still those to use, and nobody watches
    otherwise  what runs where anything is not as expected
    numbers    which inputs are numbers
    """
    read = [f"x{position}" for position in kernel.inputs]
    names: dict[str, Any] = {
        "submit": ready.submit, "head": ready.head, "holds": holds, "otherwise": otherwise, "stream": current_stream(),
    }  # fmt: skip
    lines = [f"{''.join(f'x{i}, ' for i in range(len(numbers)))}= inputs"] if numbers else []
    asked = [*(f"{x}.is_contiguous()" for x in read), "holds()"]
    device = current_device()
    if device is not None:
        names["device"] = device
        asked.append(f"device() == {ready.device}")
    lines += [f"if not ({' and '.join(asked)}):", "    return otherwise(inputs)"]
    lines += [f"p{n} = {x}.data_ptr()" for n, x in enumerate(read)]
    if read:
        lines += [f"if ({' | '.join(f'p{n}' for n in range(len(read)))}) & {_ALIGNED}:", "    return otherwise(inputs)"]
    arguments = [f"p{n}" for n in range(len(read))]
    for n, spec in enumerate(kernel.outputs):
        if n in over:
            lines.append(f"q{n} = x{over[n]}")
        else:
            names[f"make{n}"] = maker(spec, ready.device)
            lines.append(f"q{n} = make{n}()")
        arguments.append(f"q{n}.data_ptr()")
    head: list[str] = []
    if kernel.numbers:
        names |= {f"number{n}": partial(launched_with, argument) for n, argument in enumerate(kernel.numbers)}
        head, taken = _kept_numbers(len(kernel.numbers), [i for i, is_number in enumerate(numbers) if is_number])
        lines += taken
        arguments += [f"n{n}" for n in range(len(kernel.numbers))]
    arguments += map(str, kernel.sizes)
    arguments += map(str, tiles.blocks(kernel).values())
    lines.append(f"submit({tiles.programs(kernel)}, 1, 1, stream({ready.device}), *head, {', '.join(arguments)})")
    lines.append(f"return [{', '.join(f'q{n}' for n in range(len(kernel.outputs)))}]")
    source = Source(f"launch of {kernel.name}", **names)
    source.add(*head)
    with source.block("def launch(inputs):"):
        source.add(*["nonlocal known"] * bool(head), *lines)
    return source.function("launch")


def launched_with(argument: Argument, inputs: Sequence[object]) -> Any:
    """The number that a launch passes for an argument."""
    value = argument.value(inputs)
    if argument.kind == "f64":
        return struct.unpack("q", struct.pack("d", float(value)))[0]
    return float(value) if argument.kind == "f32" else int(value)


def _kept_numbers(count: int, at: Sequence[int]) -> tuple[list[str], list[str]]:
    """Lines before the function and in it that give `count` arguments, made of the numbers at these positions."""
    names = [f"n{n}" for n in range(count)]
    kept = ", ".join([*(f"k{i}" for i in at), *names])
    changed = " or ".join(f"x{i} is not k{i}" for i in at) or "n0 is None"  # or of no number of run time: made once
    return [f"known = (None,) * {len(at) + count}"], [
        f"{kept}, = known",
        f"if {changed}:",
        *(f"    {n} = number{n[1:]}(inputs)" for n in names),
        f"    known = ({''.join(f'x{i}, ' for i in at)}{', '.join(names)},)",
    ]


def maker(spec: TensorSpec, index: int) -> Callable[[], torch.Tensor]:
    """Returns the function that makes an output: torch's own short way for compiled functions, else `torch.empty`."""
    dtype = TO_TORCH[spec.dtype]
    guards = getattr(getattr(torch._C, "_dynamo", None), "guards", None)
    short = getattr(guards, "_empty_strided_cuda" if spec.place.startswith("cuda") else "_empty_strided_cpu", None)
    if short is None:
        device = torch.device(spec.place) if spec.place != "cuda" else torch.device("cuda", index)
        return partial(torch.empty, spec.shape, dtype=dtype, device=device)
    return partial(short, spec.shape, packed_strides(spec.shape), dtype)


def current_device() -> Callable[[], int] | None:
    """Returns the function that tells the current device; None where there is but one."""
    if torch.cuda.device_count() <= 1:
        return None
    return getattr(torch._C, "_cuda_getDevice", None) or torch.cuda.current_device


def current_stream() -> Callable[[int], int]:
    """Returns the function that tells the current stream of a device, as the driver has it."""
    raw: Any = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return raw or (lambda index: torch.cuda.current_stream(index).cuda_stream)
