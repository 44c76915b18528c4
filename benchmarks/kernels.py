"""Times the kernel library on one GPU beside PyTorch, eager and compiled, and beside Liger and JAX where they are.

    python benchmarks/kernels.py                     every case; rows to benchmarks/data/kernels-<device>.json
    python benchmarks/kernels.py --only softmax      operations whose name begins so
    python benchmarks/kernels.py --tuned             beside the defaults, the configs that are fastest here
    python benchmarks/kernels.py --tune              every candidate config instead of rivals
    python benchmarks/kernels.py --judged            the cases that have a bar, beside eager and torch.compile, in 250 s
    python benchmarks/kernels.py --rivals            a few cases of every family, beside JAX too, in 120 s
    python benchmarks/kernels.py --judged --tiny     few rows, on a CPU where there is no GPU: does everything run?

How: all variants of a case in one process, in turns (A B C, C B A, ...), the L2 cache overwritten before each, time
between two events on the device, median of the rounds.  Calls are captured into CUDA graphs where they can be, so that
a rival's host time does not count against it.  `copy` is the better of a copy and a negation that move as many bytes as
the case must; `share` is its time over the variant's.  `peak` is what a call allocates beyond its inputs.  `error` is
the relative root mean square against float64, on 256 rows: of the output, or of the worst gradient.
f: forward.  fb: forward and backward.  Gradients of the upstream are random.
Rows go to benchmarks/data, to $OUT where that is set, or to --out; with --judged, verdicts on the bars go with them.
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import platform
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "kernels"))  # works with nothing installed
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import triton

from benchmarks._kernels import attending
from benchmarks._kernels.judged import BARS, Verdict, judge, table
from benchmarks._kernels.problems import SIZES, gpt2, operations, random, row_wise
from benchmarks._kernels.rivals import (
    CHOSEN,
    Jax,
    Task,
    attention_task,
    liger_function,
    prepared_beside,
    task,
    tensors_task,
)
from benchmarks._kernels.rows import timed
from benchmarks._kernels.timing import Call, Timer, captured
from burn_kernels import (
    REGISTRY,
    KernelSpec,
    cross_entropy,
    dropout,
    glu,
    linear_cross_entropy,
    lion,
    matmul,
    norm,
    optimizer,
    rope,
    softmax,
    tensor_norm,
)
from burn_kernels.launch import machine_of

VIEWS = ("sum", "mean")
"""Operations whose backward is a view of the upstream gradient: nothing to time."""
JUDGED_S, RIVALS_S = 250.0, 120.0
"""Of the machine's time, for all bars, and for all rivals."""


@dataclass
class Case:
    """What is timed: calls by variant, each making its own results."""

    name: str
    spec: KernelSpec
    passed: str
    floor_bytes: int
    variants: Mapping[str, Call] = field(default_factory=dict)
    errors: Callable[[], dict[str, float]] = dict


# -- cases -------------------------------------------------------------------------------------------
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
    upstreams = tuple(torch.empty_like(y).copy_(random(*y.shape)) for y in many(spec.twin(*inputs)))
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
            variants |= layer_variants(inputs, options["kind"], all_configs=not arguments.rivals)
        if tuned and passed in tuned:
            variants["ours, tuned"] = tuned[passed]
        elif tuned:
            variants["ours, tuned"] = lambda: (tuned["f"](), tuned["b"]())
        variants["eager"] = functools.partial(theirs, twin, inputs, upstream)
        if not arguments.no_compile:
            variants["compile"] = functools.partial(theirs, compiled, inputs, upstream)
        if liger is not None:
            variants["liger"] = functools.partial(theirs, liger, inputs, upstream)
        found = functools.partial(errors, spec, make, passed)
        yield Case(f"{name} {tag}", spec, passed, floor, variants, found)


def layer_variants(inputs: tuple[Any, ...], kind: str, *, all_configs: bool) -> dict[str, Call]:
    """Every way to compute a layer without gradients, and the product alone: what G12 is judged by."""
    x, w = inputs[:2]
    if not all_configs:
        return {"bare product": functools.partial(torch.mm, x, w.T)}
    flags = f"{kind} bias"
    found = matmul.candidates(x.shape[0], w.shape[0], x.element_size(), machine_of(x), flags=flags)
    calls: dict[str, Call] = {
        f"ours, {c}": functools.partial(matmul.forward, *inputs, kind=kind, config=c) for c in found
    }
    return {"bare product": functools.partial(torch.mm, x, w.T)} | (calls if SIZES.device == "cuda" else {})


