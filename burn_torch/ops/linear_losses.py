"""Losses of a linear layer's outputs together with their gradients, so that nobody needs all outputs at once.

Programs put these rows in place of a product, a loss, its backward and two products more
(`fusion/rewrites/chunking.py`).
"""

from __future__ import annotations

from burn_torch.core.dtype import FLOAT
from burn_torch.core.spec import TensorSpec
from burn_torch.ops.bounds import require_indices
from burn_torch.ops.faults import shape_fault
from burn_torch.ops.losses import cross_entropy, cross_entropy_backward
from burn_torch.ops.moments import check_statistics, statistics_of, widened
from burn_torch.ops.op import op
from burn_torch.ops.products import matmul, transposed
from burn_torch.ops.rules import same_dtype
from burn_torch.ops.samples import integers, sample, uniform
from burn_torch.ops.value import Primitive


def _sample(rows: int, cols: int, classes: int, pads: tuple[int, ...] = ()) -> Primitive:
    x, w = uniform(-1, 1, (rows, cols)), uniform(-1, 1, (classes, cols))
    return sample(uniform(0.1, 1, (rows,)), x, w, integers(0, classes, (rows,)), pad_tokens=pads)


@op(cost="expensive", samples=[_sample(6, 3, 5), _sample(7, 4, 3, (1,))])
def linear_cross_entropy_with_gradients(
    g: TensorSpec, x: TensorSpec, weight: TensorSpec, targets: TensorSpec, *, pad_tokens: tuple[int, ...] = ()
) -> tuple[TensorSpec, TensorSpec, TensorSpec]:
    """Cross entropy of logits = x weight^T for each item, and the gradients of x and weight where g is that of it.

        d = g * (softmax(logits) - one_hot(targets))        dx = d weight        dweight = d^T x

    An item whose target is one of pad_tokens has loss 0 and no gradient.  g is known beforehand: 1/items of a mean.

    Shapes: g (items,), x (items, cols), weight (classes, cols), targets (items,) -> (items,), (items, cols),
    (classes, cols).
    Dtypes: x and weight one float type, and so is dx; g, losses and dweight float32 of half types, else the same.
    """
    same_dtype(x.require(FLOAT), weight)
    require_indices(targets)
    if x.ndim != 2 or weight.ndim != 2 or x.shape[1] != weight.shape[1] or targets.shape != x.shape[:1]:
        raise shape_fault(
            "items, weight and targets do not fit together",
            expected="x (items, cols), weight (classes, cols) and targets (items,)",
            mend="flatten all axes of x but the last into one",
        )
    check_statistics(x, targets.shape, g)
    return statistics_of(x, targets.shape), x, statistics_of(x, weight.shape)


@linear_cross_entropy_with_gradients.decomposes
def _(g, x, weight, targets, *, pad_tokens):
    logits = matmul(x, transposed(weight))
    losses = cross_entropy(logits, targets, None, None, pad_tokens=pad_tokens)
    dlogits = cross_entropy_backward(g, logits, targets, None, None, pad_tokens=pad_tokens)
    return losses, matmul(dlogits, weight), widened(matmul(transposed(dlogits), x))
