"""Runs generated kernels: `fusion::kernel` on this leaf.

The source of each kernel is a file of its own in the cache folder, named for its content: Triton reads it there, and
so can people.  A kernel is written for the strides of its inputs when it first sees them; where its sizes are symbols,
sizes and strides are arguments.  `tuning.py` chooses its tiles, `quick_launch.py` launches it once compiled.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, final

import torch

from burn_torch.backend.libtorch.forms.numbers import DeviceForm, run_time_numbers
from burn_torch.backend.libtorch.generated.c_kernels import CFunction, c_function
from burn_torch.backend.libtorch.generated.kernel_files import write_kernel
from burn_torch.backend.libtorch.generated.kernel_variants import SLOTS, Variant
from burn_torch.backend.libtorch.generated.quick_launch import Run
from burn_torch.backend.libtorch.generated.tuning import Layouts
from burn_torch.backend.libtorch.plain import compile_plain
from burn_torch.core.frames import warn_user
from burn_torch.core.spec import TensorSpec
from burn_torch.fusion.body.kernel_proof import KernelFault, reached
from burn_torch.fusion.body.lines import known_lines
from burn_torch.fusion.body.loops import Argument, Kernel
from burn_torch.fusion.body.reasons import FusionWarning
from burn_torch.fusion.planning.faults import remember_failure
from burn_torch.fusion.rows.row import body_of, text_of
from burn_torch.fusion.rows.sharing import kernel_at
from burn_torch.fusion.triton.lowering import lower
from burn_torch.fusion.triton.proof import prove_triton
from burn_torch.graph.ir import Graph
from burn_torch.graph.verifying import is_proving, is_verifying
from burn_torch.ops.op import Call
from burn_torch.ops.value import Primitive

__all__ = [
    "FusedKernel",
    "HeldKernelFailed",
    "Symbols",
    "fused_kernel",
    "generates",
    "has_failed",
    "held_form",
    "in_device_form",
    "kernel_of",
    "prepare_kernels",
]


_Run = Callable[..., list[torch.Tensor]]
Slots = Sequence[torch.Tensor]
"""Numbers that lie on the device."""


def generates(place: str) -> bool:
    """Asks whether generated kernels run at `place`."""
    if not place.startswith("cuda") and os.environ.get("TRITON_INTERPRET") != "1":  # no kernel module is imported
        return False
    from burn_kernels._triton import AVAILABLE, INTERPRETED

    return AVAILABLE and (place.startswith("cuda") or INTERPRETED)


def fused_kernel(call: Call) -> FusedKernel | CFunction | None:
    """Returns the kernel that runs a `fusion::kernel`; None where none is generated at its place."""
    place = next(spec.place for spec in call.results)
    if not generates(place):
        return c_function(*_attrs(call), strict=call.attrs["strict"]) if place == "cpu" else None
    return kernel_of(call)


def kernel_of(call: Call, *, held: bool = False) -> FusedKernel:
    """The kernel of a `fusion::kernel`."""
    attrs = call.attrs
    symbols = Symbols(*_attrs(call)) if attrs["dynamic"] else None
    return FusedKernel(body_of(*_attrs(call)), strict=attrs["strict"], held=held, symbols=symbols)


def _attrs(call: Call) -> tuple[str, str, tuple[int, ...]]:
    return call.attrs["body"], call.attrs.get("dynamic", ""), call.attrs.get("sizes", ())


@final
@dataclass(frozen=True)
class Symbols:
    """A body with symbols and what they are here, as the attributes of a `fusion::kernel` have it."""

    text: str
    dynamic: str
    sizes: tuple[int, ...]

    @property
    def shared(self) -> tuple[str, str]:
        """The key that Calls of other sizes have in common with this."""
        return self.text, self.dynamic


_failed: Final[set[tuple[str, str]]] = set()
"""Kernels of symbolic sizes that failed: they were told of once, and no further size tries them."""


_lock: Final = threading.Lock()


def held_form(call: Call, known: Sequence[object]) -> DeviceForm | None:
    """How a generated kernel reads its numbers from the device; None where no kernel runs, or where it failed."""
    run = fused_kernel(call)
    if not isinstance(run, FusedKernel) or has_failed(call):
        return None
    held = kernel_of(call, held=True)
    return in_device_form(call, known, run.lowered((None,) * len(known)).numbers, held.run)


_failed_held: Final[set[Call]] = set()
"""Calls whose kernels failed with their numbers on the device: programs are planned without them."""


def has_failed(call: Call) -> bool:
    """Asks whether the kernel of a Call failed with its numbers on the device."""
    return call in _failed_held


class HeldKernelFailed(Exception):
    """A kernel failed whose numbers lie on the device, where nobody can read them to compute without it."""

    def __init__(self, call: Call, fault: Exception) -> None:
        super().__init__(str(fault))
        self.call: Final = call
        self.fault: Final = fault

    def plan_without(self) -> None:
        """Says that programs are to be planned without the kernel, and warns of it.

        Raises: the fault itself, with BURN_TORCH_VERIFY=1 and where it happened before.
        """
        if is_verifying() or self.call in _failed_held:
            raise self.fault
        _failed_held.add(self.call)
        remember_failure(self.call.attrs["body"], self.fault)
        rows = ", ".join(node.call.op.name for node in body_of(*_attrs(self.call)).nodes[:8])
        warn_user(
            FusionWarning,
            "a generated kernel of a recorded program failed; the program is planned without it",
            given=f"{rows}: {type(self.fault).__name__}: {self.fault}",
            expected="a kernel that compiles and runs",
            mend="the results are right; please report it with the text of explain()",
        )


def in_device_form(
    call: Call, known: Sequence[Primitive], numbers: Sequence[Argument], run: Callable[[Any, Slots], Any]
) -> DeviceForm:
    """A generated kernel with numbers on the device: `run` takes the inputs, and where these arguments of it lie.

    Its failures are HeldKernelFailed, but for a lack of memory and what a proof found.
    """
    at = run_time_numbers(known)
    others = [i for i in range(len(known)) if i not in at]

    def all_of(given: Sequence[Primitive], rest: Sequence[Primitive]) -> list[Any]:
        values = [None] * len(known)
        for i, value in [*zip(at, given, strict=True), *zip(others, rest, strict=True)]:
            values[i] = value
        return values

    def pack(*given: object) -> list[Any]:
        values = all_of(given, [known[i] for i in others])
        return [argument.value(values) for argument in numbers]

    def compute(*inputs: Primitive) -> Any:
        slots, rest = inputs[: len(numbers)], inputs[len(numbers) :]
        try:
            return run(all_of([None] * len(at), rest), slots)
        except (torch.OutOfMemoryError, MemoryError, KernelFault):
            raise
        except Exception as fault:
            raise HeldKernelFailed(call, fault) from fault

    return DeviceForm(tuple(SLOTS[argument.kind] for argument in numbers), pack, compute)


@final
class FusedKernel:
    """A body as a function of its inputs that launches one kernel.

    held     its numbers lie on the device
    over     outputs that are written over inputs, as `Kernel.over` allows; an input with gaps is left alone
    symbols  where other sizes share the kernel
    """

    def __init__(
        self,
        body: Graph,
        *,
        strict: bool,
        held: bool = False,
        over: Mapping[int, int] | None = None,
        symbols: Symbols | None = None,
    ) -> None:
        self.body: Final = body
        self.symbols: Final = symbols
        self.strict: Final = strict
        self.held: Final = held
        self.over: Final = dict(over or {})
        self.without: _Run | None = None if symbols is None or symbols.shared not in _failed else self._operations()
        """The function that computes in place of a kernel that failed."""
        self.variants: Final[dict[Any, Variant]] = {}
        self.quick: Run = self._unknown
        """The shortest way to a launch: that of inputs without gaps, once their kernel is compiled and chosen."""
        self._family: Final = family_of(self)

    def __call__(self, *inputs: object) -> list[torch.Tensor]:
        """The outputs; tensors and numbers in the order of the body's inputs."""
        return self.quick(inputs)

    def written_over(self, over: Mapping[int, int]) -> FusedKernel:
        """The same, with these outputs written over these inputs."""
        return FusedKernel(self.body, strict=self.strict, held=self.held, over=over, symbols=self.symbols)

    def run(self, inputs: Sequence[object], slots: Slots | None) -> list[torch.Tensor]:
        """The outputs; with `slots`, numbers are read from there, in the order of the kernel's arguments.

        A kernel that does not compile or run is told of, and its operations run one by one from then on; with `slots`,
        where nobody knows the numbers any more, the error has its name and file, and the program is planned without it
        (see `HeldKernelFailed`).  A lack of memory is no fault of the
        kernel: its operations would need more.
        """
        if self.without is not None:
            return self.without(*inputs)
        try:
            return self._launch_variant(inputs, slots)
        except (torch.OutOfMemoryError, MemoryError):
            raise
        except Exception as fault:
            if slots is not None:
                fault.add_note(self._describe_kernel(len(inputs)))
                raise
            outputs, self.without = self._one_by_one(fault, inputs)
            if self.symbols is not None:
                _failed.add(self.symbols.shared)
            return outputs

    def _one_by_one(self, fault: Exception, inputs: Sequence[object]) -> tuple[list[torch.Tensor], _Run]:
        """The outputs without the kernel, and what computes them."""
        if isinstance(fault, KernelFault):
            raise fault
        run = self._operations()
        outputs = run(*inputs)  # where the operations fail too, no kernel is at fault
        if is_verifying():
            raise fault
        remember_failure(self._text(), fault)
        warn_user(
            FusionWarning,
            "a generated kernel failed; its operations run one by one from now on",
            given=f"{self._describe_kernel(len(inputs))}: {type(fault).__name__}: {fault}",
            expected="a kernel that compiles and runs",
            mend="the results are right; please report it with this file",
        )
        return outputs, run

    def _operations(self) -> _Run:
        """Returns the function that computes the body one by one; its source is written here, not at each call."""
        run = compile_plain(self.body)
        return lambda *inputs: list(run(*inputs))

    def _describe_kernel(self, count: int) -> str:
        """The name of the kernel, its file and its operations."""
        rows = ", ".join(node.call.op.name for node in self.body.nodes[:8])
        try:
            kernel = self.lowered((None,) * count)
            return f"{kernel.name} in {write_kernel(kernel.name, kernel.source, self._lines())} ({rows})"
        except Exception:  # the fault that is told of, or no folder to write to
            return f"a kernel without a file ({rows})"

    def _text(self) -> str:
        """The text that it is known by."""
        return text_of(self.body) if self.symbols is None else self.symbols.text

    def _lines(self) -> tuple[str, ...]:
        """The lines that it comes from."""
        return known_lines(self._text())

    def _launch_variant(self, inputs: Sequence[object], slots: Slots | None) -> list[torch.Tensor]:
        layouts = tuple(None if not isinstance(x, torch.Tensor) or x.is_contiguous() else x.stride() for x in inputs)
        variant = self.variant(layouts)
        outputs = variant.run(inputs, slots)
        self._family.meet(layouts, variant.lows)
        if slots is None and not any(layouts) and not variant.settled():
            self.quick = variant.quick(inputs, self._unknown) or self.quick
        return outputs

    def variant(self, layouts: tuple[Any, ...]) -> Variant:
        """The kernel for inputs with these strides."""
        variant = self.variants.get(layouts)
        if variant is None:
            over = {j: k for j, k in self.over.items() if layouts[k] is None}
            lowered = self.lowered(layouts, over=bool(over))
            assert set(over.items()) <= set(lowered.over), "an output over an input that is read elsewhere"
            if is_proving():
                prove_triton(lowered, reached(self.body, layouts), over.items())
            variant = self.variants[layouts] = Variant(self.body, lowered, layouts, over, self._lines())
        return variant

    def lowered(self, layouts: Layouts, *, over: bool = False) -> Kernel:
        """Returns the kernel that it launches for inputs with these strides."""
        how: Any = {"strict": self.strict, "layouts": layouts, "held": self.held, "over": over}
        kernel = None
        if self.symbols is not None:
            kernel = kernel_at(self.symbols.text, self.symbols.dynamic, self.symbols.sizes, **how)
        return lower(self.body, **how) if kernel is None else kernel

    def _unknown(self, inputs: Sequence[object]) -> list[torch.Tensor]:
        return self.run(inputs, None)