def compiled_by_torch(function: Callable[..., Any]) -> Callable[..., Any]:
    """By its default mode; in a tiny run, which only asks whether all is in place, by nothing."""
    return torch.compile(function, dynamic=False, backend="eager" if SIZES.tiny else "inductor")


def errors(spec: KernelSpec, make: Callable[[int], tuple[Any, ...]], passed: str) -> dict[str, float]:
    """The worst relative RMS error against float64 of ours and of eager torch, on 256 rows."""
    inputs = make(SIZES.few)

    def apart(found: Any, exact: Any) -> float:
        pairs = [(a, b) for a, b in zip(found, exact, strict=False) if a is not None]
        worst: float = max((a.double() - b).norm().item() / b.norm().item() for a, b in pairs)
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
    return {"ours": apart(ones, exact), "eager": apart(others, exact)}


def rival(name: str, spec: KernelSpec, options: dict[str, Any]) -> Callable[..., Any]:
    """What PyTorch users write: the twin, but with torch's own random numbers, which are quicker than ours in torch."""
    if not options.get("prob"):
        return spec.twin
    plain = functools.partial(REGISTRY[name].twin, prob=0.0)
    return lambda x, *others: plain(torch.nn.functional.dropout(x, options["prob"]), *others)


def gpt2_table() -> optimizer.Table:
    return optimizer.table(gpt2(1), gpt2(1e-2), gpt2(1e-2), [x * x for x in gpt2(1e-2)], in_place=True)


def adamw_cases(arguments: Any) -> Iterator[Case]:
    """A step over GPT-2 124M; then with clipping and a bf16 copy of the weights in the same launch."""
    spec, table = REGISTRY["adamw"], gpt2_table()
    variants: dict[str, Call] = {}
    case = Case("adamw 124M", spec, "step", spec.bytes_moved(table.inputs[0]), variants)
    variants["ours"] = lambda: optimizer.adamw_(table, lr=1e-4, step=100)
    for name, options in (("eager fused", {"fused": True}), ("eager foreach", {"foreach": True})):
        leaves = [torch.nn.Parameter(x) for x in gpt2(1)]
        for leaf, g in zip(leaves, table.inputs[1], strict=True):
            leaf.grad = g
        step = torch.optim.AdamW(leaves, lr=1e-4, capturable=True, **options).step  # type: ignore[arg-type]
        variants[name] = step
        if name == "eager foreach" and not arguments.no_compile:
            variants["compile"] = compiled_by_torch(step)
    yield case
    copies = [torch.empty_like(p, dtype=torch.bfloat16) for p in table.inputs[0]]
    with_copies = optimizer.table(*table.inputs, copies=copies, in_place=True)
    clip = torch.tensor(0.5, device=SIZES.device)
    floor = case.floor_bytes + 2 * sum(p.numel() for p in table.inputs[0])
    step = functools.partial(optimizer.adamw_, with_copies, lr=1e-4, step=100, clip=clip)
    yield Case("adamw 124M, clip, bf16 copy", spec, "step", floor, {"ours": step})


def lion_cases(arguments: Any) -> Iterator[Case]:
    """A step over GPT-2 124M; torch has no Lion of its own, so the formula stands for it."""
    spec, groups = REGISTRY["lion"], (gpt2(1), gpt2(1e-2), gpt2(1e-2))
    made = optimizer.table(*groups, in_place=True)

    def plain() -> None:
        params, grads, means = groups
        ways = torch._foreach_sign(torch._foreach_lerp(means, grads, 0.1))
        torch._foreach_add_(params, ways, alpha=-1e-4)
        torch._foreach_lerp_(means, grads, 0.01)

    variants: dict[str, Call] = {"ours": functools.partial(lion.lion_, made, lr=1e-4), "eager foreach": plain}
    if not arguments.no_compile:
        variants["compile"] = compiled_by_torch(plain)
    yield Case("lion 124M", spec, "step", spec.bytes_moved(groups[0]), variants)


def tensor_norm_cases(arguments: Any) -> Iterator[Case]:
    """The norm of GPT-2's gradients, and by what they are clipped."""
    spec, grads = REGISTRY["tensor_norm"], gpt2(1e-2)
    made = tensor_norm.table(grads)

    def plain() -> tuple[torch.Tensor, torch.Tensor]:
        found = torch.nn.utils.get_total_norm(grads)
        return found, (1.0 / (found + 1e-6)).clamp(max=1.0)

    variants: dict[str, Call] = {"ours": functools.partial(tensor_norm.clip_factor, made, 1.0), "eager": plain}
    if not arguments.no_compile:
        variants["compile"] = compiled_by_torch(plain)
    yield Case("tensor_norm 124M", spec, "f", spec.bytes_moved(grads), variants)


