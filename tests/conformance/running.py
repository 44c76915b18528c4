"""Runs an entry of torch's operator database beside its twin here: values, gradients, refusals.

A sample passes if its values and its gradients under random upstream gradients are torch's:

    float64      but for `roundings` of the largest number in sight (64 unless the table says more)
    float32 ...  with at most twice the error that torch makes in this type, beside float64, and 4 units more
    others       equal

What differs must stand in `differences.txt`, with the reason.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
import types
import unittest
import warnings
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final
from unittest import mock

import numpy as np
import torch

from burn_torch import ComplexTensor, Device, Tensor, compile, vjp
from burn_torch.core.errors import BurnTorchError
from burn_torch.ops.torch_types import FROM_TORCH
from tests.conformance.calling import Lacks, Twin, at

if "expecttest" not in sys.modules:
    try:
        import expecttest  # noqa: F401, torch's database imports it
    except ImportError:  # it is not needed by what is used here
        sys.modules["expecttest"] = types.SimpleNamespace(TestCase=unittest.TestCase)  # type: ignore[assignment]

DTYPES: Final = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "bool": torch.bool,
}
LEAVES: Final[dict[str, Callable[[], Device]]] = {
    "libtorch": lambda: Device.cpu(fused=False),
    "ndarray": Device.ndarray,
    "fused": lambda: Device.cpu(fused=True),
    "c": lambda: Device.cpu(fused=False),
}
"""The last computes values and gradients as one compiled program of generated C, a kernel or more for each sample."""


@dataclasses.dataclass
class Outcome:
    """Counts the samples of an entry, and holds what was found at those that do not pass."""

    entry: str
    leaf: str
    dtype: str
    samples: int = 0
    passed: int = 0
    documented: Counter[int] = dataclasses.field(default_factory=Counter)
    """How often each line of the differences was met."""
    mismatches: list[str] = dataclasses.field(default_factory=list)


# -- the database ----------------------------------------------------------------------------------
@functools.cache
def database() -> dict[str, Any]:
    """The entries of `op_db` by name; variants as name/variant.

    Its import forbids the process to set flags such as cudnn's, which other tests do.
    """
    with warnings.catch_warnings(), mock.patch.object(torch.backends, "disable_global_flags"):
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    return {x.name + (f"/{x.variant_test_name}" if x.variant_test_name else ""): x for x in op_db}


def samples_of(entry: str, dtype: torch.dtype, *, differentiated: bool) -> Iterator[Any]:
    """The samples of an entry, the same in every run."""
    torch.manual_seed(zlib.crc32(entry.encode()))
    np.random.seed(zlib.crc32(entry.encode()))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield from database()[entry].sample_inputs("cpu", dtype, requires_grad=differentiated)


# -- differences -----------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class Difference:
    """A line of `differences.txt`: samples of entries that differ from torch's, in what, and why."""

    entries: tuple[str, ...]
    kind: str
    condition: str
    reason: str

    def covers(self, entry: str, kind: str, names: dict[str, Any]) -> bool:
        if not (self.entries == ("*",) or entry in self.entries) or kind not in self.kind.split("/"):
            return False
        try:
            return bool(eval(self.condition, {"torch": torch, "isinstance": isinstance}, dict(names)))
        except (AttributeError, IndexError, KeyError, TypeError):  # a sample of another form
            return False


@functools.cache
def differences() -> tuple[Difference, ...]:
    """The lines of `differences.txt`: entries | refused, value or gradient | condition | reason."""
    lines = (Path(__file__).parent / "differences.txt").read_text().splitlines()
    parts = [[part.strip() for part in line.split("|", 3)] for line in lines if line.strip() and line[0] != "#"]
    return tuple(Difference(tuple(names.split()), kind, condition, reason) for names, kind, condition, reason in parts)


