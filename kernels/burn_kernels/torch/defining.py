"""How operators of PyTorch are defined: `torch.ops.burn_kernels.<name>`.

Each has a fake implementation (so that torch.compile and torch.export trace it as one call), a gradient, which is an
operator too, and where torch's own operator has one an autocast rule.  The gradient of a gradient is taken through
plain torch.  On a CPU, and past the limit of a kernel, the reference computes; the second is counted and said.

Operators return tensors of their own, never a view of an input, and write to no input.  The steps of optimizers, which
do, are in `burn_kernels.torch.steps`.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd import forward_ad

from burn_kernels.errors import KernelArgumentError, KernelLimitError

__all__ = [
    "Operator",
    "define",
    "differentiate",
    "fallbacks",
    "in_float32",
    "leaf",
    "like",
    "note_fallback",
    "nothing",
    "operator",
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


@dataclass(frozen=True, kw_only=True)
class Operator:
    """An operator with its first and second gradient, as data.

    Tensors of one operator lie as `room` makes them; an optional input without a gradient has an empty one.
    """

    schema: str
    """Of the forward, as torch has it."""
    kernel: tuple[Callable[..., Any], Callable[..., Any]]
    """The forward's launcher and its reference."""
    call: Callable[..., Any] = lambda run, *inputs: run(*inputs)
    """(launcher, *inputs) -> what the launcher returns; None stands for an absent result."""
    fake: Callable[..., Any]
    """(*inputs) -> results that hold nothing."""
    results: str = "y"
    """The names of the results; the first carries a gradient."""
    gradients: str
    """The names of the inputs that have gradients."""
    saved: str
    """The names of what the backward takes after dy: inputs and results, those of `gradients` first."""
    kernel_backward: tuple[Callable[..., Any], Callable[..., Any]]
    """The backward's launcher and its reference."""
    call_backward: Callable[..., Any] = lambda run, *saved: run(*saved)
    """(launcher, dy, *saved) -> one gradient for each of `gradients`, a tensor where there is one."""
    twin: Callable[..., torch.Tensor]
    """(*saved) -> the first result, in plain torch, for the second gradient."""
    room: Callable[[torch.Tensor], torch.Tensor] | None = None
    """(x) -> a tensor that lies as the first result and the gradient of x do; None for tensors in order."""

    @property
    def name(self) -> str:
        """As `torch.ops.burn_kernels` has it."""
        return self.schema.partition("(")[0]

    def inputs(self) -> dict[str, str]:
        """The types of the inputs by name."""
        words = (word.split() for word in re.findall(r"\((.*?)\) ->", self.schema)[0].split(", "))
        return {name: kind for kind, name in words}

    def place(self, y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Moves a result to where its fake says that it lies."""
        if self.room is None:
            return y.contiguous()
        room = self.room(x)
        return y if y.stride() == room.stride() else room.copy_(y)


def operator(op: Operator) -> Any:
    """Defines an operator, its backward `<name>_backward`, and the gradients of both."""
    kinds, results = op.inputs(), op.results.split()
    graded, saved = op.gradients.split(), op.saved.split()
    count = len(graded)
    tensors = [name for name in saved if kinds.get(name, "Tensor").startswith("Tensor")]
    options = [name for name in saved if name not in tensors]
    room = op.room or like

    def run(*inputs: Any) -> Any:
        values = op.call(or_reference(op.name, *op.kernel), *inputs)
        first, *others = values if isinstance(values, tuple) else (values,)
        rest = (nothing(inputs[0]) if x is None else x.contiguous() for x in others)
        return (op.place(first, inputs[0]), *rest) if len(results) > 1 else op.place(first, inputs[0])

    def run_backward(dy: torch.Tensor, *values: Any) -> Any:
        name = f"{op.name} backward"
        grads = op.call_backward(or_reference(name, *op.kernel_backward), dy, *values)
        grads = grads if isinstance(grads, tuple) else (grads,)
        first = op.place(grads[0], values[0])
        rest = (present(name, x, grad, values[0]) for x, grad in zip(values[1:], grads[1:count], strict=False))
        return (first, *rest) if count > 1 else first

    def fake_backward(dy: torch.Tensor, *values: Any) -> Any:
        rest = (nothing(values[0]) if x is None else like(x) for x in values[1:count])
        return (room(values[0]), *rest) if count > 1 else room(values[0])

    forward = define(op.schema, run, op.fake)
    words = ", ".join(f"{kinds.get(name, 'Tensor')} {name}" for name in saved)
    outputs = f"({', '.join(['Tensor'] * count)})" if count > 1 else "Tensor"
    backward = define(f"{op.name}_backward(Tensor dy, {words}) -> {outputs}", run_backward, fake_backward)

    def setup(ctx: Any, inputs: Any, output: Any) -> None:
        outputs = output if isinstance(output, tuple) else (output,)
        values = dict(zip([*kinds, *results], [*inputs, *outputs], strict=True))
        ctx.mark_non_differentiable(*outputs[1:])
        ctx.set_materialize_grads(False)
        ctx.options = [values[name] for name in options]
        ctx.save_for_backward(*(values[name] for name in tensors))

    def gradient(ctx: Any, dy: torch.Tensor | None, *_: Any) -> Any:
        if dy is None:
            return (None,) * len(kinds)
        values = ctx.saved_tensors
        grads = backward(dy, *values, *ctx.options)
        pairs = zip(graded, values, grads if count > 1 else (grads,), strict=False)
        known = {name: grad for name, value, grad in pairs if value is not None}
        return tuple(known.get(name) for name in kinds)

    def setup_backward(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs[: 1 + len(tensors)])
        ctx.options = inputs[1 + len(tensors) :]

    def again(ctx: Any, *upstream: torch.Tensor | None) -> Any:
        dy, *values = ctx.saved_tensors
        rest = [*values[count:], *ctx.options]
        grads = second(lambda *leaves: op.twin(*leaves, *rest), dy, values[:count], upstream)
        return *grads, *(None,) * len(rest)

    differentiate(forward, setup, gradient)
    differentiate(backward, setup_backward, again)
    return forward


def like(x: torch.Tensor, dtype: torch.dtype | None = None) -> torch.Tensor:
    """A tensor in order with the shape of x, that holds nothing."""
    return torch.empty(x.shape, dtype=dtype or x.dtype, device=x.device)


def nothing(x: torch.Tensor) -> torch.Tensor:
    """What stands where a tensor is absent: operators have a fixed number of results."""
    return torch.empty(0, dtype=x.dtype, device=x.device)


def present(op: str, given: torch.Tensor | None, grad: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor:
    """The gradient of an input that may be absent, an empty tensor where it is; one that is missing is a fault."""
    if given is None:
        return nothing(x)
    if grad is None:
        raise RuntimeError(f"{op}: the launcher returned no gradient for an input that has one")
    return grad.contiguous()


def leaf(x: torch.Tensor) -> torch.Tensor:
    """x as something to take a derivative by, which is then that by x alone.

    Not x itself: an upstream gradient may come from an input, and its derivative would come along.
    """
    return x.view_as(x) if x.requires_grad else x.detach().requires_grad_()


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