def cases(arguments: Any, timer: Timer) -> Iterator[Case]:
    """All cases, one at a time: each holds gigabytes."""
    for name, make, tag, options in operations():
        if name.startswith(wanted(arguments)):
            yield from op_cases(name, make, tag, arguments, timer, **options)
    yield from rope_computed_cases()
    yield from attention_cases(arguments)
    yield from adamw_cases(arguments)
    yield from lion_cases(arguments)
    yield from tensor_norm_cases(arguments)
    yield from dropout_cases(arguments)


def rival_cases(arguments: Any, timer: Timer) -> Iterator[Case]:
    """The chosen cases of every family, in their order; of those that are prepared, every so many-th."""
    known = {f"{name} {tag}": (name, make, tag, options) for name, make, tag, options in operations()}
    chosen = [(case, passes) for case, passes in CHOSEN.items() if case.startswith(wanted(arguments))]
    first, step = (int(part) for part in (arguments.warm or "0/1").split("/"))
    for case, passes in chosen[first::step]:
        name, _, tag = in_this_run(case).partition(" ")
        if f"{name} {tag}" in known:
            name, make, tag, options = known[f"{name} {tag}"]
            found = op_cases(name, make, tag, arguments, timer, **options)
        elif name.startswith("attention"):
            found = attention_cases(argparse.Namespace(**vars(arguments) | {"only": case}))
        else:
            # torch.compile takes longer for a step of AdamW than for all the rest, and fused AdamW is faster
            given = argparse.Namespace(**vars(arguments) | {"no_compile": arguments.no_compile or name == "adamw"})
            found = {"adamw": adamw_cases, "lion": lion_cases, "tensor_norm": tensor_norm_cases,
                     "dropout": dropout_cases}[name](given)  # fmt: skip
        yield from (one for one in found if one.name == f"{name} {tag}" and one.passed in passes)


def jax_tasks(arguments: Any) -> Iterator[Task]:
    """The chosen cases for JAX, from tensors that hold nothing."""
    device, SIZES.device = SIZES.device, "meta"
    try:
        known = {f"{name} {tag}": (name, make, options) for name, make, tag, options in operations()}
        attentions = {f"attention {problem.tag}": problem for problem in attending.PROBLEMS}
        groups = {"adamw": 4, "lion": 3, "tensor_norm": 1}
        for case, passes in CHOSEN.items():
            named = in_this_run(case)
            for passed in passes if case.startswith(wanted(arguments)) else ():
                made: Task | None = None
                if named in known:
                    name, make, options = known[named]
                    made = task(named, passed, name, make(SIZES.rows), options)
                elif case in attentions:
                    problem = attentions[case].small(64) if SIZES.tiny else attentions[case]
                    made = attention_task(case, passed, problem, gpu=device == "cuda")
                elif case.partition(" ")[0] in groups:
                    made = tensors_task(named, passed, groups[case.partition(" ")[0]], gpt2(1.0))
                elif case.startswith("dropout"):
                    made = task(named, passed, "dropout", (random(SIZES.rows, 8192),), {"prob": 0.1})
                if made is not None:
                    yield made
    finally:
        SIZES.device = device


def judged_cases(arguments: Any, timer: Timer, left_s: Callable[[], float]) -> Iterator[Case]:
    """The cases that have a bar, in the order of the bars.

    Where less than a third of the time is left, those whose bar names no rival go without torch.compile.
    """
    known = {f"{name} {tag}": (name, make, tag, options) for name, make, tag, options in operations()}
    bars = [bar for bar in BARS if bar.case.startswith(wanted(arguments))]
    for bar in bars:
        quick = bar.ahead is None and left_s() < arguments.budget_s / 3
        given = argparse.Namespace(**vars(arguments) | {"no_compile": arguments.no_compile or quick})
        if bar.case.startswith("adamw"):
            given.no_compile = True  # the case with a bar has no rival, and the other one is not timed
            found = adamw_cases(given)
        else:
            name, make, tag, options = known[in_this_run(bar.case)]
            found = op_cases(name, make, tag, given, timer, **options)
        yield from (case for case in found if (case.name, case.passed) == (in_this_run(bar.case), bar.passed))


