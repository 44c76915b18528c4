"""The description of a kernel family, and the registry in which tests and benchmarks look it up."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from burn_kernels.arguments import checked
from burn_kernels.errors import KernelArgumentError
from burn_kernels.launch import FLOATS
from burn_kernels.launcher import Launcher
from burn_kernels.operators import Operator
from burn_kernels.registry import Registry, registering

__all__ = [
    "REGISTRY",
    "Draw",
    "KernelSpec",
    "Problem",
    "Row",
    "drop_absent",
    "large_rows",
    "register",
    "register_kernel",
    "register_spec",
]


@checked
@dataclass(frozen=True)
class Problem:
    """One call of an operation: positional inputs and keyword options."""

    inputs: tuple[Any, ...]
    options: dict[str, Any] = field(default_factory=dict)


def large_rows(make: Callable[[Draw, torch.Tensor], Iterable[Problem]]) -> Callable[[Draw], Iterable[Problem]]:
    """Problems large enough that errors average, of rows of widths that are powers of two and of others."""

    def draw_all(draw: Draw) -> Iterator[Problem]:
        for cols in (49, 1024, 5120, 16384, 20000):
            yield from make(draw, draw.normal(64, cols, std=2.0))

    return draw_all


class Draw:
    """Draws inputs in float64 on the CPU; whoever uses them casts and moves them."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)

    def normal(self, *shape: int, mean: float = 0.0, std: float = 1.0) -> torch.Tensor:
        """Normal values."""
        return torch.randn(shape, dtype=torch.float64, generator=self.generator) * std + mean

    def integers(self, low: int, high: int, *shape: int) -> torch.Tensor:
        """Whole numbers from [low, high), int64."""
        return torch.randint(low, high, shape, generator=self.generator)

    def integer(self, low: int, high: int) -> int:
        """A whole number from [low, high)."""
        return int(self.integers(low, high, 1))

    def one_in(self, count: int) -> bool:
        """True in one case of `count`."""
        return self.integer(0, count) == 0

    def seed(self) -> torch.Tensor:
        """Key and stream of a dropout."""
        return self.integers(-(2**62), 2**62, 2)

    def width(self) -> int:
        """A width: mostly small and ragged, sometimes past a thousand."""
        most = 2100 if self.one_in(12) else 300
        return max(1, round(math.exp(float(torch.rand(1, generator=self.generator)) * math.log(most))))

    def vectors(self, size: int, count: int) -> list[torch.Tensor | None]:
        """Vectors of weights, some of which are absent."""
        return [None if self.one_in(5) else self.normal(size, mean=0.7) for _ in range(count)]

    def rows(self, cols: int, std: float = 2.0) -> torch.Tensor:
        """Rows in one of the layouts that a model may have: in order, strided, transposed, part of a wider tensor."""
        rows, layout = self.integer(1, 9), self.integer(0, 6)
        if layout == 0:
            return self.normal(2 * rows, cols, std=std)[::2]
        if layout == 1:
            return self.normal(cols, rows, std=std).T
        if layout == 2:
            before = self.integer(0, 9)
            return self.normal(rows, cols + before + 3, std=std)[:, before : before + cols]
        return self.normal(2, rows, cols, std=std) if layout == 3 else self.normal(rows, cols, std=std)

    def images(self, channels: int, *, least: int = 1) -> torch.Tensor:
        """Images in one of the layouts that a model may have: in order, channels last, some of more channels, cut."""
        batch, height, width = self.integer(1, 5), self.integer(least, 9), self.integer(max(least, 5), 12)
        layout = self.integer(0, 5)
        if layout == 0:
            return self.normal(batch, height, width, channels).movedim(3, 1)
        if layout == 1:
            return self.normal(batch, channels + 3, height, width)[:, 1 : channels + 1]
        if layout == 2:
            return self.normal(batch, channels, height, width + 4)[..., 2:-2]
        return self.normal(batch, channels, height, width)


@dataclass(frozen=True, kw_only=True)
class Row:
    """A row of the benchmark: a call of ours beside what users of PyTorch write."""

    tag: str
    """The sizes in words."""
    inputs: Callable[[Any], tuple[Any, ...]]
    """(draw) -> what is timed; `draw.random(*shape)` and `draw.gpt2(scale)` draw tensors on the device."""
    ours: Callable[..., Callable[[], Any]]
    """(*inputs) -> our call; what is prepared once is prepared before it."""
    eager: Callable[..., Any]
    """(*inputs) -> the same in torch."""
    passed: str = "f"
    jax: tuple[str, int] | None = None
    """The function of the JAX worker that computes it, and how many lists of tensors it takes."""


