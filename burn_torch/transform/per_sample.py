"""per_sample_grad: the gradient of each sample's loss, for all samples at once."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from burn_torch import ops
from burn_torch.backend import Autodiff
from burn_torch.backend.autodiff.laid import laid
from burn_torch.backend.autodiff.tape import next_id
from burn_torch.backend.batched import Batched
from burn_torch.core.checking import checked
from burn_torch.core.errors import ArgumentError
from burn_torch.core.frames import user_level
from burn_torch.module import Param
from burn_torch.module.tree import Tree, rebuild
from burn_torch.tensor import Tensor
from burn_torch.transform.arguments import Lifted, SampleCount, differentiated, mapped
from burn_torch.transform.differentiation import named, number_of
from burn_torch.transform.structure import Argument, Function
from burn_torch.transform.tapes import base_of, gradient_of, gradients_from, is_of_leaves, leaf_on

__all__ = ["PerSampleLoopWarning", "per_sample_grad"]


class PerSampleLoopWarning(UserWarning):
    """An operation was computed sample by sample, since its row says no better way."""


@checked
def per_sample_grad(
    loss_fn: Function,
    argnums: int | Sequence[int] = 0,
    in_axes: int | Sequence[int | None] | None = 0,
    has_aux: bool = False,
) -> Function:
    """A function that gives the gradient of each sample's loss, as a loop of `grad` over batches of one sample would.

        grads = per_sample_grad(loss_fn)(model, images, targets)
        grads.get(model.linear.weight.id)            # (batch, d_input, d_output)

    `loss_fn(model, images, targets)` is the function that takes whole batches: it is called once, with one sample
    (the batch axis is there, of size 1), and everything it does is computed for all samples together.

    argnums  which positional arguments are differentiated; all samples share them
    in_axes  the batch axis of the tensors in each argument; None for arguments that all samples share.  One number
             counts for all that are not differentiated; modules, numbers and named arguments are always shared
    has_aux  loss_fn returns (loss, more), and the result is (gradients, more), with one of each tensor a sample

    Results have the structure that `grad` gives, each tensor with an axis of samples in front.  They differ from the
    loop's by the order of sums: about 1e-6 in float32.  No layer of `burn_torch.nn` is looped over; a row of your own
    without `batched`, element-wise form or decomposition is, and a PerSampleLoopWarning names it.

    Random layers draw for each sample what it gets when the whole batch is computed in one forward, so the mean of the
    gradients is the gradient of the mean loss, dropout included.

    Raises: ArgumentError for batch normalisation in training, which mixes samples; ShapeError where batch sizes differ;
    TraceError where a value is read.
    PyTorch: torch.func.vmap(torch.func.grad(loss_fn), in_dims=(None, 0, 0)).
    """
    what = named("per_sample_grad", loss_fn)

    @functools.wraps(loss_fn)
    def gradients(*args: object, **kwargs: object) -> Any:
        chosen = differentiated(what, argnums, len(args))
        axes = _axes(what, in_axes, chosen, args)
        count = _batch_size(what, args, axes)
        base, is_enclosing = base_of(what, loss_fn, [*args, *kwargs.values()])
        samples = _Samples(base, is_enclosing, is_of_leaves([args[i] for i in chosen]), count)
        batched, tape = samples.batched, samples.tape
        since = next_id()

        def leaf(x: Tensor) -> tuple[Tensor, Tensor]:
            value = Tensor(batched, samples.constant(x).primitive, x.spec)
            return value, leaf_on(tape, value)

        lifted = Lifted(what, args, chosen, leaf)
        arguments = [
            arg if axis is None else mapped(arg, functools.partial(samples.one, axis), "")
            for arg, axis in zip(lifted.args, axes, strict=True)
        ]
        with batched.samples(count, is_split=True) as looped, laid(tape, since):
            result = loss_fn(*arguments, **kwargs)
            loss = number_of(what, result, has_aux)
            by_node, cuts = gradients_from(tape, loss, since)
            names = list(looped)
        tell_of_loops(what, names)
        samples.lost = lifted.losses(not samples.is_constant, cuts)
        reached = [gradient_of(slot.leaf, by_node) for slot in lifted.slots]
        lifted.tell_of_unread(reached)
        gradients = lifted.derivatives(tape, False, reached, None)
        whole = [mapped(gradient, samples.all_of, "") for gradient in gradients]
        answer = whole[0] if isinstance(argnums, int) else tuple(whole)
        return (answer, mapped(result[1], samples.all_of, "")) if has_aux else answer

    return gradients


# -- arguments -----------------------------------------------------------------------------------------------
def _axes(
    what: str, in_axes: int | Sequence[int | None] | None, chosen: Sequence[int], args: Sequence[Argument]
) -> list[int | None]:
    """The batch axis of each argument."""
    if in_axes is None or isinstance(in_axes, int):
        axes: list[int | None] = [
            None if i in chosen or isinstance(arg, Tree) else in_axes for i, arg in enumerate(args)
        ]
    else:
        axes = list(in_axes)
    wrong = [i for i in chosen if i < len(axes) and axes[i] is not None]
    if len(axes) != len(args) or wrong:
        shown = f"in_axes {in_axes!r} for {len(args)} positional arguments"
        raise ArgumentError(
            f"{what}: in_axes does not fit the arguments",
            given=shown + (f"; argument {wrong[0]} is differentiated, so all samples share it" if wrong else ""),
            expected="one entry for each positional argument, None for those that are differentiated",
            mend="per_sample_grad(loss_fn, in_axes=(None, 0, 0)) takes (model, images, targets)",
        )
    return axes


def _batch_size(what: str, args: Sequence[object], axes: Sequence[int | None]) -> int:
    count = SampleCount()
    for i, (arg, axis) in enumerate(zip(args, axes, strict=True)):

        def note(leaf: object, path: str, axis: int | None = axis) -> object:
            return count.note(leaf, axis, path) if isinstance(leaf, Tensor) else leaf

        mapped(arg, note, f"argument {i}")
    return count.common(what, "in_axes")


# -- samples ---------------------------------------------------------------------------------------------------
@final
class _Samples:
    """How tensors become one sample of them, and values of one sample tensors of all.

    base          where the samples are computed
    is_enclosing  whether that is an enclosing transform's tape
    of_leaves     whether leaves of the base's tape are differentiated: then nothing is recorded there
    count         how many samples there are
    """

    def __init__(self, base: Any, is_enclosing: bool, of_leaves: bool, count: int) -> None:
        self._base: Final = base
        self._count: Final = count
        self._is_device: Final = base.is_autodiff and not is_enclosing
        """Says whether the base is the tape of the arguments' device: results that do not hang on it lie under it."""
        self.is_constant: Final = self._is_device and of_leaves
        self.lost: Callable[[Tensor], Tensor] | None = None
        """How results are marked of which the device's tape has lost something, see `Lifted.losses`."""
        self.batched: Final = Batched(base)
        self.tape: Final = Autodiff.above(self.batched)

    def constant(self, x: Tensor) -> Tensor:
        """The value of x on the base."""
        base = self._base
        primitive = x.primitive if x.backend is base else base.lift(x.primitive, x.backend)
        return Tensor(base, base.unwrapped(primitive) if self.is_constant else primitive, x.spec)

    def one(self, axis: int, leaf: Argument, path: str) -> Any:
        """One sample of a tensor: its batch axis has size 1."""
        if not isinstance(leaf, Tensor):
            return leaf
        axis %= leaf.ndim
        value = self.constant(leaf)
        if axis:
            value = ops.permute(value, axes=(axis, *(i for i in range(leaf.ndim) if i != axis)))
        shape = tuple(1 if i == axis else size for i, size in enumerate(leaf.shape))
        value = ops.reshape(value, shape=(self._count, *shape))
        return Tensor(self.batched, self.batched.wrap(value.primitive), leaf.spec.with_shape(shape))

    def all_of(self, leaf: Argument, path: str) -> Any:
        """A tensor with the samples in front, for a tensor of one sample; modules, which samples share, as given."""
        if isinstance(leaf, Tree):
            return rebuild(leaf, self._share_param)
        return self._each(leaf) if isinstance(leaf, Tensor) else leaf

    def _each(self, x: Tensor) -> Tensor:
        primitive = self.tape.unwrapped(x.primitive) if x.backend is self.tape else x.primitive
        if self.batched.is_many(primitive):
            whole = Tensor(self._base, primitive.primitive, x.spec.with_shape((self._count, *x.shape)))
        else:
            if x.backend is not self.tape and x.backend is not self.batched:
                primitive = self.constant(x).primitive
            value = ops.reshape(Tensor(self._base, primitive, x.spec), shape=(1, *x.shape))
            whole = ops.expand(value, shape=(self._count, *x.shape))
        under = self.is_constant or (self._is_device and not self._base.is_tracked(whole.primitive))
        whole = whole.inner() if under else whole
        return whole if self.lost is None else self.lost(whole)

    def _share_param(self, leaf: object) -> object:
        if isinstance(leaf, Param) and leaf.is_initialized() and leaf.val().backend is self.tape:
            x = leaf.val()
            return leaf.with_value(Tensor(self._base, self.tape.unwrapped(x.primitive), x.spec))
        return leaf


def tell_of_loops(what: str, looped: Sequence[str]) -> None:
    """Warns of rows that were computed sample by sample."""
    if looped:
        warnings.warn(
            f"{what}: {', '.join(looped)} {'is' if len(looped) == 1 else 'are'} computed sample by sample, since the"
            " row has no rule for many samples; declare one with @row.batched, or a decomposition",
            PerSampleLoopWarning,
            stacklevel=user_level(),
        )