def in_this_run(case: str) -> str:
    """The case with the sizes that a tiny run has in their place."""
    name, _, tag = case.partition(" ")
    if not SIZES.tiny or name.startswith(("attention", "convolution", "rope")):
        return case
    if name == "linear":
        return f"{name} {2 * SIZES.rows}x16x64 {tag.split()[-1]}"
    return f"{name} {re.sub('^8192x', f'{SIZES.rows}x', re.sub('^16384', str(2 * SIZES.rows), tag))}"


def rope_computed_cases() -> Iterator[Case]:
    """As the packed case of rope, without tables."""
    spec = bound(REGISTRY["rope_computed"], {"turns": rope.turns(128, device=SIZES.device)})
    inputs = random(4, 4096, 32, 128), random(4, 4096, 8, 128)
    for passed, dy in (("f", None), ("fb", inputs)):
        floor = spec.bytes_moved(*inputs) * (1 if dy is None else 2)
        call = functools.partial(ours, spec, inputs, dy)
        yield Case("rope_computed 4x4096x32/8x128", spec, passed, floor, {"ours": call})


def attention_cases(arguments: Any) -> Iterator[Case]:
    """Attention of both kinds, dense and packed; its limit is arithmetic, so `share` says nothing of it."""
    for problem in attending.PROBLEMS:
        name = "attention_packed" if problem.packed else "attention"
        if not f"{name} {problem.tag}".startswith(wanted(arguments)):
            continue
        sized, few = problem.small(64) if SIZES.tiny else problem, problem.small(SIZES.few)
        spec, inputs = bound(REGISTRY[name], sized.named()), sized.inputs(random)
        checked = bound(REGISTRY[name], few.named())
        for passed, dy in (("f", None), ("fb", random(*inputs[0].shape))):
            found = functools.partial(errors, checked, functools.partial(few.drawn, random), passed)
            variants = dict(attending.variants(sized, inputs, dy, flex=_flex(arguments, problem)))
            floor = spec.bytes_moved(*inputs) + (0 if dy is None else spec.bytes_moved(*inputs, backward=True))
            yield Case(f"{name} {problem.tag}", spec, passed, floor, variants, found)


def _flex(arguments: Any, problem: attending.Problem) -> bool:
    """Whether flex_attention is compiled, for 10 s: among all rivals only where torch has nothing else."""
    if SIZES.tiny or arguments.no_compile:
        return False
    return not arguments.rivals or problem.bias or "softcap" in problem.options


def dropout_cases(arguments: Any) -> Iterator[Case]:
    """Dropout; PyTorch's saves a mask of a byte an element, ours none."""
    spec, x = REGISTRY["dropout"], random(SIZES.rows, 8192)
    leaf = x.clone().requires_grad_()
    variants: dict[str, Call] = {
        "ours": functools.partial(dropout.forward, x, 0.1, 7, 11),
        "eager": functools.partial(torch.nn.functional.dropout, leaf, 0.1),
    }
    if not arguments.no_compile:
        variants["compile"] = functools.partial(compiled_by_torch(torch.nn.functional.dropout), leaf, 0.1)
    yield Case(f"dropout {SIZES.rows}x8192", spec, "f", spec.bytes_moved(x), variants)


# -- candidates --------------------------------------------------------------------------------------
@dataclass
class Part:
    """One kernel on given inputs: its candidate configs, the default first, and how to run one."""

    passed: str
    floor_bytes: int
    configs: list[Any]
    run: Callable[[Any], Any]