# -- kernels of one body -----------------------------------------------------------------------------
@final
class Family:
    """The kernels of one body, which differ in what they write over, and how inputs of any of them lay so far.

    A program is warmed up by one of them and recorded with another: what was met is compiled for all of them first,
    since nothing may be compiled or loaded while a device records.
    """

    def __init__(self, place: str) -> None:
        self.place: Final = place
        self._kernels: Final[weakref.WeakSet[FusedKernel]] = weakref.WeakSet()
        self._met: Final[dict[tuple[Any, Any], None]] = {}
        self._done: Final[weakref.WeakKeyDictionary[FusedKernel, set[Any]]] = weakref.WeakKeyDictionary()

    def add(self, kernel: FusedKernel) -> None:
        """A kernel of the body."""
        self._kernels.add(kernel)

    def meet(self, layouts: tuple[object, ...], lows: tuple[int, ...]) -> None:
        """Inputs that lie so were computed on."""
        self._met.setdefault((layouts, lows))

    def prepare(self) -> None:
        """Compiles and loads all of its kernels for all that was met."""
        for kernel in list(self._kernels):
            done = self._done.setdefault(kernel, set())
            for layouts, lows in list(self._met):
                if (layouts, lows) not in done:
                    variant = kernel.variant(layouts)
                    if len(lows) == len(variant.kernel.inputs):  # none where there was nothing to compute
                        variant.prepare(lows, self.place)
                    done.add((layouts, lows))


_families: Final[weakref.WeakValueDictionary[object, Family]] = weakref.WeakValueDictionary()


def family_of(kernel: FusedKernel) -> Family:
    """The family of a kernel, which it joins."""
    with _lock:
        key = (kernel.body, kernel.strict, kernel.held)
        family = _families.get(key)
        if family is None:
            specs = [spec for spec in kernel.body.specs().values() if isinstance(spec, TensorSpec)]
            family = _families[key] = Family(specs[0].place)
        family.add(kernel)
        return family


def prepare_kernels(place: str) -> None:
    """Compiles and loads what a program that was warmed up at `place` launches when it is recorded."""
    if not place.startswith("cuda"):  # the interpreter compiles nothing
        return
    with _lock:
        families = [family for family in _families.values() if family.place == place]
    for family in families:
        family.prepare()
