"""Tries each fused operation and writes what it keeps to: the table of docs/building-blocks/kernels-torch.md.

Nothing here is said of an operation that was not seen: each column is a trial in float64 on the CPU, on drawn calls of
all layouts (`burn_kernels.torch._problems`), and its cell is the outcome.  tests/kernels/torch/test_contracts.py holds
the outcomes to what is promised.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from _files import ROOT, refresh

PAGE = "docs/building-blocks/kernels-torch.md"
BEGIN = "<!-- contracts: written by docs/generate/contracts.py -->"
END = "<!-- end of contracts -->"
CALLS = 8
SEEDS = 5
"""How often errors are held against float64, in each element type."""
ROWS = ("x", "residual", "targets", "gate", "up")
"""Arguments of whose axes all but the last are rows."""
BATCHES = ("q", "k", "v", "mask", "positions", "indices", "images")
"""Arguments whose first axis is the batch, and whose others have a meaning too."""
STARTS = ("q_starts", "k_starts")
"""Arguments with one number more than there are sequences."""
IN_PLACE = {"adam": "adamw_", "adamw": "adamw_", "lion": "lion_", "sgd": "sgd_"}
"""The operators that write, and say so in their names."""


def main(check: bool, known: dict[str, dict[str, str]] | None = None) -> list[str]:
    """Writes the table between the two marks of the page; `known` are outcomes that are known already."""
    before, rest = (ROOT / PAGE).read_text(encoding="utf-8").split(BEGIN)
    after = rest.split(END)[1]
    return refresh(
        {PAGE: before + BEGIN + table(known or {name: outcomes(name) for name in names()}) + END + after}, check
    )


def table(rows: dict[str, dict[str, str]]) -> str:
    """All outcomes, an operation a row."""
    columns = list(TRIALS)
    lines = ["| operation | " + " | ".join(columns) + " |", "| --- |" + " --- |" * len(columns)]
    lines += [f"| `{name}` | " + " | ".join(row[column] for column in columns) + " |" for name, row in rows.items()]
    return "\n\n" + "\n".join(lines) + "\n\n"


def names() -> list[str]:
    """The operations, in the order of the alphabet."""
    from burn_kernels.torch._problems import DRAWN

    return sorted(DRAWN)


def outcomes(name: str) -> dict[str, str]:
    """Returns what came of each trial of an operation."""
    from burn_kernels.spec import Draw
    from burn_kernels.torch._problems import DRAWN

    draw = Draw(sum(map(ord, name)))
    calls = [DRAWN[name](draw) for _ in range(CALLS)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {column: trial(name, calls) for column, trial in TRIALS.items()}


# -- trials --------------------------------------------------------------------------------------------
def run(call: Any, *, gradients: bool = True) -> tuple[list[Any], list[Any]]:
    """The arguments as copies, and the output with the gradients.  Raises: Written where these write to another's."""
    import torch

    from burn_kernels.torch._problems import ADAPTERS
    from burn_kernels.torch.checking import _replica

    adapter, args = ADAPTERS[call.op], [_replica(argument) for argument in call.args]
    if adapter.verify is not None:
        return args, torch.utils._pytree.tree_leaves(adapter.run(args))
    leaves = [args[at].requires_grad_() for at in adapter.graded if args[at] is not None]
    ys = _outputs(adapter, args, getattr(torch.ops.burn_kernels, call.op)(*args))
    if not gradients or not leaves:
        return args, ys
    generator = torch.Generator().manual_seed(0)
    dys = [torch.randn(y.shape, dtype=y.dtype, generator=generator) for y in ys]
    kept = [dy.clone() for dy in dys]
    grads = torch.autograd.grad(ys, leaves, dys)
    if not _equal(dys, kept):
        raise Written(f"{call.op}: the backward writes to the upstream gradient")
    return args, [*ys, *grads]


class Written(Exception):
    """A tensor changed that is another's."""


def _first(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) else output


def _outputs(adapter: Any, args: Any, output: Any) -> list[Any]:
    return list(output[: adapter.outputs(args)]) if isinstance(output, tuple) else [output]


def _tensors(values: Any) -> list[Any]:
    import torch

    return [x for x in torch.utils._pytree.tree_leaves(values) if isinstance(x, torch.Tensor)]


