"""Faults that are planted to see whether the fuzzer finds them: each was made once, or could have been.

    python -m tests.fuzz --faults c-writes-before-it-reads

A fault edits a function's source, or exchanges a row's part, in the process that runs the programs.  An edit whose text
the code no longer has is an error, so that no fault is planted in name alone.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from burn_torch.ops.op import REGISTRY, PerCall

__all__ = ["FAULTS", "Fault"]


@dataclass(frozen=True)
class Fault:
    """A fault, the door that must find it within so many programs, and what plants it."""

    name: str
    door: str
    budget: int
    plant: Callable[[Any], None]

    @property
    def phase(self) -> str:
        """The phase that has the door."""
        return self.door if self.door in ("c", "interpreter") else "eager"


# -- ways to plant -------------------------------------------------------------------------------------------
def _edit(patch: Any, place: str, *texts: str) -> None:
    """Replaces texts, an old and a new one in turn, in the source of a function: "package.module:Class.name"."""
    module_name, _, path = place.partition(":")
    module = importlib.import_module(module_name)
    owner: Any = module
    *outer, name = path.split(".")
    for part in outer:
        owner = getattr(owner, part)
    member = inspect.getattr_static(owner, name)
    function = inspect.unwrap(member.fget if isinstance(member, property) else getattr(member, "__func__", member))
    source = textwrap.dedent(inspect.getsource(function))
    for old, new in zip(texts[::2], texts[1::2], strict=True):
        if source.count(old) != 1:
            raise LookupError(f"{place} has {source.count(old)} times {old!r}: the fault must be planted anew")
        source = source.replace(old, new)
    namespace: dict[str, Any] = {}
    exec(compile("from __future__ import annotations\n" + source, f"<fault in {place}>", "exec"),
         module.__dict__, namespace)  # fmt: skip
    patch.setattr(owner, name, namespace[name])
    if owner is module:  # others have imported it by its name
        _everywhere(patch, function, namespace[name])


def _everywhere(patch: Any, before: Any, after: Any) -> None:
    """Puts a function in the place of another, in every module of ours that has it by its name."""
    for name, module in list(sys.modules.items()):
        if name.startswith("burn_torch") and getattr(module, before.__name__, None) is before:
            patch.setattr(module, before.__name__, after)


def _make_edit(place: str, *texts: str) -> Callable[[Any], None]:
    return lambda patch: _edit(patch, place, *texts)


def _all(*plants: Callable[[Any], None]) -> Callable[[Any], None]:
    def plant(patch: Any) -> None:
        for one in plants:
            one(patch)

    return plant


def _part(row: str, part: str, change: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Exchanges a part of a row: `change(the part as it is)`."""

    def plant(patch: Any) -> None:
        patch.setattr(REGISTRY[row], part, change(getattr(REGISTRY[row], part)))

    return plant


def _row(name: str) -> Any:
    return REGISTRY[name]


# -- faults of rows ------------------------------------------------------------------------------------------------
def _average_gradients(rule: Any) -> Any:
    def gradient(g: Any, y: Any, a: Any, b: Any) -> Any:
        parts = rule(g, y, a, b)
        return tuple(
            p if p is None or p.shape == y.shape or not p.spec.numel else p * (p.spec.numel / max(y.spec.numel, 1))
            for p in parts
        )

    return gradient


def _moved_by_one(rule: Any) -> Any:
    def gradient(g: Any, y: Any, x: Any, *, ranges: Any) -> Any:
        dx = rule(g, y, x, ranges=ranges)
        moved = [axis for axis, (start, _, _) in enumerate(ranges) if start > 0]
        return _row("roll")(dx, shifts=(1,) * len(moved), dims=tuple(moved)) if moved else dx

    return gradient


def _first_only(rule: Any) -> Any:
    def gradient(g: Any, y: Any, x: Any, **attrs: Any) -> Any:
        return rule((g[0], None), y, x, **attrs) if g[0] is not None else rule(g, y, x, **attrs)

    return gradient