def parts(name: str, inputs: tuple[Any, ...], dy: Any) -> list[Part]:
    """The kernels of a row-wise operation; backwards run on what one forward saved."""
    x, machine = inputs[0], machine_of(inputs[0])
    n, cols = x.numel() * x.element_size(), x.shape[1]
    if name == "softmax":
        y = softmax.forward(x)
        back: list[Any] = softmax.candidates(cols, 2, machine, backward=True)
        return [
            Part("f", 2 * n, softmax.candidates(cols, 2, machine), lambda c: softmax.forward(x, config=c)),
            Part("b", 3 * n, back, lambda c: softmax.backward(dy, y, config=c)),
        ]
    if name in ("layer_norm", "rms_norm"):
        forward, backward = getattr(norm, name), getattr(norm, f"{name}_backward")
        saved = forward(*inputs)[1:]
        centred = name == "layer_norm"
        front = norm.candidates(cols, 2, machine, centred=centred)
        back = norm.backward_candidates(cols, 2, machine, centred=centred)
        return [
            Part("f", 2 * n, front, lambda c: forward(*inputs, config=c)),
            Part("b", 3 * n, back, lambda c: backward(dy, *inputs[:2], *saved, config=c)),
        ]
    if name == "cross_entropy":
        found: list[Any] = cross_entropy.candidates(cols, 2, machine, gradient=True)
        spare = x.clone()
        return [
            Part("f", n, found, lambda c: cross_entropy.forward(*inputs, config=c)),
            Part("fb", 2 * n, found, lambda c: cross_entropy.forward_with_gradient(*inputs, config=c)),
            Part("in place", 2 * n, found, lambda c: cross_entropy.forward_with_gradient_(spare, inputs[1], config=c)),
        ]
    kind = {"swiglu": "silu", "geglu": "gelu"}[name]
    found = list(glu.candidates(x.numel(), 2, machine))
    return [
        Part("f", 3 * n, found, lambda c: glu.forward(*inputs, kind=kind, config=c)),
        Part("b", 5 * n, found, lambda c: glu.backward(dy, *inputs, kind=kind, config=c)),
    ]


def tuning_cases() -> Iterator[Case]:
    """Each candidate config of each kernel as a variant."""
    for name, make, tag in row_wise():
        for part in parts(name, make(SIZES.rows), make(SIZES.rows)[0]):
            variants: dict[str, Call] = {str(c): functools.partial(part.run, c) for c in part.configs}
            yield Case(f"{name} {tag}", REGISTRY[name], part.passed, part.floor_bytes, variants)
    x = random(SIZES.rows, 14336)
    variants = {
        str(c): functools.partial(dropout.forward, x, 0.1, 7, 11, config=c)
        for c in dropout.candidates(2, machine_of(x))
    }
    yield Case(f"dropout {SIZES.rows}x14336", REGISTRY["dropout"], "f", 4 * x.numel(), variants)
    table = gpt2_table()
    found, n = optimizer.candidates(machine_of(x)), 28 * sum(p.numel() for p in table.inputs[0])
    variants = {str(c): functools.partial(optimizer.adamw_, table, lr=1e-4, step=100, config=c) for c in found}
    yield Case("adamw 124M", REGISTRY["adamw"], "step", n, variants)


def fastest(part: Part, timer: Timer) -> Call:
    """The part with the config that a short measurement finds fastest."""
    calls = {str(c): captured(functools.partial(part.run, c), SIZES.device) for c in part.configs}
    times = {name: statistics.median(found) for name, found in timer(calls, rounds=9).items()}
    name = min(times, key=lambda name: times[name])
    print(f"    tuned {part.passed}: {name}, {times[name]:.4f} ms; default {times[str(part.configs[0])]:.4f} ms")
    chosen = next(c for c in part.configs if str(c) == name)
    return functools.partial(part.run, chosen)


# -- timing ------------------------------------------------------------------------------------------
def measure(case: Case, timer: Timer, tuning: bool) -> list[dict[str, Any]]:
    """The rows of one case."""
    errors = dict if tuning else case.errors
    width = 132 if tuning else 62
    return timed(
        case.name, case.passed, case.floor_bytes, case.variants, timer, errors=errors, peaks=not tuning, width=width
    )


def wanted(arguments: Any) -> tuple[str, ...]:
    return tuple(arguments.only.split(","))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="families, separated by commas")
    parser.add_argument("--tune", action="store_true", help="time every candidate config instead of rivals")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out")
    parser.add_argument("--tuned", action="store_true", help="beside the default, the config that is fastest here")
    parser.add_argument("--widths", default="", help="columns of the row-wise operations")
    parser.add_argument("--judged", action="store_true", help="the cases that have a bar, and whether they clear it")
    parser.add_argument("--rivals", action="store_true", help="a few cases of every family beside every rival")
    parser.add_argument("--workers", type=int, default=8, help="processes that compile for --rivals before it times")
    parser.add_argument(
        "--warm", default="", metavar="I/N", help="call every N-th case of --rivals once, from the I-th"
    )
    parser.add_argument("--jax-python", default="", help="an interpreter that has jax, where this one has none")
    parser.add_argument("--tiny", action="store_true", help="few rows and no clock worth reading: does everything run?")
    parser.add_argument("--rounds", type=int, default=0, help="of turns; 31, in a tiny run 2")
    parser.add_argument("--budget-s", type=float, default=0.0, help="begin no case after so many seconds")
    parser.add_argument("--out", default="", help="the file for the rows")
    arguments = parser.parse_args()
    if arguments.tiny:
        SIZES.rows, SIZES.few, SIZES.tiny = 4, 2, True
        SIZES.device = "cuda" if torch.cuda.is_available() else "cpu"
    elif not torch.cuda.is_available():
        raise SystemExit("benchmarks/kernels.py times GPU kernels, and torch finds no CUDA device here; --tiny runs")
    if arguments.widths:
        SIZES.widths = tuple(int(n) for n in arguments.widths.split(","))
    arguments.rounds = arguments.rounds or (2 if SIZES.tiny else 15 if arguments.rivals else 31)
    usual = JUDGED_S if arguments.judged else RIVALS_S if arguments.rivals else 1e9
    arguments.budget_s = arguments.budget_s or usual
    if arguments.warm:
        warm(arguments)
    else:
        run(arguments)


