"""Losses of sequences whose alignment with their targets is unknown: the sum over all alignments counts."""

from __future__ import annotations

import math

from burn_torch import ops
from burn_torch.core.dtype import DType
from burn_torch.core.errors import ShapeError
from burn_torch.nn._layer import InlineLayer, ParameterlessConfig, Rules, noting_layer
from burn_torch.nn.loss._reduction import Reduction, as_type, reduced
from burn_torch.ops.alignment import count_up, find_unalignable
from burn_torch.ops.moments import HALF
from burn_torch.tensor import Tensor, functional
from burn_torch.tensor._alignments import require_alignable
from burn_torch.tensor.activation import log_softmax

__all__ = ["CTCLoss", "CTCLossConfig", "RNNTLoss", "RNNTLossConfig"]


# -- connectionist temporal classification -----------------------------------------------------------------
class CTCLossConfig(ParameterlessConfig["CTCLoss"]):
    """A loss over alignments with blanks between labels.

    blank 0: the class that reads as nothing.  zero_infinity false: targets that no alignment reads cost infinity; true
    leaves such samples out of the sum, which hides them.
    """

    blank: int = 0
    zero_infinity: bool = False

    def __post_init__(self) -> None:
        Rules(self).at_least(0, "blank").stop()


class CTCLoss(InlineLayer):
    """-log of the probability that the steps, blanks and repetitions taken out, read as the targets.

    Steps behind an input length and targets behind a target length count for nothing.
    Shapes: log_probs (steps, batch, classes), targets (batch, labels), both lengths (batch,) -> (batch,), or (1,) with
    a reduction.
    Dtypes: log_probs any float, from log_softmax; the others any integer -> that of log_probs.
    Raises: BoundsError for lengths beyond the padded size and targets that are no class or the blank, where the data is
    on the host; elsewhere such a sample is NaN.
    Source: Graves et al. 2006, https://www.cs.toronto.edu/~graves/icml_2006.pdf.  PyTorch: torch.nn.CTCLoss.
    """

    blank: int
    zero_infinity: bool

    @noting_layer
    def forward(self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor) -> Tensor:
        """The loss of each sample."""
        losses = functional.ctc_loss(log_probs, targets, input_lengths, target_lengths, self.blank)
        return losses.mask_fill(losses.is_inf(), 0.0) if self.zero_infinity else losses

    def forward_with_reduction(
        self, log_probs: Tensor, targets: Tensor, input_lengths: Tensor, target_lengths: Tensor,
        reduction: Reduction = Reduction.Auto,
    ) -> Tensor:  # fmt: skip
        """The reduced loss; Mean and Auto divide each sample by its target length, of at least 1, first."""
        losses = self.forward(log_probs, targets, input_lengths, target_lengths)
        if reduction in (Reduction.Mean, Reduction.Auto):
            losses = losses / as_type(target_lengths, losses.dtype).clamp_min(1.0)
        return reduced(losses, reduction)


# -- transducers ---------------------------------------------------------------------------------------------
class RNNTLossConfig(ParameterlessConfig["RNNTLoss"]):
    """A loss of transducers.

    blank 0: the class that moves on to the next step of time.  logits true: the input is no logarithm of probabilities
    yet, and log_softmax is taken of it.
    """

    blank: int = 0
    logits: bool = True

    def __post_init__(self) -> None:
        Rules(self).at_least(0, "blank").stop()