def _last_of_ties(candidate: Any) -> Any:
    import numpy as np

    def argmax(x: Any, *, dim: int) -> Any:
        return x.shape[dim] - 1 - np.argmax(np.flip(x, dim), axis=dim, keepdims=True)

    return argmax


def _unshift_axes(patch: Any) -> None:
    moved = importlib.import_module("burn_torch.ops.batching")._MOVED
    patch.setitem(moved, "dim", lambda dim, n: dim)
    patch.setitem(moved, "dims", lambda dims, n: dims)


def _lost_param(patch: Any) -> None:
    from burn_torch.module import param

    patch.setattr(param, "_as_leaf", lambda value, require_grad: value.detach())


def _squares_overflow(patch: Any) -> None:
    from burn_torch.tensor import linalg

    def cosine(x1: Any, x2: Any, dim: int, eps: float = 1e-8) -> Any:
        squares = [(x * x).sum_dim(dim).clamp_min(eps * eps) for x in (x1, x2)]
        return (x1 * x2).sum_dim(dim) / (squares[0] * squares[1]).sqrt()

    _everywhere(patch, linalg.cosine_similarity, cosine)


def _inner_tape_only(patch: Any) -> None:
    from burn_torch import Tensor
    from burn_torch.backend import Autodiff

    def detach(self: Any) -> Any:
        backend = self.backend
        if not isinstance(backend, Autodiff) or not backend.is_tracked(self.primitive):
            return self
        return Tensor(backend, backend.unwrapped(self.primitive), self.spec)

    patch.setattr(Tensor, "detach", detach)


def _stale_plan(patch: Any) -> None:
    from burn_torch.backend.lazy.decorator import Fusion

    grow = Fusion.grow

    def stale(self: Any, last: Any, key: Any) -> Any:
        alike = (key[0].op, key[0].results, tuple(key[1:]))
        for other in last.next.values():
            if other.call is not None and (other.call.op, other.call.results, other.slots) == alike:
                return other
        return grow(self, last, key)

    patch.setattr(Fusion, "grow", stale)


def _stale_program(patch: Any) -> None:
    from burn_torch.transform.compilation import Compiled

    key, first = Compiled._key, {}  # type: ignore[var-annotated]

    def without_shapes(self: Any, *args: Any) -> Any:
        whole = key(self, *args)
        return first.setdefault((id(self), *(getattr(part, "size", None) for part in whole[1:])), whole)

    patch.setattr(Compiled, "_key", without_shapes)


def _written_into(candidate: Any) -> Any:
    def build(call: Any) -> Any:
        function, part = candidate.build(call), tuple(slice(*r) for r in call.attrs["ranges"])

        def assign(x: Any, values: Any) -> Any:
            if not x.is_contiguous():
                return function(x, values)
            x[part] = values
            return x

        return assign

    return PerCall(build)


def _summed_in_32_bits(candidate: Any) -> Any:
    def total(x: Any, *, dims: Any) -> Any:
        return x.astype("i4").sum(axis=dims, keepdims=True).astype("i8") if x.dtype == "i8" else candidate(x, dims=dims)

    return total


def _another_stream(candidate: Any) -> Any:
    def build(call: Any) -> Any:
        function = candidate.build(call) if isinstance(candidate, PerCall) else partial(candidate, **call.attrs)
        return lambda *numbers: function(*numbers[:-1], numbers[-1] ^ 1)

    return PerCall(build)


def _swap_operands(candidate: Any) -> Any:
    return lambda y, x: candidate(x, y)


def _reversed_not(rule: Any) -> Any:
    return lambda g, y, x, *, dim: _row("cumsum")(g, dim=dim)


def _of_first_axis(rule: Any) -> Any:
    def gradient(g: Any, y: Any, x: Any, *, dims: Any) -> Any:
        if not dims:
            return g
        return _row("expand")(g / float(x.shape[0] ** len(dims)), shape=x.shape)

    return gradient