def warm(arguments: Any) -> None:
    """Calls the variants of some cases once, so that what they compile is known when others time them."""
    for case in rival_cases(arguments, Timer(1, SIZES.device)):
        for name, call in case.variants.items():
            try:
                call()
            except Exception as error:  # said where it is timed, too
                print(f"{case.name} {case.passed} {name}: {type(error).__name__}", file=sys.stderr)
        del case
        if SIZES.device != "cpu":
            torch.cuda.empty_cache()


def run(arguments: Any) -> None:
    """Times the cases that were asked for and writes their rows, after each case."""
    begun, rows, timer = time.monotonic(), list[dict[str, Any]](), Timer(arguments.rounds, SIZES.device)
    device = "cpu" if SIZES.device == "cpu" else torch.cuda.get_device_name()
    head = {
        "date": str(date.today()),
        "device": device,
        "torch": torch.__version__,
        "triton": triton.__version__,
        "python": platform.python_version(),
        "rounds": arguments.rounds,
    } | ({"tiny": True} if SIZES.tiny else {})
    kind = "tune-" if arguments.tune else "judged-" if arguments.judged else "rivals-" if arguments.rivals else ""
    jax: Jax | None = None
    folder = Path(os.environ.get("OUT") or Path(__file__).parent / "data")
    out = Path(arguments.out or folder / f"kernels-{kind}{'tiny' if SIZES.tiny else device.split()[-1].lower()}.json")

    def left_s() -> float:
        return float(arguments.budget_s) - (time.monotonic() - begun)

    def write() -> None:
        found = head | {"rows": rows} | ({"bars": [asdict(v) for v in verdicts()]} if arguments.judged else {})
        out.write_text(json.dumps(found, indent=0) + "\n", encoding="utf-8")

    def verdicts() -> list[Verdict]:
        return judge(
            (replace(bar, case=in_this_run(bar.case)) for bar in BARS if bar.case.startswith(wanted(arguments))), rows
        )

    if arguments.rivals:
        jax = Jax(list(jax_tasks(arguments)), arguments.jax_python, SIZES.device)
        head |= {"jax": jax.version}
        if not SIZES.tiny:
            command = [sys.executable, *sys.argv]
            well = prepared_beside(command, arguments.workers, patience_s=0.4 * arguments.budget_s)
            print(f"{well} of {arguments.workers} processes prepared in {time.monotonic() - begun:.0f} s", flush=True)
    torch.manual_seed(0)
    if arguments.judged:
        chosen = judged_cases(arguments, timer, left_s)
    elif arguments.rivals:
        chosen = rival_cases(arguments, timer)
    else:
        chosen = tuning_cases() if arguments.tune else cases(arguments, timer)
    for case in chosen:
        if not case.name.startswith(wanted(arguments)):
            continue
        rows += measure(case, timer, arguments.tune)
        theirs_too = jax.row(case.name, case.passed, 1 if SIZES.tiny else 10) if jax is not None else None
        rows += [theirs_too] if theirs_too is not None else []
        write()
        del case
        gc.collect()
        if SIZES.device != "cpu":
            torch.cuda.empty_cache()
        torch._dynamo.reset()
        if left_s() < 0:
            print("the time is up; cases are left out")
            break
    if jax is not None:
        jax.close()
    print(f"{len(rows)} rows in {time.monotonic() - begun:.0f} s: {os.path.relpath(out)}")
    if arguments.judged:
        print(table(verdicts()))


if __name__ == "__main__":
    main()