# -- values of both sides ----------------------------------------------------------------------------
def convert(x: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """Arguments with each tensor changed, and torch's types in our names."""
    if isinstance(x, torch.Tensor):
        return change(x)
    if isinstance(x, torch.dtype):
        return FROM_TORCH[x]
    if isinstance(x, tuple | list):
        return type(x)(convert(item, change) for item in x) if type(x) in (tuple, list) else x
    if isinstance(x, dict):
        return {name: convert(item, change) for name, item in x.items()}
    return x


@dataclasses.dataclass(frozen=True)
class Slot:
    """Stands for a tensor among arguments."""

    number: int


def filled(x: Any, tensors: dict[int, Any]) -> Any:
    """Arguments with tensors in the place of slots."""
    if isinstance(x, Slot):
        return tensors[x.number]
    if isinstance(x, tuple | list):
        return type(x)([filled(item, tensors) for item in x]) if type(x) in (tuple, list) else x
    return {name: filled(item, tensors) for name, item in x.items()} if isinstance(x, dict) else x


def flat(x: Any) -> list[Any]:
    """The tensors and numbers of a result in order."""
    if isinstance(x, tuple | list):
        return [item for part in x for item in flat(part)]
    return [x]


def ours(x: torch.Tensor, device: Device) -> Any:
    """A torch tensor on a device of ours, laid out as it was where that lies on torch."""
    plain = x.detach()
    if plain.is_complex():
        parts = torch.view_as_real(plain.resolve_conj())
        return ComplexTensor(*(ours(parts[..., i].contiguous(), device) for i in range(2)))
    held = Tensor.from_torch(plain.resolve_neg(), Device.cpu(fused=False))
    return held.to_device(device)


def read(x: Any) -> torch.Tensor:
    """A result of either side as a torch tensor, halves as float32."""
    if isinstance(x, ComplexTensor):
        return torch.complex(read(x.real), read(x.imag))
    if isinstance(x, Tensor):
        x = x.no_grad()
        return x.to_device(Device.cpu(fused=False)).into_torch().clone()
    return x.detach().resolve_conj() if isinstance(x, torch.Tensor) else torch.as_tensor(x)


def parts_of(results: Sequence[Any], like: Any = None) -> list[Any]:
    """Results with complex ones as two: real and imaginary parts; None as often as `like` has parts."""
    parts: list[Any] = []
    for y in results:
        if isinstance(y, ComplexTensor) or (isinstance(y, torch.Tensor) and y.is_complex()):
            parts += [y.real, y.imag]
        else:
            parts += [y] * (2 if y is None and isinstance(like, torch.Tensor) and like.is_complex() else 1)
    return parts


def difference(
    actual: torch.Tensor, expected: torch.Tensor, roundings: float, error: float | None = None
) -> str | None:
    """Words for how two results differ, None if they are alike.

    error: how far torch is from float64 in this type; None for float64 and for what must be equal.
    """
    if actual.shape != expected.shape:
        return f"shape {tuple(actual.shape)}, torch {tuple(expected.shape)}"
    if not (expected.is_floating_point() or expected.is_complex()):
        if actual.is_floating_point() or (actual.dtype is torch.bool) != (expected.dtype is torch.bool):
            return f"{actual.dtype}, torch {expected.dtype}"
        return (
            None
            if torch.equal(actual.to(expected.dtype), expected)
            else f"{shorten(actual)}, torch {shorten(expected)}"
        )
    if actual.is_complex() != expected.is_complex() or not (actual.is_floating_point() or actual.is_complex()):
        return f"{actual.dtype}, torch {expected.dtype}"
    if error is None and actual.dtype != expected.dtype:
        return f"{actual.dtype}, torch {expected.dtype}"
    if expected.is_complex():
        actual, expected = torch.view_as_real(actual), torch.view_as_real(expected)
    a, e = actual.double(), expected.double()
    finite = torch.isfinite(e)
    if not torch.equal(torch.where(finite, 0, a), torch.where(finite, 0, e)) and not (
        torch.equal(torch.isnan(a), torch.isnan(e)) and torch.equal(a[torch.isinf(e)], e[torch.isinf(e)])
    ):
        return f"NaN or infinities: {shorten(actual)}, torch {shorten(expected)}"
    if not finite.any():
        return None
    a, e = a[finite], e[finite]
    if not torch.isfinite(a).all():
        return f"NaN or infinities: {shorten(actual)}, torch {shorten(expected)}"
    largest = max(float(e.abs().max()), 1e-300)
    unit = 2.0**-52 * roundings if error is None else 0.0
    bound = unit * torch.clamp(e.abs(), min=max(largest, 1.0)) if error is None else torch.full_like(e, error)
    worst = float(((a - e).abs() - bound).max())
    if worst <= 0:
        return None
    return f"off by {float((a - e).abs().max()):.2e} of {largest:.2e}: {shorten(actual)}, torch {shorten(expected)}"


def shorten(x: torch.Tensor) -> str:
    return str(x.flatten()[:6].tolist())


# -- one sample --------------------------------------------------------------------------------------
@dataclasses.dataclass
class Case:
    """One sample of an entry."""

    entry: str
    twin: Twin
    sample: Any
    number: int

    def names(self) -> dict[str, Any]:
        """The names that conditions of differences read."""
        x = self.sample.input
        return {"x": x, "args": self.sample.args, "kwargs": self.sample.kwargs, "number": self.number}

    def reference(self, change: Callable[[torch.Tensor], torch.Tensor]) -> tuple[list[Any], list[torch.Tensor]]:
        """The results of torch, and the tensors that it took."""
        operands: list[torch.Tensor] = []

        def kept(x: torch.Tensor) -> torch.Tensor:
            operands.append(change(x))
            return operands[-1]

        keep = lambda x: x if not isinstance(x, torch.Tensor) else kept(x)  # noqa: E731
        x, args, kwargs = _walk((self.sample.input, self.sample.args, self.sample.kwargs), keep)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = database()[self.entry].op(x, *args, **kwargs)
        if self.twin.after is not None:
            result = self.twin.after(result)
        return flat(result), operands

    def result(self, change: Callable[[torch.Tensor], Any], place: Device) -> tuple[list[Any], list[Any]]:
        """The results of our function, and the tensors that it took."""
        operands: list[Any] = []

        def kept(x: torch.Tensor) -> Any:
            operands.append(change(x))
            return operands[-1]

        x, args, kwargs = convert((self.sample.input, self.sample.args, dict(self.sample.kwargs)), kept)
        with at(place):
            result = self.twin.call(x, *args, **kwargs)
        if self.twin.after is not None:
            result = self.twin.after(result)
        return flat(result), operands

    def faults(self, leaf: str, dtype: str) -> Iterator[tuple[str, str]]:
        """The kind and the words of what differs from torch."""
        device = LEAVES[leaf]()
        differentiable = dtype == "f64" and self.twin.gradients and database()[self.entry].supports_autograd
        try:
            expected, inputs = self.reference(lambda x: x.detach().requires_grad_(x.requires_grad))
        except (RuntimeError, NotImplementedError, IndexError, ValueError, TypeError):
            return  # torch has no such type here
        before = [x.detach().clone() for x in inputs]
        if leaf == "c":
            yield from self._compiled_faults(expected, inputs, differentiable)
            return
        tracked = differentiable and any(isinstance(y, torch.Tensor) and y.requires_grad for y in expected)
        place = device.autodiff() if tracked else device

        def change(x: torch.Tensor) -> Any:
            y = ours(x, place)
            return y.require_grad() if tracked and x.requires_grad and isinstance(y, Tensor) else y

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                actual, tensors = self.result(change, place)
                values = [read(y) for y in actual]
            except BurnTorchError as err:
                yield "refused", f"{type(err).__name__}: {str(err).splitlines()[0]}"
                return
            except Exception as err:
                lacks = isinstance(err, Lacks) or (isinstance(err, TypeError) and "argument" in str(err))
                yield "lacks" if lacks else "crash", f"{type(err).__name__}: {str(err)[:200]}"
                return
        wanted = [read(y) for y in expected]
        if len(values) != len(wanted):
            yield "value", f"{len(values)} results, torch {len(wanted)}"
            return
        errors = self._errors(wanted, dtype)
        for i, (a, e, error) in enumerate(zip(values, wanted, errors, strict=True)):
            if words := difference(a, error[0] if error else e, self.twin.roundings, error[1] if error else None):
                yield "value", f"result {i}: {words}"
                return
        if any(not torch.equal(_bits(x.detach()), _bits(y)) for x, y in zip(inputs, before, strict=True)):
            yield "value", "an input was written to"
        if tracked:
            yield from self._gradient_faults(expected, inputs, actual, tensors, place)

    def _compiled_faults(
        self, expected: list[Any], inputs: list[torch.Tensor], differentiable: bool
    ) -> Iterator[tuple[str, str]]:
        """The same for values and gradients that one compiled program gives."""
        device = LEAVES["c"]()
        tensors = [ours(x, device) for x in inputs]
        wanted = [i for i, x in enumerate(inputs) if differentiable and x.requires_grad and not x.is_complex()]
        wanted = wanted if any(isinstance(y, torch.Tensor) and y.requires_grad for y in expected) else []
        slopes, upstream = self._reference_gradients(expected, inputs, wanted) if wanted else ([], {})
        wanted = wanted if upstream else []

        slots = iter(range(len(tensors)))
        template = convert((self.sample.input, self.sample.args, dict(self.sample.kwargs)), lambda _: Slot(next(slots)))

        def function(tensors: list[Any], upstream: list[Any]) -> Any:
            def forward(*leaves: Tensor) -> list[Tensor]:
                operands = {**dict(enumerate(tensors)), **dict(zip(wanted, leaves, strict=True))}
                x, args, kwargs = filled(template, operands)
                with at(device):
                    result = self.twin.call(x, *args, **kwargs)
                return parts_of(flat(result if self.twin.after is None else self.twin.after(result)))

            if not wanted:
                return forward(), []
            results, pull = vjp(forward, *[tensors[i] for i in wanted])
            return results, list(pull(upstream))

        grads = [g for i, y in enumerate(expected) for g in parts_of([upstream.get(i)], y)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                program = compile(function, fuse=True)
                seeds = [None if g is None else ours(g.contiguous(), device) for g in grads]
                results, derived = program(tensors, seeds)
                values, derivatives = [read(y) for y in results], [None if g is None else read(g) for g in derived]
            except BurnTorchError as err:
                yield "refused", f"{type(err).__name__}: {str(err).splitlines()[0]}"
                return
            except Exception as err:
                lacks = isinstance(err, Lacks) or (isinstance(err, TypeError) and "argument" in str(err))
                yield "lacks" if lacks else "crash", f"{type(err).__name__}: {str(err)[:200]}"
                return
        references = parts_of([read(y) for y in expected])
        for i, (a, e) in enumerate(zip(values, references, strict=True)):
            if words := difference(a, e, self.twin.roundings):
                yield "value", f"result {i}: {words}"
                return
        for i, a, e in zip(wanted, derivatives, slopes, strict=True):
            reference = torch.zeros_like(inputs[i]) if e is None else e.detach()
            if words := difference(torch.zeros_like(reference) if a is None else a, reference, self.twin.roundings):
                yield "gradient", f"by input {i}: {words}"
                return

    def _reference_gradients(
        self, expected: list[Any], inputs: list[torch.Tensor], leaves: list[int]
    ) -> tuple[Sequence[torch.Tensor | None], dict[int, torch.Tensor]]:
        """The gradients of torch by some inputs, and the upstream gradients by result; none where torch has none."""
        ends = [i for i, y in enumerate(expected) if isinstance(y, torch.Tensor) and y.requires_grad]
        generator = torch.Generator().manual_seed(self.number)
        upstream = {i: torch.randn(expected[i].shape, dtype=expected[i].dtype, generator=generator) for i in ends}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                slopes = torch.autograd.grad(
                    [expected[i] for i in ends], [inputs[i] for i in leaves], list(upstream.values()), allow_unused=True
                )
        except (RuntimeError, NotImplementedError):
            return [], {}
        return slopes, upstream

    def _errors(self, wanted: Sequence[torch.Tensor], dtype: str) -> Sequence[tuple[torch.Tensor, float] | None]:
        """For types narrower than float64: the result in float64, and the error allowed beside it."""
        if dtype not in ("f32", "f16", "bf16"):
            return [None] * len(wanted)
        wide, _ = self.reference(lambda x: x.detach().double() if x.is_floating_point() else x.detach())
        unit = {"f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}[dtype]
        bounds: list[tuple[torch.Tensor, float] | None] = []
        for e, w in zip(wanted, map(read, wide), strict=True):
            if not (e.is_floating_point() or e.is_complex()):
                bounds.append(None)
                continue
            finite = torch.isfinite(w) & torch.isfinite(e)
            largest = float(w[finite].abs().max()) if finite.any() else 0.0
            own = float((e - w)[finite].abs().max()) if finite.any() else 0.0
            # where the type overflows and float64 does not, torch's own infinities count
            bounds.append((torch.where(torch.isfinite(e), w, e.to(w.dtype)), 2 * own + 4 * unit * largest))
        return bounds

    def _gradient_faults(
        self, expected: list[Any], inputs: list[torch.Tensor], actual: list[Any], tensors: list[Any], place: Device
    ) -> Iterator[tuple[str, str]]:
        leaves = [i for i, x in enumerate(inputs) if x.requires_grad]
        slopes, upstream = self._reference_gradients(expected, inputs, leaves)
        if not upstream:
            return
        losses = []
        for i, g in upstream.items():
            y = actual[i]
            parts = [(y.real, g.real), (y.imag, g.imag)] if isinstance(y, ComplexTensor) else [(y, g)]
            losses += [(part * ours(h.contiguous(), place)).sum() for part, h in parts]
        loss = functools.reduce(lambda a, b: a + b, losses)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                gradients = loss.backward() if loss.backend.is_tracked(loss.primitive) else None
                slopes_here = [None if gradients is None else tensors[i].grad(gradients) for i in leaves]
                values = [None if g is None else read(g) for g in slopes_here]
            except BurnTorchError as err:
                yield "gradient", f"{type(err).__name__}: {str(err).splitlines()[0]}"
                return
            except Exception as err:
                yield "crash", f"{type(err).__name__}: {str(err)[:200]}"
                return
        for i, a, e in zip(leaves, values, slopes, strict=True):
            e = torch.zeros_like(inputs[i]) if e is None else e
            a = torch.zeros_like(e) if a is None else a
            if words := difference(a, e.detach(), self.twin.roundings):
                yield "gradient", f"by input {i}: {words}"
                return


def _bits(x: torch.Tensor) -> torch.Tensor:
    return torch.nan_to_num(x) if x.is_floating_point() or x.is_complex() else x


def _walk(x: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(x, dict):
        return {name: _walk(item, change) for name, item in x.items()}
    return type(x)(_walk(item, change) for item in x) if type(x) in (tuple, list) else change(x)


# -- an entry --------------------------------------------------------------------------------------
def dtypes_of(entry: str, twin: Twin, wanted: Sequence[str]) -> list[str]:
    """The types that both sides have, among those wanted."""
    known = database()[entry].dtypes
    kinds = {"f64": "f", "f32": "f", "f16": "f", "bf16": "f", "i64": "i", "bool": "b"}
    return [name for name in wanted if kinds[name] in twin.kinds and DTYPES[name] in known]


def run(entry: str, twin: Twin, leaf: str, dtype: str, only: Callable[[int], bool] | None = None) -> Outcome:
    """The samples of an entry in one type on one leaf; `only` chooses among their numbers."""
    outcome = Outcome(entry, leaf, dtype)
    differentiated = dtype == "f64" and database()[entry].supports_autograd
    for number, sample in enumerate(samples_of(entry, DTYPES[dtype], differentiated=differentiated)):
        if only is not None and not only(number):
            continue
        outcome.samples += 1
        case = Case(entry, twin, sample, number)
        faults = list(case.faults(leaf, dtype))
        names = {**case.names(), "leaf": leaf, "dtype": dtype}
        for kind, words in faults:
            for i, line in enumerate(differences()):
                if line.covers(entry, kind, {**names, "words": words}):
                    outcome.documented[i] += 1
                    break
            else:
                outcome.mismatches.append(f"sample {number}, {kind}: {words}\n        {summary(sample)}")
                break
        outcome.passed += not faults
    return outcome


def summary(sample: Any) -> str:
    """A sample in one line: shapes of tensors, other arguments as they are."""
    show = lambda x: f"{str(x.dtype)[6:]}{list(x.shape)}" if isinstance(x, torch.Tensor) else x  # noqa: E731
    return f"x={_walk(sample.input, show)} args={_walk(sample.args, show)} {_walk(dict(sample.kwargs), show)}"[:300]
