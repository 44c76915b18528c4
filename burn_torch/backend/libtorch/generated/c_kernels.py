"""Runs `fusion::kernel` on a CPU: the body as a C function that the machine's compiler makes fast.

A kernel is a shared library of its own (`c_libraries.py`).  It uses the OpenMP library that torch has loaded, hence
torch's number of threads and one pool for both.
"""

from __future__ import annotations

import ctypes
import functools
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, final

import torch

from burn_torch.backend.libtorch.generated.c_libraries import CompilerError, build_apart, compiler, loaded
from burn_torch.backend.libtorch.plain import compile_plain
from burn_torch.backend.libtorch.programs.program import write_program
from burn_torch.core.frames import warn_user
from burn_torch.core.source import Source
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.kernel_proof import KernelFault, reached
from burn_torch.fusion.body.lines import known_lines
from burn_torch.fusion.body.loops import packed_strides
from burn_torch.fusion.c.lowering import CKernel, lower_to_c, lowered_for_cpu
from burn_torch.fusion.planning.faults import remember_failure
from burn_torch.fusion.rows.row import body_of
from burn_torch.fusion.rows.sharing import c_kernel_at
from burn_torch.graph.ir import Graph
from burn_torch.graph.verifying import is_proving, is_verifying
from burn_torch.ops.torch_types import TO_TORCH
from burn_torch.ops.value import Primitive

__all__ = ["CFunction", "CompilerError", "CompilerWarning", "c_function", "compiler"]

_WORK: Final = 1 << 15
"""Operations on elements that are worth the start of threads."""

_NUMBERS: Final = {"f32": ctypes.c_float, "f64": ctypes.c_double, "i64": ctypes.c_int64}


class CompilerWarning(UserWarning):
    """Operations run one by one: there is no C compiler, or it refused their kernel."""


@functools.lru_cache(maxsize=4096)
def c_function(text: str, dynamic: str = "", sizes: tuple[int, ...] = (), *, strict: bool) -> CFunction:
    """A body (as `fusion::kernel` holds it) as a function of its inputs: in C where that pays, else op by op."""
    return CFunction(body_of(text, dynamic, sizes), strict=strict, symbols=(text, dynamic, sizes))


_Run = Callable[..., Sequence[torch.Tensor]]


@final
class CFunction:
    """A body as a function of tensors on the CPU and of numbers, in the order of the body's inputs.

    The compiler starts at once, beside the compilers of other kernels, and is waited for by the first call.  If it
    refuses the kernel, that is told of, and the operations run one by one from then on.

    symbols  the body's text, what its sizes are made of, and what the symbols are, as a `fusion::kernel` has them:
             where other sizes share the kernel
    kernel   what is compiled; None where the operations run one by one: C does not pay, does not know one of them, or
             there is no compiler
    """

    def __init__(self, body: Graph, *, strict: bool, symbols: tuple[str, str, tuple[int, ...]] = ("", "", ())) -> None:
        self.body: Final = body
        self.strict: Final = strict
        self._symbols: Final = symbols
        try:
            kernel = lowered_for_cpu(body, strict=strict)
            if kernel is not None:
                kernel = c_kernel_at(*symbols, strict=strict) or kernel
            if kernel is not None and compiler() is None:
                _tell_of_none()
                kernel = None
            building = None if kernel is None else self._apart(kernel)
        except Exception as fault:
            kernel = building = None
            self._tell(fault)
        self.kernel: Final = kernel
        self._building: Final = building
        self._variants: Final[dict[object, _Run]] = {}
        self._lock: Final = threading.Lock()

    def __call__(self, *inputs: object) -> Sequence[torch.Tensor]:
        """The outputs."""
        return self._variant((None,) * len(inputs), ())(*inputs)

    def written_over(self, over: Mapping[int, int]) -> _Run:
        """The same, with these outputs written over these inputs, where the kernel reads them no more by then."""
        known = () if self.kernel is None else self.kernel.over
        allowed = tuple(pair for pair in over.items() if pair in known)

        def run(*inputs: object) -> Sequence[torch.Tensor]:
            return self._variant((None,) * len(inputs), allowed)(*inputs)

        return run

    def _run_strided(self, *inputs: object) -> Sequence[torch.Tensor]:
        layouts = tuple(None if not isinstance(x, torch.Tensor) or x.is_contiguous() else x.stride() for x in inputs)
        return self._variant(layouts, ())(*inputs)

    def _variant(self, layouts: tuple[object, ...], over: tuple[tuple[int, int], ...]) -> _Run:
        run = self._variants.get((layouts, over))
        if run is None:
            with self._lock:
                run = self._variants.get((layouts, over)) or self._make(layouts, over)
                self._variants[layouts, over] = run
        return run

    def _make(self, layouts: tuple[Any, ...], over: tuple[tuple[int, int], ...]) -> _Run:
        if self.kernel is None or self._building is None:
            return self._one_by_one()
        try:
            if not any(layouts):
                _prove(self.kernel, self.body, layouts)
                return _launcher(self.kernel, self._building.result(), self.body, dict(over), self._run_strided)
            kernel = c_kernel_at(*self._symbols, layouts, strict=self.strict) or lower_to_c(
                self.body, strict=self.strict, layouts=layouts
            )
            _prove(kernel, self.body, layouts)
            return _launcher(kernel, self._apart(kernel).result(), self.body, {}, None)
        except Exception as fault:
            self._tell(fault)
            return self._one_by_one()

    def _tell(self, fault: Exception) -> None:
        """Warns that there is no kernel, and why.  Raises: KernelFault; our own faults, with BURN_TORCH_VERIFY=1."""
        ours = not isinstance(fault, CompilerError | OSError | subprocess.TimeoutExpired)
        if isinstance(fault, KernelFault) or (ours and is_verifying()):
            raise fault
        remember_failure(self._symbols[0], fault)
        rows = ", ".join(node.call.op.name for node in self.body.nodes[:8])
        warn_user(
            CompilerWarning,
            "a generated C kernel was not built; its operations run one by one",
            given=f"{rows}: {f'{type(fault).__name__}: ' if ours else ''}{fault}",
            expected="a C compiler with OpenMP that takes the kernel",
            mend="the results are right; fuse=False, or another compiler in CC, avoids this",
        )

    def _apart(self, kernel: CKernel) -> Future[Path]:
        return build_apart(kernel.name, kernel.source, lines=known_lines(self._symbols[0]))

    def _one_by_one(self) -> _Run:
        try:
            return write_program(self.body).run
        except Exception:  # told of where the program around it is made
            return compile_plain(self.body)


