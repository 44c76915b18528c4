"""How operators of PyTorch are defined: `torch.ops.burn_kernels.<name>`.

Each has a fake implementation (so that torch.compile and torch.export trace it as one call), a gradient, which is an
operator too, and where torch's own operator has one an autocast rule.  The gradient of a gradient is taken through
plain torch.  On a CPU, and past the limit of a kernel, the reference computes; the second is counted and said.

Operators return tensors of their own, never a view of an input, and write to no input.  The steps of optimizers, which
do, are in `burn_kernels.torch.steps`.
"""

from __future__ import annotations

import functools
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd import forward_ad

from burn_kernels.errors import KernelArgumentError, KernelLimitError
from burn_kernels.operators import leaf, nothing

__all__ = [
    "define",
    "differentiate",
    "fallbacks",
    "in_float32",
    "note_fallback",
    "or_reference",
    "present",
    "second",
]

NAMESPACE = "burn_kernels"
_LIBRARY = torch.library.Library(NAMESPACE, "DEF")


# -- fallbacks -----------------------------------------------------------------------------------------
_FALLBACKS: Counter[str] = Counter()


def fallbacks() -> dict[str, int]:
    """How often a call went to plain torch though its tensors lie where kernels run, by operation and reason."""
    return dict(_FALLBACKS)


def note_fallback(op: str, why: str) -> None:
    """Counts a fallback, and warns of the first of its kind; what torch.compile traces is not a call to count."""
    if torch.compiler.is_compiling():
        return
    reason = f"{op}: {why}"
    _FALLBACKS[reason] += 1
    if _FALLBACKS[reason] == 1:
        warnings.warn(f"burn_kernels: plain torch computes {reason}", RuntimeWarning, stacklevel=3)


def or_reference(op: str, kernel: Callable[..., object], reference: Callable[..., object]) -> Callable[..., Any]:
    """The launcher; past its limit the reference, counted and said."""

    def run(*arguments: object, **options: object) -> Any:
        try:
            return kernel(*arguments, **options)
        except KernelLimitError as error:
            note_fallback(op, str(error).splitlines()[1].strip().removeprefix("given:").strip())
            return reference(*arguments, **options)

    return run


# -- definition ----------------------------------------------------------------------------------------
def define(schema: str, run: Callable[..., object], fake: Callable[..., object]) -> Any:
    """Defines an operator for all devices; `fake` makes results that have a shape and hold nothing."""
    name = _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,)).split("::")[-1]
    _LIBRARY.impl(name, _backward_alone(name, run), "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", _backward_alone(name, fake), lib=_LIBRARY)
    return getattr(getattr(torch.ops, NAMESPACE), name).default


def _backward_alone(name: str, run: Callable[..., object]) -> Callable[..., object]:
    """`run`, which raises while torch differentiates forward: torch would leave the tangents out without a word."""

    @functools.wraps(run)
    def checked(*arguments: object) -> Any:
        if forward_ad._current_level >= 0:
            raise KernelArgumentError(
                f"{name}: no rule for forward-mode differentiation",
                given="a call within torch.func.jvp, torch.func.jacfwd or torch.autograd.forward_ad",
                expected="gradients of any order by torch.autograd",
                mend="take torch's own operation there: burn_kernels.torch.unpatch(model)",
            )
        return run(*arguments)

    return checked


def differentiate(op: Any, setup: Callable[..., None], backward: Callable[..., Any]) -> None:
    """Gives an operator its gradient: `setup(ctx, inputs, output)` and `backward(ctx, *grads)` as torch has them."""
    torch.library.register_autograd(op._name, backward, setup_context=setup, lib=_LIBRARY)


def in_float32(op: Any, *devices: str) -> None:
    """Has autocast hand float32 to an operator on these devices."""
    # as torch's own: these sum many numbers, and autocast hands them over in float32, on a CPU the losses alone
    for device in devices:
        torch.library.register_autocast(op._name, device, torch.float32, lib=_LIBRARY)


def present(op: str, given: torch.Tensor | None, grad: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    """The gradient of an input that may be absent, an empty tensor where it is; one that is missing is a fault."""
    if given is None:
        return nothing(x)
    if grad is None:
        raise RuntimeError(f"{op}: the launcher returned no gradient for an input that has one")
    return grad.contiguous()


def second(
    twin: Callable[..., object],
    dy: torch.Tensor | Sequence[torch.Tensor | None],
    inputs: Sequence[torch.Tensor | None],
    upstream: Sequence[torch.Tensor | None],
) -> list[torch.Tensor | None]:
    """The gradients of dy and the inputs from those of the inputs' gradients, through plain torch.

    Where `twin` gives several outputs, `dy` holds as many, None for those that nobody asked for.
    """
    again = torch.is_grad_enabled()
    given = [dy] if isinstance(dy, torch.Tensor) else list(dy)
    with torch.enable_grad():
        dys, leaves = ([None if x is None else leaf(x) for x in group] for group in (given, inputs))
        there = [x for x in leaves if x is not None]
        found = twin(*leaves)
        outputs = found if isinstance(found, tuple) else (found,)
        asked = [(y, d.to(y.dtype)) for y, d in zip(outputs, dys, strict=True) if d is not None]
        grads = iter(torch.autograd.grad([y for y, _ in asked], there, [d for _, d in asked], create_graph=True))
        firsts = [None if x is None else next(grads) for x in leaves]
        pairs = [(f, u) for f, u in zip(firsts, upstream, strict=True) if f is not None and u is not None]
        pairs = [(f, u) for f, u in pairs if f.requires_grad]
        if not pairs:
            return [None] * (len(dys) + len(leaves))
        every = [x for x in (*dys, *leaves) if x is not None]
        results, weights = zip(*pairs, strict=True)
        answers = iter(torch.autograd.grad(results, every, weights, create_graph=again, allow_unused=True))
        return [None if x is None else next(answers) for x in (*dys, *leaves)]