def _equal(one: list[Any], other: list[Any]) -> bool:
    import torch

    return all(torch.equal(a, b) for a, b in zip(_tensors(one), _tensors(other), strict=True))


def inputs_written(name: str, calls: list[Any]) -> str:
    """Returns whether forward or backward change an argument, or an upstream gradient."""
    try:
        kept = all(_equal(run(call)[0], list(call.args)) for call in calls)
    except Written:
        kept = False
    in_place = f"; `{IN_PLACE[name]}` does" if name in IN_PLACE else ""
    return f"never{in_place}" if kept else "yes"


def element_types(name: str, calls: list[Any]) -> str:
    """Those that its kernels take, of which results in that type, or sums in float32, and gradients come out."""
    import torch

    from burn_kernels import REGISTRY

    def cast(x: Any, kind: Any) -> Any:
        return x.to(kind) if isinstance(x, torch.Tensor) and x.is_floating_point() else x

    kinds = []
    for kind in REGISTRY[name].dtypes:
        args = torch.utils._pytree.tree_map(lambda x, kind=kind: cast(x, kind), calls[0].args)
        floats = [x for x in _tensors(run(type(calls[0])(calls[0].op, args))[1]) if x.is_floating_point()]
        if all(x.dtype in (kind, torch.float32) for x in floats):
            kinds.append(str(kind).removeprefix("torch."))
    return ", ".join(kinds)


def takes_list(call: Any) -> bool:
    """Returns whether the call is of an operator of one list of tensors."""
    return isinstance(call.args[0], list) and not isinstance(call.args[-1], dict)


def reductions(name: str, calls: list[Any]) -> str:
    """Those of the three that run and agree with torch."""
    import torch

    from burn_kernels.torch._problems import ADAPTERS

    adapter, call = ADAPTERS[calls[0].op], calls[0]
    if "reduction" not in adapter.names:
        return "–"
    at, names = adapter.names.index("reduction"), []
    for reduction in ("none", "mean", "sum"):
        args = list(call.args)
        args[at] = reduction
        if "gradients" in adapter.names:
            args[adapter.names.index("gradients")] = reduction != "none"
        y = _first(getattr(torch.ops.burn_kernels, call.op)(*args))
        if torch.allclose(y, _first(adapter.twin(*args)), equal_nan=True):
            names.append(reduction)
    return ", ".join(names)


def any_strides(name: str, calls: list[Any]) -> str:
    """Returns whether the layouts among the calls give what the same numbers in order give."""
    import torch

    right = 0
    for call in calls:
        ordered = torch.utils._pytree.tree_map(
            lambda x: x.contiguous() if isinstance(x, torch.Tensor) else x, call.args
        )
        pairs = zip(_tensors(run(call)[1]), _tensors(run(type(call)(call.op, ordered))[1]), strict=True)
        right += all(torch.allclose(a, b, rtol=1e-12, atol=1e-12, equal_nan=True) for a, b in pairs)
    return "yes" if right == len(calls) else "no"


def zero_size(name: str, calls: list[Any]) -> str:
    """Returns whether no rows give no rows, and gradients of nothing zeros."""
    import torch

    from burn_kernels.torch._problems import ADAPTERS

    call, adapter = calls[0], ADAPTERS[calls[0].op]
    if takes_list(call):
        return "yes" if adapter.run(([x[:0] for x in call.args[0]], 2.0)) == 0.0 else "no"
    if adapter.verify is not None:
        groups = [None if group is None else [x[:0] for x in group] for group in call.args[:-1]]
        empty_grads = run(type(call)(call.op, (*groups, call.args[-1])))[1]
        return "yes" if all(x.numel() == 0 for x in empty_grads) else "no"
    args: list[Any] = []
    for at, (known, value) in enumerate(zip(adapter.names, call.args, strict=True)):
        if known in ROWS and value is not None:
            args.append(value.flatten(0, -2)[:0] if value.dim() > 1 else value[:0])
        elif known == "dim":  # no rows are left, not rows of nothing
            args.append([-1] if adapter.graded else -1)
        elif known in STARTS:
            args.append(value[:1])
        else:
            args.append(value[:0] if known in BATCHES and isinstance(value, torch.Tensor) else value)
            assert at or known in BATCHES
    _, (y, *others) = run(type(call)(call.op, tuple(args)))
    grads = others[adapter.outputs(args) - 1 :]
    zeros = all(not grad.any() for grad in grads)
    return "yes" if zeros and (y.dim() == 0 or y.shape[0] == 0) and isinstance(y, torch.Tensor) else "no"


