"""Losses as functions of logits and log-probabilities."""

from __future__ import annotations

import math

from burn_torch import ops
from burn_torch.core.errors import ShapeError
from burn_torch.core.frames import told
from burn_torch.core.misfits import word_functions
from burn_torch.tensor._alignments import is_differentiated, require_alignable
from burn_torch.tensor._arguments import integer
from burn_torch.tensor.apply import apply, require_tensor
from burn_torch.tensor.tensor import Tensor

__all__ = ["cross_entropy_with_logits", "ctc_loss"]


def cross_entropy_with_logits(logits: Tensor, target_probs: Tensor) -> Tensor:
    """The mean over all items of -sum(target_probs * log_softmax(logits)) over the last axis.  Shapes: -> (1,)."""
    items: Tensor = apply(ops.cross_entropy_with_probabilities, (logits, target_probs))
    return items.mean()


def ctc_loss(
    log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor, blank: int = 0
) -> Tensor:
    """-log of the probability that each sample, blanks and repetitions taken out, reads as its targets.

    Steps and targets behind the lengths count for nothing.  Targets that no alignment reads cost infinity, without a
    gradient.  The gradient is exp(log_probs) minus the share of each class at each step, as in Burn and PyTorch: that
    of log_probs which log_softmax gives, where the first term adds up to nothing.

    Shapes: log_probs (steps, batch, classes), targets (batch, labels), both lengths (batch,) -> (batch,).
    Dtypes: log_probs any float, the others any integer -> that of log_probs; half types compute in f32.
    Raises: BoundsError for lengths beyond the padded size and for targets that are no class or the blank; on a GPU, and
        in compiled functions there, such a sample is NaN.
    PyTorch: torch.nn.functional.ctc_loss(reduction="none"), which takes targets in one row too.
    """
    require_tensor(log_probs, "log_probs")
    if log_probs.ndim != 3:
        raise told(
            ShapeError,
            "log_probs has no axes of steps, batch and classes",
            given=f"log_probs {log_probs.spec}",
            expected="(steps, batch, classes)",
            mend="insert the batch axis with log_probs.unsqueeze_dim(1)",
        )
    differentiated = is_differentiated(log_probs)
    x, blank = log_probs.swap_dims(0, 1), integer(blank, "blank")
    inputs = (x, targets, input_lengths, target_lengths)
    losses: Tensor = apply(ops.ctc_loss, inputs, blank, (True, differentiated))[0]
    require_alignable("ctc_loss", *inputs[1:], steps=x.shape[1], classes=x.shape[2], blank=blank)
    if differentiated:
        steps = Tensor.arange(x.shape[1], x.device.no_grad()).reshape(1, x.shape[1], 1)
        counts = steps.lower(input_lengths.cast(steps.dtype).reshape(-1, 1, 1))
        counts = counts.bool_and(losses.is_inf().bool_not().reshape(-1, 1, 1))
        mass = x.cast(losses.dtype).mask_fill(counts.bool_not(), -math.inf).exp().sum_dims_squeeze((1, 2))
        losses = losses + (mass - mass.detach())
    return losses if losses.dtype is x.dtype else losses.cast(x.dtype)


word_functions(globals(), "functional")
