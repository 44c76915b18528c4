"""A registered operation as cases: our calls beside what users of PyTorch and Liger write, and its errors."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch

from benchmarks._kernels.candidates import fastest, parts
from benchmarks._kernels.problems import SIZES, random, row_wise
from benchmarks._kernels.rivals import liger_function
from benchmarks._kernels.rows import Case
from benchmarks._kernels.timing import Call, Timer
from burn_kernels import REGISTRY, KernelSpec, cross_entropy, linear_cross_entropy, matmul
from burn_kernels.launch import machine_of

__all__ = ["bound", "compiled_by_torch", "errors", "op_cases", "ours", "theirs", "wanted"]

VIEWS = ("sum", "mean")
"""Operations whose backward is a view of the upstream gradient: nothing to time."""


def bound(spec: KernelSpec, options: dict[str, Any]) -> KernelSpec:
    """The operation with its options given."""
    names = ("forward", "gradient", "twin", "bytes_moved") if spec.gradient else ("forward", "twin", "bytes_moved")
    changed: dict[str, Any] = {name: functools.partial(getattr(spec, name), **options) for name in names}
    return replace(spec, **changed) if options else spec


def ours(spec: KernelSpec, inputs: tuple[Any, ...], dy: Any) -> Any:
    outputs = spec.forward(*inputs)
    outputs = outputs if isinstance(outputs, tuple) else (outputs,)
    if dy is None:
        return outputs
    assert spec.gradient is not None
    return spec.gradient(dy, inputs, outputs)


def theirs(twin: Callable[..., Any], inputs: tuple[Any, ...], dy: Any) -> Any:
    # leaves of their own: a node that another case keeps belongs to another stream, and a capture with it fails
    inputs = tuple(x.detach().requires_grad_() if is_float(x) else x for x in inputs)
    y = twin(*inputs)
    return y if dy is None else torch.autograd.grad(y, [x for x in inputs if is_float(x)], dy)


def is_float(x: Any) -> bool:
    return isinstance(x, torch.Tensor) and x.is_floating_point()


def many(outputs: Any) -> tuple[Any, ...]:
    return outputs if isinstance(outputs, tuple) else (outputs,)


def op_cases(
    name: str, make: Callable[[int], tuple[Any, ...]], tag: str, arguments: Any, timer: Timer, **options: Any
) -> Iterator[Case]:
    """The forward, and the forward with backward, of a registered operation."""
    spec, inputs, liger = bound(REGISTRY[name], options), make(SIZES.rows), liger_function(name, options)
    # laid out as the outputs are: channels last, where these are
    # a loss is followed by nothing: what takes its gradient with it computes that for an upstream gradient of one
    upstreams = tuple(
        torch.empty_like(y).copy_(random(*y.shape)) if y.dim() else torch.ones_like(y) for y in many(spec.twin(*inputs))
    )
    dy = upstreams if len(upstreams) > 1 else upstreams[0]
    twin = rival(name, spec, options)
    compiled = compiled_by_torch(twin)
    tuned = {}
    if arguments.tuned and name.startswith(wanted(arguments)) and name in {row[0] for row in row_wise()}:
        tuned = {part.passed: fastest(part, timer) for part in parts(name, inputs, dy)}
    for passed, upstream in (("f", None), ("fb", dy))[: 1 if spec.gradient is None or name in VIEWS else 2]:
        floor = spec.bytes_moved(*inputs)
        variants: dict[str, Call] = {"ours": functools.partial(ours, spec, inputs, upstream)}
        if passed == "fb":
            # cross entropy's forward can write the gradient, so that x is read once
            floor = spec.bytes_moved(*inputs, backward=True) + (0 if name == "cross_entropy" else floor)
            if name == "linear_cross_entropy":
                both = functools.partial(linear_cross_entropy.forward_with_gradient, *inputs)
                variants["ours"] = both
                variants["ours, bf16 sums"] = functools.partial(both, accumulate=torch.bfloat16)
            if name == "cross_entropy":
                spare = inputs[0].clone()
                variants["ours"] = functools.partial(cross_entropy.forward_with_gradient, *inputs)
                variants["ours in place"] = functools.partial(cross_entropy.forward_with_gradient_, spare, inputs[1])
                variants |= {"ours in place, tuned": tuned["in place"]} if tuned else {}
        if name == "linear" and passed == "f":
            variants |= layer_variants(inputs, options["kind"], all_configs=not (arguments.rivals or arguments.judged))
        if tuned and passed in tuned:
            variants["ours, tuned"] = tuned[passed]
        elif tuned:
            variants["ours, tuned"] = lambda: (tuned["f"](), tuned["b"]())
        variants["eager"] = functools.partial(theirs, twin, inputs, upstream)
        if not arguments.no_compile:
            variants["compile"] = functools.partial(theirs, compiled, inputs, upstream)
            if arguments.best_mode:
                best = compiled_by_torch(twin, mode="max-autotune-no-cudagraphs")  # a graph is captured of each call
                variants["compile, searched"] = functools.partial(theirs, best, inputs, upstream)
        if liger is not None:
            variants["liger"] = functools.partial(theirs, liger, inputs, upstream)
        halves = {"ours, bf16 sums": _with_half_sums} if name == "linear_cross_entropy" else {}
        measure_errors = functools.partial(errors, spec, make, passed, halves)
        known = None if options.get("prob") or name.startswith("arg") else functools.partial(exact, spec, make, passed)
        yield Case(f"{name} {tag}", spec, passed, floor, variants, measure_errors, known)


def layer_variants(inputs: tuple[Any, ...], kind: str, *, all_configs: bool) -> dict[str, Call]:
    """Every way to compute a layer without gradients, and the product alone: what G12 is judged by."""
    x, w = inputs[:2]
    if not all_configs:
        return {"bare product": functools.partial(torch.mm, x, w.T)}
    flags = f"{kind} bias"
    configs = matmul.candidates(x.shape[0], w.shape[0], x.element_size(), machine_of(x), flags=flags)
    calls: dict[str, Call] = {
        f"ours, {c}": functools.partial(matmul.forward, *inputs, kind=kind, config=c) for c in configs
    }
    return {"bare product": functools.partial(torch.mm, x, w.T)} | (calls if SIZES.device == "cuda" else {})


def compiled_by_torch(function: Callable[..., Any], mode: str | None = None) -> Callable[..., Any]:
    """By its default mode, or another one; in a tiny run, which only asks whether all is in place, by nothing."""
    if SIZES.tiny:
        return torch.compile(function, dynamic=False, backend="eager")
    return torch.compile(function, dynamic=False, mode=mode)


def _with_half_sums(*inputs: Any) -> Any:
    return linear_cross_entropy.forward_with_gradient(*inputs, accumulate=torch.bfloat16)


def errors(
    spec: KernelSpec,
    make: Callable[[int], tuple[Any, ...]],
    passed: str,
    losses: Mapping[str, Callable[..., Any]] | None = None,
) -> dict[str, float]:
    """The worst relative RMS error against float64 of ours and of eager torch, on 256 rows.

    losses  other forms of ours that give a loss and its gradients
    """
    inputs = make(SIZES.few)

    def apart(actual: Any, exact: Any) -> float:
        pairs = [(a, b) for a, b in zip(actual, exact, strict=False) if a is not None]
        # what is zero everywhere, as a gradient of one column's norm, has no relative error
        worst: float = max((a.double() - b).norm().item() / (b.norm().item() or 1.0) for a, b in pairs)
        return worst

    exact_inputs = tuple(x.double() if is_float(x) else x for x in inputs)
    outputs = many(spec.twin(*exact_inputs))
    if not outputs[0].is_floating_point():
        return {}
    upstreams = tuple(torch.randn_like(y) for y in outputs)
    halves = tuple(dy.to(y.dtype) for dy, y in zip(upstreams, many(spec.twin(*inputs)), strict=True))
    if passed == "f":
        ones, others = ours(spec, inputs, None), many(theirs(spec.twin, inputs, None))
        return {"ours": apart(ones[: len(outputs)], outputs), "eager": apart(others, outputs)}
    exact = theirs(spec.twin, exact_inputs, upstreams)
    ones = ours(spec, inputs, halves if len(halves) > 1 else halves[0])
    others = theirs(spec.twin, inputs, halves)
    # their upstream gradient is one
    shares = {"ours": apart(ones, exact), "eager": apart(others, exact)}
    for name, run in (losses or {}).items():
        shares[name] = apart([g * upstreams[0] for g in run(*inputs)[1:] if g is not None], exact)
    return shares


def exact(
    spec: KernelSpec, make: Callable[[int], tuple[Any, ...]], passed: str
) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Inputs of 256 rows and what they give in float64; of both directions with upstream gradients and gradients."""
    inputs = make(SIZES.few)
    tensors = [x for x in inputs if isinstance(x, torch.Tensor)]
    wide = tuple(x.double() if is_float(x) else x for x in inputs)
    outputs = many(spec.twin(*wide))
    if passed == "f":
        return tensors, list(outputs)
    upstreams = tuple(torch.randn_like(y) for y in outputs)
    return [*tensors, *upstreams], [*outputs, *theirs(spec.twin, wide, upstreams)]


def rival(name: str, spec: KernelSpec, options: dict[str, Any]) -> Callable[..., Any]:
    """Returns what PyTorch users write: the twin, but with torch's own random numbers, which are quicker than ours in
    torch.
    """
    if not options.get("prob"):
        return spec.twin
    plain = functools.partial(REGISTRY[name].twin, prob=0.0)
    return lambda x, *others: plain(torch.nn.functional.dropout(x, options["prob"]), *others)


def wanted(arguments: Any) -> tuple[str, ...]:
    return tuple(arguments.only.split(","))