def same_bits(name: str, calls: list[Any]) -> str:
    """Returns whether a second run gives the same bits."""
    import torch

    pairs = [pair for call in calls for pair in zip(run(call)[1], run(call)[1], strict=True)]
    same = all(
        torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))
        for a, b in pairs
    )
    return "yes" if same else "no"


def second_derivative(name: str, calls: list[Any]) -> str:
    """Returns whether gradients of gradients are those of finite differences."""
    import torch

    from burn_kernels.torch._problems import ADAPTERS

    adapter = ADAPTERS[calls[0].op]
    if takes_list(calls[0]):
        tensors, order = calls[0].args[0], 2.0
        inputs = [x.detach().clone().requires_grad_() for x in tensors]

        def of(*leaves: Any) -> Any:
            return getattr(torch.ops.burn_kernels, calls[0].op)(list(leaves), order)

    elif not adapter.graded:
        return "no gradient"
    else:
        # of rows of a few numbers norms are too steep for finite differences
        wide = [call for call in calls if call.args[0].shape[-1] >= 5]
        call = min(wide, key=lambda call: sum(x.numel() for x in _tensors(list(call.args))))
        inputs = [call.args[at].detach().clone().requires_grad_() for at in adapter.graded if call.args[at] is not None]
        places = [at for at in adapter.graded if call.args[at] is not None]

        def of(*leaves: Any) -> Any:
            args = list(call.args)
            for at, leaf in zip(places, leaves, strict=True):
                args[at] = leaf
            return tuple(_outputs(adapter, args, getattr(torch.ops.burn_kernels, call.op)(*args)))

    try:
        return "yes" if torch.autograd.gradgradcheck(of, inputs, fast_mode=True) else "no"
    except RuntimeError as error:
        return f"raises {type(error).__name__}"


def traced(name: str, calls: list[Any]) -> str:
    """Returns whether its schema is true and its fake result is like the real one: what torch.compile goes by."""
    import torch

    call = calls[0]
    if name in IN_PLACE:
        return "a step is one call"
    op = getattr(torch.ops.burn_kernels, call.op).default
    outcomes_of_tests = torch.library.opcheck(
        op, call.args, test_utils=("test_schema", "test_faketensor"), raise_exception=False
    )
    return "one call" if set(outcomes_of_tests.values()) == {"SUCCESS"} else "no"


def autocast(name: str, calls: list[Any]) -> str:
    """Returns what autocast on a GPU casts its inputs to."""
    import torch

    call = calls[0]
    if name in IN_PLACE:
        return "–"
    if call.op in ("linear", "linear_cross_entropy", "convolution", "attention", "attention_packed"):
        return "its type"  # the functions of these names cast, as torch's do
    has = torch._C._dispatch_has_kernel_for_dispatch_key(f"burn_kernels::{call.op}", "AutocastCUDA")
    return "float32" if has else "as given"


def errors(name: str, calls: list[Any]) -> str:
    """Returns whether outputs and gradients are as near to float64 as `burn_kernels.verify` asks: RMS, and the largest.

    On a GPU that is 1.1 times the error of torch in the same type and half a unit in the last place, three times where
    it is the largest of float32; here, where the references compute, twice and a unit.
    """
    import torch

    from burn_kernels.torch.checking import check

    kinds = [
        str(dtype).removeprefix("torch.")
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
        if all(check(ops=[name], shapes=1, dtype=dtype, seed=seed, offsets=False).ok for seed in range(SEEDS))
    ]
    return ", ".join(kinds) if len(kinds) < 3 else "kept"


TRIALS: dict[str, Callable[[str, list[Any]], str]] = {
    "inputs written": inputs_written,
    "element types": element_types,
    "reductions": reductions,
    "any strides": any_strides,
    "zero size": zero_size,
    "same bits twice": same_bits,
    "second derivative": second_derivative,
    "torch.compile": traced,
    "autocast": autocast,
    "error": errors,
}