def _prove(kernel: CKernel, body: Graph, layouts: Sequence[Primitive]) -> None:
    """With BURN_TORCH_VERIFY shows what `kernel_proof` says of a kernel.  Raises: KernelFault."""
    if is_proving():
        from burn_torch.fusion.c.proof import prove_c  # others never need it

        prove_c(kernel, reached(body, layouts))


@functools.cache
def _tell_of_none() -> None:
    """Once in a process."""
    warn_user(
        CompilerWarning,
        "there is no C compiler, so fused operations run one by one on the CPU",
        given="cc, gcc, clang: none is found that builds with OpenMP",
        expected="a C compiler that knows -fopenmp",
        mend="install gcc or clang, name one in CC, or leave fuse=True out",
    )


def _launcher(kernel: CKernel, library: Path, body: Graph, over: Mapping[int, int], strided: _Run | None) -> _Run:
    """Python that takes pointers, makes the outputs and calls: written for one kernel, as each microsecond shows."""
    small = kernel.work < _WORK
    kinds: list[Any] = [
        *[ctypes.c_void_p] * (len(kernel.inputs) + len(kernel.outputs)),
        *(_NUMBERS[argument.kind] for argument in kernel.numbers),
        *[ctypes.c_int64] * len(kernel.sizes),
        ctypes.c_int,
    ]
    # a short kernel keeps the interpreter's lock: to give it back and take it again costs more
    function = (ctypes.PYFUNCTYPE if small else ctypes.CFUNCTYPE)(None, *kinds)((kernel.name, loaded(library)))
    names = [f"x{i}" for i in range(len(body.inputs))]
    tensors = [name for name, (_, spec) in zip(names, body.inputs, strict=True) if isinstance(spec, TensorSpec)]
    known: dict[str, Any] = {"function": function, "strided": strided, "threads": torch.get_num_threads}
    lines: list[str] = []
    if strided is not None and tensors:
        lines.append(f"if not ({' and '.join(f'{name}.is_contiguous()' for name in tensors)}):")
        lines.append(f"    return strided({', '.join(names)})")
    known.update(empty_like=torch.empty_like, empty=torch.empty_strided)
    for n, spec in enumerate(kernel.outputs):
        like = next((names[k] for k, (_, input_spec) in enumerate(body.inputs) if input_spec == spec), None)
        if n in over:
            lines.append(f"y{n} = {names[over[n]]}")
        elif like is not None and strided is not None:
            lines.append(f"y{n} = empty_like({like})")
        else:
            known[f"type{n}"] = TO_TORCH[spec.dtype]
            lines.append(f"y{n} = empty({spec.shape}, {packed_strides(spec.shape)}, dtype=type{n}, device='cpu')")
    known.update((f"number{n}", argument.value) for n, argument in enumerate(kernel.numbers))
    everything = f"({', '.join(names)},)" if names else "()"
    arguments = [
        *(f"x{i}.data_ptr()" for i in kernel.inputs),
        *(f"y{n}.data_ptr()" for n in range(len(kernel.outputs))),
        *(f"number{n}({everything})" for n in range(len(kernel.numbers))),
        *map(str, kernel.sizes),
        "1" if small else "threads()",
    ]
    lines.append(f"function({', '.join(arguments)})")
    lines.append(f"return [{', '.join(f'y{n}' for n in range(len(kernel.outputs)))}]")
    source = Source(f"call of {kernel.name}", **known)
    with source.block(f"def run({', '.join(names)}):"):
        source.add(*lines)
    return source.function("run")
