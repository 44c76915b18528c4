"""Walks a kernel around a convolution: its own text, and what it has `sums_at` of `burn_kernels` read for it."""

from __future__ import annotations

import ast
import functools
import itertools
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, Final, final

import numpy as np

from burn_torch.fusion.body.kernel_proof import MOST_STEPS, Access, KernelFault, Kernels, Loops, judge
from burn_torch.fusion.triton.convolutions import ConvolutionKernel, ConvolutionTiles
from burn_torch.fusion.triton.proof import Pointer, Values, Walk, functions_of, left_alone, source_of

__all__ = ["prove_convolution"]

_KERNELS: Final = "burn_kernels.convolution.kernels"
_SUMS: Final = "sums_at"
_OUTS: Final = 2
_PIXELS: Final = 7
"""Channels and pixels of a tile at least: so many that the last tile is not full, where a fault in its mask shows."""


def prove_convolution(kernel: ConvolutionKernel, sizes: Mapping[int, int]) -> bool:
    """Shows of a kernel around a convolution what `kernel_proof` says, with small tiles; whether it was walked.

    The sums are a function of `burn_kernels`, of which only the elements that it reads are taken, by its formula.
    sizes  elements that each input of the body reaches, by its position
    Raises: KernelFault.
    """
    if kernel.pixels * kernel.channels > MOST_STEPS:
        return left_alone("too many steps")
    functions = functions_of(kernel.source)
    names = [argument.arg for argument in functions[kernel.name].args.args]
    reach = {name: sizes[place] for name, place in zip(names, kernel.inputs, strict=False)}
    reach |= {f"q{n}": int(spec.numel) for n, spec in enumerate(kernel.outputs)}
    known: Values = {name: Pointer(((None, name),)) for name in reach}
    outs, pixels = _ragged_tile(kernel.channels // kernel.groups, _OUTS), _ragged_tile(kernel.pixels, _PIXELS)
    known |= {"OUTS": np.asarray(outs), "PIXELS": np.asarray(pixels)}
    across, down = kernel.grid(ConvolutionTiles(outs, pixels, 1))
    walk = _Walk(Kernels(kernel.name), functions, np.arange(across * down))
    walk.across = across
    walk.function(functions[kernel.name], known, Loops((0,), ("parallel",), (0, 0)), ())
    judge(walk.found, reach, kernel.outputs, {})
    return True


def _ragged_tile(size: int, least: int) -> int:
    return next(tile for tile in itertools.count(least) if size % tile)


@functools.cache
def _fields_of_groups() -> dict[str, list[str]]:
    """The members of each named tuple in which the sums take their arguments."""
    classes = [node for node in ast.parse(source_of(_KERNELS)).body if isinstance(node, ast.ClassDef)]
    return {
        one.name: [ast.unparse(line.target) for line in one.body if isinstance(line, ast.AnnAssign)] for one in classes
    }


@final
class _Walk(Walk):
    def evaluated(self, x: ast.expr, known: Values, loops: Loops, steps: tuple[int, ...]) -> Any:
        """As of any kernel; the sums read what they are asked to."""
        if not (isinstance(x, ast.Call) and isinstance(x.func, ast.Name) and x.func.id == _SUMS):
            return super().evaluated(x, known, loops, steps)
        parameters = functions_of(source_of(_KERNELS))[_SUMS].args.args
        if len(parameters) != len(x.args):
            raise KernelFault(f"{self.found.name}: {len(x.args)} arguments for the {len(parameters)} of {_SUMS}")
        arguments = {name.arg: self._argument(part, known) for name, part in zip(parameters, x.args, strict=True)}
        self._sums(SimpleNamespace(**arguments), ast.unparse(x), loops)
        return None

    def _argument(self, x: ast.expr, known: Values) -> object:
        if isinstance(x, ast.Constant) and (x.value is None or isinstance(x.value, bool)):
            return x.value
        fields = (
            _fields_of_groups().get(x.func.id) if isinstance(x, ast.Call) and isinstance(x.func, ast.Name) else None
        )
        if fields is not None and isinstance(x, ast.Call):
            members = zip(fields, x.args, strict=True)
            return SimpleNamespace(**{name: self._argument(part, known) for name, part in members})
        value = self.value(x, known)
        if value is None:
            raise KernelFault(f"{self.found.name}: not made of loops: {ast.unparse(x)}")
        return value

    def _sums(self, of: Any, line: str, loops: Loops) -> None:
        """The formula of a convolution: which elements of x, of the weights and of the bias it reads."""
        pixels, strides, weights, sizes, steps = of.pixels, of.strides, of.weight_strides, of.sizes, of.steps
        if of.FORM.BACK or of.FORM.STRIDED:
            raise KernelFault(f"{self.found.name}: no forward convolution: {line}")
        last = int(sizes.targets) - 1
        outs = [np.minimum(of.out + o, last) for o in range(int(of.OUTS))]
        for ky in range(int(of.FORM.KERNEL_H)):
            for kx in range(int(of.FORM.KERNEL_W)):
                row = pixels.y * steps.stride_h - steps.pad_h + ky * steps.dilation_h
                col = pixels.x * steps.stride_w - steps.pad_w + kx * steps.dilation_w
                there = pixels.valid
                if of.FORM.MASKED:
                    there = there & (row >= 0) & (row < sizes.height) & (col >= 0) & (col < sizes.width)
                for c in (0, int(sizes.sources) - 1):  # between these elements only grow
                    x = pixels.n * strides.batch + (of.group * sizes.sources + c) * strides.channel
                    self._read(of.x_ptr, x + row * strides.row + col * strides.col, there, line, loops)
                    tap = of.group * weights.group + c * weights.source + ky * of.FORM.KERNEL_W + kx
                    for out in outs:
                        self._read(of.w_ptr, tap + out * weights.out, None, line, loops)
        if of.b_ptr is not None:
            for out in outs:
                self._read(of.b_ptr, of.group * sizes.targets + out, None, line, loops)

    def _read(self, pointer: Pointer, elements: Any, there: Any, line: str, loops: Loops) -> None:
        """Notes the least and the greatest element of each program that a load may touch."""
        whole, mask = np.broadcast_arrays(elements, True if there is None else there)
        ((_, buffer),) = pointer.choices
        ends = whole[mask.astype(bool)]
        ends = np.asarray([ends.min(), ends.max()] if ends.size else [], np.int64)
        self.found.loads.append(Access(buffer, line, loops, (np.zeros_like(ends),), ends))
