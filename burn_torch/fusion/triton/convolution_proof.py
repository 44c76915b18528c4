"""Walks a kernel around a convolution: its own text, and what it has `sums_at` of `burn_kernels` read for it."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Mapping
from typing import Any, Final, final

import numpy as np

from burn_torch.fusion.body.kernel_proof import MOST_STEPS, Access, KernelFault, Kernels, Loops, judge
from burn_torch.fusion.triton.convolutions import ConvolutionKernel, ConvolutionTiles
from burn_torch.fusion.triton.proof import Pointer, Values, Walk, functions_of, left_alone, source_of

__all__ = ["prove_convolution"]

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
    outs, pixels = _ragged(kernel.channels // kernel.groups, _OUTS), _ragged(kernel.pixels, _PIXELS)
    known |= {"OUTS": np.asarray(outs), "PIXELS": np.asarray(pixels)}
    across, down = kernel.grid(ConvolutionTiles(outs, pixels, 1))
    walk = _Walk(Kernels(kernel.name), functions, np.arange(across * down))
    walk.across = across
    walk.function(functions[kernel.name], known, Loops((0,), ("parallel",), (0, 0)), ())
    judge(walk.found, reach, kernel.outputs, {})
    return True


def _ragged(size: int, least: int) -> int:
    return next(tile for tile in itertools.count(least) if size % tile)


@final
class _Walk(Walk):
    def evaluated(self, x: ast.expr, known: Values, loops: Loops, steps: tuple[int, ...]) -> Any:
        """As of any kernel; the sums read what they are asked to."""
        if not (isinstance(x, ast.Call) and isinstance(x.func, ast.Name) and x.func.id == _SUMS):
            return super().evaluated(x, known, loops, steps)
        parameters = functions_of(source_of("burn_kernels.convolution.kernels"))[_SUMS].args.args
        if len(parameters) != len(x.args):
            raise KernelFault(f"{self.found.name}: {len(x.args)} arguments for the {len(parameters)} of {_SUMS}")
        given = {name.arg: self._argument(part, known) for name, part in zip(parameters, x.args, strict=True)}
        self._sums(given, ast.unparse(x), loops)
        return None

    def _argument(self, x: ast.expr, known: Values) -> object:
        if isinstance(x, ast.Constant) and (x.value is None or isinstance(x.value, bool)):
            return x.value
        value = self.value(x, known)
        if value is None:
            raise KernelFault(f"{self.found.name}: not made of loops: {ast.unparse(x)}")
        return value

    def _sums(self, of: Mapping[str, Any], line: str, loops: Loops) -> None:
        """The formula of a convolution: which elements of x, of the weights and of the bias it reads."""
        if of["BACK"] or of["STRIDED"]:
            raise KernelFault(f"{self.found.name}: no forward convolution: {line}")
        last = int(of["targets"]) - 1
        outs = [np.minimum(of["out"] + o, last) for o in range(int(of["OUTS"]))]
        for ky in range(int(of["KERNEL_H"])):
            for kx in range(int(of["KERNEL_W"])):
                row = of["oy"] * of["stride_h"] - of["pad_h"] + ky * of["dilation_h"]
                col = of["ox"] * of["stride_w"] - of["pad_w"] + kx * of["dilation_w"]
                there = of["valid"]
                if of["MASKED"]:
                    there = there & (row >= 0) & (row < of["height"]) & (col >= 0) & (col < of["width"])
                for c in (0, int(of["sources"]) - 1):  # between these elements only grow
                    x = of["n"] * of["x_batch"] + (of["group"] * of["sources"] + c) * of["x_channel"]
                    self._read(of["x_ptr"], x + row * of["x_row"] + col * of["x_col"], there, line, loops)
                    tap = of["group"] * of["w_group"] + c * of["w_in"] + ky * of["KERNEL_W"] + kx
                    for out in outs:
                        self._read(of["w_ptr"], tap + out * of["w_out"], None, line, loops)
        if of["b_ptr"] is not None:
            for out in outs:
                self._read(of["b_ptr"], of["group"] * of["targets"] + out, None, line, loops)

    def _read(self, pointer: Pointer, elements: Any, there: Any, line: str, loops: Loops) -> None:
        """Notes the least and the greatest element of each program that a load may touch."""
        whole, mask = np.broadcast_arrays(elements, True if there is None else there)
        ((_, buffer),) = pointer.choices
        ends = whole[mask.astype(bool)]
        ends = np.asarray([ends.min(), ends.max()] if ends.size else [], np.int64)
        self.found.loads.append(Access(buffer, line, loops, (np.zeros_like(ends),), ends))
