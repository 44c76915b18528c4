"""Cases that no registered operation describes whole: optimizers' steps, attention, dropout, a block of a network."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.nn import functional

from benchmarks._kernels import attending, problems
from benchmarks._kernels.calls import bound, compiled_by_torch, errors, ours, theirs, wanted
from benchmarks._kernels.problems import SIZES, gpt2, gpt2_table, random
from benchmarks._kernels.rows import Case
from benchmarks._kernels.timing import Call
from burn_kernels import REGISTRY, KernelSpec, batch_norm, dropout, lion, optimizer, rope

__all__ = ["OWN", "attention_cases", "rope_computed_cases"]


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
        step = torch.optim.AdamW(leaves, lr=1e-4, capturable=SIZES.device == "cuda", **options).step  # type: ignore[arg-type]
        variants[name] = step
        if name == "eager foreach" and not arguments.no_compile:
            variants["compile"] = compiled_by_torch(step)
    yield case
    yield adamw_folded_case(table)


def adamw_folded_case(table: optimizer.Table) -> Case:
    """Gradients multiplied by a factor on the device, the step, and a bf16 copy of the weights: in one launch, and as
    torch's own three."""
    params, grads = table.inputs[:2]
    copies, theirs = ([torch.empty_like(p, dtype=torch.bfloat16) for p in params] for _ in range(2))
    with_copies = optimizer.table(*table.inputs, copies=copies, in_place=True)
    clip = torch.ones((), device=SIZES.device)  # so that gradients stay what they are, however often torch clips them
    leaves = [torch.nn.Parameter(x) for x in gpt2(1)]
    for leaf, g in zip(leaves, grads, strict=True):
        leaf.grad = g.clone()
    own = [leaf.grad for leaf in leaves]
    fused = torch.optim.AdamW(leaves, lr=1e-4, capturable=SIZES.device == "cuda", fused=True)

    def apart() -> None:
        torch._foreach_mul_(own, clip)  # type: ignore[arg-type]  # each has a gradient
        fused.step()
        with torch.no_grad():
            torch._foreach_copy_(theirs, [leaf.detach() for leaf in leaves])

    # as the step alone; and the copies written
    floor = REGISTRY["adamw"].bytes_moved(params) + 2 * sum(p.numel() for p in params)
    step = functools.partial(optimizer.adamw_, with_copies, lr=1e-4, step=100, clip=clip)
    return Case("adamw 124M, clip, bf16 copy", REGISTRY["adamw"], "step", floor, {"ours": step, "eager fused": apart})


def lion_cases(arguments: Any) -> Iterator[Case]:
    """A step over GPT-2 124M; torch has no Lion of its own, so the formula stands for it."""
    spec, groups = REGISTRY["lion"], (gpt2(1), gpt2(1e-2), gpt2(1e-2))
    tables = optimizer.table(*groups, in_place=True)

    def plain() -> None:
        params, grads, means = groups
        ways = torch._foreach_sign(torch._foreach_lerp(means, grads, 0.1))
        torch._foreach_add_(params, ways, alpha=-1e-4)
        torch._foreach_lerp_(means, grads, 0.01)

    variants: dict[str, Call] = {"ours": functools.partial(lion.lion_, tables, lr=1e-4), "eager foreach": plain}
    if not arguments.no_compile:
        variants["compile"] = compiled_by_torch(plain)
    yield Case("lion 124M", spec, "step", spec.bytes_moved(groups[0]), variants)


def row_cases(spec: KernelSpec, arguments: Any) -> Iterator[Case]:
    """The rows that a kernel's spec describes."""
    for row in spec.rows:
        inputs = row.inputs(problems)
        plain = functools.partial(row.eager, *inputs)
        variants: dict[str, Call] = {"ours": row.ours(*inputs), "eager": plain}
        if not arguments.no_compile:
            variants["compile"] = compiled_by_torch(plain)
        yield Case(f"{spec.name} {row.tag}", spec, row.passed, spec.bytes_moved(*inputs), variants)


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
            measure_errors = functools.partial(errors, checked, functools.partial(few.drawn, random), passed)
            variants = dict(attending.variants(sized, inputs, dy, flex=_flex(arguments, problem)))
            floor = spec.bytes_moved(*inputs) + (0 if dy is None else spec.bytes_moved(*inputs, backward=True))
            yield Case(f"{name} {problem.tag}", spec, passed, floor, variants, measure_errors)


def _flex(arguments: Any, problem: attending.Problem) -> bool:
    """Returns whether flex_attention is compiled, for 10 s: among all rivals only where torch has nothing else."""
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


# -- images -------------------------------------------------------------------------------------------
def conv_block_cases(arguments: Any) -> Iterator[Case]:
    """Convolution, batch norm and ReLU in training: cuDNN's convolution, searched, channels last, before ours."""
    side, channels, batch = (8, 4, 2) if SIZES.tiny else (56, 64, 256)
    last: Any = {"memory_format": torch.channels_last}
    x = random(batch, channels, side, side).to(**last)
    w = random(channels, channels, 3, 3, scale=(9 * channels) ** -0.5).to(**last)
    scale, shift = random(channels, dtype=torch.float32), random(channels, dtype=torch.float32)
    dy = random(*x.shape).to(**last)
    inputs, spec = (x, w, scale, shift), REGISTRY["batch_norm"]

    def plain(x: Any, w: Any, scale: Any, shift: Any) -> torch.Tensor:
        z = functional.conv2d(x, w, padding=1)
        return functional.relu(functional.batch_norm(z, None, None, scale, shift, True))

    def block(backwards: bool) -> Any:
        z = functional.conv2d(x, w, padding=1)
        y, mean, rstd = batch_norm.forward(z, scale, shift, activation="relu")[:3]
        if not backwards:
            return y
        dz, dscale, dshift = batch_norm.backward(dy, z, scale, shift, mean, rstd, activation="relu")
        gradients = torch.ops.aten.convolution_backward(
            dz, x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
        )
        return gradients[0], gradients[1], dscale, dshift

    for passed, upstream in (("f", None), ("fb", dy)):
        variants = {"ours": functools.partial(block, upstream is not None)}
        variants["eager"] = functools.partial(theirs, plain, inputs, upstream)
        if not arguments.no_compile:
            variants["compile"] = functools.partial(theirs, compiled_by_torch(plain), inputs, upstream)
            if arguments.best_mode:
                best = compiled_by_torch(plain, mode="max-autotune-no-cudagraphs")
                variants["compile, searched"] = functools.partial(theirs, best, inputs, upstream)
        searched = {name: functools.partial(_search_algorithms, call) for name, call in variants.items()}
        # forward: x, z written and read twice, y, of which it can save one; backward: 5 for the norm, 4 for the rest
        floor = (4 if upstream is None else 13) * x.numel() * x.element_size()
        yield Case(f"conv_block {batch}x{channels}x{side}x{side}", spec, passed, floor, searched)


def _search_algorithms(call: Call) -> Any:
    """With cuDNN's algorithms timed by cuDNN, once."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        return call()


OWN: dict[str, Callable[[Any], Iterator[Case]]] = {
    "attention": attention_cases,
    "attention_packed": attention_cases,
    "adamw": adamw_cases,
    "lion": lion_cases,
    "dropout": dropout_cases,
    "conv_block": conv_block_cases,
    **{spec.name: functools.partial(row_cases, spec) for spec in REGISTRY.values() if spec.rows},
}
"""By the first word of their cases."""