class RNNTLoss(InlineLayer):
    """-log of the sum over all ways to emit the targets while time goes on.

        alpha[t, u] = log(exp(alpha[t - 1, u] + blank[t - 1, u]) + exp(alpha[t, u - 1] + label[t, u - 1])),
        loss = -(alpha[T - 1, U] + blank[T - 1, U])

    It is computed along diagonals t + u.
    Shapes: logits (batch, steps, labels + 1, classes), targets (batch, labels), both lengths (batch,) -> (batch,), or
    (1,) with a reduction.
    Dtypes: logits any float, half types compute in f32; the others any integer -> that of logits.
    Raises: BoundsError for lengths beyond the padded size or of no step, and targets that are no class or the blank,
    where the data is on the host; elsewhere such a sample is NaN.
    Source: Graves 2012, section 2, https://arxiv.org/abs/1211.3711.  PyTorch: torchaudio.transforms.RNNTLoss.
    """

    blank: int
    logits: bool

    @noting_layer
    def forward(self, logits: Tensor, targets: Tensor, logit_lengths: Tensor, target_lengths: Tensor) -> Tensor:
        """The loss of each sample."""
        self._check(logits, targets, logit_lengths, target_lengths)
        batch, steps, states, classes = logits.shape
        sizes = {"steps": steps, "classes": classes, "blank": self.blank, "least": 1}
        require_alignable("RNNTLoss", targets, logit_lengths, target_lengths, **sizes)
        scores = logits.float() if logits.dtype in HALF else logits
        scores = log_softmax(scores, 3) if self.logits else scores
        targets, times, ends = (as_type(x, DType.I64) for x in (targets, logit_lengths, target_lengths))
        times, ends = times.reshape(batch, 1), ends.reshape(batch, 1)
        fits, wrong = find_unalignable(targets, times, ends, **sizes)
        # by state and diagonal: a blank stays in its state, a label moves on by one
        blanks = _skew_by_state(scores.narrow(3, self.blank, 1).squeeze_dim(3))
        labels = targets.mask_fill(fits.bool_not(), self.blank).reshape(batch, 1, states - 1, 1)
        labels = scores.narrow(2, 0, states - 1).gather(3, labels.expand(batch, steps, states - 1, 1)).squeeze_dim(3)
        labels = _skew_by_state(labels.pad([(0, 0), (0, 0), (0, 1)], -math.inf))
        labels = labels.narrow(1, 0, states - 1).pad([(0, 0), (1, 0), (0, 0)], -math.inf)
        moves = Tensor.stack([blanks, labels], 1).permute((0, 3, 1, 2))  # (batch, diagonals, moves, states)
        start = scores.new_full((batch, states), 0.0)
        start = start.mask_fill(count_up(targets, states).greater(0).expand(batch, states), -math.inf)
        diagonals = moves.shape[1]
        alphas = ops.log_band_scan(start, moves.narrow(1, 0, diagonals - 1))
        at = (times + ends - 1).clamp(0, diagonals - 1) * states + ends.clamp(0, states - 1)
        total = (alphas + moves.narrow(2, 0, 1).squeeze_dim(2)).reshape(batch, diagonals * states).gather(1, at)
        total = total.mask_fill(total.equal(-math.inf), -math.inf).mask_fill(wrong, math.nan)
        return as_type(-total.squeeze_dim(1), logits.dtype)

    def forward_with_reduction(
        self, logits: Tensor, targets: Tensor, logit_lengths: Tensor, target_lengths: Tensor,
        reduction: Reduction = Reduction.Auto,
    ) -> Tensor:  # fmt: skip
        """The reduced loss."""
        return reduced(self.forward(logits, targets, logit_lengths, target_lengths), reduction)

    def _check(self, logits: Tensor, targets: Tensor, logit_lengths: Tensor, target_lengths: Tensor) -> None:
        batch = logits.shape[:1]
        lengths = (logit_lengths, target_lengths)
        fits = logits.ndim == 4 and logits.shape[1] > 0 and self.blank < logits.shape[3] and logits.dtype.is_float
        fits = fits and targets.shape == (*batch, logits.shape[2] - 1)
        if not fits or any(x.shape != batch for x in lengths) or not all(x.dtype.is_int for x in (targets, *lengths)):
            raise ShapeError(
                "RNNTLoss: scores, targets and lengths do not fit together",
                given=f"logits {logits.spec}, targets {targets.spec}, logit_lengths {logit_lengths.spec},"
                f" target_lengths {target_lengths.spec}, blank {self.blank}",
                expected="floats (batch, steps, labels + 1, classes) of one step or more with the blank among the"
                " classes; integers: targets (batch, labels), and both lengths (batch,)",
                mend="the joiner scores each step beside each number of labels read so far, none included",
            )


def _skew_by_state(x: Tensor) -> Tensor:
    """(batch, steps, states) by state and diagonal: y[:, u, t + u] = x[:, t, u], and -inf at the corners."""
    batch, steps, states = x.shape
    wide = x.swap_dims(1, 2).pad([(0, 0), (0, 0), (0, states)], -math.inf).reshape(batch, -1)
    return wide.narrow(1, 0, states * (steps + states - 1)).reshape(batch, states, steps + states - 1)