@checked
@dataclass(frozen=True, kw_only=True)
class KernelSpec:
    """An operation with its kernels and all that is needed to check and time them.

    Inputs are tensors, lists of tensors or None.  The first outputs, as many as `twin` gives, carry gradients.
    """

    name: str
    forward: Callable[..., Any]
    """(*inputs, **options) -> output or tuple of outputs: kernels on a GPU, the reference elsewhere."""
    reference: Callable[..., Any]
    """As `forward`, in plain torch; computes half types in float32 and float64 in float64."""
    gradient: Callable[..., tuple[torch.Tensor | None, ...]] | None = None
    """(dy, inputs, outputs, **options) -> one gradient an input, None where there is none; kernels as `forward`.

    `dy` is a tuple where several outputs carry gradients."""
    reference_gradient: Callable[..., tuple[torch.Tensor | None, ...]] | None = None
    """As `gradient`, in plain torch."""
    twin: Callable[..., Any]
    """(*inputs, **options) -> the output as a user of PyTorch would write it: an independent reference.

    A tuple of the first outputs where several carry gradients."""
    bytes_moved: Callable[..., int]
    """(*inputs, backward=False, **options) -> bytes that must cross the memory bus: the floor."""
    flops: Callable[..., int]
    """(*inputs, backward=False, **options) -> arithmetic operations, roughly: far under the machine's for all here."""
    problems: Callable[[Draw], Iterable[Problem]]
    """Small inputs that can expose a mistake: ragged, strided, one column, empty."""
    dtypes: tuple[torch.dtype, ...] = FLOATS
    """Element types that the kernels take."""
    limits: str = "none in size; float64 on a GPU"
    """Past what `forward` raises KernelLimitError; for the documentation."""
    twin_kept: Callable[..., object] | None = None
    """As `reference`, of outputs beyond those of `twin`, by torch in their own type: where its errors are not the
    reference's.  The first outputs are not looked at."""
    size: Callable[..., float] = lambda *inputs, **options: 0.0
    """(*inputs, **options) -> how large the numbers are whose difference an output may be; see `verify.compare`."""
    operators: tuple[Operator, ...] = ()
    """The operators of PyTorch that it gives; specs may share one."""
    step: Operator | None = None
    """The operator of PyTorch that does in place what an optimizer's step does; specs may share one."""
    large: Callable[[Draw], Iterable[Problem]] | None = None
    """Problems large enough that errors average, for the rule of errors and for a GPU."""
    rows: tuple[Row, ...] = ()
    """Rows of the benchmark, beside those of `benchmarks/_kernels/problems.py`."""
    draw_call: Callable[[Draw], tuple[Any, ...]] | None = None
    """(draw) -> the arguments of a call of its first operator, or of its launcher where it has none, options last:
    sizes, layouts and options as models may have them."""
    bound: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The arguments by which a call of a shared operator is one of this spec."""

    def complete_operators(self) -> list[Operator]:
        """The operators with the functions of this spec where they declare none of their own."""
        names = ("forward", "reference", "gradient", "reference_gradient", "twin")
        return [
            replace(op, **{name: getattr(op, name) or getattr(self, name) for name in names}) for op in self.operators
        ]


REGISTRY: Registry[KernelSpec] = Registry()
"""Every kernel family by its operation's name."""


@checked
def register(spec: KernelSpec) -> KernelSpec:
    """Adds a spec to the registry and returns it."""
    if REGISTRY.holds(spec.name):
        raise KernelArgumentError(
            f"the kernel {spec.name!r} is registered twice",
            given=f"{spec.forward.__module__}.{spec.forward.__qualname__}",
            expected=f"one spec a name; {spec.name!r} is from {REGISTRY[spec.name].forward.__module__}",
            mend="give the new kernel another name",
        )
    if (spec.gradient is None) != (spec.reference_gradient is None):
        raise KernelArgumentError(
            f"the kernel {spec.name!r} has one half of a gradient",
            given="gradient" if spec.gradient else "reference_gradient",
            expected="both gradient and reference_gradient, or neither",
            mend="write the other one",
        )
    REGISTRY[spec.name] = spec
    return spec


register_spec = registering(KernelSpec, register)


def drop_absent(run: Callable[..., tuple[object, ...]]) -> Any:
    """Makes a function that gives the results of `run` that are not None; of a launcher a launcher."""

    @functools.wraps(run)
    def call(*inputs: object, **options: object) -> object:
        results = tuple(x for x in run(*inputs, **options) if x is not None)
        return results if len(results) > 1 else results[0]

    if hasattr(run, "reference"):
        call.reference = drop_absent(run.reference)  # type: ignore[attr-defined]  # a function with attributes
    return call


def register_kernel(
    forward: Launcher[..., Any],
    backward: Callable[..., Any] | None = None,
    *,
    twin: Callable[..., Any],
    name: str = "",
    gradient: Callable[..., Any] | None = None,
    options: Mapping[str, Any] | None = None,
    operators: Iterable[Operator] = (),
    **parts: Any,
) -> KernelSpec:
    """Registers the operation of a launcher with its reference, and both gradients of the backward's launcher.

    backward   a launcher, or a function that launches nothing: then it is its own reference
    name       the operation's name, if it is not the launcher's
    gradient   (back, dy, inputs, outputs, **options) -> the gradients, by calling `back`: `backward` or its reference
    options    options of all of these that make this operation; operators of PyTorch take them as arguments
    parts      the other fields of the spec
    """
    functions: dict[str, Any] = {"forward": forward, "reference": forward.reference, "twin": twin}
    if backward is not None and gradient is not None:
        functions["gradient"] = functools.partial(gradient, backward)
        functions["reference_gradient"] = functools.partial(gradient, getattr(backward, "reference", backward))
    whole = [replace(op, **{key: getattr(op, key) or call for key, call in functions.items()}) for op in operators]
    if options:
        functions = {key: functools.partial(call, **options) for key, call in functions.items()}
    spec: Any = {"name": name or forward.op, **functions, "operators": tuple(whole), "bound": options or {}, **parts}
    return register(KernelSpec(**spec))
