"""grad and value_and_grad: gradients of functions, as functions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from burn_torch.backend.autodiff.laid import laid
from burn_torch.backend.autodiff.tape import next_id
from burn_torch.core.checking import checked
from burn_torch.core.errors import AutodiffError
from burn_torch.tensor import Tensor
from burn_torch.transform.arguments import Lifted, differentiated, lowered
from burn_torch.transform.structure import Argument, Function
from burn_torch.transform.tapes import gradient_of, gradients_from, own_leaf, tape_for

__all__ = ["grad", "named", "number_of", "value_and_grad"]


@checked
def grad(fn: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """A function that gives the gradient of `fn`, which returns one number.

        dw = grad(lambda w, x: (w * x).square().sum())(w, x)

    argnums   which positional arguments are differentiated; a tuple of positions gives a tuple of gradients
    has_aux   fn returns (number, more), and the result is (gradient, more)

    The gradient has the structure of its argument: a tensor for a tensor (zeros where fn does not read it), a
    GradientsParams for a module (without entries for parameters that fn does not read, so that an optimizer leaves
    them as they are), the same container for a container, None for numbers and other constants.  It lives where
    `backward` would put it: under the device's tape, or on the very device where that has no gradients.

    Values that fn closes over are constant.  Layers train if the arguments live on a device with gradients, as they do
    when fn is called without `grad`; on a plain device they do not.  Inside another transform the result is
    differentiated on.

    Raises: AutodiffError unless fn gives one float; DTypeError for integers in a differentiated argument.
    PyTorch: torch.func.grad.  JAX: jax.grad.
    """
    both = _differentiate("grad", fn, argnums, has_aux)

    @functools.wraps(fn)
    def gradient(*args: object, **kwargs: object) -> Any:
        value, gradients = both(args, kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return gradient


@checked
def value_and_grad(fn: Callable[..., object], argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """A function that gives what `fn` gives, and its gradient: (value, gradient); ((value, more), gradient) with aux.

        loss, grads = value_and_grad(loss_fn)(model, batch)
        model, optim = optim.step(lr, model, grads)

    All else is as in `grad`.  JAX: jax.value_and_grad.
    """
    both = _differentiate("value_and_grad", fn, argnums, has_aux)

    @functools.wraps(fn)
    def value_and_gradient(*args: object, **kwargs: object) -> Any:
        return both(args, kwargs)

    return value_and_gradient


def named(transform: str, fn: Function) -> str:
    """How errors call a transformed function: "grad(loss_fn)"."""
    return f"{transform}({getattr(fn, '__name__', type(fn).__name__)})"


def number_of(what: str, result: Argument, has_aux: bool) -> Tensor:
    """The number that a function returned.  Raises: AutodiffError where it is none."""
    pair = isinstance(result, tuple) and len(result) == 2
    value = result[0] if has_aux and pair else result
    is_number = isinstance(value, Tensor) and value.spec.numel == 1 and value.dtype.is_float
    if is_number and (pair or not has_aux):
        return value  # type: ignore[no-any-return]  # a Tensor: the line above
    shown = value.spec if isinstance(value, Tensor) else type(value).__name__
    expected = "a float tensor of one element"
    raise AutodiffError(
        f"{what}: the function did not return one number",
        given=f"{shown}",
        expected=f"({expected}, more), since has_aux=True" if has_aux else expected,
        mend="reduce it, for example with .mean(); return (loss, more) with has_aux=True; or use vjp, which takes"
        " functions of any result",
    )


def _differentiate(
    transform: str, fn: Callable[..., object], argnums: int | Sequence[int], has_aux: bool
) -> Callable[[Sequence[Any], dict[str, Any]], tuple[Any, Any]]:
    what = named(transform, fn)

    def both(args: Sequence[Argument], kwargs: dict[str, object]) -> tuple[Any, Any]:
        chosen = differentiated(what, argnums, len(args))
        tape, own = tape_for(what, fn, [*args, *kwargs.values()], [args[i] for i in chosen])
        since = next_id()
        lifted = Lifted(what, args, chosen, functools.partial(own_leaf, tape))
        with laid(tape, since, own=own):
            result = fn(*lifted.args, **kwargs)
        number = number_of(what, result, has_aux)
        by_node, cuts = gradients_from(tape, number, since)
        lost = lifted.losses(own, cuts)
        reached = [gradient_of(slot.leaf, by_node) for slot in lifted.slots]
        lifted.tell_of_unread(reached)
        gradients = lifted.derivatives(tape, own, reached, lost)
        value = lowered(result, [tape], own=own, lost=lost)
        return value, gradients[0] if isinstance(argnums, int) else tuple(gradients)

    return both
