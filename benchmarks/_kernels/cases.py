"""Which cases there are, and which of them a run times: all, those that have a bar, a few beside every rival."""

from __future__ import annotations

import argparse
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

import torch

from benchmarks._kernels import attending
from benchmarks._kernels.calls import bound, compiled_by_torch, errors, op_cases, ours, wanted
from benchmarks._kernels.judged import BARS
from benchmarks._kernels.problems import SIZES, gpt2, gpt2_table, operations, random
from benchmarks._kernels.rivals import CHOSEN, Task, attention_task, task, tensors_task
from benchmarks._kernels.rows import Case
from benchmarks._kernels.timing import Call, Timer
from burn_kernels import REGISTRY, dropout, lion, optimizer, rope, tensor_norm

__all__ = ["cases", "chosen_cases", "in_this_run", "jax_tasks", "judged_cases", "rival_cases"]

Key = TypeVar("Key")
Value = TypeVar("Value")


# -- cases of their own ------------------------------------------------------------------------------
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


# -- runs ---------------------------------------------------------------------------------------------
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
    for case, passes in chosen_cases(arguments).items():
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


def chosen_cases(arguments: Any) -> dict[str, tuple[str, ...]]:
    """Cases of `CHOSEN` with the passes that this run times: those asked for, in the order asked for, of them the part
    that is its, first what its file of rows lacks, or that alone; and for a process that prepares, every so many-th."""
    asked = {case: passes for start in wanted(arguments) for case, passes in CHOSEN.items() if case.startswith(start)}
    lacking, known = dict[str, tuple[str, ...]](), dict[str, tuple[str, ...]]()
    for case, passes in of_part(asked, arguments.part):
        left = tuple(passed for passed in passes if (in_this_run(case), passed) not in arguments.there)
        if left:
            lacking[case] = left if arguments.missing else passes
        elif not arguments.missing:
            known[case] = passes
    return dict(of_part(lacking | known, arguments.warm))


def of_part(cases: Mapping[Key, Value], part: str) -> list[tuple[Key, Value]]:
    """Every n-th from the i-th, where `part` is i/n; all where it is empty."""
    first, step = (int(number) for number in (part or "0/1").split("/"))
    return list(cases.items())[first::step]


def jax_tasks(arguments: Any) -> Iterator[Task]:
    """The chosen cases for JAX, from tensors that hold nothing."""
    device, SIZES.device = SIZES.device, "meta"
    try:
        known = {f"{name} {tag}": (name, make, options) for name, make, tag, options in operations()}
        attentions = {f"attention {problem.tag}": problem for problem in attending.PROBLEMS}
        groups = {"adamw": 4, "lion": 3, "tensor_norm": 1}
        for case, passes in chosen_cases(arguments).items():
            named = in_this_run(case)
            for passed in passes:
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


def judged_cases(arguments: Any, timer: Timer) -> Iterator[Case]:
    """The cases that have a bar, in the order of the bars; without torch.compile where the bar names no rival."""
    known = {f"{name} {tag}": (name, make, tag, options) for name, make, tag, options in operations()}
    bars = {(bar.case, bar.passed): bar for bar in BARS if bar.case.startswith(wanted(arguments))}
    for _, bar in of_part(dict(of_part(bars, arguments.part)), arguments.warm):
        alone = arguments.no_compile or bar.ahead is None
        given = argparse.Namespace(**vars(arguments) | {"no_compile": alone, "best_mode": not (alone or bar.against)})
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