def _sub_is_neutral_on_the_left(patch: Any) -> None:
    from burn_torch.ops.laws import Neutral

    patch.setitem(REGISTRY["sub"].laws, Neutral, Neutral(0.0, (0, 1)))


def _merged_in_the_wrong_order(merge: Any) -> Any:
    def merged(inner: Any, outer: Any, exact: bool) -> Any:
        a, b = inner.attrs["axes"], outer.attrs["axes"]
        return {"axes": tuple(b[i] for i in a)} if len(a) == len(b) else merge(inner, outer, exact)

    return merged


def _remainder_by_floor(patch: Any) -> None:
    from burn_torch.fusion.c import prims as c_prims

    for name, kind, floor in (("remainder", "float", "floorf"), ("remainder64", "double", "floor")):
        body = f"return x - __builtin_{floor}(x / y) * y;"
        text = f"static inline {kind} {name}_({kind} x, {kind} y) {{ {body} }}\n"
        patch.setitem(c_prims._PRIMS, name, (c_prims._PRIMS[name][0], text))


_MEMORY: Final = "burn_torch.graph.passes.memory"
_FUSION: Final = "burn_torch.fusion"

_TAPES: Final = (
    Fault("detach-cuts-one-tape", "second", 1500, _inner_tape_only),
    Fault("a-parameter-is-no-leaf", "numeric", 600, _lost_param),
    Fault("a-second-order-term-is-lost", "second", 1500, _part(
        "tanh_backward", "gradient_rule", lambda rule: lambda *args: (rule(*args)[0], None),
    )),
    Fault("a-second-contribution-overwrites", "numeric", 600, _make_edit(
        "burn_torch.backend.autodiff.decorator:Autodiff._walk",
        "slots[index] = _add_gradients(entry, parent, index, slots[index], gradient)", "slots[index] = gradient",
    )),
)  # fmt: skip
_RULES: Final = (
    Fault("broadcast-gradients-are-averaged", "numeric", 600, _part("mul", "gradient_rule", _average_gradients)),
    Fault("mean-divides-by-another-axis", "numeric", 600, _part("mean", "gradient_rule", _of_first_axis)),
    Fault("slice-gradient-off-by-one", "numeric", 600, _part("slice", "gradient_rule", _moved_by_one)),
    Fault("second-results-gradient-is-lost", "numeric", 2000, _part("var_mean", "gradient_rule", _first_only)),
    Fault("cumsum-gradient-runs-forward", "numeric", 600, _part("cumsum", "gradient_rule", _reversed_not)),
    Fault("cosine-overflows", "wide", 20_000, _squares_overflow),
    Fault("vmap-names-the-wrong-axis", "vmap", 1500, _unshift_axes),
    Fault(
        "vmap-takes-samples-along-the-first-axis",
        "vmap",
        1500,
        _make_edit(
            "burn_torch.transform.per_sample:_Samples.one",
            "if axis:",
            "if axis > 1:",
        ),
    ),
    Fault(
        "a-running-mean-stays",
        "steps torch",
        600,
        _make_edit(
            "burn_torch.nn.norm:BatchNorm._train",
            "self._move(self.running_mean, mean, 1.0)",
            "pass",
        ),
    ),
)
_LEAVES: Final = (
    Fault("operands-swapped-in-numpy", "ndarray", 1500, _part("atan2", "numpy", _swap_operands)),
    Fault("last-of-ties", "ndarray", 6000, _part("argmax", "numpy", _last_of_ties)),
    Fault("integers-are-summed-in-32-bits", "ndarray", 6000, _part("sum", "numpy", _summed_in_32_bits)),
    Fault("a-part-is-written-into-its-source", "ndarray", 1500, _part("slice_assign", "torch", _written_into)),
    Fault("another-stream-of-random-numbers", "ndarray", 1500, _part("uniform", "numpy", _another_stream)),
    Fault("numpy-keeps-its-own-types", "ndarray", 600, _make_edit(
        "burn_torch.backend.ndarray.leaf:_as_array", "array.dtype != spec.dtype.numpy", "False",
    )),
    Fault("a-lazy-plan-of-other-attributes", "lazy", 1500, _stale_plan),
)  # fmt: skip
_PASSES: Final = (
    Fault("a-live-output-is-dropped", "compile", 3000, _make_edit(
        "burn_torch.graph.passes.dead:dead_code", "live = tuple([i in needed for i in node.outputs])",
        "live = tuple([i in needed and i == next(j for j in node.outputs if j in needed) for i in node.outputs])",
    )),
    Fault("a-program-of-other-shapes", "compile", 600, _stale_program),
    Fault("equal-but-for-the-key", "compile", 1500, _make_edit(
        "burn_torch.graph.passes.subexpressions:_key", "    return (call, inputs)\n",
        "    return (call,) if call.op.random else (call, inputs)\n",
    )),
    Fault("kept-arguments-are-donated", "donate", 600, _make_edit(
        f"{_MEMORY}:_Lives._inputs", "is_donated = position in donated", "is_donated = True",
    )),
    Fault("written-over-before-its-last-use", "compile", 1500, _make_edit(
        f"{_MEMORY}:_Lives._overwritten", "last_use.get(base) != position or", "",
    )),
    Fault("written-over-an-expanded-view", "compile", 3000, _make_edit(
        f"{_MEMORY}:_Lives._overwritten", "old not in self._whole or", "",
        "all(layouts.of(i) == CONTIGUOUS for i in node.inputs)", "True",
    )),
    Fault("zero-minus-x-is-x", "compile", 6000, _sub_is_neutral_on_the_left),
    Fault("permutes-joined-in-the-wrong-order", "compile", 6000, _part("permute", "merge", _merged_in_the_wrong_order)),
)  # fmt: skip
_KERNELS: Final = (
    Fault("c-writes-before-it-reads", "c", 3000, _make_edit(
        f"{_FUSION}.c.lanes:LaneNeeds.may_cover", "read_at == at and read_in <= stretch", "read_at == at",
    )),
    Fault("c-covers-what-it-reads-elsewhere", "c", 1500, _all(  # the pairs come from the needs of tiles, C takes some
        _make_edit(f"{_FUSION}.c.lanes:LaneNeeds.may_cover", "read_at == at and read_in <= stretch", "True"),
        _make_edit(f"{_FUSION}.body.tiles:TileNeeds.over", "self._read_at[i] == {at} and ", ""),
    )),
    Fault("c-remainder-by-floor", "c", 3000, _remainder_by_floor),
    Fault("c-maximum-starts-at-zero", "c", 1500, _make_edit(
        f"{_FUSION}.c.numbers:Total.neutral", 'float("-inf") if self.kind == "max"', '0.0 if self.kind == "max"',
    )),
    Fault("c-takes-strided-for-contiguous", "c", 1500, _make_edit(
        "burn_torch.backend.libtorch.generated.c_kernels:CFunction._run_strided",
        "None if not isinstance(x, torch.Tensor) or x.is_contiguous() else x.stride()", "None",
    )),
    Fault("c-computes-doubles-as-floats", "c", 600, _make_edit(
        f"{_FUSION}.body.templates:computed_in", "dtype in _HALF else dtype",
        "dtype in _HALF or dtype is DType.F64 else dtype",
    )),
    Fault("triton-takes-strided-for-contiguous", "interpreter", 300, _make_edit(
        f"{_FUSION}.body.needs:Needs._load", "if layout is None else strided_index", "if spec else strided_index",
    )),
    Fault("triton-reduces-lanes-beyond-the-edge", "interpreter", 600, _make_edit(
        f"{_FUSION}.triton.dialect:Triton._gather", 'f"tl.where(inside, {text}, {neutral(kind, kept_in)})"', "text",
    )),
)  # fmt: skip

FAULTS: Final = {fault.name: fault for fault in (*_TAPES, *_RULES, *_LEAVES, *_PASSES, *_KERNELS)}
